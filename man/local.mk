# Man pages, in mdoc.

# Each is also in EXTRA_DIST.
man_MANS += man/kvcached.8 man/kvcached.conf.5
EXTRA_DIST += man/kvcached.8 man/kvcached.conf.5
