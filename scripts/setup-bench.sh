#!/bin/sh
# Installs what Comb's benchmarks compare it with, and builds its opponents in benches/peers.
# Safe to run again: what is there already is left alone. The servers among them are installed without being started: the
# benchmark starts its own. One that was installed before stays as it was.
set -eu

network_packages="ucx-utils libucx-dev libfabric-bin libfabric-dev openmpi-bin libopenmpi-dev"
membership_packages="corosync libcpg-dev etcd-server serf iproute2"
trace_packages="strace linux-perf"
packages="$network_packages $membership_packages $trace_packages"

# package:service
services="corosync:corosync etcd-server:etcd serf:serf"

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

say() {
    printf 'setup-bench: %s\n' "$*"
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Every service whose package is about to be installed, one by one: with_new_services COMMAND... SERVICE
with_new_services() {
    for pair in $services; do
        case " $missing " in
        *" ${pair%%:*} "*) "$@" "${pair##*:}" ;;
        esac
    done
}

# With systemd a masked service is not started when its package is installed; without, only the next boot would start it.
hold_back() {
    [ ! -d /run/systemd/system ] || $root systemctl --quiet mask --runtime "$1"
}

keep_disabled() {
    if [ -d /run/systemd/system ]; then
        $root systemctl --quiet unmask --runtime "$1"
        $root systemctl --quiet disable "$1"
    elif command -v update-rc.d >/dev/null; then
        $root update-rc.d "$1" disable
    fi
    say "services: $1 is not started at boot"
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
    with_new_services hold_back
    $root env DEBIAN_FRONTEND=noninteractive $install -qq >/dev/null
    with_new_services keep_disabled
fi

say "peers: building in benches/peers"
make --no-print-directory -s -C "$here/../benches/peers"
for group in network membership pages; do
    ready=$(make --no-print-directory -s -C "$here/../benches/peers" "list-$group" | tr '\n' ' ')
    if [ -z "$ready" ]; then
        say "peers: none for $group; what each lacks is said above" >&2
        exit 1
    fi
    say "peers: ${ready}are ready for $group"
done
