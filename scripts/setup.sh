#!/usr/bin/env bash
# Installs what a build of Comb needs and this machine lacks: a C compiler, and Rust. Safe to run again; when all is
# there it changes nothing and takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/rust.sh
topic=setup

mapfile -t packages < <(missing_for_build | tr ' ' '\n')
install_packages 'Rust links with a C compiler and is fetched with curl' "${packages[@]}"
c_compiler_links || fail 'the C compiler cannot link a program, and Rust needs it to.'
say 'C compiler: present (Rust links with it)'

if ! have rustup; then
  if cargo_is_recent; then
    say "Rust: $(cargo --version) is there without rustup and at least $oldest_rust; going on with it"
    exit 0
  fi
  say "Rust: fetching rustup, which keeps the version that rust-toolchain.toml names beside any other"
  installer=$(mktemp)
  trap 'rm -f "$installer"' EXIT
  curl --proto '=https' --tlsv1.2 -sSf -o "$installer" https://sh.rustup.rs || fail "could not fetch rustup from https://sh.rustup.rs; curl's
message is above. Without a network, install Rust $oldest_rust or newer by other means (cargo and rustc in PATH), then run this again."
  # No default toolchain: the next step installs the one we pin. The login shell's files stay as they are.
  RUSTUP_INIT_SKIP_PATH_CHECK=yes \
    sh "$installer" -q -y --no-modify-path --profile minimal --default-toolchain none >/dev/null \
    || fail 'rustup could not be installed; its message is above.'
  say "make finds cargo in $cargo_programs by itself; to call it yourself: export PATH=\"$cargo_programs:\$PATH\""
fi

if has_components "$toolchain" $components; then
  say "Rust $toolchain: present, with $components"
else
  say "Rust: installing $toolchain with $components, the version rust-toolchain.toml names"
  install_toolchain "$toolchain" $components || fail "rustup could not install Rust $toolchain; its message is above."
fi
