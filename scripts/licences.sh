#!/usr/bin/env bash
# Gathers what must come along with a program that contains other people's code: licences.sh TARGET DIRECTORY puts the texts of all
# crates that `comb` is made of for TARGET into DIRECTORY, each under the crate's name.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1
directory=$2
rm -rf "$directory"
mkdir -p "$directory"

# Each line: name, version, where its sources are, and its licence by name.
crates() {
  cargo tree --locked --edges normal --target "$target" --package comb-cli --package comb-capi --prefix none --format '{p}|{l}' \
    | sed 's/ (\*)$//' | sort -u | grep -v -e ' (/' -e '^$'
}

sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
list=$directory/CRATES
while IFS='|' read -r package licence; do
  name=${package%% *}
  version=${package#* v}
  version=${version%% *}
  printf '%s %s: %s\n' "$name" "$version" "$licence" >>"$list"
  found=no
  for text in "$sources"/*/"$name-$version"/{{LICEN[CS]E,COPYING,COPYRIGHT,UNLICENSE,NOTICE}*,fonts/*.txt}; do
    if [ ! -f "$text" ]; then continue; fi
    mkdir -p "$directory/$name"
    install -m 644 "$text" "$directory/$name/"
    found=yes
  done
  if [ $found = no ]; then
    printf 'licences: %s %s comes without a text; its licence by name (%s) stands in CRATES\n' "$name" "$version" "$licence"
  fi
done < <(crates)
[ -s "$list" ] || { echo 'licences: no crates found' >&2; exit 1; }

# The standard library is in every program of Rust's, and musl in a static one.
rust=$(rustc --print sysroot)/share/doc/rust
for text in "$rust"/{COPYRIGHT-library.html,LICENSE-MIT,LICENSE-APACHE}; do
  if [ -f "$text" ]; then
    mkdir -p "$directory/rust"
    install -m 644 "$text" "$directory/rust/"
  fi
done
case $target in
  *musl) install -D -m 644 /usr/share/doc/musl-dev/copyright "$directory/musl/COPYRIGHT" ;;
esac
