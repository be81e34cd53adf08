#!/usr/bin/env bash
# Installs what packages are made with, beside a build: the standard library for programs that are linked with nothing, a C
# compiler for the same, and Debian's tools to make and check a package and to try it in a system of its own. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/rust.sh
topic=setup-dist

# One request for everything, so that whoever must ask an administrator asks once.
missing_for_packages() {
  if ! have musl-gcc; then echo musl-tools; fi
  if ! have strip; then echo binutils; fi
  if ! have dpkg-shlibdeps; then echo dpkg-dev; fi
  if ! have lintian; then echo lintian; fi
  if ! have debootstrap && [ ! -x /usr/sbin/debootstrap ]; then echo debootstrap; fi
  if ! have systemd-analyze && ! has_another_init; then echo systemd; fi
}

# Beside another init, systemd's package would take its place: the units go unchecked there.
has_another_init() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' sysvinit-core 2>/dev/null)" = installed ]
}

mapfile -t packages < <({ missing_for_build; missing_for_packages; } | tr ' ' '\n')
install_packages 'a static program needs a C compiler for musl, a package the tools that make and check it' "${packages[@]}"

scripts/setup.sh

target=x86_64-unknown-linux-musl
if [ -d "$(rustc --print target-libdir --target $target)" ]; then
  say "Rust's standard library for $target: present"
elif have rustup; then
  say "Rust's standard library for $target: installing"
  rustup --quiet target add --toolchain "$toolchain" $target || fail "rustup could not install it; its message is above."
else
  fail "Rust's standard library for $target is not here, and only rustup can install it."
fi
