#!/usr/bin/env bash
# Installs what the tests need beside a build: network namespaces' tool, and, where they can be had, a browser, an
# interpreter that finds undefined behaviour, the other processor's standard library and Python's statistics. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
. scripts/rust.sh
topic=setup-test

# etcd is one of two quorum resources; its test says that it did not run where there is none.
etcd_is_wanted() { ! have etcd && have apt-cache && apt-cache show etcd-server >/dev/null 2>&1; }

# A trace is exported for fio; the tests say that they did not run where there is none.
fio_is_wanted() { ! have fio && have apt-cache && apt-cache show fio >/dev/null 2>&1; }

# An engine of machines; its tests say that they did not run where there is none.
uml_is_wanted() { ! have linux.uml && have apt-cache && apt-cache show user-mode-linux >/dev/null 2>&1; }

# The dashboard's page is tested in a browser, which node drives; the tests say that they did not run where there is none.
browser_is_wanted() { [ ! -x /usr/bin/chromium ] && have apt-cache && apt-cache show chromium >/dev/null 2>&1; }

# One request for everything, so that whoever must ask an administrator asks once.
missing_for_tests() {
  if [ ! -x /sbin/ip ] && ! have ip; then echo iproute2; fi
  if etcd_is_wanted; then echo etcd-server; fi
  if fio_is_wanted; then echo fio; fi
  if ! have strace; then echo strace; fi
  # What runs on the cache kernel as it does on the host.
  if ! have busybox; then echo busybox-static; fi
  if ! have sqlite3; then echo sqlite3; fi
  # Virtual machines, and what their images are made with.
  if ! have qemu-system-x86_64; then echo qemu-system-x86; fi
  if uml_is_wanted; then echo user-mode-linux; fi
  if [ ! -x /sbin/mke2fs ] && ! have mke2fs; then echo e2fsprogs; fi
  if ! have c++; then echo g++; fi
  missing_for_combcc
  missing_for_python_peers
  if browser_is_wanted; then echo chromium; fi
  if ! have node; then echo nodejs; fi
  if ! have npm; then echo npm; fi
  if ! have m4; then echo m4; fi
  if ! have cmake; then echo cmake; fi
  if ! have ssh; then echo openssh-client; fi
  # Not in everybody's PATH.
  if [ ! -x /usr/sbin/sshd ]; then echo openssh-server; fi
}
mapfile -t packages < <({ missing_for_build; missing_for_tests; } | tr ' ' '\n')
install_packages 'a build needs a C compiler, tests put hosts into network namespaces, reach hosts by ssh, ask etcd, look at a page, compile C and C++, hand traces to fio, compare them with strace and Python, run programs on the cache kernel, and boot virtual machines' "${packages[@]}"

scripts/setup.sh
say 'iproute2: present (tests put hosts into network namespaces)'

for tool in fmt clippy; do
  cargo "$tool" --version >/dev/null 2>&1 \
    || fail "cargo $tool is missing, and the checks need it. Install it beside $(command -v cargo), or install rustup."
done

# optional NAME PRESENT INSTALL WITHOUT: PRESENT and INSTALL are functions; tries once, and goes on either way.
optional() {
  if $2; then
    say "$1: present"
  elif ! have rustup; then
    say "$1: not here, and only rustup can install it. $4"
  else
    say "$1: installing; optional"
    $3 || say "$1: could not be installed. $4"
  fi
}

miri_is_here() { have rustup && has_components nightly miri rust-src; }
install_miri() {
  # An existing nightly is added to, never updated: it is not ours.
  if has_components nightly; then
    rustup --quiet component add --toolchain nightly miri rust-src
  else
    install_toolchain nightly miri rust-src
  fi
}
optional 'miri (finds undefined behaviour in the rings)' miri_is_here install_miri \
  'Everything but "cargo xtask miri" works without it.'

aarch64=aarch64-unknown-linux-gnu
aarch64_is_here() { [ -d "$(rustc --print target-libdir --target $aarch64)" ]; }
install_aarch64() { rustup --quiet target add --toolchain "$toolchain" $aarch64; }
optional 'aarch64 standard library (the protocol crates must build there too)' aarch64_is_here install_aarch64 \
  '"cargo xtask check" will say that it skips this.'

# Statistics and written files are compared with those of Python's packages, which are kept in a folder of their own; tests say that they did not
# run where there is none.
peers=crates/trace/tests/peers
python_peers_are_here() { cmp -s $peers/requirements.txt $peers/.venv/requirements.txt; }
install_python_peers() {
  # Half a folder would make the tests fail, as they should if a whole one does not work.
  rm -rf $peers/.venv
  if python3 -m venv $peers/.venv \
    && $peers/.venv/bin/python -m pip install --quiet --disable-pip-version-check -r $peers/requirements.txt; then
    cp $peers/requirements.txt $peers/.venv/
  else
    rm -rf $peers/.venv
    return 1
  fi
}
if python_peers_are_here; then
  say "powerlaw, scipy, duckdb and pyarrow: present (tests compare with them)"
else
  say "powerlaw, scipy, duckdb and pyarrow: installing in $peers/.venv; optional"
  install_python_peers || say 'powerlaw, scipy, duckdb and pyarrow: could not be installed. Tests that compare with them say that they did not run.'
fi

browser_driver_is_here() { (cd crates/dashboard/tests/browser && npm ls --silent >/dev/null 2>&1); }
if ! browser_driver_is_here; then
  (cd crates/dashboard/tests/browser && npm ci --no-audit --no-fund --silent) \
    || fail 'npm could not install what drives the browser in crates/dashboard/tests/browser.'
fi
say 'playwright-core: present (tests look at the dashboard in a browser)'

# The kernel of the machines that tests boot; they say that they did not run where there is none.
machines=$PWD/target/vm
guest_kernel_is_here() { compgen -G "$machines/*.deb" >/dev/null; }
guest_kernel() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -1; }
fetch_guest_kernel() {
  if [ -z "$(guest_kernel)" ] && [ "$(id -u)" -eq 0 ]; then apt-get -qq update; fi
  mkdir -p "$machines"
  (cd "$machines" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$(guest_kernel)")
}
if guest_kernel_is_here; then
  say 'a kernel for guests: present (tests boot virtual machines)'
elif have apt-get; then
  say 'a kernel for guests: fetching; optional'
  fetch_guest_kernel || say 'a kernel for guests: could not be fetched. Tests of virtual machines say that they did not run.'
fi
