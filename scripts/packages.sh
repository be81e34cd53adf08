# Operating-system packages, for the setup scripts: source it, do not run it.
# The sourcing script may set `topic`, the word that opens each line it prints.

say() { printf '%s: %s\n' "${topic:-setup}" "$*"; }

fail() {
  say "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# install_packages WHY [PACKAGE…]: installs them, or says whom to ask for what. Without a package it does nothing.
install_packages() {
  local why=$1
  shift
  if [ $# -eq 0 ]; then return 0; fi
  have apt-get || fail "missing: $* ($why). This script installs packages with apt-get only; install what
corresponds to these with your system's own tool, then run this again."
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if have sudo && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      fail "missing: $* ($why). Installing needs root. Ask the administrator to run

    apt-get update && apt-get install -y --no-install-recommends $*

then run this again."
    fi
  fi
  say "installing $*: $why"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; } \
    || fail "apt-get could not install $*; its message is above."
}

# Python's own way to keep packages in a folder; Debian's python3 comes without it.
missing_for_python_peers() {
  if ! have python3 || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then echo python3-venv; fi
}

# combcc is clang with a pass, which is built against clang's own libraries.
missing_for_combcc() {
  if ! have clang-19; then echo clang-19; fi
  if [ ! -d /usr/lib/llvm-19/include/llvm ]; then echo llvm-19-dev; fi
}
