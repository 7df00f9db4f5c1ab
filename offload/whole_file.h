/*
 * Small files that are there whole or not at all: written beside as NAME.tmp, synced, renamed over
 * NAME, the folder synced. And the head that the store's files begin with. Blocks on the disk; any
 * thread, one a name at a time.
 */
#ifndef KV_OFFLOAD_WHOLE_FILE_H
#define KV_OFFLOAD_WHOLE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "offload/store_format.h"

#define WHOLE_FILE_TEMP ".tmp"
#define WHOLE_FILE_ASIDE ".damaged"

/* 0 or -errno; *is_there says whether the new content has taken the place of the old one, which it
 * may have although the folder could not be synced. */
int whole_file_write(int dir_fd, const char *name, const void *bytes, size_t n_bytes,
		     bool *is_there);

/* All of a regular file of at most n_max bytes (heap, *bytes). 0 or -errno: -EFBIG, -ELOOP a
 * symbolic link, -EINVAL something else that is no file. */
int whole_file_read(int dir_fd, const char *name, size_t n_max, void **bytes, size_t *n_bytes);

/* Does this result of whole_file_read() say that it is the file that cannot be read, rather than
 * that we lack something? */
bool whole_file_is_damaged(int rc);

/* Renames NAME to NAME.damaged and syncs the folder. 0 or -errno. */
int whole_file_set_aside(int dir_fd, const char *name);

/* Unlinks NAME and syncs the folder. 0 or -errno; *is_gone as above. */
int whole_file_remove(int dir_fd, const char *name, bool *is_gone);

/* The files of a folder whose descriptor stays the caller's. Closed by closedir(). NULL with errno. */
DIR *whole_file_list(int dir_fd);

/* Does a name end like this? */
bool whole_file_ends(const char *name, const char *end);

/* Unlinks every NAME.tmp of a folder. 0 or -errno. */
int whole_file_sweep(int dir_fd);

/* Every byte goes there, or it is an error. 0 or -errno. */
int whole_file_pwrite(int fd, const void *bytes, size_t n_bytes, uint64_t off);

/* As many bytes as there are; the number, or -errno. */
ssize_t whole_file_pread(int fd, void *bytes, size_t n_bytes, uint64_t off);

/* Fills the head of the bytes that follow. */
void store_head_seal(struct store_head *head, uint64_t magic, const void *body, size_t n_bytes);
/* Only its checksum, of what it says. */
void store_head_reseal(struct store_head *head, const void *body);

/*
 * Checks a head and what follows it; a file may be longer than they are. 0, or -1 with err:
 * KV_ECORRUPT with the reason, KV_EVERSION if it is whole and of another version.
 */
int store_head_check(const void *bytes, size_t n_bytes, uint64_t magic, struct errbuf *err);

#endif
