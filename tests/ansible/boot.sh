#!/bin/bash
# Boots systemd as process 1 of namespaces of its own, on this machine's root directory as it is, with what is written
# kept in DIRECTORY and thrown away with it: boot.sh DIRECTORY TARGET CHECKOUT PACKAGES. The caller makes the namespaces
# (unshare). Our code is at /opt/checkout and /opt/packages, wherever it lies outside: a unit's private /tmp hides neither.
set -eu
directory=$1 target=$2 checkout=$3 packages=$4
root=$directory/root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$directory/up,workdir=$directory/work" "$root"
mkdir -p "$root/opt/checkout" "$root/opt/packages"
mount --bind "$checkout" "$root/opt/checkout"
mount --bind "$packages" "$root/opt/packages"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
# Without controllers, which the machine may use itself: limits of memory and processor are not in force here.
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/kmsg "$root/dev/"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/oldroot"
cd "$root"
pivot_root . oldroot
cd /
umount -l /oldroot
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit="$target" --show-status=no --log-target=journal
