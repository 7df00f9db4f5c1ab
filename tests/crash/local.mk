# Tests in which something dies.
