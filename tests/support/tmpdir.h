/*
 * Private folders for tests, short enough for a socket path.
 *
 * The runner makes one root for each program, /tmp/kvcached-test-BBBB-root-XXXXXX,
 * where BBBB stands for the build folder, and removes it with all that is in it
 * when the program has ended, however it ended; if the runner itself was killed,
 * the next one does. Everything a test creates in a
 * global name space (/dev/shm, abstract sockets, memfd) has a name that begins
 * with kt_name_prefix(): the last test looks for those.
 * Not thread-safe; folders belong to the process that made them.
 */
#ifndef KVCACHED_TESTS_SUPPORT_TMPDIR_H
#define KVCACHED_TESTS_SUPPORT_TMPDIR_H

/* "kvcached-test-BBBB-". The string lives for ever. */
const char *kt_name_prefix(void);

/* A new empty folder with mode 0700. The caller gives it to kt_tmpdir_free(). Never NULL. */
char *kt_tmpdir_new(void);

/* Removes the folder with all that is in it. NULL is allowed. */
void kt_tmpdir_free(char *path);

/* Removes a folder with all that is in it; it need not exist. */
void kt_remove_tree(const char *path);

/* For the runner only; kt_tmproot_leave() is for its child, which must not keep the lock. */
void kt_tmproot_make(void);
void kt_tmproot_leave(void);
void kt_tmproot_remove(void);

#endif
