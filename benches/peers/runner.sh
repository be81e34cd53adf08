#!/bin/sh
# What run.sh and pages.sh have in common; they source it, with time_limit_s, name and build set. A program that is run is $build/$program.
# Standard output carries JSON lines and nothing else. Nothing outlives the run: no process, no file.

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

# In the background, so that a signal to the script ends the peer at once.
run() {
    [ -x "$build/$program" ] || missing "not built: run make in benches/peers"
    timeout --kill-after=5 "$time_limit_s" "$@" &
    runner=$!
    wait "$runner"
}

# run_mpi COUNT [OPTION…]: so many ranks on this machine, with what is right for both benchmarks.
# pml ob1 over btl vader: a fifth faster on short round trips than pml ucx.
# eager_limit 8192: at the default 4096, a message of 4096 bytes and its header is over the limit and takes a
#   rendezvous with a system call (5.9 µs a round trip, not 1.5).
# fbox_size 8192: 40% more 64-byte messages a second than with the default 4096, for round trips 2% slower.
#   Beyond 8192 nothing gets better.
# param_check 0: the program's arguments are right.
# The rest keeps its files with ours, and keeps it from looking for other machines.
run_mpi() {
    ranks=$1
    shift
    mkdir "/dev/shm/$mark"
    run mpirun --allow-run-as-root --bind-to none --oversubscribe -n "$ranks" \
        --mca pml ob1 --mca btl vader,self \
        --mca btl_vader_eager_limit 8192 --mca btl_vader_fbox_size 8192 \
        --mca mpi_param_check 0 \
        --mca btl_vader_backing_directory "/dev/shm/$mark" --mca orte_tmpdir_base "$directory" \
        --mca plm isolated --mca oob_tcp_if_include lo --mca oob_tcp_disable_ipv6_family 1 \
        "$@"
}
