#!/bin/sh
# Runs one of the programs in pages/: pages.sh NAME COUNT PROGRAM SIZE ITERATIONS [--check], with a name that `make list-pages` prints and a
# count of ranks. pages/programs.c says what the programs do; pages/mpi_pages.c and pages/comb.c, by which variables they are set.
# COMB is the comb command (../../target/release/comb), COMB_RUN what `comb run` is told besides, such as '--share copy'.
# Standard output carries one JSON line and nothing else. Nothing outlives the run: no process, no file.
set -eu

time_limit_s=${TIME_LIMIT_S:-120}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
build=$here/build
usage='usage: pages.sh NAME COUNT PROGRAM SIZE ITERATIONS [--check]'
name=${1:?$usage}
count=${2:?$usage}
shift 2

. "$here/runner.sh"

case $name in
threads)
    program=pages_threads
    run env "PAGES_THREADS=$count" "$build/$program" "$@"
    ;;
openmpi-pages)
    program=pages_mpi
    # osc sm where Open MPI allocates the window: it would choose rdma, which is as fast for a page and slower for many small runs. It cannot
    #   take memory of ours; rdma can, but not with one rank; pt2pt always can.
    # yield_when_idle: ranks that wait give the CPU away only if there is not one for each.
    case ${PAGES_WINDOW:-allocate} in
    create) one_sided=rdma,pt2pt ;;
    *) one_sided=sm,pt2pt ;;
    esac
    yield=1
    [ "$count" -gt "$(nproc)" ] || yield=0
    run_mpi "$count" --mca osc "$one_sided" --mca mpi_yield_when_idle "$yield" \
        --mca osc_sm_backing_directory "/dev/shm/$mark" --mca osc_rdma_backing_directory "/dev/shm/$mark" \
        "$build/$program" "$@"
    ;;
comb)
    program=pages_comb
    # Several words, if any. shellcheck disable=SC2086
    run "${COMB:-$here/../../target/release/comb}" run -n "$count" ${COMB_RUN:-} -- "$build/$program" "$@"
    ;;
*)
    echo "pages.sh: no implementation is called $name; make list-pages prints those built" >&2
    exit 2
    ;;
esac
