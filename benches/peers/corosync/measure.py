#!/usr/bin/env python3
"""corosync, one daemon for each node with one process each that uses its process groups (libcpg), as an opponent in Comb's
membership benchmark: measure.py [NODES ...], 4 8 16 by default.

Every node is a network and mount namespace with a daemon of its own, joined to the others by a bridge. A last run has all
members at one daemon, as several processes of one machine would. Settings are Debian's, but for `sched_rr: no`: a real-time
daemon for each of dozens of nodes takes the cores from the members that it serves.
"""

import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import lab as laboratory  # noqa: E402
from lab import Missing, now_ns, wait_until  # noqa: E402

MEMBER = pathlib.Path(__file__).resolve().parent.parent / "build" / "cpg_member"
# Of 32 nodes on two cores: a minute or two until all are there, one until a node's death is seen, and once more at one daemon.
TIME_LIMIT_S = 600
RATE_S = 2.0
PINGS = 500
# A node's death is seen after the token has been lost for 3 s and 650 ms more for each node beyond the second.
DEATH_LIMIT_S = 90
FORM_LIMIT_S = 180

CONFIGURATION = """
totem {{
    version: 2
    cluster_name: comb
    crypto_cipher: none
    crypto_hash: none
}}
system {{
    sched_rr: no
    state_dir: {state}
}}
logging {{
    fileline: off
    to_stderr: yes
    to_logfile: no
    to_syslog: no
    debug: off
}}
quorum {{
    provider: corosync_votequorum
}}
nodelist {{
{nodes}
}}
"""


def version():
    return subprocess.run(["corosync", "-v"], capture_output=True, text=True).stdout.split("'")[1]


def address(node):
    return f"10.77.{node // 250}.{node % 250 + 1}"


class Node:
    """A network and mount namespace, held open by a process that sleeps."""

    def __init__(self, lab, number, state):
        # What daemons and members share, and what two daemons would share, is the node's own.
        script = "for place in /run /dev/shm /var/lib/corosync; do mount -t tmpfs tmpfs $place; done; echo ready; exec sleep 1000"
        self.lab, self.number, self.state = lab, number, state
        self.holder = lab.start(
            f"holder-{number}", ["unshare", "--net", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True
        )
        if self.holder.stdout.readline() != "ready\n":
            raise Missing("a node's namespace: " + lab.tail(f"holder-{number}"))
        ip("link", "add", f"comb{number}", "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("link", "set", f"comb{number}", "master", "comb", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", address(number) + "/16", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def command(self, *words):
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--mount", *words]

    def run(self, *words):
        subprocess.run(self.command(*words), check=True, capture_output=True)

    def start_daemon(self, configuration):
        self.state.mkdir()
        self.daemon = self.lab.start(
            f"corosync-{self.number}", self.command("corosync", "-f", "-c", str(configuration))
        )


class Member:
    """A process of the group, and what it has reported."""

    def __init__(self, node, name):
        self.node = node
        self.process = node.lab.start(
            name,
            node.command(str(MEMBER)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.name = name
        self.views = []
        self.answers = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            word, *rest = line.split()
            (self.views if word == "view" else self.answers).append((word, *rest))

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self, limit_s):
        def arrived():
            if self.process.poll() is not None:
                raise Missing(f"a member ended: {self.node.lab.tail(self.name)}")
            return self.answers

        wait_until(arrived, limit_s, "a member's answer")
        return self.answers.pop(0)[1:]

    def sees(self, members):
        return self.views and int(self.views[-1][1]) == members


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def start_member(node, name):
    """A member, when its daemon lets it in: it refuses until it runs."""

    def try_once():
        member = Member(node, name)
        wait_until(lambda: member.views or member.process.poll() is not None, FORM_LIMIT_S, "a member's first view")
        return member if member.views else None

    return wait_until(try_once, FORM_LIMIT_S, "a daemon that takes members", every_s=0.2)


def measure_rate(lab, members, details):
    begin = now_ns() + 500_000_000
    end = begin + int(RATE_S * 1e9)
    for member in members:
        member.tell(f"rate {begin} {end}")
    answers = [member.answer(RATE_S + 60) for member in members]
    if len({hash_ for _, _, hash_ in answers}) != 1:
        raise Missing("the members disagree on the order of messages")
    delivered = [int(count) for count, _, _ in answers]
    lab.line("ordered_messages_per_second", sum(delivered) / len(delivered) / RATE_S, bytes=64, **details)


def measure_ping(lab, members, details):
    members[-1].tell(f"ping {PINGS}")
    p50, p99 = members[-1].answer(60)
    lab.line("ordered_latency_p50_us", int(p50) / 1e3, bytes=64, pings=PINGS, **details)
    lab.line("ordered_latency_p99_us", int(p99) / 1e3, bytes=64, pings=PINGS, **details)


def measure_death(lab, members, victims, what, details):
    """From the kill to the last other member's callback with a view without the dead."""
    left = [member for member in members if member is not members[-1]]
    killed = now_ns()
    for process in victims:
        lab.kill(process)
    wait_until(lambda: all(member.sees(len(left)) for member in left), DEATH_LIMIT_S, what)
    seen = [int(member.views[-1][2]) - killed for member in left]
    lab.line(what, max(seen) / 1e9, first_seconds=round(min(seen) / 1e9, 6), **details)
    return left


def form(lab, name, addresses):
    """Nodes with a daemon each, of one cluster."""
    directory = lab.directory / name
    directory.mkdir()
    entries = "\n".join(
        f"    node {{\n        name: node{i}\n        nodeid: {i}\n        ring0_addr: {address(i)}\n    }}"
        for i in addresses
    )
    nodes = [Node(lab, i, directory / f"state-{i}") for i in addresses]
    for node in nodes:
        configuration = directory / f"corosync-{node.number}.conf"
        configuration.write_text(CONFIGURATION.format(state=node.state, nodes=entries))
        node.start_daemon(configuration)
    return nodes


def measure_cluster(lab, nodes_wanted, members_each, is_brief=False):
    details = {
        "nodes": nodes_wanted,
        "members": nodes_wanted * members_each,
        "setting": "default, sched_rr: no",
        "version": version(),
    }
    name = f"{nodes_wanted}x{members_each}"
    try:
        began = time.monotonic()
        nodes = form(lab, name, range(1, nodes_wanted + 1))
        members = [
            start_member(node, f"member-{name}-{node.number}-{i}") for node in nodes for i in range(members_each)
        ]
        wait_until(lambda: all(m.sees(len(members)) for m in members), FORM_LIMIT_S, "a group of all members")
        lab.line("formed_seconds", time.monotonic() - began, **details)
        measure_rate(lab, members, details)
        measure_ping(lab, members, details)
        members = measure_death(lab, members, [members[-1].process], "process_death_seconds", details)
        # That takes ten seconds of waiting.
        if members_each == 1 and not is_brief:
            # The last node has lost its member and stays; now one goes with its daemon, as a machine does.
            node = members[-1].node
            measure_death(
                lab, members, [node.daemon, members[-1].process], "node_death_seconds", details
            )
    except (Missing, subprocess.CalledProcessError) as reason:
        lab.missing("rest", reason, **details)
    finally:
        # The nodes' ends of the links go with their namespaces, and ours with those.
        lab.close()
        time.sleep(0.5)


def measure(lab):
    if not MEMBER.exists():
        raise Missing("cpg_member is not built: make -C benches/peers")
    # A group of one daemon's many members talks to nobody, but its daemon wants an address.
    ip("link", "add", "comb", "type", "bridge")
    ip("link", "set", "comb", "up")
    is_brief = "brief" in sys.argv[1:]
    sizes = [int(word) for word in sys.argv[1:] if word != "brief"] or [4, 8, 16]
    if min(sizes) < 3:
        raise Missing("two members die one after the other: three nodes at least, that one is left to see it")
    for size in sizes:
        measure_cluster(lab, size, 1, is_brief)
    measure_cluster(lab, 1, sizes[0])


if __name__ == "__main__":
    laboratory.main("corosync", ["corosync", "ip", "nsenter"], measure, TIME_LIMIT_S, needs_isolation=True)
