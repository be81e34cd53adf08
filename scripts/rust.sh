# The Rust that the workspace asks for, for the setup scripts: source it from the repository's root, after packages.sh;
# do not run it.

# rustup's programs are found even where the login shell does not know them yet.
cargo_programs=${CARGO_HOME:-$HOME/.cargo}/bin
case ":$PATH:" in
  *":$cargo_programs:"*) ;;
  *) PATH=$cargo_programs:$PATH ;;
esac

toolchain=$(sed -n 's/^channel *= *"\(.*\)".*/\1/p' rust-toolchain.toml)
components=$(sed -n 's/^components *= *\[\(.*\)\].*/\1/p' rust-toolchain.toml | tr -d ' "' | tr ',' ' ')
oldest_rust=$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' Cargo.toml)

# Whether a cargo that did not come from rustup is at least as new as the workspace demands.
cargo_is_recent() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) && [ -n "$version" ] \
    && printf '%s\n' "$oldest_rust" "$version" | sort -V -C
}

# Prints the packages without which nothing builds and that this machine lacks. Rust itself is not a package:
# the distributions' compilers are older than the one the workspace is written for.
missing_for_build() {
  if ! c_compiler_links; then echo gcc libc6-dev; fi
  if ! have rustup && ! cargo_is_recent; then
    if ! have curl; then echo curl; fi
    if [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then echo ca-certificates; fi
  fi
}

# A real link, not a look for a file: a compiler without the C library's headers or start files is of no use to Rust.
c_compiler_links() {
  local program linked=no
  have cc || return 1
  program=$(mktemp)
  if printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' | cc -x c -o "$program" - 2>/dev/null; then
    linked=yes
  fi
  rm -f "$program"
  [ "$linked" = yes ]
}

# has_components TOOLCHAIN COMPONENT…: a question only; without the setting rustup would answer it by installing.
has_components() {
  local installed component
  installed=$(RUSTUP_AUTO_INSTALL=0 rustup component list --installed --toolchain "$1" 2>/dev/null) || return 1
  shift
  for component in rustc "$@"; do
    case $'\n'"$installed" in *$'\n'"$component"*) ;; *) return 1 ;; esac
  done
}

# install_toolchain TOOLCHAIN COMPONENT…
install_toolchain() {
  local name=$1 flags=()
  shift
  for component in "$@"; do flags+=(--component "$component"); done
  rustup --quiet toolchain install "$name" --no-self-update --profile minimal "${flags[@]}"
}
