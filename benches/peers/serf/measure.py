#!/usr/bin/env python3
"""serf agents on loopback, as an opponent in Comb's membership benchmark: measure.py [AGENTS ...], 8 16 32 by default.

What is measured is the time from the kill -9 of an agent until the last other one says, in its log, that this member has
failed. Agents run with serf's default (`lan`) settings. A false failure is a line of an agent's log that says so of one that
runs; they are counted over the whole of a run, in which the machine is as busy as so many agents make it.
"""

import pathlib
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import lab as laboratory  # noqa: E402
from lab import Missing, now_ns, wait_until  # noqa: E402

TIME_LIMIT_S = 240
FORM_LIMIT_S = 60
DETECTION_LIMIT_S = 60
TRIALS = 3
SETTLE_S = 2.0
EVENT = re.compile(r"serf: Event(MemberJoin|MemberFailed|MemberLeave): (\S+)")


class Agent:
    """An agent, and when it has said what of whom."""

    def __init__(self, lab, name, first):
        self.lab, self.name = lab, name
        self.port, rpc = lab.port(), lab.port()
        command = ["serf", "agent", f"-node={name}", f"-bind=127.0.0.1:{self.port}"]
        command += [f"-rpc-addr=127.0.0.1:{rpc}", "-log-level=info"]
        if first is not None:
            command += [f"-retry-join=127.0.0.1:{first.port}", "-retry-interval=1s"]
        self.process = lab.start(name, command, stdout=subprocess.PIPE, text=True)
        self.up = set()
        self.failed_at_ns = {}
        self.failures = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            found = EVENT.search(line)
            if not found:
                continue
            event, member = found.groups()
            if event == "MemberJoin":
                self.up.add(member)
            else:
                self.up.discard(member)
                self.failed_at_ns[member] = now_ns()
                self.failures.append(member)


def measure_agents(lab, count, details):
    agents = []
    for number in range(count):
        agents.append(Agent(lab, f"agent-{count}-{number}", agents[0] if agents else None))
    # serf tells of the node itself as of the others.
    wait_until(lambda: all(len(agent.up) == count for agent in agents), FORM_LIMIT_S, "agents that know each other")
    dead = set()
    for trial in range(1, TRIALS + 1):
        time.sleep(SETTLE_S)
        victim = agents.pop()
        killed = now_ns()
        lab.kill(victim.process)
        dead.add(victim.name)
        said = lambda: all(victim.name in agent.failed_at_ns for agent in agents)  # noqa: E731
        try:
            wait_until(said, DETECTION_LIMIT_S, "a failure that all agents have seen")
        except Missing as reason:
            lab.missing("detection_seconds", reason, trial=trial, **details)
            continue
        seen = [agent.failed_at_ns[victim.name] - killed for agent in agents]
        lab.line(
            "detection_seconds", max(seen) / 1e9, first_seconds=round(min(seen) / 1e9, 6), trial=trial, **details
        )
    false = sum(1 for agent in agents for member in agent.failures if member not in dead)
    lab.line("false_failures", false, **details)


def measure(lab):
    version = subprocess.run(["serf", "version"], capture_output=True, text=True).stdout.split("\n")[0]
    for count in [int(word) for word in sys.argv[1:]] or [8, 16, 32]:
        if count <= TRIALS:
            raise Missing(f"{TRIALS} agents die one after the other: more than that, so that one is left to see it")
        details = {"nodes": count, "setting": "default", "version": version.split()[-1]}
        try:
            measure_agents(lab, count, details)
        except Missing as reason:
            lab.missing("detection_seconds", reason, **details)
        lab.close()


if __name__ == "__main__":
    laboratory.main("serf", ["serf"], measure, TIME_LIMIT_S)
