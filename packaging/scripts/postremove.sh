#!/bin/sh
# After the files are gone. Debian calls: remove, purge, upgrade, ...; RPM: 0 removal, 1 upgrade.
# Messages are never removed by a package manager.
set -e

if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case "$1" in
0 | purge)
	if [ -d "$DPKG_ROOT/var/lib/hardpoint" ]; then
		echo "hardpoint: messages and offsets in /var/lib/hardpoint, and the user hardpoint, are left; remove them if they are not wanted"
	fi
	;;
esac
