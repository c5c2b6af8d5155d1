#!/usr/bin/env bash
# Makes what is handed out of one build, in out/dist: a tarball, a Debian package of the same files, and an OCI image of
# Debian with that package. `make dist` builds first; `scripts/dist-test.sh` installs, uses and removes each.
set -euo pipefail
cd "$(dirname "$0")/.."

release=${CARGO_TARGET_DIR:-target}/release
out=out/dist
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
name=weft-$version-$architecture
tree=$out/$name
# The bytes that `weft` may have without its symbols.
most=25000000

die() { printf '%s\n' "dist: error: $*" >&2; exit 1; }

# Installs file $1 as $2 below the prefix $prefix, with mode $3.
place() { install -D -m "${3:-644}" "$1" "$prefix/$2"; }

# Lays everything out below $prefix, as in /usr or in a folder of a user's own.
lay_out() {
    local prefix=$1 library bytes
    place "$release/weft" bin/weft 755
    strip "$prefix/bin/weft"
    bytes=$(stat -c %s "$prefix/bin/weft")
    ((bytes <= most)) || die "weft has $bytes bytes, more than $most; see [profile.release.package] in Cargo.toml"
    for library in libibverbs.so.1 librdmacm.so.1 libweft_nic_ports.so.1 libweft_preload.so; do
        place "$release/verbs/$library" "lib/weft/verbs/$library"
        strip --strip-unneeded "$prefix/lib/weft/verbs/$library"
    done
    ln -s libibverbs.so.1 "$prefix/lib/weft/verbs/libibverbs.so"
    place "$release/xrdma/lib/libxrdma.so.1" lib/libxrdma.so.1
    strip --strip-unneeded "$prefix/lib/libxrdma.so.1"
    place "$release/weft-nccl-check" bin/weft-nccl-check 755
    for library in libnccl-net-weft.so libnccl-tuner-weft.so; do
        place "$release/nccl/$library" "lib/$library"
        strip --strip-unneeded "$prefix/lib/$library"
    done
    strip "$prefix/bin/weft-nccl-check"
    ln -s libxrdma.so.1 "$prefix/lib/libxrdma.so"
    place "$release/xrdma/lib/pkgconfig/xrdma.pc" lib/pkgconfig/xrdma.pc
    place "$release/xrdma/include/xrdma.h" include/xrdma.h
    "$prefix/bin/weft" man "$prefix/share/man/man1" >/dev/null
    mkdir -p "$prefix/share/man/man3"
    install -m 644 "$release"/xrdma/share/man/man3/* "$prefix/share/man/man3"
    local completions=$prefix/share
    mkdir -p "$completions"/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$prefix/bin/weft" completions bash >"$completions/bash-completion/completions/weft"
    "$prefix/bin/weft" completions zsh >"$completions/zsh/vendor-completions/_weft"
    "$prefix/bin/weft" completions fish >"$completions/fish/vendor_completions.d/weft.fish"
    for unit in dist/*.service; do
        mkdir -p "$prefix/lib/systemd/system"
        sed "s,/usr/local/bin/weft,$2/bin/weft,; s,^\(# The .*\) Put it in /etc/systemd/system\, the,\1 The," "$unit" \
            >"$prefix/lib/systemd/system/$(basename "$unit")"
    done
    place LICENSE share/doc/weft/copyright
    place README.md share/doc/weft/README.md
    gzip -9 -n <CHANGELOG.md >"$prefix/share/doc/weft/changelog.gz"
    chmod 644 "$prefix/share/doc/weft/changelog.gz"
}

make_tarball() {
    lay_out "$tree" /usr/local
    tar -C "$out" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
    rm -r "$tree"
}

# The oldest glibc that has every symbol these files ask for.
needed_glibc() {
    objdump -T "$@" | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 | sed 's/GLIBC_//'
}

make_package() {
    lay_out "$tree/usr" /usr
    find "$tree/usr/share/man" -type f -exec gzip -9 -n {} +
    mkdir -p "$tree/DEBIAN"
    cat >"$tree/DEBIAN/control" <<END
Package: weft
Version: $version
Architecture: $architecture
Maintainer: Weft <weft@weft.invalid>
Section: net
Priority: optional
Installed-Size: $(du -sk "$tree/usr" | cut -f 1)
Depends: libc6 (>= $(needed_glibc "$tree"/usr/bin/* "$tree"/usr/lib/weft/verbs/* "$tree"/usr/lib/lib*.so)), libgcc-s1
Recommends: iproute2, nftables, ethtool, iputils-ping
Suggests: frr, tshark, perftest
Description: RDMA, messages and overlays over every path of an Ethernet fabric
 Carries RDMA of unmodified programs (weft run), messages, collectives and the
 traffic of virtual machines and containers over all paths at once, plans and
 steers the fabric, and simulates it with the engine that runs.
END
    # The dynamic linker is to know libxrdma.so.1, and to forget it.
    echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
    dpkg-deb --root-owner-group --build "$tree" "$out/weft_${version}_$architecture.deb" >/dev/null
    rm -r "$tree"
}

# Debian's smallest system with the package; `docker load` and `podman load` take the file.
make_image() {
    local layout=$out/layout root=$out/root
    rm -rf "$layout" "$root"
    mmdebstrap --quiet --variant=essential --include=ca-certificates,iproute2 --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
        --customize-hook="copy-in $out/weft_${version}_$architecture.deb /tmp" \
        --customize-hook='chroot "$1" sh -c "dpkg -i /tmp/weft_*.deb && rm /tmp/weft_*.deb"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" || die "mmdebstrap could not make the image's system"
    umoci init --layout "$layout"
    umoci new --image "$layout:weft"
    umoci insert --image "$layout:weft" "$root" /
    umoci config --image "$layout:weft" --config.entrypoint /usr/bin/weft --config.cmd --help
    umoci gc --layout "$layout"
    tar -C "$layout" --owner=0 --group=0 -cf "$out/weft-$version-oci-$architecture.tar" .
    rm -rf "$layout" "$root"
}

mkdir -p "$out"
rm -rf "${out:?}"/*
make_tarball
make_package
if [ "$(id -u)" = 0 ]; then
    make_image
else
    printf '%s\n' "dist: no image: making Debian's system takes root"
fi
ls -l "$out" | awk 'NR > 1 { printf "%8.1f MB  %s\n", $5 / 1e6, $9 }'
