#!/usr/bin/env bash
# Makes what is handed out of one build, in out/dist or the folder that is named: a tarball, Debian packages and RPMs of the same
# files, an OCI image of Debian with those packages, the Helm chart, the Python package, bills of materials, checksums, and the
# release's notes. `make dist` builds first; `scripts/dist-test.sh` installs, uses and removes each.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

release=${CARGO_TARGET_DIR:-target}/release
out=${1:-out/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
license=$(sed -n 's/^license = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The time of all files: that of the commit, so that the same build gives the same packages.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
architecture=$(dpkg --print-architecture)
name=weft-$version-$architecture
tree=$out/$name
# The bytes that `weft` may have without its symbols: it had 34.8 MB before more crates were optimised for size.
most=36000000

die() { printf '%s\n' "dist: error: $*" >&2; exit 1; }

. scripts/dist-packages.sh

# Installs file $1 as $2 below the prefix $prefix, with mode $3.
place() { install -D -m "${3:-644}" "$1" "$prefix/$2"; }

# Lays everything out below $prefix, as in /usr or in a folder of a user's own.
lay_out() {
    local prefix=$1 library bytes
    place "$release/weft" bin/weft 755
    strip "$prefix/bin/weft"
    bytes=$(stat -c %s "$prefix/bin/weft")
    ((bytes <= most)) || die "weft has $bytes bytes, more than $most; see [profile.release.package] in Cargo.toml"
    for library in libibverbs.so.1 librdmacm.so.1 libweft_malloc.so.1 libweft_nic_ports.so.1 libweft_preload.so; do
        place "$release/verbs/$library" "lib/weft/verbs/$library"
        strip --strip-unneeded "$prefix/lib/weft/verbs/$library"
    done
    ln -s libibverbs.so.1 "$prefix/lib/weft/verbs/libibverbs.so"
    place "$release/xrdma/lib/libxrdma.so.1" lib/libxrdma.so.1
    strip --strip-unneeded "$prefix/lib/libxrdma.so.1"
    place "$release/weft-nccl-check" bin/weft-nccl-check 755
    place "$release/weft-dra" bin/weft-dra 755
    strip "$prefix/bin/weft-dra"
    for library in libnccl-net-weft.so libnccl-tuner-weft.so; do
        place "$release/nccl/$library" "lib/$library"
        strip --strip-unneeded "$prefix/lib/$library"
    done
    strip "$prefix/bin/weft-nccl-check"
    place "$release/weft-kube" bin/weft-kube 755
    strip "$prefix/bin/weft-kube"
    # Where Debian's runtimes look for plugins; Kubernetes' look in /opt/cni/bin.
    place "$release/weft-cni" lib/cni/weft-cni 755
    strip "$prefix/lib/cni/weft-cni"
    # It runs in the system of a node, whose C library may be older than the one here.
    ! objdump -p "$prefix/lib/cni/weft-cni" | grep NEEDED >&2 ||
        die "weft-cni is linked with these libraries: build it as 'make dist' does, with -C target-feature=+crt-static"
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
    for unit in dist/*.{service,socket}; do
        mkdir -p "$prefix/lib/systemd/system"
        sed "s,/usr/local/bin/weft,$2/bin/weft,; s,^\(# The .*\) Put it in /etc/systemd/system\, the,\1 The," "$unit" \
            >"$prefix/lib/systemd/system/$(basename "$unit")"
    done
    install -D -m 644 -t "$prefix/share/weft/prometheus" dist/prometheus/*.yml
    place dist/grafana/weft.json share/weft/grafana/weft.json
    # With the pages that the runbook leads to.
    install -D -m 644 -t "$prefix/share/doc/weft/runbook" docs/runbook/*.md
    install -D -m 644 -t "$prefix/share/doc/weft" docs/*.md
    place LICENSE share/doc/weft/copyright
    place README.md share/doc/weft/README.md
    gzip -9 -n <CHANGELOG.md >"$prefix/share/doc/weft/changelog.gz"
    chmod 644 "$prefix/share/doc/weft/changelog.gz"
}

# Writes folder $2 of folder $1 as a tar archive, the same for the same files.
archive() {
    tar -C "$1" --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --sort=name -cf - "$2"
}

make_tarball() {
    lay_out "$tree" /usr/local
    archive "$out" "$name" | gzip -9 -n >"$out/$name.tar.gz"
    rm -r "$tree"
}

# The changes of this version; those that have no version yet before its release.
write_notes() {
    local heading="## $version"
    grep -q -F "$heading" CHANGELOG.md || heading='## Unreleased'
    printf '# Weft %s\n' "$version" >"$out/RELEASE-NOTES.md"
    awk -v heading="$heading" 'index($0, "## ") == 1 { is_it = index($0, heading) == 1; next } is_it' CHANGELOG.md \
        >>"$out/RELEASE-NOTES.md"
}

# Debian's smallest system with the packages; `docker load` and `podman load` take the file.
make_image() {
    local layout=$out/layout root=$out/root debs=("$out"/*.deb) created
    created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    rm -rf "$layout" "$root"
    mmdebstrap --quiet --variant=essential --include=ca-certificates,iproute2 --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
        --customize-hook="copy-in ${debs[*]} /tmp" \
        --customize-hook='chroot "$1" sh -c "dpkg -i /tmp/*.deb && rm /tmp/*.deb"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" || die "mmdebstrap could not make the image's system"
    # Folders that apt makes again. Their owner depends on whether apt's own user could reach them here.
    rm -rf "$root"/var/cache/apt/archives/partial "$root"/var/lib/apt/lists/partial
    # Packages' files keep their times; others were made just now.
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    umoci init --layout "$layout"
    umoci new --image "$layout:weft"
    umoci insert --history.created "$created" --image "$layout:weft" "$root" /
    umoci config --created "$created" --history.created "$created" --image "$layout:weft" \
        --config.entrypoint /usr/bin/weft --config.cmd --help
    umoci gc --layout "$layout"
    archive "$layout" . >"$out/weft-$version-oci-$architecture.tar"
    rm -rf "$layout" "$root"
}

# The chart as `helm install` takes it: a folder of its name.
make_chart() {
    local chart=dist/kubernetes/chart
    grep -q -x -F "version: $version" "$chart/Chart.yaml" && grep -q -x -F "appVersion: \"$version\"" "$chart/Chart.yaml" ||
        die "$chart/Chart.yaml has another version than $version"
    cp -r "$chart" "$out/weft"
    archive "$out" weft | gzip -9 -n >"$out/weft-chart-$version.tgz"
    rm -r "$out/weft"
}

# What `make wheel` and `make sbom` made.
collect() {
    local wheel
    wheel=$(find out/wheel -name "weft_fabric-$version-*.whl" 2>/dev/null)
    [ -f "$wheel" ] || die "out/wheel has not one wheel of version $version: make wheel"
    [ -e out/sbom/weft-cli.cdx.json ] || die "out/sbom has no bill of materials: make sbom"
    cp "$wheel" "$out"
    archive out sbom | gzip -9 -n >"$out/sbom-weft-$version.tar.gz"
}

rm -rf "${out:?}"/*
collect
make_chart
make_tarball
lay_out "$tree/usr" /usr
find "$tree/usr/share/man" -type f -exec gzip -9 -n {} +
make_packages
rm -r "$tree"
write_notes
if [ "$(id -u)" = 0 ]; then
    make_image
else
    printf '%s\n' "dist: no image: making Debian's system takes root"
fi
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out" | awk 'NR > 1 { printf "%8.1f MB  %s\n", $5 / 1e6, $9 }'
