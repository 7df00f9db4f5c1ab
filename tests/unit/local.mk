# Tests of one module, without a daemon.
