/* Opening files for direct I/O, and what they want of transfers; see io.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "offload/io_engine.h"

#define ALIGN_MAX 4096u /* a file that wants more is buffered */
#define TMPFS 0x01021994
#define RAMFS 0x858458f6

/* statx() of the kernel; the C library of Debian 12 has neither the mask nor the fields. */
#define DIOALIGN_MASK 0x2000u
struct kernel_statx {
	uint32_t mask;
	uint8_t other[0x94];
	uint32_t dio_mem_align, dio_off_align;
	uint8_t more[0x60];
};
_Static_assert(sizeof(struct kernel_statx) == 256, "as the kernel fills it");

/* 0: direct I/O is not supported; -1: the kernel does not say. */
static int64_t learn_align(int fd)
{
	struct kernel_statx st;

	memset(&st, 0, sizeof(st));
	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, DIOALIGN_MASK, &st) != 0 ||
	    !(st.mask & DIOALIGN_MASK))
		return -1;
	if (st.dio_mem_align == 0 || st.dio_off_align == 0)
		return 0;
	return st.dio_mem_align > st.dio_off_align ? st.dio_mem_align : st.dio_off_align;
}

uint32_t io_file_align(int fd)
{
	const int flags = fcntl(fd, F_GETFL);
	int64_t align;

	if (flags < 0 || !(flags & O_DIRECT))
		return 1;
	align = learn_align(fd);
	return align > 0 ? (uint32_t)align : ALIGN_MAX;
}

/* Some file systems take the flag and refuse the transfers. */
static bool can_read_direct(int fd)
{
	void *page = aligned_alloc(ALIGN_MAX, ALIGN_MAX);
	bool can = page && (pread(fd, page, ALIGN_MAX, 0) >= 0 || errno != EINVAL);

	free(page);
	return can;
}

static bool lives_in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS || fs.f_type == RAMFS);
}

/* The flag is set behind open(): an open() that creates and is refused leaves the file there. */
static uint32_t make_direct(int fd)
{
	const int flags = fcntl(fd, F_GETFL);
	int64_t align = learn_align(fd);

	if (flags < 0 || align == 0 || align > ALIGN_MAX || (align < 0 && lives_in_memory(fd)) ||
	    fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
		return 1;
	if (align > 0)
		return (uint32_t)align;
	if (can_read_direct(fd))
		return ALIGN_MAX;
	fcntl(fd, F_SETFL, flags);
	return 1;
}

static int status_of(int error)
{
	switch (error) {
	case ENOENT: return KV_ENOTFOUND;
	case EEXIST: return KV_EEXIST;
	case EACCES:
	case EPERM:
	case EROFS: return KV_EPERM;
	default: return KV_EIO;
	}
}

int io_open_file(const char *path, int flags, unsigned mode, uint32_t *align, struct errbuf *err)
{
	const int fd = open(path, flags | O_CLOEXEC, mode);

	if (fd < 0)
		return errbuf_errno(err, status_of(errno), errno, "%s cannot be opened", path);
	*align = make_direct(fd);
	return fd;
}
