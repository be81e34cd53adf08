#!/bin/sh
# Runs one peer of the network benchmark: run.sh NAME, with a name that `make list` prints.
# Standard output carries JSON lines and nothing else. Nothing outlives the run: no process, no file.
set -eu

time_limit_s=20

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$here/build
name=${1:?usage: run.sh NAME}

. "$here/runner.sh"

case $name in
openmpi)
    program=mpi_peer
    # yield_when_idle 0: never gives the CPU away while it waits, also where mpirun counts too few of them.
    run_mpi 2 --mca mpi_yield_when_idle 0 "$build/$program"
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
