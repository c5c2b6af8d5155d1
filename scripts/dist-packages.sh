# The packages of one build: weft (the command, its units, alert rules and pages), weft-verbs (the libraries of `weft run`, and
# NCCL's plugins), libxrdma1 (messages, for programs), libxrdma-dev (to build them). scripts/dist.sh sources this file; it has laid
# the files out in $tree/usr. All of it is the same, byte for byte, for the same files and the same SOURCE_DATE_EPOCH.
# shellcheck shell=bash disable=SC2154  # its variables are those of scripts/dist.sh

packages=(weft weft-verbs libxrdma1 libxrdma-dev)

# Prints the files of package $1 below /usr; weft has those that no other package has.
files_of() {
    case $1 in
    weft-verbs) echo 'lib/weft lib/libnccl-*.so bin/weft-nccl-check bin/weft-dra' ;;
    libxrdma1) echo 'lib/libxrdma.so.*' ;;
    libxrdma-dev) echo 'lib/libxrdma.so lib/pkgconfig include share/man/man3' ;;
    esac
}

summary_of() {
    case $1 in
    weft) echo 'RDMA, messages and overlays over every path of an Ethernet fabric' ;;
    weft-verbs) echo "Weft's RDMA device for unmodified programs, and plugins for NCCL" ;;
    libxrdma1) echo 'messages over RDMA and over every path' ;;
    libxrdma-dev) echo 'messages over RDMA and over every path: header and manual pages' ;;
    esac
}

description_of() {
    case $1 in
    weft) echo 'Carries RDMA of unmodified programs (weft run), messages, collectives and the
traffic of virtual machines and containers over all paths at once, plans and
steers the fabric, and simulates it with the engine that runs.' ;;
    weft-verbs) echo 'Drop-in libraries in the place of libibverbs.so.1 and librdmacm.so.1, which
weft run has programs load, source ports for programs on RDMA NICs, and the net
and tuner plugins for NCCL.' ;;
    libxrdma1) echo 'The library of programs in C that send messages and call each other over any
libibverbs.so.1.' ;;
    libxrdma-dev) echo 'What programs with libxrdma are built with: xrdma.h, the pkg-config file, and
the manual pages of its functions.' ;;
    esac
}

# The packages that package $1 needs, besides those that its files are linked with: for dpkg as $2 = deb, else for rpm.
needs_of() {
    case $1 in
    libxrdma-dev) if [ "$2" = deb ]; then echo "libxrdma1 (= $version)"; else echo "libxrdma1 = $version"; fi ;;
    esac
}

# Moves each package's files from $tree/usr to $tree/PACKAGE/usr, with its licence and the changelog.
split() {
    local package file
    for package in weft-verbs libxrdma1 libxrdma-dev; do
        for file in $(cd "$tree/usr" && eval "ls -d $(files_of "$package")"); do
            mkdir -p "$tree/$package/usr/$(dirname "$file")"
            mv "$tree/usr/$file" "$tree/$package/usr/$file"
        done
        mkdir -p "$tree/$package/usr/share/doc/$package"
        cp "$tree/usr/share/doc/weft/"{copyright,changelog.gz} "$tree/$package/usr/share/doc/$package"
    done
    mkdir "$tree/weft"
    mv "$tree/usr" "$tree/weft/usr"
}

# The oldest glibc that has every symbol which these files ask for.
needed_glibc() {
    objdump -T "$@" 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1 | sed 's/GLIBC_//'
}

# Prints what package $1 depends on, for dpkg: the C library where it has programs or libraries.
depends_of() {
    local binaries depends
    mapfile -t binaries < <(find "$tree/$1/usr/bin" "$tree/$1/usr/lib" -type f 2>/dev/null | grep -vE '\.(service|socket|pc)$')
    depends=$(needs_of "$1" deb)
    [ "${#binaries[@]}" = 0 ] || depends+="${depends:+, }libc6 (>= $(needed_glibc "${binaries[@]}")), libgcc-s1"
    echo "$depends"
}

make_deb() {
    local package=$1 root=$tree/$1 section=net
    case $package in libxrdma1) section=libs ;; libxrdma-dev) section=libdevel ;; esac
    mkdir "$root/DEBIAN"
    {
        printf '%s\n' "Package: $package" "Version: $version" "Architecture: $architecture" \
            'Maintainer: Weft <weft@weft.invalid>' "Section: $section" 'Priority: optional' \
            "Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f 1)" "Depends: $(depends_of "$package")"
        case $package in
        weft)
            echo "Recommends: weft-verbs (= $version), iproute2, nftables, ethtool, iputils-ping"
            echo 'Suggests: frr, tshark, perftest, prometheus'
            ;;
        weft-verbs) echo 'Enhances: weft' ;;
        esac
        echo "Description: $(summary_of "$package")"
        description_of "$package" | sed 's/^/ /'
    } >"$root/DEBIAN/control"
    # The dynamic linker is to know libraries in /usr/lib, and to forget them.
    case $package in weft-verbs | libxrdma1) echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers" ;; esac
    # With one thread the compressed bytes do not depend on the machine.
    dpkg-deb --root-owner-group --threads-max=1 --build "$root" "$out/${package}_${version}_$architecture.deb" >/dev/null
    rm -r "$root/DEBIAN"
}

# Prints the part of the specification that describes package $1.
describe_rpm() {
    local package=$1 option="-n $1" needs
    if [ "$package" = weft ]; then option=; else echo "%package $option"; fi
    echo "Summary: $(summary_of "$package")"
    needs=$(needs_of "$package" rpm)
    [ -z "$needs" ] || echo "Requires: $needs"
    [ "$package" != weft ] || echo 'Recommends: weft-verbs, iproute, nftables, ethtool, iputils'
    [ "$package" = weft ] || printf '%s\n' "%description $option" "$(description_of "$package")"
}

# Makes the RPMs of all packages. Where Debian has /usr/lib, they have /usr/lib64 for libraries of programs.
make_rpms() {
    local package work=$out/rpm spec machine
    machine=$(uname -m)
    spec=$work/weft.spec
    mkdir -p "$work/root"
    for package in "${packages[@]}"; do
        cp -a "$tree/$package/usr" "$work/root"
    done
    mkdir "$work/root/usr/lib64"
    (cd "$work/root/usr" && mv lib/lib*.so* lib/pkgconfig lib64 && sed -i 's,}/lib$,}/lib64,' lib64/pkgconfig/xrdma.pc)
    {
        printf '%s\n' 'Name: weft' "Version: $version" 'Release: 1' "License: $license" "URL: $repository"
        describe_rpm weft
        printf '%s\n' '%description' "$(description_of weft)"
        for package in weft-verbs libxrdma1 libxrdma-dev; do
            describe_rpm "$package"
        done
        for package in "${packages[@]}"; do
            if [ "$package" = weft ]; then echo '%files'; else echo "%files -n $package"; fi
            (
                cd "$tree/$package"
                # Folders that would stay when the package is removed.
                find usr -type d | grep -E "^usr/(share/doc/$package|share/weft|lib/weft)(/|$)" | LC_ALL=C sort | sed 's,^,%dir /,'
                find usr \( -type f -o -type l \) | LC_ALL=C sort |
                    sed -E 's,^usr/lib/(lib[^/]*|pkgconfig/[^/]*)$,usr/lib64/\1,; s,^,/,'
            )
        done
        printf '%s\n' '%post -n libxrdma1 -p /sbin/ldconfig' '%postun -n libxrdma1 -p /sbin/ldconfig'
    } >"$spec"
    # Programs are stripped already, and libibverbs.so.1 of `weft run` is not the system's.
    rpmbuild --quiet -bb --buildroot "$work/root" --noclean --target "$machine-linux" --define "_topdir $work" --define '_rpmdir %{_topdir}' \
        --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' --define '_buildhost weft.invalid' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_binary_payload w9.gzdio' --define '__os_install_post %{nil}' --define '_build_id_links none' \
        --define 'debug_package %{nil}' --define '__provides_exclude_from ^/usr/lib/weft/' "$spec" >"$work/log" 2>&1 ||
        die "rpmbuild failed: $(tail -n 5 "$work/log")"
    mv "$work"/*.rpm "$out"
    rm -r "$work"
}

make_packages() {
    local package
    split
    for package in "${packages[@]}"; do
        make_deb "$package"
    done
    make_rpms
}
