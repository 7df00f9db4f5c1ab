# Man pages, in mdoc.

# Each is also in EXTRA_DIST.
man_MANS += man/kvcached.8 man/kvcached.conf.5
EXTRA_DIST += man/kvcached.8 man/kvcached.conf.5

man_MANS += \
	man/kvcache-formats.7 \
	man/kvcache-policies.7 \
	man/kvcache-protocol.7 \
	man/kvcache-security.7 \
	man/kvcache-shm.7 \
	man/kvcache-store.5 \
	man/kvcachectl.1 \
	man/libkvcache.3
EXTRA_DIST += $(man_MANS)
