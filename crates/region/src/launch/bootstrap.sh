# What runs on another host before comb does: it finds comb there, or a copy that was brought before, or asks for one, and becomes it.
#
# `sh` there reads this from its standard input, behind the values of these variables:
#   comb_nonce    what tells our lines from what else is said there
#   comb_machine  for which `uname -sm` the launcher's comb is
#   comb_here     where comb is on the launcher's host
#   comb_twin     the launcher's kernel, and its comb's device, file number, size and time
#   comb_key      what copies of it are called
#   comb_kilobytes  what they take
#   comb_bytes, comb_hash                  of comb
#   comb_library_bytes, comb_library_hash  of libcomb, if there is one
# The launcher sends no byte before it is asked for it: shells, and `head`, may read ahead. Names begin with comb_, because what a
# variable of the environment is set to here would go on to the program.

comb_new=
comb_umask=$(umask)
umask 077
trap '[ -z "$comb_new" ] || rm -rf "$comb_new"' EXIT
trap 'exit 1' HUP INT TERM PIPE

comb_say() { printf 'comb-%s %s\n' "$comb_nonce" "$*"; }

comb_cannot() {
  comb_say "cannot $*"
  exit 1
}

# Becomes that comb.
comb_become() {
  comb_new=
  trap - EXIT HUP INT TERM PIPE
  umask "$comb_umask"
  exec "$@"
}

comb_has() { command -v "$1" >/dev/null 2>&1; }

# Whether a directory is ours, and nobody else can look into it.
comb_is_private() {
  [ -d "$1" ] && [ ! -L "$1" ] || return 1
  set -- $(ls -ldn "$1" 2>/dev/null)
  case $1 in
    drwx------*) [ "$3" = "$(id -u)" ] ;;
    *) return 1 ;;
  esac
}

# Whether the path leads to the very file that the launcher runs: it is on the same machine.
comb_is_twin() {
  [ -n "$comb_twin" ] && [ -x "$comb_here" ] || return 1
  [ "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(stat -L -c '%d %i %s %Y' "$comb_here" 2>/dev/null)" = "$comb_twin" ]
}

comb_hash_of() { sha256sum | { read -r comb_sum comb_rest && printf %s "$comb_sum"; }; }

# Whether comb is under the same path, and of the same build.
comb_is_same() {
  [ -f "$comb_here" ] && [ -x "$comb_here" ] || return 1
  [ "$(head -c "$comb_bytes" "$comb_here" 2>/dev/null | comb_hash_of)" = "$comb_hash" ]
}

# Makes directory $2 in $1 for a copy of comb, as $comb_new. Where that cannot be, $comb_why says why.
comb_make() {
  comb_free=$(df -Pk "$1" 2>/dev/null | { read -r comb_rest && read -r comb_rest comb_rest comb_rest comb_free comb_rest && printf %s "$comb_free"; })
  case $comb_free in
    '' | *[!0-9]*) ;;
    *)
      if [ "$comb_free" -lt "$comb_kilobytes" ]; then
        comb_why="$1 has $comb_free KB free and comb takes $comb_kilobytes"
        return 1
      fi
      ;;
  esac
  if ! mkdir "$1/$2" 2>/dev/null; then
    comb_why="$1 cannot be written to"
    return 1
  fi
  comb_new=$1/$2
  if ! { printf '#!/bin/sh\n' >"$comb_new/try" && chmod 700 "$comb_new/try"; } 2>/dev/null; then
    comb_why="$1 is full, or cannot be written to"
  elif ! "$comb_new/try" >/dev/null 2>&1; then
    comb_why="no program may be executed from $1 (noexec)"
  else
    rm -f "$comb_new/try"
    return 0
  fi
  rm -rf "$comb_new"
  comb_new=
  return 1
}

# Takes one file from the launcher: its name, length and hash. Nothing is called by its name before it is whole.
comb_take() {
  comb_coding=raw
  if comb_has gzip; then comb_coding=gzip; fi
  comb_say "need $1 $comb_coding"
  read -r comb_length || exit 1
  if [ "$comb_coding" = gzip ]; then
    { head -c "$comb_length" | gzip -dc >"$comb_new/$1"; } 2>/dev/null
  else
    { head -c "$comb_length" >"$comb_new/$1"; } 2>/dev/null
  fi
  if [ "$(comb_hash_of <"$comb_new/$1")" != "$3" ]; then
    set -- "$1" "$2" $(wc -c <"$comb_new/$1")
    comb_cannot "keep ${comb_new%/*} $3 of the $2 bytes of $1"
  fi
}

# All of it is read before any of it is done: what comes next by standard input is no script.
comb_main() {
  if comb_is_twin; then
    comb_say own
    comb_become "$comb_here" run-part
  fi
  comb_cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  comb_cache=${comb_cache:+$comb_cache/comb}
  if [ -n "$comb_cache" ] && comb_is_private "$comb_cache" && comb_is_private "$comb_cache/$comb_key" \
    && [ -f "$comb_cache/$comb_key/comb" ] && [ -x "$comb_cache/$comb_key/comb" ]; then
    # The last used are kept.
    touch "$comb_cache/$comb_key" 2>/dev/null
    comb_say kept
    comb_become "$comb_cache/$comb_key/comb" run-part --kept "$comb_cache"
  fi
  [ "$(uname -sm)" = "$comb_machine" ] || comb_cannot "machine $(uname -sm)"
  for comb_tool in head sha256sum df id ls; do
    comb_has "$comb_tool" || comb_cannot "tool $comb_tool"
  done
  if comb_is_same; then
    comb_say own
    comb_become "$comb_here" run-part
  fi

  # Where copies are kept; or else a place until the end.
  comb_whys=
  comb_keeps=
  if [ -z "$comb_cache" ]; then
    comb_whys='there is no HOME'
  elif ! { mkdir -p "$comb_cache" && comb_is_private "$comb_cache"; } 2>/dev/null; then
    comb_whys="$comb_cache cannot be made, or is not yours alone (mode 700)"
  elif comb_make "$comb_cache" ".new-$comb_nonce"; then
    comb_keeps=yes
  else
    comb_whys=$comb_why
  fi
  if [ -z "$comb_keeps" ]; then
    for comb_base in "${TMPDIR:-/tmp}" /dev/shm /var/tmp; do
      if comb_make "$comb_base" "comb-brought-$comb_nonce"; then break; fi
      comb_whys="$comb_whys; $comb_why"
    done
  fi
  [ -n "$comb_new" ] || comb_cannot "place $comb_whys"

  comb_take comb "$comb_bytes" "$comb_hash"
  if [ -n "$comb_library_hash" ]; then
    comb_take libcomb.so "$comb_library_bytes" "$comb_library_hash"
  fi
  chmod 700 "$comb_new/comb"
  "$comb_new/comb" --version </dev/null >/dev/null 2>"$comb_new/said" \
    || comb_cannot "run $? $(head -n 1 "$comb_new/said" 2>/dev/null)"
  rm -f "$comb_new/said"
  if [ -z "$comb_keeps" ]; then
    comb_say "placed $comb_whys"
    comb_become "$comb_new/comb" run-part --temporary "$comb_new"
  fi
  comb_home=$comb_cache/$comb_key
  { mkdir -p "$comb_home" && comb_is_private "$comb_home"; } 2>/dev/null \
    || comb_cannot "place $comb_home cannot be made, or is not yours alone (mode 700)"
  if [ -n "$comb_library_hash" ]; then
    mv -f "$comb_new/libcomb.so" "$comb_home/libcomb.so" || comb_cannot "place $comb_home cannot be written to"
  fi
  # comb comes last: where it is, all is. Another host with the same home may have been faster, and may run it.
  ln "$comb_new/comb" "$comb_home/comb" 2>/dev/null || [ -x "$comb_home/comb" ] || mv -f "$comb_new/comb" "$comb_home/comb" \
    || comb_cannot "place $comb_home cannot be written to"
  rm -rf "$comb_new"
  comb_say kept
  comb_become "$comb_home/comb" run-part --kept "$comb_cache"
}
comb_main
