#!/usr/bin/env bash
# Well-known packages by combcc: sqlite3, zlib, zstd, lua, redis and fmt, as the distribution's sources have them. The compiler must get through each,
# and what has a quick test of its own passes it as one cell. Nothing of them stays. Takes about ten minutes.
#
#   cc/tests/packages.sh [PACKAGE…]        COMBCC and COMBCXX say which compilers; ACCESS=check
set -uo pipefail
# LLVM's verifier looks at what the pass makes.
export COMB_VERIFY=1
cd "$(dirname "$0")/../.."

build=$(realpath -m "${CARGO_TARGET_DIR:-target}")
combcc=${COMBCC:-$build/release/combcc}
combcxx=${COMBCXX:-$build/release/combc++}
access=${ACCESS:-check}
cc="$combcc --access=$access"
cxx="$combcxx --access=$access"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

say() { printf 'packages: %s\n' "$*"; }

for program in "$combcc" "$combcxx"; do
  [ -x "$program" ] || { say "$program is not built: make -C cc" >&2; exit 2; }
done

# The distribution's own sources, which an ordinary set-up does not list: a list of our own, beside the system's.
find_sources() {
  mkdir -p "$scratch/lists/partial"
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    if grep -qs '^Signed-By:.*/debian-archive-keyring' "$file"; then
      sed 's/^Types:.*/Types: deb-src/' "$file"
      echo
    fi
  done > "$scratch/own.sources"
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$scratch/own.list" 2>/dev/null
  sources=$scratch/own.sources
  [ -s "$sources" ] || sources=$scratch/own.list
  [ -s "$sources" ] || { say 'this system names no package sources; nothing is tested'; exit 0; }
  own_apt update >/dev/null 2>&1 || { say 'the package sources cannot be reached; nothing is tested'; exit 0; }
}

own_apt() {
  apt-get -qq -o "Dir::Etc::sourcelist=$sources" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$scratch/lists" "$@"
}

# fetch PACKAGE: its source, unpacked; prints the folder.
fetch() {
  mkdir -p "$scratch/$1"
  (cd "$scratch/$1" && own_apt source --download-only "$1" >/dev/null 2>&1 && dpkg-source --no-check -x ./*.dsc tree >/dev/null 2>&1) \
    || return 1
  echo "$scratch/$1/tree"
}

# What each is built by, and its quick test; run in its folder.
zlib_builds() { CC="$cc" CFLAGS='-O2' ./configure >/dev/null && make -s -j2 libz.a example minigzip && make -s teststatic; }
lua5_4_builds() {
  rm -f src/luac.c
  # The package's own build makes it.
  echo '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"' > src/lua5.4-deb-multiarch.h
  $cc -O2 -std=gnu99 -DLUA_USE_POSIX -Isrc src/*.c -lm -o lua || return 1
  [ "$(./lua -e 'local t = {} for i = 1, 1000 do t[i] = i * i end print(#t, t[1000], string.rep("ab", 3))')" \
    = $'1000\t1000000\tababab' ]
}
libzstd_builds() { make -s -j2 -C lib CC="$cc" CFLAGS='-O2' ZSTD_NO_ASM=1 libzstd.a; }
redis_builds() {
  # Modules, traces and the process's title: as one cell they touch nothing that is elsewhere.
  local allowed=--allow-uncovered=backtrace,backtrace_symbols_fd,dlopen,dlsym,dlclose,dlerror,prctl
  make -s -j2 -C src CC="$cc $allowed" MALLOC=libc USE_SYSTEMD=no redis-server redis-benchmark || return 1
  ./src/redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' > server.txt 2>&1 &
  local server=$! asked=1
  for _ in $(seq 100); do [ -S redis.sock ] && break; sleep 0.1; done
  timeout 60 ./src/redis-benchmark -s "$PWD/redis.sock" -q -n 2000 -c 4 -t set,get,incr,lpush,lpop,sadd,hset,zadd && asked=0
  kill "$server"
  wait "$server" || { tail -5 server.txt; return 1; }
  return $asked
}
fmtlib_builds() {
  local file
  for file in src/format.cc src/os.cc; do $cxx -O2 -std=c++17 -Iinclude -c "$file" -o "${file%.cc}.o" || return 1; done
}
sqlite3_builds() {
  have_tcl=$(ls /usr/lib/*/tclConfig.sh /usr/lib/tcl*/tclConfig.sh 2>/dev/null | head -1)
  # As one cell, Tcl, zlib and modules may see all memory.
  # Its tests have the shell recover a file, which the library must have been compiled for.
  CC="$cc --allow-uncovered=*" CFLAGS='-O2 -DSQLITE_ENABLE_DBPAGE_VTAB' ./configure --disable-shared --disable-readline ${have_tcl:+"--with-tcl=$(dirname "$have_tcl")"} >/dev/null || return 1
  make -s -j2 sqlite3.c sqlite3 BCC=cc || return 1
  [ "$(./sqlite3 :memory: 'create table t(a); insert into t values(1),(2),(39); select sum(a), count(*) from t;')" = '42|3' ] || return 1
  # Its own quick tests want Tcl's headers, and a user who is not root.
  if [ -z "$have_tcl" ]; then
    echo 'tcl-dev is not here: its quick tests were not run'
    return
  fi
  make -s -j2 testfixture BCC=cc || return 1
  chmod 755 "$scratch" && chown -R nobody . && su nobody -s /bin/sh -c 'timeout 400 ./testfixture test/extraquick.test' > quick.txt 2>&1
  tail -3 quick.txt
  # io-5.5 fails when clang alone compiled it, too.
  grep -q '^[01] errors out of' quick.txt && ! grep '^!Failures on these tests:' quick.txt | grep -qv ': io-5\.5$'
}

check() {
  local package=$1 folder started=$SECONDS
  if ! folder=$(fetch "$package"); then
    say "$package: no source to be had; not tested"
    return
  fi
  if (cd "$folder" && "${package//[.-]/_}_builds") > "$scratch/$package.log" 2>&1; then
    say "$package: ok, $((SECONDS - started)) s"
  else
    say "$package: FAILED; the last lines:"
    tail -15 "$scratch/$package.log"
    failed+=("$package")
  fi
}

find_sources
packages=("$@")
[ $# -gt 0 ] || packages=(zlib lua5.4 fmtlib libzstd redis sqlite3)
for package in "${packages[@]}"; do check "$package"; done
[ ${#failed[@]} -eq 0 ] || { say "failed: ${failed[*]}"; exit 1; }
