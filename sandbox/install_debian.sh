#!/bin/sh
# Installs Debian packages, only those that are missing: install_debian.sh demo|tests.
# Does nothing, and says so, without root or apt: the demo then replays a recorded incident.
set -eu

packages="slurm-wlm slurmdbd slurm-client mariadb-server munge libmunge-dev libslurm-dev
gcc libc6-dev python3-dev python3-venv make openssl procps iproute2 util-linux"
only_tests="postgresql postgresql-client pgbouncer chromium apache2-bin shellcheck systemd jq bubblewrap runc"
case $1 in
demo) ;;
tests) packages="$packages $only_tests" ;;
*)
    echo "install_debian.sh: $1 is neither demo nor tests" >&2
    exit 2
    ;;
esac

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: no root or no apt here; nothing installed from Debian, the demo will replay a recorded incident"
    exit 0
fi

missing="" count=0
for name in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
    [ "$status" = installed ] || {
        missing="$missing $name"
        count=$((count + 1))
    }
done
[ "$count" -gt 0 ] || exit 0

echo "setup: installing $count Debian packages and what they need:$missing"
# The packages' own daemons must not start: the sandbox runs private ones.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)

# Tells of apt's output what shows that it goes on; all of it is in the log.
progress() {
    ready=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
        "Need to get "*) echo "setup:   downloading ${line#Need to get }" ;;
        *" newly installed"*) echo "setup:   $line" ;;
        "Setting up "*)
            ready=$((ready + 1))
            [ $((ready % 25)) -ne 0 ] || echo "setup:   $ready packages are set up"
            ;;
        esac
    done
}

echo "setup:   reading Debian's lists of packages"
# shellcheck disable=SC2086  # the list is meant to be split
{ apt-get update && apt-get install -y --no-install-recommends $missing && : >"$log.done"; } 2>&1 | progress
if [ ! -e "$log.done" ]; then
    echo "setup: apt-get failed; the last lines of its log ($log):" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
rm -f "$log" "$log.done"
