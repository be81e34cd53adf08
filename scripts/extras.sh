#!/usr/bin/env bash
# Has a comb write what shells complete and what `man comb` shows: extras.sh COMB DIRECTORY makes DIRECTORY/completions and
# DIRECTORY/man. What that comb cannot write is said and left out; DIRECTORY has then no such part.
set -euo pipefail
comb=$(realpath "$1")
directory=$2
mkdir -p "$directory"
rm -rf "$directory/completions" "$directory/man"

say() { printf 'extras: %s\n' "$*"; }

# What each shell's own files are called.
declare -A names=([bash]=comb [zsh]=_comb [fish]=comb.fish)
for shell in bash zsh fish; do
  file=$directory/completions/$shell/${names[$shell]}
  mkdir -p "${file%/*}"
  if ! "$comb" completion "$shell" >"$file" 2>/dev/null || [ ! -s "$file" ]; then
    say "this comb writes no completions for $shell: left out"
    rm "$file" && rmdir -p --ignore-fail-on-non-empty "${file%/*}"
  fi
done

mkdir -p "$directory/man"
if ! "$comb" man "$directory/man" >/dev/null 2>&1 || ! compgen -G "$directory/man/*.1" >/dev/null; then
  say 'this comb writes no man pages: left out'
  rm -rf "$directory/man"
fi
