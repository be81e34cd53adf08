#!/usr/bin/env bash
# Puts beside an installed comb what shells, man and systemd look for: install-extras.sh COMB SCRATCH DESTDIR PREFIX UNITDIR. What that
# comb cannot write is said and left out. Nothing is started or enabled.
set -euo pipefail
cd "$(dirname "$0")/.."
comb=$1
scratch=$2
destination=$3
prefix=$4
units=$5

scripts/extras.sh "$comb" "$scratch"

# put FILE PATH: FILE, if it is there, as PATH below the prefix.
put() {
  if [ -e "$scratch/$1" ]; then install -D -m 644 "$scratch/$1" "$destination$prefix/share/$2"; fi
}
put completions/bash/comb bash-completion/completions/comb
# What a distribution brings is kept apart from what the machine's owner does.
case $prefix in
  /usr) put completions/zsh/_comb zsh/vendor-completions/_comb ;;
  *) put completions/zsh/_comb zsh/site-functions/_comb ;;
esac
put completions/fish/comb.fish fish/vendor_completions.d/comb.fish

for page in "$scratch"/man/*.1; do
  if [ ! -e "$page" ]; then continue; fi
  file=$destination$prefix/share/man/man1/${page##*/}.gz
  install -d "${file%/*}"
  gzip -9n <"$page" >"$file"
  chmod 644 "$file"
done

# Their program is where this one was installed.
unit() {
  install -d "${2%/*}"
  sed "s|/usr/bin/comb|$prefix/bin/comb|g" "$1" >"$2"
  chmod 644 "$2"
}
unit packaging/systemd/comb.service "$destination$units/comb.service"
unit packaging/systemd/user/comb.service "$destination$prefix/lib/systemd/user/comb.service"
