# Fuzz targets; their seeds also run as ordinary tests.
