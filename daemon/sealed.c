#include "daemon/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int sealed_make(const char *name, uint64_t n_bytes, const char *what, int status,
		struct errbuf *err)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return errbuf_errno(err, status, errno,
				    "memfd_create refused %s (is it blocked by a sandbox?)", what);
	if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)n_bytes) == 0 &&
	    fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	errbuf_errno(err, status, errno, "cannot size and seal %s of %llu bytes", what,
		     (unsigned long long)n_bytes);
	close(fd);
	return -1;
}

static bool has_seals(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS; /* the system may have added others */
}

int sealed_check(int fd, uint64_t n_bytes, const char *what, struct errbuf *err)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == n_bytes &&
	    has_seals(fd))
		return 0;
	return errbuf_set(err, KV_ECORRUPT,
			  "%s that was kept is no sealed memory of %llu bytes any more", what,
			  (unsigned long long)n_bytes);
}
