#!/bin/sh
# kvcachectl with a running daemon: the demonstration succeeds, fails when a bit is flipped, and
# leaves nothing behind; then each command on what it can leave there. Speaks TAP.
set -u
work=$(mktemp -d /tmp/kvcached-test-ctl-XXXXXX)
daemon=
number=0
ctl=$top_builddir/kvcachectl
KVC_MODEL_DIR=$top_srcdir/client/examples/model
export KVC_MODEL_DIR
TMPDIR=$work
export TMPDIR
unset KVCACHED_RUNTIME_DIR
export LC_ALL=C

finish() {
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

verdict() { # RC SENTENCE: what was printed is shown if it failed
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number - $2"
	else
		sed 's/^/# /' "$work/out" "$work/err"
		echo "not ok $number - $2"
	fi
}

run() { # CODE COMMAND...: true if kvcachectl exits with this code
	code=$1
	shift
	"$ctl" "$@" >"$work/out" 2>"$work/err"
	rc=$?
	[ "$rc" = "$code" ] || echo "exit code $rc, not $code" >>"$work/err"
	[ "$rc" = "$code" ]
}

has() { # TEXT: the output has it
	grep -qF -- "$1" "$work/out" || { echo "no: $1" >>"$work/err"; false; }
}

field() { # NAME [N]: the first, or nth, number that the JSON output has under this name
	sed -n 's/.*"'"$1"'": \([0-9.]*\).*/\1/p' "$work/out" | sed -n "${2:-1}p"
}

lines() { # N TEXT: so many lines of the output have it
	[ "$(grep -cF -- "$2" "$work/out")" = "$1" ] || { echo "not $1 times: $2" >>"$work/err"; false; }
}

holds() { # EXPRESSION: true for awk
	awk "BEGIN { exit !($1) }" || { echo "does not hold: $1" >>"$work/err"; false; }
}

no_leftovers() { ! ls -d "$work"/kvcache-demo-* >"$work/err" 2>/dev/null; }

run 0 demo --tokens 40 && has "equal   logits" && has "equal   K and V" &&
	has "equal   the daemon" && has "demo/sample-4" && has "rolled back 5" &&
	has "bytes copied: 0 B" && has "demo/int8/sample-4" && has "equal   rolled back and" &&
	has "OF RAW" && has "26.6 %" && has "equal   ids and logits with drafts, raw: 40 rows" &&
	has "equal   ids and logits with drafts, int8, replay journal: 40 rows" &&
	has "lastrec, 384 slots" && has "h2o, 384 slots" &&
	has "equal   digest, saved and loaded" && has "refused one bit flipped on the disk" &&
	! grep '.\{81\}' "$work/out" >>"$work/err"
verdict $? "five processes on one prompt compute what processes alone compute, bit for bit"

run 0 demo --tokens 24 --json && has '"good": true' && has '"n_rolled_back": 5' &&
	[ "$(field n_prompt_tokens)" -ge 1500 ] && [ "$(field block_tokens)" -gt 0 ] &&
	[ "$(field copy_limit_bytes)" -gt 0 ] &&
	[ "$(grep '"n_copied_bytes"' "$work/out" | sed -n '1s/[^0-9]//gp')" -le \
		"$(field copy_limit_bytes)" ]
verdict $? "of the prompt at most the partly filled last block is copied, once a fork"

has '"replay_equal": true' && ! has '"replay_equal": false' &&
	has '"n_replayed": 5' && [ "$(field copied_bytes)" = 0 ] && [ "$(field n_known_blocks)" = 25 ] &&
	[ "$(field journals_bytes)" -gt 0 ] && [ "$(grep -c '"bits_per_byte_replay"' "$work/out")" = 7 ]
verdict $? "over a quantised prompt journals are rolled back and replayed, and nothing is copied"

drafts() { # N: of the nth cache some were kept, not all, and there are rates
	holds "0 < $(field n_accepted_tokens "$1")" && holds "0 < $(field plain_tokens_s "$1")" &&
		holds "$(field n_accepted_tokens "$1") < $(field n_draft_tokens "$1")" &&
		holds "0 < $(field drafted_tokens_s "$1")"
}
lines 2 '"drafted_ids_equal": true' && lines 2 '"drafted_logits_equal": true' && drafts 1 &&
	drafts 2
verdict $? "drafts of a small model change no token and no logit, on raw bytes and in a journal"

# Numbers of "all", lastrec and h2o are the last three of their name.
last_three() { # NAME: sets all, lastrec, h2o
	set -- "$1" "$(grep -c "\"$1\": [0-9]" "$work/out")"
	all=$(field "$1" $(($2 - 2))) lastrec=$(field "$1" $(($2 - 1))) h2o=$(field "$1" "$2")
}
last_three n_slots && holds "$all == 1623" && holds "$lastrec == 384 && $h2o == 384" &&
	last_three cache_bytes && holds "$all == 26 * 64 * 4096" &&
	holds "6 * 64 * 4096 <= $lastrec && $lastrec <= $all / 4" &&
	holds "$lastrec <= $h2o && $h2o <= $all / 4"
verdict $? "lastrec and h2o hold a quarter of the bytes that all tokens take, planes included"

last_three bits_per_byte && holds "1.4 < $all && $all < 1.8" &&
	holds "-0.01 < $lastrec - $all && $lastrec - $all < 0.03" &&
	holds "-0.01 < $h2o - $all && $h2o - $all < 0.03" && holds "$lastrec != $h2o" &&
	holds "$lastrec != $all && $h2o != $all"
verdict $? "with a quarter of the slots the text costs nearly the bits that it costs with all"

has '"digests_equal": true' && has '"loaded_logits_equal": true' && has '"loaded_kv_equal": true' &&
	[ "$(field n_loaded_logit_rows)" = 96 ] && holds "$(field disk_bytes) == 25 * 64 * 4096" &&
	holds "0 < $(field first_token_loaded_s)" && has '"save_refused": false'
verdict $? "saved, stopped and loaded by a new daemon, the prompt gives the same logits, bit for bit"

has '"damage_refused": true' && has "block 12 of group 0, from token 768 on, is damaged"
verdict $? "a bit that is flipped on the disk is refused, and its block named"

run 4 demo --tokens 24 --flip-bit 1590 --json && has '"good": false' &&
	has '"save_refused": true' && has '"loaded_logits_equal": false' &&
	has '"logits_equal": false' && has '"kv_equal": false' && [ "$(field n_bad_blocks)" = 1 ] &&
	[ "$(field first_bad_token)" -le 1590 ] &&
	[ "$(($(field first_bad_token) + $(field block_tokens)))" -gt 1590 ]
verdict $? "a flipped bit near the end is seen in the logits, in K and V, and named by verify"

run 4 demo --tokens 24 --flip-bit 70 --json && has '"kv_equal": false' &&
	[ "$(field n_bad_blocks)" = 1 ] && [ "$(field first_bad_token)" -le 70 ] &&
	[ "$(($(field first_bad_token) + $(field block_tokens)))" -gt 70 ]
verdict $? "a flipped bit far back is seen in K and V, and named by verify"

run 1 demo --model "$work/nothing"
verdict $? "a model that is not there is told, and the demonstration ends"

no_leftovers
verdict $? "the demonstration leaves nothing behind"

# A daemon that goes on; its objects are those of a demonstration that leaves them there.
mkfifo "$work/ready"
"$top_builddir/kvcached" --runtime-dir="$work/run" --pool-bytes=128M --ready-fd=3 \
	3>"$work/ready" >"$work/log" 2>&1 &
daemon=$!
read -r line <"$work/ready" || :
KVCACHED_RUNTIME_DIR=$work/run
export KVCACHED_RUNTIME_DIR

run 0 status && has "Host pool   128 MiB" && has "0 sequences, 0 snapshots"
verdict $? "status shows the pool of the daemon"

run 0 demo --tokens 24 --keep --runtime-dir "$work/run" && has "Kept:" &&
	has "Left out: a daemon that others may use" && run 0 ls --names
prefix=$(sed -n 's|/prompt$||p' "$work/out" | grep -v int8)
[ -n "$prefix" ] && [ "$(wc -l <"$work/out")" = 10 ] && has "$prefix/sample-4" &&
	has "$prefix/int8/sample-4"
verdict $? "ls names the prompts and the four forks of each that were kept"

run 0 ls && has "parked" && has "snapshot" && run 0 ls "$prefix/s" && ! has "$prefix/prompt"
verdict $? "ls lists them with their states, or those with a prefix"

run 0 show "$prefix/prompt" && has "1,599" && has "f32, K raw, V raw" && has "0-3: 2 heads, K 64"
verdict $? "show tells length and layout"

run 0 tree && has "$prefix/prompt" && has "$prefix/sample-1"
verdict $? "tree draws the forks below their prompt"

run 0 snapshot "$prefix/sample-1" a.1 "$prefix/sample-2" a.2 && has "a.2: snapshot @" &&
	run 1 snapshot "$prefix/sample-1" a.1 && run 0 snapshot "$prefix/sample-1" a.1 --replace
verdict $? "snapshots are taken together, and replaced only when told to"

run 0 fork a.1 f.1 && has "f.1: sequence @" && run 0 rollback f.1 --keep 100 &&
	has "f.1: 100 tokens now" && run 0 rollback f.1 --remove 100 && has "f.1: 0 tokens now" &&
	run 1 rollback f.1 --remove 1
verdict $? "a fork is rolled back to 100 and to no tokens, and not further"

run 0 verify --all && has "intact" && run 0 verify a.1 a.2 --json && has '"intact": true' &&
	! has '"intact": false'
verdict $? "verify finds everything intact"

run 0 session ls && has "kvcachectl" && run 1 session end 999999
verdict $? "session ls shows this program; a session that is not there cannot be ended"

run 1 rm f.1 a.1 nobody a.2 && has "f.1: removed" && has "a.2: removed" && run 1 show f.1
verdict $? "rm removes what is there and names what is not"

# The first program in the manual of the library, compiled against what was built.
sentence="the example of libkvcache(3) makes a fork of two tokens"
awk '
	/^\.Bd -literal$/ { inside = 1; text = "" }
	/^\.Ed/ { if (inside && text ~ /#include/) printf "%s", text; inside = 0 }
	inside && !/^\.Bd/ { gsub(/\\e/, "\\"); text = text $0 "\n" }
' "$top_srcdir/man/libkvcache.3" >"$work/example.c"
if grep -q '^CFLAGS = .*-fsanitize\|^KV_CFLAGS = .*-fsanitize' "$top_builddir/Makefile"; then
	number=$((number + 1))
	echo "ok $number - $sentence # SKIP a plain program cannot load a library with sanitizers"
elif ! ${CC:-cc} -I"$top_srcdir/client" -o "$work/example" "$work/example.c" \
	"$top_builddir/.libs/libkvcache.so" >"$work/out" 2>"$work/err"; then
	number=$((number + 1))
	echo "ok $number - $sentence # SKIP no compiler here that links it"
else
	LD_LIBRARY_PATH=$top_builddir/.libs "$work/example" >"$work/out" 2>"$work/err" &&
		has "the fork has 2 tokens" && run 0 rm example/prompt
	verdict $? "$sentence"
fi

run 0 bench --rounds 20 && has "round_trip" && has "fork_local"
verdict $? "bench prints a line for each operation"

run 0 bench attend --tokens 1000 --heads 2 --width 48 --threads 2 --json &&
	[ "$(field n_tokens)" = 1000 ] && [ "$(field token_bytes)" = 384 ] &&
	[ "$(field peak_bytes)" -ge 384000 ] && [ "$(grep -c '"name"' "$work/out")" = 5 ] &&
	has '"fp8"' && ! grep -q '"q4"' "$work/out"
verdict $? "bench attend has a line for each format that the width allows"

run 0 bench attend --tokens 1 --group 1 --format q4,int8-model && has "READ GB/S" &&
	has "int8-model" && ! grep '.\{81\}' "$work/out" >>"$work/err"
verdict $? "bench attend prints the formats that were asked for, in 80 columns"

run 1 bench attend --tokens 65536 --format raw && [ ! -s "$work/out" ] &&
	grep -q -- "--tokens" "$work/err" && grep -q -- "--pool-bytes" "$work/err"
verdict $? "bench attend says what to do when the pool is too small"

run 0 ls --names && [ "$(wc -l <"$work/out")" = 10 ]
verdict $? "bench leaves nothing behind"

kill "$daemon"
wait "$daemon" 2>/dev/null
daemon=
run 3 status && [ ! -s "$work/out" ]
verdict $? "without daemon the exit code is 3"

echo "1..$number"
