#!/usr/bin/env bash
# Installs the Debian package in a fresh Debian of its own, does what the README's first minute does as root and as somebody else,
# removes it, and looks whether anything is left. test-deb.sh [PACKAGE]; without one, the newest of target/deb.
#
# The system is made by debootstrap from where this machine's apt gets its packages, and kept as an archive beside the package, so that
# only the first run fetches it. Each run has its own copy, mounts, processes, cgroups, and no network but for apt.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
topic=test-deb

target=${CARGO_TARGET_DIR:-target}
package=${1:-$(find "$target/deb" -maxdepth 1 -name 'comb_*.deb' -print -quit 2>/dev/null)}
[ -f "$package" ] || fail 'no package: make deb'
[ "$(id -u)" -eq 0 ] || fail 'a system of its own is made by root only'
export PATH=$PATH:/usr/sbin:/sbin
have debootstrap || fail 'debootstrap is missing: make setup-dist'

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
archive=$target/deb/base-$codename.tar
work=$(mktemp -d "${TMPDIR:-/tmp}/comb-test-deb.XXXXXX")
root=$work/root

# Our own cgroup, if there is the second version and we may make one: cells are put below it.
cgroups=$(awk '{ for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
cgroup=
if [ -n "$cgroups" ] && mkdir "$cgroups/comb-test-deb-$$" 2>/dev/null; then
  cgroup=$cgroups/comb-test-deb-$$
fi

clean_up() {
  if [ -n "$cgroup" ]; then
    echo $$ >"$cgroups/cgroup.procs" || true
    # What was killed with its namespace may take a moment to leave.
    for _ in $(seq 100); do
      find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ -d "$cgroup" ] || break
      sleep 0.05
    done
  fi
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# The first source of this release, as apt itself knows it.
mirror() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' \
    | awk -v release="$codename" '$2 == release && $3 == "main" { print $1; exit }'
}

if [ ! -e "$archive" ]; then
  say "making a Debian $codename, for this run and the next ones"
  from=$(mirror)
  [ -n "$from" ] || fail "this machine's apt has no source for $codename"
  if ! debootstrap --variant=minbase "$codename" "$work/base" "$from" >"$work/debootstrap.log" 2>&1; then
    tail -5 "$work/debootstrap.log" >&2
    fail 'debootstrap failed; its last words are above'
  fi
  rm -rf "$work/base/var/cache/apt/archives"/*.deb
  tar --directory "$work/base" --one-file-system -cf "$archive.new" .
  mv "$archive.new" "$archive"
  rm -rf "$work/base"
fi
mkdir "$root"
tar --directory "$root" -xf "$archive"

install -m 644 "$package" "$root/tmp/comb.deb"
install -m 755 packaging/tests/*.sh "$root/tmp/"
cp /etc/resolv.conf "$root/etc/resolv.conf"
apt-config dump Acquire | grep -i '::proxy' >"$root/etc/apt/apt.conf.d/01proxy" || true
# So that the whole of what a package leaves is seen, nothing that dpkg leaves out by itself is.
rm -f "$root"/etc/dpkg/dpkg.cfg.d/*

# inside NETWORK COMMAND…: in the system, with its own mounts, processes, cgroups, and network unless NETWORK is shared.
inside() {
  local network=(--net)
  if [ "$1" = shared ]; then network=(); fi
  shift
  unshare --mount --pid --fork --kill-child --uts --ipc --cgroup "${network[@]}" bash -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || mount --rbind /sys "$root/sys"
    mount --bind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    if [ -d "$root/sys/fs/cgroup" ]; then mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || true; fi
    # What other machines would have: an interface to itself.
    if command -v ip >/dev/null; then ip link set lo up || true; fi
    # Variables of ours are none of the system that is tried.
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"
  ' inside "$root" "$@"
}

# All files, but for what apt and dpkg keep for themselves.
files() {
  (cd "$root" && find . -xdev \( -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log -o -path ./tmp \) \
    -prune -o -printf '%p\n' | sort)
}

if [ -n "$cgroup" ]; then echo $$ >"$cgroup/cgroup.procs"; else say 'no cgroup can be made here: cells are tried without'; fi

say 'installing by apt'
inside shared apt-get -qq update
files >"$work/before"
# Somebody who is not root, from before there was a comb.
inside own useradd --create-home bee
files >"$work/before"
inside shared apt-get -qq install -y --no-install-recommends /tmp/comb.deb >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; fail 'apt could not install it'; }

# Compiled here, against what was installed there.
for program in jacobi tally; do
  cc -O2 crates/capi/examples/$program.c -I"$root/usr/include" -L"$root/usr/lib/x86_64-linux-gnu" -lcomb -lm -o "$root/tmp/$program"
done

say "root's first minute"
inside own /tmp/first_minute.sh
say "somebody else's first minute"
inside own runuser -u bee -- env HOME=/home/bee /tmp/first_minute.sh
say 'the agent as a service'
inside own /tmp/service.sh

say 'removing it, while root has cells'
inside own sh -euc '
  echo "# by its owner" >>/etc/comb/config.toml
  comb up --cells 2 >/dev/null
  apt-get -qq remove -y comb >/dev/null
  /tmp/nothing_runs.sh
  [ ! -e /usr/bin/comb ] && [ ! -e /lib/systemd/system/comb.service ]
  grep -q "by its owner" /etc/comb/config.toml
  echo other >/etc/comb/other
  apt-get -qq purge -y comb >/dev/null
  [ ! -e /etc/comb ]'
files >"$work/after"
if ! diff "$work/before" "$work/after" >"$work/left"; then
  cat "$work/left" >&2
  fail 'what is above was left behind (>) or lost (<)'
fi
say 'it came, worked, and left nothing behind'
