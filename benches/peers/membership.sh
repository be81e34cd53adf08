#!/bin/sh
# Runs one peer of the membership benchmark: membership.sh NAME [ARGUMENT...], with a name that `make list-membership` prints.
# Arguments: of foca and chitchat, those of build/gossip-peers after the library; of corosync and serf, numbers of nodes. With `brief`
# corosync is not asked for the death of a node.
# Standard output carries JSON lines and nothing else. Nothing outlives the run: no process, no file, no namespace.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
name=${1:?usage: membership.sh NAME [ARGUMENT...]}
shift

case $name in
foca* | chitchat*)
    program=$here/build/gossip-peers
    if [ ! -x "$program" ]; then
        printf '{"peer":"%s","what":"all","value":null,"missing":"not built: run make in benches/peers"}\n' "${name%%:*}"
        exit 0
    fi
    exec "$program" "$name" "$@"
    ;;
corosync | etcd | serf)
    exec python3 "$here/$name/measure.py" "$@"
    ;;
*)
    echo "membership.sh: no peer is called $name; make list-membership prints those there are" >&2
    exit 2
    ;;
esac
