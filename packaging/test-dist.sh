#!/usr/bin/env bash
# Unpacks the newest static archive of target/dist and uses it as whoever has fetched it would; as root also where there is no
# loader, no library and no shell.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
topic=test-dist

target=${CARGO_TARGET_DIR:-target}
archive=$(find "$target/dist" -maxdepth 1 -name 'comb-*.tar.gz' -print -quit 2>/dev/null)
[ -f "$archive" ] || fail 'no archive: make dist'
(cd "$target/dist" && sha256sum --quiet -c "${archive##*/}.sha256")

work=$(mktemp -d "${TMPDIR:-/tmp}/comb-test-dist.XXXXXX")
export COMB_RUNTIME_DIR=$work/run
clean_up() {
  "$comb" down >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
tar --directory "$work" -xf "$archive"
name=${archive##*/}
place=$work/${name%.tar.gz}
comb=$place/comb
trap clean_up EXIT

# expect TEXT COMMAND…: it succeeds and says that.
expect() {
  local text=$1 said
  shift
  if ! said=$("$@" 2>&1) || ! grep -qE -- "$text" <<<"$said"; then
    fail "\"$*\" was to say \"$text\", and said:
$said"
  fi
}

# eventually TEXT COMMAND…: it says that within 20 seconds.
eventually() {
  local text=$1
  shift
  for _ in $(seq 200); do
    if "$@" 2>&1 | grep -qE -- "$text"; then return; fi
    sleep 0.1
  done
  fail "\"$*\" was to say \"$text\" in the end"
}

for file in README.md LICENSE-MIT LICENSE-APACHE INSTALL config.toml systemd/comb.service licences/CRATES licences/musl/COPYRIGHT; do
  [ -s "$place/$file" ] || fail "the archive has no $file"
done

expect '^4 cells are up' "$comb" up --cells 4
expect ' up ' "$comb" ps
expect '3 of 3 peers noticed' "$comb" cell kill 2
eventually 'cell 2: is up|coming in|started' "$comb" log

# A program in C that uses memory between its components: it has this machine's C library, and its launcher and cells have their own.
[ -e "$target/release/libcomb.so" ] || fail 'no libcomb.so for programs to try: make deb, or cargo build --release -p comb-capi'
cc -O2 crates/capi/examples/jacobi.c -Icrates/capi/include "$target/release/libcomb.so" -Wl,-rpath,"$(realpath "$target/release")" -lm -o "$work/jacobi"
for how in '' '--share copy' '--cells none'; do
  # shellcheck disable=SC2086 # words, or none
  expect . "$comb" run -n 2 $how -- "$work/jacobi"
done
expect '^ended 4 cells' "$comb" down
[ ! -e "$COMB_RUNTIME_DIR" ] || fail 'its directory was left behind'
# Programs that are static themselves use memory between their components, and cells fail under them: the campaign brings both.
expect . "$comb" inject --count 3

if [ "$(id -u)" -eq 0 ]; then
  mkdir -p "$work/empty/proc" "$work/empty/dev" "$work/empty/tmp"
  cp "$comb" "$work/empty/"
  unshare --mount bash -euc '
    mount --rbind /proc "$1/proc"
    mount --rbind /dev "$1/dev"
    alone() { env -i "$(command -v chroot || echo /usr/sbin/chroot)" "$1" "${@:2}"; }
    alone "$1" /comb up --cells 3
    alone "$1" /comb run -n 2 -- /comb --version
    alone "$1" /comb down
    alone "$1" /comb inject --count 1' empty "$work/empty" >"$work/said" || fail "where there is nothing else: $(cat "$work/said")"
  say 'it needs nothing beside it'
fi
say 'it works, and left nothing behind'
