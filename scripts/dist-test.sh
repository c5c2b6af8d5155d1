#!/usr/bin/env bash
# Installs, uses and removes what scripts/dist.sh made, in a system of its own with nothing but Debian's essential packages.
# As root; `make dist` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/out/dist
work=$(mktemp -d)
root=$work/root
trap 'umount -R "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

die() { printf '%s\n' "dist-test: error: $*" >&2; exit 1; }
inside() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# Uses a `weft` that is in PATH as $1.
use() {
    inside "$1" --version | grep -q '^weft ' || die "$1 --version"
    inside "$1" demo --loopback --json --html /tmp/demo.html | grep -q '"contender"' || die "$1 demo"
    inside "$1" run -- ibv_devinfo | grep -q 'hca_id' || die "$1 run has a program find no device"
    inside "$1" perf client 127.0.0.1:1 --seconds 1 2>/dev/null && die "$1 perf reaches nobody and is content"
    return 0
}

# Every file that names Weft, but for what apt and dpkg note of a package that was there.
leftovers() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/log -o -path ./var/cache \) -prune -o \( -name '*weft*' -o -name '*xrdma*' \) -print); }

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --quiet --variant=apt --include=ibverbs-utils "$codename" "$root"
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"

printf '%s\n' "dist-test: the Debian package"
cp "$out"/weft_*.deb "$root/tmp/weft.deb"
inside apt-get -qq -y --no-install-recommends install /tmp/weft.deb >/dev/null
rm "$root/tmp/weft.deb"
use weft
inside test -s /usr/share/man/man1/weft-perf-client.1.gz || die "no manual page of weft perf client"
inside bash -n /usr/share/bash-completion/completions/weft || die "bash does not take the completions"
inside ldconfig -p | grep -q libxrdma.so.1 || die "the dynamic linker does not find libxrdma.so.1"
inside weft-nccl-check libnccl-net-weft.so --interface 12 >/dev/null || die "NCCL's plugin does not pass its check"
inside apt-get -qq -y purge weft >/dev/null
rm -f "$root/tmp/demo.html"
left=$(leftovers)
[ -z "$left" ] || die "the package leaves behind: $left"

printf '%s\n' "dist-test: the tarball"
mkdir "$root/opt/here"
tar -C "$root/opt/here" --strip-components=1 -xzf "$out"/weft-*.tar.gz
use /opt/here/bin/weft
rm -rf "$root/opt/here"
left=$(leftovers)
[ -z "$left" ] || die "the tarball leaves behind: $left"

printf '%s\n' "dist-test: the image"
mkdir "$work/layout"
tar -C "$work/layout" -xf "$out"/weft-*-oci-*.tar
umoci unpack --image "$work/layout:weft" "$work/bundle" 2>/dev/null
grep -q '"/usr/bin/weft"' "$work/bundle/config.json" || die "the image does not begin with weft"
chroot "$work/bundle/rootfs" /usr/bin/weft --version | grep -q '^weft ' || die "the image's weft does not run"
printf '%s\n' "dist-test: all three were installed, used and removed"
