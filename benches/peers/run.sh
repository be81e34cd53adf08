#!/bin/sh
# Runs one peer of the network benchmark: run.sh NAME, with a name that `make list` prints.
# Standard output carries JSON lines and nothing else. Nothing outlives the run: no process, no file.
set -eu

time_limit_s=20

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$here/build
name=${1:?usage: run.sh NAME}

directory=$(mktemp -d "${TMPDIR:-/tmp}/comb-peer-XXXXXX")
mark=$(basename "$directory")
runner=
trap 'rm -rf "$directory" "/dev/shm/$mark"*' EXIT
trap 'kill "$runner" 2>/dev/null; wait "$runner" 2>/dev/null; exit 143' HUP INT TERM

# Prints why there are no numbers, for a caller that reports on every peer.
missing() {
    printf '{"peer":"%s","missing":"%s"}\n' "$name" "$1"
    exit 0
}

# In the background, so that a signal to this script ends the peer at once.
run() {
    [ -x "$build/$program" ] || missing "not built: run make in benches/peers"
    timeout --kill-after=1 "$time_limit_s" "$@" &
    runner=$!
    wait "$runner"
}

case $name in
openmpi)
    program=mpi_peer
    mkdir "/dev/shm/$mark"
    # pml ob1 over btl vader: its round trips are 20% faster than those of pml ucx.
    # yield_when_idle 0: never yields the CPU while it waits, also if mpirun thinks that there are too few.
    # eager_limit 8192: at the default 4096 a message of 4096 bytes with its header is over the limit, and takes a
    #   rendezvous and a system call (5.9 µs a round trip in place of 1.5).
    # fbox_size 32768: the buffers between two processes take messages up to a quarter of their size without a
    #   descriptor; all of ours then go that way, and 50% more of the 64-byte ones.
    # param_check 0: the program's arguments are right.
    # The last three keep its files with ours and its start-up off every network but loopback.
    run mpirun --allow-run-as-root --bind-to none --oversubscribe -n 2 \
        --mca pml ob1 --mca btl vader,self \
        --mca mpi_yield_when_idle 0 \
        --mca btl_vader_eager_limit 8192 --mca btl_vader_fbox_size 32768 \
        --mca mpi_param_check 0 \
        --mca btl_vader_backing_directory "/dev/shm/$mark" \
        --mca orte_tmpdir_base "$directory" --mca oob_tcp_if_include lo \
        "$build/$program"
    ;;
ucx)
    program=ucx_peer
    # posix: as fast as sysv, and it unlinks its memory at once. cma serves rendezvous, which no message here takes.
    # FIFO of 256 elements (default 64): 4096-byte round trips take 0.7 of the time, their bandwidth is 1.6 times.
    # Elements of 192 bytes (default 128): a 64-byte message fits into one with its header.
    run env UCX_TLS=posix,self UCX_POSIX_FIFO_SIZE=256 UCX_POSIX_FIFO_ELEM_SIZE=192 "$build/$program"
    ;;
libfabric)
    program=fabric_peer
    run "$build/$program" "$mark"
    ;;
iceoryx2)
    program=iceoryx2_peer
    run "$build/$program" "$directory"
    ;;
unix | udp | tcp)
    program=sockets_peer
    run "$build/$program" "$name"
    ;;
*)
    echo "run.sh: no peer is called $name; make list prints those built" >&2
    exit 2
    ;;
esac
