#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Debian packages of trimwire, trimwire-switch, trimwire-controller and trimwire-agent, for machines
# like this one, in target/debian. Needs dpkg-deb, and nothing that a build does not need anyway.
# `packaging/deb.sh FOLDER` packs the binaries of a folder instead of building them.
set -eu
cd "$(dirname "$0")/.."
if ! command -v dpkg-deb >/dev/null; then
    echo 'SKIPPED: Debian packages (dpkg-deb is not installed)'
    exit 0
fi
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
if [ $# -gt 0 ]; then
    binaries=$1
else
    $cargo build --release --locked -p trimwire -p trimwire-switch -p trimwire-controller -p trimwire-agent-programs
    binaries=$target/release
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
# What the binaries were linked with here is what they ask for there.
libc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
out=$target/debian
umask 022
rm -rf "$out"
mkdir -p "$out"

# NAME SUMMARY [UNIT]: the binary, its pages and completions, the licences of what is linked into
# it, and its unit.
pack() {
    name=$1
    root=$out/$name
    share=$root/usr/share
    mkdir -p "$root/DEBIAN" "$root/usr/bin" "$share/doc/$name" "$share/man/man1" \
        "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    install -m 755 "$binaries/$name" "$root/usr/bin/$name"
    strip --strip-unneeded "$root/usr/bin/$name" 2>/dev/null || echo "$name keeps its symbols (no strip that knows it)"
    "$binaries/$name" man "$share/man/man1"
    gzip -9n "$share"/man/man1/*.1
    "$binaries/$name" completions bash >"$share/bash-completion/completions/$name"
    "$binaries/$name" completions zsh >"$share/zsh/vendor-completions/_$name"
    "$binaries/$name" completions fish >"$share/fish/vendor_completions.d/$name.fish"
    if [ $# -gt 2 ]; then
        mkdir -p "$root/usr/lib/systemd/system"
        install -m 644 "packaging/systemd/$3" "$root/usr/lib/systemd/system/$3"
    fi
    {
        echo 'Upstream: https://github.com/trimwire/trimwire'
        echo
        cat NOTICE
        echo
        python3 packaging/licences.py "$name"
        echo
        cat LICENSE
    } >"$share/doc/$name/copyright"
    gzip -9nc CHANGELOG.md >"$share/doc/$name/changelog.gz"
    if [ "$name" = trimwire-controller ]; then
        mkdir -p "$root/usr/lib/sysusers.d"
        install -m 644 packaging/sysusers.conf "$root/usr/lib/sysusers.d/trimwire.conf"
        cp -r examples "$share/doc/$name/examples"
        install -m 644 packaging/monitoring/* "$share/doc/$name/"
        install -m 755 packaging/controller.postinst "$root/DEBIAN/postinst"
        install -m 755 packaging/controller.postrm "$root/DEBIAN/postrm"
    fi
    cat >"$root/DEBIAN/control" <<EOF
Package: $name
Version: $version
Architecture: $architecture
Maintainer: The Trimwire authors <https://github.com/trimwire/trimwire>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: libc6 (>= $libc), libgcc-s1
Section: net
Priority: optional
Homepage: https://github.com/trimwire/trimwire
Description: $2
 Trimwire makes gradient packets of distributed training trimmable: a congested
 switch trims them instead of dropping them.
EOF
    dpkg-deb --root-owner-group --build "$root" "$out/${name}_${version}_$architecture.deb"
    rm -r "$root"
}

pack trimwire 'demo and codec measurements of trimmable gradients'
pack trimwire-switch 'software switch that runs P4 programs and trims packets' 'trimwire-switch@.service'
pack trimwire-controller 'brings a fabric of P4 switches to what a file says' trimwire-controller.service
pack trimwire-agent 'sends gradients in packets that switches may trim' 'trimwire-serve@.service'
