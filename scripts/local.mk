# What a person or a machine runs from the source folder, and the checks that
# are no tests of behaviour.

dist_noinst_SCRIPTS += \
	scripts/bootstrap \
	scripts/build \
	scripts/check \
	scripts/check-headers \
	scripts/check-man \
	scripts/check-symbols \
	scripts/coverage \
	scripts/demo \
	scripts/deps \
	scripts/newcomer \
	scripts/tap-summary \
	scripts/test

# Each public header alone, as C and as C++.
check-headers:
	$(AM_V_at)CC='$(CC)' CXX='$(CXX)' $(srcdir)/scripts/check-headers \
		$(addprefix $(srcdir)/,$(include_HEADERS))

# The library exports what its map file names, and nothing else.
check-symbols: all
	$(AM_V_at)NM='$(NM)' $(srcdir)/scripts/check-symbols \
		.libs/libkvcache.so $(srcdir)/client/libkvcache.map

# Man pages are well formed and their C examples compile.
check-man:
	$(AM_V_at)CC='$(CC)' $(srcdir)/scripts/check-man $(srcdir)/client \
		$(addprefix $(srcdir)/,README.md CONTRIBUTING.md $(man_MANS))

if ENABLE_COVERAGE
coverage: check
	$(AM_V_at)$(srcdir)/scripts/coverage $(abs_top_srcdir)
else
coverage:
	@echo 'make coverage needs configure --enable-coverage' >&2; exit 1
endif

.PHONY: check-headers check-symbols check-man coverage
