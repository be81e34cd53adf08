#!/usr/bin/env bash
# What Debian's rules say of the newest package of target/deb, and systemd of the units: an error or a warning fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
topic=lint

target=${CARGO_TARGET_DIR:-target}
package=$(find "$target/deb" -maxdepth 1 -name 'comb_*.deb' -print -quit 2>/dev/null)
[ -f "$package" ] || fail 'no package: make deb'

unavoidable=()
if ! grep -q '/man1/comb\.1' <<<"$(dpkg-deb -c "$package")"; then
  say 'there is no man page: its comb writes none'
  unavoidable=(--suppress-tags no-manual-page)
fi
lintian --allow-root --fail-on error,warning "${unavoidable[@]}" "$package"

if ! have systemd-analyze; then
  say 'no systemd-analyze here: the units go unchecked'
  exit 0
fi
# As installed: what a unit calls has to be there, and may not be replaced by this machine's own.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dpkg-deb -x "$package" "$root"
for unit in system user; do
  file=$root/lib/systemd/$unit/comb.service
  [ -e "$file" ] || file=$root/usr/lib/systemd/$unit/comb.service
  mkdir -p "$root/checked/$unit"
  sed "s|/usr/bin/comb|$root/usr/bin/comb|g" "$file" >"$root/checked/$unit/comb.service"
  scope=()
  if [ $unit = user ]; then
    scope=(--user)
    export XDG_RUNTIME_DIR=$root/runtime
    mkdir -p -m 700 "$XDG_RUNTIME_DIR"
  fi
  said=$(systemd-analyze "${scope[@]}" verify --man=no "$root/checked/$unit/comb.service" 2>&1) || { echo "$said" >&2; fail "systemd takes exception to the unit ($unit)"; }
  # What it says of this machine's other units is none of ours.
  if grep 'comb\.service' <<<"$said"; then fail "systemd takes exception to the unit ($unit): above"; fi
  say "systemd takes the unit ($unit)"
done
