#include "client/own_page.h"

#include <errno.h>
#include <sys/mman.h>

#include "client/error.h"
#include "proto/shm.h"

_Atomic uint32_t *own_page_new(void)
{
	void *page = mmap(NULL, KV_SHM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	_Atomic uint32_t *own = page;

	if (page == MAP_FAILED) {
		kvc_fail(KV_ENOMEM, "no memory for a page");
		return NULL;
	}
	if (madvise(page, KV_SHM_PAGE, MADV_WIPEONFORK) < 0) {
		errbuf_errno(kvc_err(), KV_EUNSUPPORTED, errno,
			     "MADV_WIPEONFORK, which Linux has since 4.14");
		munmap(page, KV_SHM_PAGE);
		return NULL;
	}
	atomic_store(own, 1);
	return own;
}

void own_page_free(_Atomic uint32_t *own)
{
	if (own)
		munmap(own, KV_SHM_PAGE);
}
