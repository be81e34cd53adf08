#!/usr/bin/env bash
# Installs what combcc needs beside a build: the clang that it is, and the headers that its pass is built with. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
topic=setup-cc

mapfile -t packages < <(missing_for_combcc)
install_packages 'combcc is clang with a pass' "${packages[@]}"
say 'clang-19: present'
