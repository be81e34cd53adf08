#!/usr/bin/env python3
"""etcd on loopback, one server and three, as an opponent in Comb's membership benchmark.

Writes go through the JSON gateway (POST /v3/kv/put), one at a time on one connection, so a latency is what a client of that
gateway sees, its HTTP included. Every write is on the disk of a majority before it is answered. The write gap is the longest
time between two writes that succeeded around the kill -9 of the leader, for a client that goes on to the next server when one
does not answer within `ATTEMPT_S`.
"""

import base64
import http.client
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import lab as laboratory  # noqa: E402
from lab import Missing, percentile, wait_until  # noqa: E402

TIME_LIMIT_S = 120
WARM_UP = 50
WRITES_S = 5.0
BEFORE_KILL_S = 2.0
AFTER_KILL_S = 10.0
# Longer than a write takes on a busy machine, and short beside an election (1 s by default).
ATTEMPT_S = 0.25
TRIALS = 3


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise http.client.HTTPException(f"{answer.status}: {content[:200]!r}")
    return json.loads(content)


class Server:
    def __init__(self, lab, name):
        self.lab, self.name = lab, name
        self.client, self.peer = lab.port(), lab.port()

    def start(self, servers):
        cluster = ",".join(f"{server.name}=http://127.0.0.1:{server.peer}" for server in servers)
        command = ["etcd", "--name", self.name, "--data-dir", str(self.lab.directory / self.name)]
        command += ["--listen-client-urls", f"http://127.0.0.1:{self.client}"]
        command += ["--advertise-client-urls", f"http://127.0.0.1:{self.client}"]
        command += ["--listen-peer-urls", f"http://127.0.0.1:{self.peer}"]
        command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer}"]
        command += ["--initial-cluster", cluster, "--initial-cluster-state", "new", "--log-level", "error"]
        self.process = self.lab.start(self.name, command)

    def connect(self, timeout_s):
        return http.client.HTTPConnection("127.0.0.1", self.client, timeout=timeout_s)

    def leads(self):
        """Whether it says that it is the leader; None while it has none."""
        try:
            connection = self.connect(1)
            status = post(connection, "/v3/maintenance/status", {})
            connection.close()
        except (OSError, http.client.HTTPException):
            return None
        leader = int(status.get("leader", 0))
        return None if leader == 0 else leader == int(status["header"]["member_id"])


class Client:
    """Writes, to the next server when one fails."""

    def __init__(self, servers, timeout_s):
        self.servers, self.timeout_s = list(servers), timeout_s
        self.connection = None
        self.number = 0

    def write(self):
        """Seconds that a write took, or None if it failed."""
        if self.connection is None:
            self.connection = self.servers[0].connect(self.timeout_s)
        self.number += 1
        began = time.monotonic()
        try:
            body = {"key": encoded(f"key-{self.number % 100}"), "value": encoded(f"{self.number:056}")}
            post(self.connection, "/v3/kv/put", body)
            return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            self.servers.append(self.servers.pop(0))
            # A refused connection is refused at once; asking without a pause only takes the time of those who elect.
            time.sleep(0.005)
            return None


def form(lab, count, run):
    servers = [Server(lab, f"etcd-{count}-{run}-{i}") for i in range(count)]
    for server in servers:
        server.start(servers)
    all_know = lambda: all(server.leads() is not None for server in servers)  # noqa: E731
    try:
        wait_until(all_know, 30, "a leader that all know", every_s=0.1)
    except Missing as reason:
        raise Missing(f"{reason}: {lab.tail(servers[0].name)}") from None
    return servers


def leader_first(servers):
    return sorted(servers, key=lambda server: not server.leads())


def measure_latency(lab, servers, details):
    client = Client(leader_first(servers), 5)
    for _ in range(WARM_UP):
        client.write()
    took, end = [], time.monotonic() + WRITES_S
    while time.monotonic() < end:
        took.append(client.write())
    written = [seconds for seconds in took if seconds is not None]
    if not written:
        raise Missing("no write succeeded")
    details = {**details, "writes": len(written), "failed": len(took) - len(written)}
    lab.line("write_latency_p50_ms", percentile(written, 0.5) * 1e3, **details)
    lab.line("write_latency_p99_ms", percentile(written, 0.99) * 1e3, **details)


def measure_gap(lab, servers, details):
    servers = leader_first(servers)
    client = Client(servers, ATTEMPT_S)
    began, killed, gap, last, restored = time.monotonic(), None, 0.0, None, None
    while killed is None or time.monotonic() < killed + AFTER_KILL_S:
        if killed is None and time.monotonic() > began + BEFORE_KILL_S:
            lab.kill(servers[0].process)
            killed = time.monotonic()
        if client.write() is None:
            continue
        now = time.monotonic()
        if killed is not None:
            gap = max(gap, now - last)
            restored = restored or now - killed
        last = now
    if restored is None:
        raise Missing(f"no write within {AFTER_KILL_S} s of the kill")
    lab.line("write_gap_seconds", gap, restored_seconds=round(restored, 6), **details)


def measure(lab):
    version = subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    details = {"setting": "default", "version": version.split()[-1]}
    for count in [1, 3]:
        servers = form(lab, count, 0)
        measure_latency(lab, servers, {"nodes": count, **details})
        for trial in range(1, TRIALS + 1) if count > 1 else []:
            measure_gap(lab, servers, {"nodes": count, "trial": trial, **details})
            lab.close()
            if trial < TRIALS:
                servers = form(lab, count, trial)
        lab.close()


if __name__ == "__main__":
    laboratory.main("etcd", ["etcd"], measure, TIME_LIMIT_S)
