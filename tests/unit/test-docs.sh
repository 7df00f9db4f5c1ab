#!/bin/sh
# The man pages agree with the contract: messages, limits, statuses, functions. Each list is made
# from the source and from the page, and both must be the same. Speaks TAP.
set -u
work=$(mktemp -d /tmp/kvcached-test-docs-XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
number=0
top=${top_srcdir:-.}
protocol=$top/man/kvcache-protocol.7
library=$top/man/libkvcache.3

same() { # SENTENCE: $work/source and $work/page hold the same lines, and some
	number=$((number + 1))
	sort "$work/source" >"$work/source.sorted"
	sort "$work/page" >"$work/page.sorted"
	if [ -s "$work/source" ] && diff "$work/source.sorted" "$work/page.sorted" >"$work/log"; then
		echo "ok $number - $1"
	else
		sed 's/^</# only in the source:/;s/^>/# only in the page:/' "$work/log"
		echo "not ok $number - $1"
	fi
}

# "Message number field type" of each field of a .proto file; a star for repeated ones.
proto_fields() {
	sed 's|//.*||;s/[{}]/ & /g;s/;/ ; /g' "$1" | awk '
		{ for (i = 1; i <= NF; i++) word[++n] = $i }
		END {
			for (i = 1; i <= n; i++) {
				if (word[i] == "message") { message = word[i + 1]; i++ }
				if (word[i] == "=" && message != "") {
					star = word[i - 3] == "repeated" ? "*" : ""
					print message, word[i + 1], word[i - 1], word[i - 2] star
				}
			}
		}'
}
# The same out of the tables of a page.
page_fields() {
	awk '
		/^\.Vt / { candidate = $2 }
		/^\.Bd -literal/ { if (before ~ /^\.Vt /) message = candidate }
		/^\.Ed/ { message = "" }
		message != "" && $1 ~ /^[0-9]+$/ { print message, $1, $2, $3 }
		{ before = $0 }' "$1"
}
proto_fields "$top/proto/kvcache.proto" >"$work/source"
page_fields "$protocol" >"$work/page"
same "kvcache-protocol(7) has each message with its fields, numbers and types"

proto_fields "$top/proto/saved.proto" >"$work/source"
page_fields "$top/man/kvcache-store.5" >"$work/page"
same "kvcache-store(5) has each message with its fields, numbers and types"

sed -n 's|/\*.*||;s/\([0-9]\)u/\1/g;s/^#define \(KV_[A-Z_]*\) /\1 /p' "$top/proto/limits.h" |
	while read -r name value; do
		echo "$name $(($value))"
	done >"$work/source"
awk '/^\.It Dv KV_/ { gsub(/,/, "", $5); print $3, $5 }' "$protocol" >"$work/page"
same "kvcache-protocol(7) has each limit with its value"

sed -n 's/^[[:space:]]X(\([A-Z]*\), \([0-9]*\),.*/\1 \2/p' "$top/proto/status.h" >"$work/source"
awk '/^\.It Er / { print $3, $5 }' "$protocol" >"$work/page"
same "kvcache-protocol(7) has each status with its number"

awk '/^\.It Dv KVC_/ { sub(/^KVC_/, "", $3); print $3, $5 }' "$library" >"$work/page"
same "libkvcache(3) has each status with its number"

# Words of the declarations, so that types and names of arguments are compared too.
sed 's|/\*.*\*/||' "$top/client/kvcache.h" | tr '\n\t' '  ' | tr ';' '\n' |
	sed -n '/#/d;s/.*KVC_PUBLIC //p' | sed 's/  */ /g;s/^ //' | tr -d ' ' >"$work/source"
awk '
	/^\.Ft / { sub(/^\.Ft /, ""); gsub(/"/, ""); type = $0 }
	/^\.Fo / { name = $2; args = "" }
	/^\.Fa / && name != "" {
		sub(/^\.Fa /, ""); gsub(/"/, "")
		args = args (args == "" ? "" : ",") $0
	}
	/^\.Fc/ { line = type name "(" args ")"; gsub(/ /, "", line); print line; name = "" }
' "$library" >"$work/page"
same "libkvcache(3) has each function as the header declares it"

sed 's/(.*//;s/.*kvc_/kvc_/' "$work/source" >"$work/names"
mv "$work/names" "$work/source"
awk '/^\.Fn kvc_/ { print $2 }' "$library" | sort -u >"$work/page"
same "libkvcache(3) says what each function does"

# ---- the completion, as bash runs it ----

completes() { # EXPECTED WORD...: what is offered for the last word
	expected=$1
	shift
	number=$((number + 1))
	if ! command -v bash >/dev/null; then
		echo "ok $number - completion of \"$*\" # SKIP no bash here"
		return
	fi
	got=$(cd "$top" && bash -c '
		. "$0"
		COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
		_kvcachectl
		echo "${COMPREPLY[*]}"' client/ctl/completion/kvcachectl "$@")
	if [ "$got" = "$expected" ]; then
		echo "ok $number - completion of \"$*\""
	else
		echo "# offered: $got"
		echo "not ok $number - completion of \"$*\""
	fi
}
completes "status show snapshot size save saved store session" kvcachectl s
completes "ls end" kvcachectl session ""
completes "check repair stats" kvcachectl store ""
completes "--tokens" kvcachectl load --to
completes "--keep" kvcachectl --runtime-dir / rollback --k
completes "--all" kvcachectl --json verify --a
completes "man/libkvcache.3" kvcachectl demo --prompt "man/libkvcache"
completes "" kvcachectl status --deadline ""

echo "1..$number"
