#!/bin/sh
# Installs the Debian packages that the sandbox and the tests use, only those that are missing.
# Does nothing, and says so, without root or apt: the demo then replays a recorded incident.
set -eu

# What `make demo` needs, then what only the tests need.
packages="slurm-wlm slurmdbd slurm-client mariadb-server munge libmunge-dev libslurm-dev
gcc libc6-dev python3-dev python3-venv make openssl procps iproute2 util-linux
postgresql postgresql-client pgbouncer chromium shellcheck systemd jq bubblewrap runc"

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: no root or no apt here; nothing installed from Debian, the demo will replay a recorded incident"
    exit 0
fi

missing=""
for name in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

echo "setup: installing from Debian:$missing"
# The packages' own daemons must not start: the sandbox runs private ones.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
# shellcheck disable=SC2086  # the list is meant to be split
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    echo "setup: apt-get failed; the last lines of its log ($log):" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
rm -f "$log"
