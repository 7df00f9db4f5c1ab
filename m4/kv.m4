# Macros of this project.
#
# KV_CHECK_FLAGS(VARIABLE, FLAGS)
#	Appends to VARIABLE each of FLAGS that the C compiler takes. Each is
#	tried alone, with -Werror, because clang only warns about flags it does
#	not know.

AC_DEFUN([KV_CHECK_FLAGS], [
	m4_foreach_w([kv_flag], [$2], [
		AS_VAR_PUSHDEF([kv_cache], [kv_cv_flag_[]kv_flag])
		AC_CACHE_CHECK([whether $CC takes kv_flag], [kv_cache], [
			kv_saved_CFLAGS=$CFLAGS
			CFLAGS="$CFLAGS -Werror kv_flag"
			AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
				[AS_VAR_SET([kv_cache], [yes])],
				[AS_VAR_SET([kv_cache], [no])])
			CFLAGS=$kv_saved_CFLAGS
		])
		AS_VAR_IF([kv_cache], [yes], [AS_VAR_APPEND([$1], [" kv_flag"])])
		AS_VAR_POPDEF([kv_cache])
	])
])
