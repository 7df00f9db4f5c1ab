#!/bin/sh
# The files for systemd are accepted by its own tools, and the service is shut in
# well enough. Speaks TAP.
set -u
work=$(mktemp -d /tmp/kvcached-test-units-XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
number=0

verdict() { # RC SENTENCE: the log of the check is shown if it failed
	number=$((number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $number - $2"
	else
		sed 's/^/# /' "$work/log"
		echo "not ok $number - $2"
	fi
}

skip() { # SENTENCE REASON
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

has() { command -v "$1" >/dev/null; }

grep '^ExecStart=' "$top_builddir/daemon/kvcached.service" >"$work/log"
grep -q '^ExecStart=/.*/kvcached --config /.*/kvcached.conf$' "$work/log"
verdict $? "the unit names program and settings by their paths"

verified="systemd has nothing to say about the unit"
shut_in="the exposure of the unit is below 3.0"
if ! has systemd-analyze; then
	skip "$verified" "no systemd-analyze here"
	skip "$shut_in" "no systemd-analyze here"
else
	# The program need not be installed for this.
	sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$top_builddir/daemon/kvcached.service" \
		>"$work/kvcached.service"
	systemd-analyze --man=no verify "$work/kvcached.service" >"$work/log" 2>&1
	rc=$?
	if grep -q 'Failed to initialize manager' "$work/log"; then
		skip "$verified" "$(head -n 1 "$work/log")"
	else
		[ ! -s "$work/log" ] || rc=1
		verdict $rc "$verified"
	fi
	systemd-analyze security --offline=yes --threshold=29 "$work/kvcached.service" \
		>"$work/log" 2>&1
	verdict $? "$shut_in"
fi

user="the user of the service is created"
folder="its runtime folder is created and belongs to it"
if ! has systemd-sysusers; then
	skip "$user" "no systemd-sysusers here"
	skip "$folder" "no systemd-sysusers here"
elif [ "$(id -u)" != 0 ]; then
	skip "$user" "only root can"
	skip "$folder" "only root can"
else
	mkdir -p "$work/root/etc" "$work/root/run"
	systemd-sysusers --root="$work/root" "$top_srcdir/daemon/sysusers.d/kvcached.conf" >"$work/log" 2>&1 &&
		grep -q '^kvcached:' "$work/root/etc/passwd"
	verdict $? "$user"
	systemd-tmpfiles --root="$work/root" --create "$top_srcdir/daemon/tmpfiles.d/kvcached.conf" \
		>"$work/log" 2>&1
	uid=$(sed -n 's/^kvcached:[^:]*:\([0-9]*\):.*/\1/p' "$work/root/etc/passwd")
	[ "$(stat -c '%u %a' "$work/root/run/kvcached")" = "$uid 755" ]
	verdict $? "$folder"
fi
echo "1..$number"
