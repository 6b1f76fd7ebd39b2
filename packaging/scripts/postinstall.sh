#!/bin/sh
# After the files are there. Debian calls: configure [OLD VERSION], or abort-...; RPM: 1 first installation, 2 upgrade.
# Nothing is enabled or started by an installation: a broker that nobody configured should join no cluster.
set -e

case "$1" in
1) upgrade= ;;
configure) upgrade=$2 ;;
abort-*) exit 0 ;;
*) upgrade=yes ;;
esac

# Without systemd there is none of its tools. DPKG_ROOT: dpkg fills another root, whose users are not those of this machine.
if [ -z "$DPKG_ROOT" ]; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers hardpoint.conf
	elif ! getent passwd hardpoint >/dev/null; then
		groupadd --system hardpoint
		useradd --system --gid hardpoint --home-dir /var/lib/hardpoint --no-create-home --shell /usr/sbin/nologin hardpoint
	fi
	# The services read them and nobody else, since they may hold passwords. The packagers unpack them before there is
	# the group. What somebody has changed stays.
	for file in /etc/hardpoint/broker.yaml /etc/hardpoint/namesrv.yaml; do
		if [ -f "$file" ] && [ "$(stat -c %a:%G "$file")" = 640:root ]; then
			chgrp hardpoint "$file"
		fi
	done
fi

if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$upgrade" ]; then
		# Those that run, one after the other: while one of a cluster drains, clients use the others.
		systemctl list-units --plain --no-legend --state=active 'hardpoint-*.service' | while read -r unit _; do
			systemctl try-restart "$unit"
		done
	fi
fi
