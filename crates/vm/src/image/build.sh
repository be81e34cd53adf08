#!/bin/sh
# Makes an image from Debian's packages: a kernel, what it begins with, and a root file system, in a directory that is empty.
#
#   OUT=DIRECTORY AGENT=PROGRAM [KERNEL=DEB] [PACKAGES="gcc make"] [WITH=DIRECTORY] [BRING=PROGRAMS] [ROOM=MEGABYTES] build.sh
#   OUT=DIRECTORY PROGRAM=PROGRAM [KERNEL=DEB] [WITH=DIRECTORY] build.sh
#
# With PROGRAM there is that program alone, which was linked with the library operating system.
# BRING are programs of this machine's, a line each: they are there by the same path, and by their name alone.
# Without PACKAGES the root has busybox, the agent and nothing else; with them it is a small Debian. Says on each line what it does.
set -eu

fail() { echo "$*" >&2; exit 1; }
say() { echo "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
PATH=$PATH:/usr/sbin:/sbin

missing=
for needs in dpkg-deb:dpkg mke2fs:e2fsprogs gzip:gzip ${PACKAGES:+debootstrap:debootstrap}; do
  have "${needs%:*}" || missing="$missing ${needs#*:}"
done
busybox=$(command -v busybox || true)
[ -n "$busybox" ] && "$busybox" --list 2>/dev/null | grep -qx depmod || missing="$missing busybox-static"
[ -z "$missing" ] || fail "not installed here:$missing (apt install$missing)"
if [ -n "${PACKAGES:-}" ] && [ "$(id -u)" != 0 ]; then fail "an image with packages is made by root: debootstrap needs it"; fi

work=$(mktemp -d "$OUT/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# The kernel's package, and out of it the kernel and those of its modules that a guest needs.
if [ -z "${KERNEL:-}" ]; then
  have apt-get || fail "there is no apt-get here: name a kernel's package (--kernel)"
  package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -1)
  [ -n "$package" ] || fail "apt knows no linux-image-cloud-amd64: run apt-get update, or name a kernel's package (--kernel)"
  say "downloads $package"
  apt-get -q -o APT::Sandbox::User="$(id -un)" download "$package" >download.log 2>&1 || fail "$(tail -1 download.log)"
  KERNEL=$(echo "$work"/linux-image-*.deb)
fi
say "unpacks $(basename "$KERNEL")"
dpkg-deb -x "$KERNEL" kernel
version=$(basename "$(echo kernel/lib/modules/*)")
cp "kernel/boot/vmlinuz-$version" "$OUT/kernel"
"$busybox" depmod -b "$work/kernel" "$version"

# Modules in the order in which they are loaded: each behind what it needs.
modules=kernel/lib/modules/$version
order() {
  line=$(grep "/$1\.ko:" "$modules/modules.dep") || fail "the kernel's package has no module $1"
  # What a module needs stands there so that the last is to come first.
  for needs in ${line#*:}; do echo "$needs"; done | tac
  echo "${line%%:*}"
}
mkdir -p begin/bin begin/lib begin/dev begin/root
wanted='virtio_pci virtio_pmem nd_pmem dax_pmem device_dax virtio_console virtio_balloon virtio_mem pvpanic-pci virtio-rng virtio_net virtio_blk erofs overlay'
[ -z "${PROGRAM:-}" ] || wanted='virtio_pci virtio_console pvpanic-pci virtio_pmem dax_pmem nd_pmem device_dax'
number=100
for module in $wanted; do
  order "$module"
done | awk '!seen[$0]++' >order
while read -r module; do
  number=$((number + 1))
  cp "$modules/$module" "begin/lib/$number-$(basename "$module")"
done <order
# What the kernel begins with, which it unpacks into memory.
initrd() { (cd begin && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -9) >"$OUT/initrd"; }
if [ -n "${PROGRAM:-}" ]; then
  say "puts $PROGRAM into it, and nothing else"
  rmdir begin/root
  [ -z "${WITH:-}" ] || cp -a "$WITH/." begin
  name=$(basename "$PROGRAM")
  cp "$PROGRAM" "begin/bin/$name"
  strip "begin/bin/$name" 2>/dev/null || true
  chmod 755 "begin/bin/$name"
  ln -sf "bin/$name" begin/init
  initrd
  : >"$OUT/root"
  echo "$version" >"$OUT/version"
  exit
fi
cp "$busybox" begin/bin/busybox
cat >begin/init <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
for module in /lib/*.ko; do $b insmod "$module"; done
# What is written to memory under a disk is nowhere else: it is not waited for. (An engine that continues from a template would never say that it is there.)
for disk in /dev/pmem0 /dev/vda; do
  [ -b "$disk" ] || continue
  case $disk in *pmem*) options=noatime,nobarrier,dax=always ;; *) options=noatime ;; esac
  $b mount -t ext4 -o "$options" "$disk" /root && break
done
$b mount -o move /dev /root/dev
exec $b switch_root /root /sbin/init
END
chmod +x begin/init
initrd

# The root: a program and the libraries that it is linked with, as they are here.
with_libraries() {
  mkdir -p "root$(dirname "$2")"
  cp "$1" "root$2"
  ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "root$(dirname "$library")"
    [ -e "root$library" ] || cp -L "$library" "root$library"
  done
}
if [ -n "${PACKAGES:-}" ]; then
  say "installs Debian bookworm with $PACKAGES"
  include=busybox,$(echo "$PACKAGES" | tr ' ' ',')
  debootstrap --variant=minbase --include="$include" bookworm root >debootstrap.log 2>&1 || fail "debootstrap: $(tail -1 debootstrap.log)"
  rm -rf root/var/cache/apt/archives/*.deb root/var/lib/apt/lists/*
  rm -f root/sbin/init
else
  mkdir -p root/bin root/sbin root/etc root/proc root/sys root/dev root/tmp root/root root/run root/var
  cp "$busybox" root/bin/busybox
  for applet in $("$busybox" --list); do
    [ -e "root/bin/$applet" ] || ln -s busybox "root/bin/$applet"
  done
  printf 'root:x:0:0:root:/root:/bin/sh\n' >root/etc/passwd
  printf 'root:x:0:\n' >root/etc/group
fi
chmod 1777 root/tmp
if [ -n "${WITH:-}" ]; then
  say "copies $WITH"
  cp -a "$WITH/." root
fi
with_libraries "$AGENT" /sbin/comb-guest
printf '%s' "${BRING:-}" | while IFS= read -r program; do
  [ -n "$program" ] || continue
  [ -f "$program" ] && [ -x "$program" ] || fail "$program: there is no such program"
  say "brings $program"
  with_libraries "$program" "$program"
  name=$(basename "$program")
  [ -e "root/bin/$name" ] || ln -s "$program" "root/bin/$name"
done
ln -sf /bin/busybox root/sbin/init
cat >root/etc/inittab <<'END'
::sysinit:/etc/begin
::respawn:/sbin/comb-guest
hvc0::respawn:-/bin/sh
::ctrlaltdel:/bin/busybox poweroff
::shutdown:/etc/end
END
cat >root/etc/end <<'END'
#!/bin/busybox sh
# The kernel would wait for its disk in vain, in a machine that continues from a template: that is gone for the engine.
# So this is the end: a restart at once, of a machine that does not restart.
kill -TERM -1
sleep 0.2
sync
echo b >/proc/sysrq-trigger
END
chmod +x root/etc/end
cat >root/etc/begin <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc none /proc
$b mount -t sysfs none /sys
$b mount -t tmpfs -o mode=755 none /run
$b mkdir -p /dev/pts /dev/shm /dev/virtio-ports
$b mount -t devpts none /dev/pts
$b mount -t tmpfs none /dev/shm
# Which port is called what.
for port in /sys/class/virtio-ports/*; do
  [ -f "$port/name" ] && $b ln -s "../$($b basename "$port")" "/dev/virtio-ports/$($b cat "$port/name")"
done
# User-mode Linux has a line and a console of other names.
if [ -b /dev/ubda ]; then
  $b ln -s ../ttyS0 /dev/virtio-ports/comb.guest
  $b ln -s tty0 /dev/hvc0
fi
$b ip link set lo up
END
chmod +x root/etc/begin

# As large as what is in it, with a quarter more and the room that is wanted.
used=$(du -sm root | cut -f1)
size=$(((used * 5 / 4 + ${ROOM:-64} + 15) / 16 * 16))
say "writes a root of $size MB, $used of them in use"
truncate -s "${size}M" "$OUT/root"
mke2fs -q -t ext4 -b 4096 -O ^has_journal -d root "$OUT/root"
echo "$version" >"$OUT/version"
