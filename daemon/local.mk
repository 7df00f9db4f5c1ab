# The daemon: libkvdaemon.la holds all of it but main.c, so that tests link what ships.
