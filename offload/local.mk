# The disk store and its I/O engines.
