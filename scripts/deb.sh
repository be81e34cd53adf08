#!/usr/bin/env bash
# Makes target/deb/comb_VERSION_amd64.deb of a release build: everything that `make install` brings, where Debian wants it. combcc is
# in it if `make combcc` has built it for this release.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/rust.sh
. scripts/version.sh
topic=deb

target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked -p comb-cli -p comb-capi -p comb-library-os

# A hyphen would begin Debian's own part of the number; a tilde sorts before nothing, as a version that is not out yet has to.
upstream=${version//-/\~}
debian_version=$upstream-1
processor=x86_64-linux-gnu
out=$target/deb
root=$out/root
rm -rf "$root" "$out/source"
make --no-print-directory -s install-files DESTDIR="$PWD/$root" PREFIX=/usr LIBDIR="/usr/lib/$processor" UNITDIR=/lib/systemd/system

# Where there is a combcc, it is one of this build: an older one would put older code into programs.
suggests='clang-19'
if [ -x "$target/release/combcc" ] && [ -e cc/build/comb/libcombpass.so ]; then
  cargo build --release --locked -p comb-cc
  make --no-print-directory -s install-combcc-files DESTDIR="$PWD/$root" PREFIX=/usr
  say 'combcc: in it'
else
  suggests=
  say 'combcc: not built (make combcc), left out'
fi

# Symbols of our own programs are for whoever develops them. The static runtime of combcc is linked into programs and keeps its own.
find "$root/usr" -type f \( -path '*/bin/*' -o -name comb-guest -o -name '*.so' \) -exec strip --remove-section=.comment --remove-section=.note --strip-unneeded {} +

# Debian's loader wants no right to execute of a library.
find "$root/usr/lib" -name '*.so' -exec chmod 644 {} +

documents=$root/usr/share/doc/comb
install -d "$documents" "$root/etc/comb" "$root/usr/share/lintian/overrides"
install -m 644 packaging/config.toml "$root/etc/comb/config.toml"
install -m 644 packaging/debian/copyright "$documents/copyright"
install -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/comb"
install -m 644 README.md docs/operations.md docs/GLOSSARY.md "$documents"
gzip -9n <CHANGELOG.md >"$documents/changelog.gz"
cp -r docs/tutorial "$documents/"
scripts/licences.sh x86_64-unknown-linux-gnu "$documents/licences"

maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control.in)
printf 'comb (%s) unstable; urgency=medium\n\n  * What is new in %s is in changelog.gz beside this.\n\n -- %s  %s\n' \
  "$debian_version" "$version" "$maintainer" "$(LC_ALL=C date -R -u -d "@$SOURCE_DATE_EPOCH")" \
  | gzip -9n >"$documents/changelog.Debian.gz"

# From what our programs ask of libraries: the oldest versions that have all those symbols. Its tool wants a source package's form.
install -d "$out/source/debian"
printf 'Source: comb\n\nPackage: comb\nArchitecture: amd64\n' >"$out/source/debian/control"
mapfile -t programs < <(find "$PWD/$root/usr" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -print)
depends=$(cd "$out/source" && dpkg-shlibdeps -O --ignore-missing-info -l"../root/usr/lib/$processor" "${programs[@]/#/-e}" | sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || fail 'what the programs depend on could not be found out'

install -d "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"; done
echo /etc/comb/config.toml >"$root/DEBIAN/conffiles"
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
chmod 644 "$root/DEBIAN/conffiles" "$root/DEBIAN/triggers"
find "$root" -type d -exec chmod 755 {} +
size=$(du -sk --exclude=DEBIAN "$root" | cut -f 1)
homepage=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
sed -e "s|@VERSION@|$debian_version|" -e "s|@HOMEPAGE@|$homepage|" -e "s|@SIZE@|$size|" \
  -e "s|@DEPENDS@|$depends|" -e "s|@SUGGESTS@|$suggests|" -e '/^Suggests: $/d' packaging/debian/control.in >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/md5sums"

package=$out/comb_${debian_version}_amd64.deb
rm -f "$out"/comb_*.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
(cd "$out" && sha256sum "${package##*/}" >"${package##*/}.sha256")
rm -r "$root" "$out/source"
say "$package: $(du -h "$package" | cut -f 1); depends on $depends"
