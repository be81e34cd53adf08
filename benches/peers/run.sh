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
trap 'kill "$runner" 2>/dev/null || true; wait "$runner" || true; exit 143' HUP INT TERM

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
    # pml ob1 over btl vader: a fifth faster on short round trips than pml ucx.
    # yield_when_idle 0: never gives the CPU away while it waits, also where mpirun counts too few of them.
    # eager_limit 8192: at the default 4096, a message of 4096 bytes and its header is over the limit and takes a
    #   rendezvous with a system call (5.9 µs a round trip, not 1.5).
    # fbox_size 8192: 40% more 64-byte messages a second than with the default 4096, for round trips 2% slower.
    #   Beyond 8192 nothing gets better.
    # param_check 0: the program's arguments are right.
    # The rest keeps its files with ours, and keeps it from looking for other machines.
    run mpirun --allow-run-as-root --bind-to none --oversubscribe -n 2 \
        --mca pml ob1 --mca btl vader,self \
        --mca mpi_yield_when_idle 0 \
        --mca btl_vader_eager_limit 8192 --mca btl_vader_fbox_size 8192 \
        --mca mpi_param_check 0 \
        --mca btl_vader_backing_directory "/dev/shm/$mark" --mca orte_tmpdir_base "$directory" \
        --mca plm isolated --mca oob_tcp_if_include lo --mca oob_tcp_disable_ipv6_family 1 \
        "$build/$program"
    ;;
ucx)
    program=ucx_peer
    run "$build/$program"
    ;;
libfabric)
    program=fabric_peer
    # Queues of 64 (default 1024): what is under way stays in the cache; 30% more 64-byte messages a second.
    run env FI_SHM_TX_SIZE=64 FI_SHM_RX_SIZE=64 "$build/$program" "$mark"
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
