# The switches of configure: each macro adds one.

# --enable-werror
AC_DEFUN([KV_ARG_WERROR], [
	AC_ARG_ENABLE([werror],
		[AS_HELP_STRING([--enable-werror], [warnings in our own code are errors])],
		[], [enable_werror=no])
	AS_IF([test "$enable_werror" = yes], [AS_VAR_APPEND([KV_WARN_CFLAGS], [" -Werror"])])
])

# --enable-fuzzer, --enable-sanitizers: for the whole build, so that the library
# that a test links is the one that is watched.
AC_DEFUN([KV_ARG_SANITIZERS], [
	AC_ARG_ENABLE([sanitizers],
		[AS_HELP_STRING([--enable-sanitizers=LIST],
			[build all with -fsanitize=LIST: address,undefined or thread])],
		[], [enable_sanitizers=no])
	AC_ARG_ENABLE([fuzzer],
		[AS_HELP_STRING([--enable-fuzzer],
			[build the fuzz targets with libFuzzer (clang; implies the sanitizers)])],
		[], [enable_fuzzer=no])
	AS_CASE([$enable_sanitizers],
		[yes], [enable_sanitizers=address,undefined],
		[no], [AS_IF([test "$enable_fuzzer" = yes], [enable_sanitizers=address,undefined])])
	kv_fsanitize=
	AS_IF([test "$enable_sanitizers" != no], [kv_fsanitize="-fsanitize=$enable_sanitizers"])
	AS_CASE([,$enable_sanitizers,],
		[*,undefined,*], [AS_VAR_APPEND([kv_fsanitize], [" -fno-sanitize-recover=undefined"])])
	AS_IF([test -n "$kv_fsanitize"], [
		KV_TRY_LINK_FLAGS([$kv_fsanitize],
			[AC_MSG_ERROR([$CC cannot build with $kv_fsanitize])])
		# Instrumented code confuses the analysis behind this warning.
		AS_VAR_APPEND([KV_WARN_CFLAGS], [" -Wno-null-dereference"])
		AS_VAR_APPEND([KV_CFLAGS], [" -fno-omit-frame-pointer $kv_fsanitize"])
		AS_VAR_APPEND([KV_LDFLAGS], [" $kv_fsanitize"])
	])
	# How much longer the deadlines of tests are.
	AS_CASE([,$enable_sanitizers,],
		[*,thread,*], [KV_TIME_SCALE=10],
		[,no,], [KV_TIME_SCALE=1],
		[KV_TIME_SCALE=5])
	AC_SUBST([KV_TIME_SCALE])
	KV_FUZZ_LDFLAGS=
	AS_IF([test "$enable_fuzzer" = yes], [
		KV_TRY_LINK_FLAGS([-fsanitize=fuzzer-no-link],
			[AC_MSG_ERROR([$CC has no libFuzzer: configure with CC=clang])])
		AS_VAR_APPEND([KV_CFLAGS], [" -fsanitize=fuzzer-no-link"])
		KV_FUZZ_LDFLAGS=-fsanitize=fuzzer
	])
	AC_SUBST([KV_FUZZ_LDFLAGS])
	AM_CONDITIONAL([ENABLE_FUZZER], [test "$enable_fuzzer" = yes])
])

# KV_TRY_LINK_FLAGS(FLAGS, IF-NOT)
AC_DEFUN([KV_TRY_LINK_FLAGS], [
	kv_saved_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS $1"
	AC_MSG_CHECKING([whether $CC links with $1])
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [kv_links=yes], [kv_links=no])
	AC_MSG_RESULT([$kv_links])
	CFLAGS=$kv_saved_CFLAGS
	AS_IF([test "$kv_links" = no], [$2])
])

# --enable-coverage
AC_DEFUN([KV_ARG_COVERAGE], [
	AC_ARG_ENABLE([coverage],
		[AS_HELP_STRING([--enable-coverage], [count executed lines, for make coverage])],
		[], [enable_coverage=no])
	AS_IF([test "$enable_coverage" = yes], [
		AS_VAR_APPEND([KV_CFLAGS], [" --coverage -fprofile-update=atomic"])
		AS_VAR_APPEND([KV_LDFLAGS], [" --coverage"])
	])
	AM_CONDITIONAL([ENABLE_COVERAGE], [test "$enable_coverage" = yes])
])

# --enable-fault-injection: hooks in which a test makes the process die or a
# call fail. Never in what is installed.
AC_DEFUN([KV_ARG_FAULT_INJECTION], [
	AC_ARG_ENABLE([fault-injection],
		[AS_HELP_STRING([--enable-fault-injection], [hooks for tests that make things fail])],
		[], [enable_fault_injection=no])
	AS_IF([test "$enable_fault_injection" = yes], [
		AC_DEFINE([KV_FAULT_INJECTION], [1], [tests can make this build fail at marked places])
	])
	AM_CONDITIONAL([FAULT_INJECTION], [test "$enable_fault_injection" = yes])
])

# --with-cuda=guess|DIR|no: says whether the CUDA toolkit is there. No part of
# this version uses it.
AC_DEFUN([KV_ARG_CUDA], [
	AC_ARG_WITH([cuda],
		[AS_HELP_STRING([--with-cuda=guess|DIR|no],
			[look for the CUDA toolkit (default: guess; this version only reports it)])],
		[], [with_cuda=guess])
	kv_cuda_dirs=$with_cuda
	AS_CASE([$with_cuda],
		[no], [kv_cuda_dirs=],
		[guess|yes], [kv_cuda_dirs="${CUDA_HOME:-/usr/local/cuda} /usr/local/cuda /usr"])
	kv_cuda=no
	AC_MSG_CHECKING([for cuda.h and nvcc])
	for kv_dir in $kv_cuda_dirs; do
		AS_IF([test "$kv_cuda" = no && test -r "$kv_dir/include/cuda.h" && test -x "$kv_dir/bin/nvcc"],
			[kv_cuda=$kv_dir])
	done
	AC_MSG_RESULT([$kv_cuda])
	AS_CASE([$with_cuda:$kv_cuda],
		[guess:*|no:*], [],
		[*:no], [AC_MSG_ERROR([no cuda.h and nvcc in $with_cuda])])
	AS_IF([test "$kv_cuda" = no], [kv_cuda_says="not found; not used by this version"],
		[kv_cuda_says="found in $kv_cuda; not used by this version"])
])

# --with-systemdsystemunitdir=DIR|no
AC_DEFUN([KV_ARG_SYSTEMD_UNITS], [
	AC_ARG_WITH([systemdsystemunitdir],
		[AS_HELP_STRING([--with-systemdsystemunitdir=DIR|no],
			[where the unit goes (default: PREFIX/lib/systemd/system)])],
		[], [with_systemdsystemunitdir=yes])
	AS_IF([test "$with_systemdsystemunitdir" = yes],
		[with_systemdsystemunitdir='${prefix}/lib/systemd/system'])
	AC_SUBST([systemdsystemunitdir], [$with_systemdsystemunitdir])
	AM_CONDITIONAL([INSTALL_UNITS], [test "$with_systemdsystemunitdir" != no])
])
