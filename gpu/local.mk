# Nothing is built here yet. Device pools will be: one table of operations, and the
# CUDA driver loaded at run time. Until then layouts are stored in the host pool.
