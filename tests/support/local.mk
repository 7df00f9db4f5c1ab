# libkvtest.la: the runner, temporary folders, waiting with a deadline.
