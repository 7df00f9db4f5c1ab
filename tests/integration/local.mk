# Tests with a running daemon.
