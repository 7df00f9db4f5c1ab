# libkvpolicy.la: which slots new tokens take. Plain memory in, plain memory out: no sequence, no
# daemon. Scores are sums of other programs bit for bit, so nothing is fused.
noinst_LTLIBRARIES += libkvpolicy.la
libkvpolicy_la_CFLAGS = $(compute_cflags)
libkvpolicy_la_SOURCES = \
	client/policy/decision.c \
	client/policy/list.c \
	client/policy/norm.c \
	client/policy/order.c \
	client/policy/policy.h \
	client/policy/rings.c \
	client/policy/scoring.c \
	client/policy/scoring.h \
	client/policy/smart.c
