#!/bin/sh
# Before the files go. Debian calls: remove, or upgrade NEW VERSION; RPM: 0 removal, 1 upgrade.
set -e

case "$1" in
0 | remove) ;;
*) exit 0 ;; # those that run are started anew when the new files are there
esac

if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
	systemctl list-units --all --plain --no-legend 'hardpoint-*.service' | while read -r unit _; do
		systemctl disable --now "$unit"
	done
	systemctl disable hardpoint-broker.service hardpoint-namesrv.service
fi
