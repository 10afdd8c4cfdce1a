#!/bin/sh
# Runs test_on_slurm.py, or the tests named, against the Slurm of another Debian release: its binaries in a debootstrapped root,
# everything else (munge, MariaDB, our code) from this machine. Root only; not part of `make test`.
#
#   sh tests/slurm_plugins/in_root.sh trixie [ROOT] [pytest arguments …]      Slurm 24.11
#   sh tests/slurm_plugins/in_root.sh sid    [ROOT] [pytest arguments …]      Debian's newest
#   sh tests/slurm_plugins/in_root.sh trixie "" tests/e2e                   the end-to-end cases there
#
# ROOT (default /var/tmp/probing-roots/SUITE) is made when missing and kept; what is mounted in it is unmounted again.
set -eu
suite=$1
root=${2:-/var/tmp/probing-roots/$suite}
shift $(($# < 2 ? $# : 2))
here=$(cd "$(dirname "$0")/../.." && pwd -P)
mirror=${MIRROR:-http://deb.debian.org/debian}
wanted=slurm-wlm,slurmdbd,slurm-client,slurm-wlm-plugins,slurm-wlm-mysql-plugin,munge,gcc,libc6-dev,libslurm-dev,python3,make

if [ ! -x "$root/usr/sbin/slurmctld" ]; then
    mkdir -p "$root"
    debootstrap --variant=minbase --include="$wanted" "$suite" "$root" "$mirror"
fi
chroot "$root" slurmctld -V

cp /etc/hosts "$root/etc/hosts" # slurmctld resolves its own host

bin=$(mktemp -d)
mounted=
cleanup() {
    for place in $mounted; do umount -l "$place"; done
    rm -rf "$bin"
}
trap cleanup EXIT INT TERM
for place in /tmp /proc /sys /dev /dev/shm "${here%/*}"; do
    mkdir -p "$root$place"
    mount --bind "$place" "$root$place"
    mounted="$root$place $mounted"
done
# The sandbox, the tests and our own code find these first; each is the other release's, on the same paths.
# From 23.11 on slurmd refuses to start without cgroups, which several slurmd on one host cannot share.
for program in slurmctld slurmd slurmdbd sbatch srun salloc scancel scontrol sinfo squeue sacct sacctmgr make; do
    cat >"$bin/$program" <<END
#!/bin/sh
[ $program = slurmctld ] && echo CgroupPlugin=disabled >"\$(dirname "\$SLURM_CONF")/cgroup.conf"
exec chroot $root /usr/bin/env --chdir="\$PWD" PATH=/usr/sbin:/usr/bin:/sbin:/bin $program "\$@"
END
    chmod 755 "$bin/$program"
done
PATH="$bin:$PATH" "$here/.venv/bin/pytest" -q "${@:-$here/tests/slurm_plugins/test_on_slurm.py}"
