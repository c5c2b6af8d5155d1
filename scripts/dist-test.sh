#!/usr/bin/env bash
# Installs, uses and removes what scripts/dist.sh made, in a system of its own with nothing but Debian's essential packages, and
# makes it again to compare. As root; `make dist` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/out/dist
work=$(mktemp -d)
root=$work/root
trap 'umount -R "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

die() { printf '%s\n' "dist-test: error: $*" >&2; exit 1; }
# A reader that stops at the first match would end the writer by a signal, which pipefail takes for a failure.
has() { grep "$@" >/dev/null; }
inside() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# Uses a `weft` that is in PATH as $1.
use() {
    inside "$1" --version | has '^weft ' || die "$1 --version"
    inside "$1" demo --loopback --json --html /tmp/demo.html | has '"contender"' || die "$1 demo"
    inside "$1" run -- ibv_devinfo | has 'hca_id' || die "$1 run has a program find no device"
    inside "$1" perf client 127.0.0.1:1 --seconds 1 2>/dev/null && die "$1 perf reaches nobody and is content"
    return 0
}

# Every file that names Weft, but for what apt and dpkg note of a package that was there.
leftovers() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/log -o -path ./var/cache \) -prune -o \( -name '*weft*' -o -name '*xrdma*' \) -print); }

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --quiet --variant=apt --include=ibverbs-utils "$codename" "$root"
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"

packages=(weft weft-verbs libxrdma1 libxrdma-dev)

printf '%s\n' "dist-test: the same build again, byte for byte"
(cd "$out" && sha256sum --quiet --check SHA256SUMS) || die "files differ from SHA256SUMS"
scripts/dist.sh "$work/again" >/dev/null
for file in "$work"/again/*; do
    cmp "$file" "$out/$(basename "$file")" || die "$(basename "$file") is not reproducible"
done

printf '%s\n' "dist-test: the Debian packages"
for package in "${packages[@]}"; do
    cp "$out/${package}"_*.deb "$root/tmp"
done
inside sh -c 'apt-get -qq -y --no-install-recommends install /tmp/*.deb' >/dev/null
rm "$root"/tmp/*.deb
use weft
inside test -s /usr/share/man/man1/weft-perf-client.1.gz || die "no manual page of weft perf client"
inside bash -n /usr/share/bash-completion/completions/weft || die "bash does not take the completions"
inside ldconfig -p | has libxrdma.so.1 || die "the dynamic linker does not find libxrdma.so.1"
inside weft-nccl-check libnccl-net-weft.so --interface 12 >/dev/null || die "NCCL's plugin does not pass its check"
for file in lib/systemd/system/weft-vpc.service share/weft/prometheus/weft-alerts.yml share/doc/weft/runbook/path-down.md include/xrdma.h; do
    inside test -s "/usr/$file" || die "the packages have no $file"
done
inside apt-get -qq -y purge "${packages[@]}" >/dev/null
rm -f "$root/tmp/demo.html"
left=$(leftovers)
[ -z "$left" ] || die "the packages leave behind: $left"

# Debian's libraries of programs are in /usr/lib, those of RPMs in /usr/lib64.
printf '%s\n' "dist-test: the RPMs"
for package in "${packages[@]}"; do
    in_deb=$(dpkg-deb --fsys-tarfile "$out/${package}"_*.deb | tar -t | grep -v '/$' | sed 's,^\.,,' | sort)
    in_rpm=$(rpm -qlvp "$out/$package"-[0-9]*.rpm 2>/dev/null | awk '!/^d/ { print $9 }' | sed 's,^/usr/lib64/,/usr/lib/,' | sort)
    [ "$in_deb" = "$in_rpm" ] || die "$package differs: $(diff <(echo "$in_deb") <(echo "$in_rpm"))"
done
rpm -qp --provides "$out"/weft-verbs-*.rpm 2>/dev/null | has libibverbs && die "weft-verbs pretends to be libibverbs"
rpm -qp --provides "$out"/libxrdma1-*.rpm 2>/dev/null | has -F 'libxrdma.so.1()(64bit)' || die "programs do not find libxrdma1"
# This system's libraries serve: there is no system with RPMs here.
rpm --root "$work/rpms" --nodeps --noscripts -i "$out"/*.rpm 2>/dev/null || die "rpm does not install them"
"$work/rpms/usr/bin/weft" --version | has '^weft ' || die "the RPM's weft does not run"
rpm --root "$work/rpms" -e --nodeps --noscripts "${packages[@]}" 2>/dev/null || die "rpm does not remove them"
left=$(cd "$work/rpms" && find . \( -name '*weft*' -o -name '*xrdma*' \))
[ -z "$left" ] || die "the RPMs leave behind: $left"

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
chroot "$work/bundle/rootfs" /usr/bin/weft --version | has '^weft ' || die "the image's weft does not run"
# On a node, whose system has nothing of the image's.
node=$work/bundle/rootfs/host
cp dist/kubernetes/chart/files/install.sh "$work/bundle/rootfs/tmp"
chroot "$work/bundle/rootfs" env ROOT=/host NODE_ADDRESS=10.0.0.1 HOSTS='10.0.0.1 10.0.0.2' VNI=100 NETWORK=10.244 \
    PLUGINS=/usr/lib/cni/weft-cni sh /tmp/install.sh || die "the image does not prepare a node"
CNI_COMMAND=VERSION chroot "$node" /opt/cni/bin/weft-cni </dev/null | has '"1.1.0"' ||
    die "weft-cni does not run on a node without the image's C library"
printf '%s\n' "dist-test: the Python package"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --no-deps "$out"/weft_fabric-*.whl
(cd "$work" && venv/bin/python -c 'import weft.sim; assert weft.sim.scenarios()') || die "the wheel does not work"
"$work/venv/bin/pip" uninstall --quiet --yes weft-fabric

printf '%s\n' "dist-test: the chart and the bills of materials"
tar -C "$work" -xf "$out"/weft-chart-*.tgz
# Helm comes with `scripts/setup.sh kubernetes`.
helm=${CARGO_TARGET_DIR:-target}/kubernetes/helm
if [ -x "$helm" ]; then
    "$helm" lint --quiet "$work/weft" || die "the chart does not pass helm lint"
else
    printf '%s\n' "dist-test: no $helm: the chart is not checked by it"
fi
[ -s "$work/weft/Chart.yaml" ] || die "the chart's archive has no weft/Chart.yaml"
tar -C "$work" -xf "$out"/sbom-weft-*.tar.gz
for bill in "$work"/sbom/*.json; do
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["components"]' "$bill" || die "$bill lists nothing"
done
printf '%s\n' "dist-test: all were installed, used and removed"
