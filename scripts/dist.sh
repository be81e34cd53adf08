#!/usr/bin/env bash
# Makes target/dist/comb-VERSION-x86_64.tar.gz: a `comb` that is linked with nothing, for any Linux on x86-64 of 6.1 and newer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/rust.sh
. scripts/version.sh
topic=dist

triple=x86_64-unknown-linux-musl
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --target $triple -p comb-cli --bins

name=comb-$version-x86_64
dist=$target/dist
place=$dist/$name
rm -rf "$place" "$dist"/comb-*.tar.gz*
install -d "$place"
install -m 755 "$target/$triple/release/comb" "$target/$triple/release/comb-guest" "$place"
strip "$place/comb" "$place/comb-guest"
# What asks for a loader or a library would not run elsewhere.
if readelf -lW "$place/comb" | grep -q INTERP || readelf -dW "$place/comb" | grep -q NEEDED; then
  fail "$place/comb is not static"
fi
"$place/comb" --version >/dev/null

install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE packaging/config.toml "$place"
install -m 644 packaging/INSTALL "$place/INSTALL"
install -d "$place/docs"
install -m 644 docs/operations.md docs/GLOSSARY.md "$place/docs"
install -d "$place/systemd/user"
install -m 644 packaging/systemd/comb.service "$place/systemd/comb.service"
install -m 644 packaging/systemd/user/comb.service "$place/systemd/user/comb.service"
scripts/extras.sh "$place/comb" "$place"
scripts/licences.sh $triple "$place/licences"

tar --directory "$dist" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$name" \
  | gzip -9n >"$dist/$name.tar.gz"
(cd "$dist" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
rm -r "$place"
say "$dist/$name.tar.gz: $(du -h "$dist/$name.tar.gz" | cut -f 1), with its sum beside it"
