#!/bin/sh
# Installs the libraries that Comb's network benchmark compares with, and builds its opponents in benches/peers.
# Safe to run again: what is there already is left alone.
set -eu

packages="ucx-utils libucx-dev libfabric-bin libfabric-dev openmpi-bin libopenmpi-dev"

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

say() {
    printf 'setup-bench: %s\n' "$*"
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=
for package in $packages; do
    is_installed "$package" || missing="$missing $package"
done
missing=${missing# }

if ! command -v apt-get >/dev/null; then
    say "packages: no apt-get here; building with what there is"
elif [ -z "$missing" ]; then
    say "packages: all installed"
else
    install="apt-get install -y --no-install-recommends $missing"
    if [ "$(id -u)" = 0 ]; then
        root=
    elif sudo -n true 2>/dev/null; then
        root="sudo -n"
    else
        say "cannot become root here. Ask an administrator to run this, then run setup-bench again:" >&2
        say "  sudo sh -c 'apt-get update && $install'" >&2
        exit 1
    fi
    say "packages: refreshing the list"
    $root apt-get update -qq
    say "packages: installing $missing"
    $root env DEBIAN_FRONTEND=noninteractive $install -qq >/dev/null
fi

say "peers: building in benches/peers"
make --no-print-directory -s -C "$here/../benches/peers"
ready=$(make --no-print-directory -s -C "$here/../benches/peers" list | tr '\n' ' ')
if [ -z "$ready" ]; then
    say "peers: none could be built; what each lacks is said above" >&2
    exit 1
fi
say "peers: ${ready}are ready"
