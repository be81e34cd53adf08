"""What the peers that are daemons share: a place to run them in, from which nothing gets out and of which nothing is left.

A program calls `main`, which starts it a second time in namespaces of its own (network, processes, mounts), so that ports
collide with nobody's, no packet leaves, and every process ends when the first one does, however it does. Where the kernel
does not allow that, the program runs without, on this machine's loopback, if it can; its processes are then ended by pid.
Standard output carries JSON lines and nothing else.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

INSIDE = "COMB_PEER_DIRECTORY"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """Runs in a child before its program: it ends when we do, also when we are killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Missing(Exception):
    """There is no number, and this is why."""


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def now_ns():
    """One clock for all processes of the machine, whatever their namespaces."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Lab:
    """Processes and files of one run."""

    def __init__(self, peer, directory, isolated):
        self.peer = peer
        self.directory = pathlib.Path(directory)
        self.isolated = isolated
        self.processes = []
        self.ports = set()

    def line(self, what, value, **details):
        if isinstance(value, float):
            value = round(value, 6)
        print(json.dumps({"peer": self.peer, **details, "what": what, "value": value}), flush=True)

    def missing(self, what, reason, **details):
        line = {"peer": self.peer, **details, "what": what, "value": None, "missing": str(reason)}
        print(json.dumps(line), flush=True)

    def start(self, name, command, **options):
        """Starts a process in a group of its own. What it says goes into a file, unless it is read by us."""
        log = open(self.directory / f"{name}.log", "ab")
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
        process = subprocess.Popen(command, start_new_session=True, preexec_fn=die_with_parent, **options)
        log.close()
        self.processes.append(process)
        return process

    def kill(self, process):
        """Ends a process, and what it started, at once, as a machine that fails does."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        if process in self.processes:
            self.processes.remove(process)

    def close(self):
        for process in list(self.processes):
            self.kill(process)

    def port(self):
        """A port that is free now. The namespace is ours alone; without one somebody may be faster."""
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            if port not in self.ports:
                self.ports.add(port)
                return port

    def tail(self, name, bytes_=400):
        """The end of what a process has said, for a reason."""
        try:
            return (self.directory / f"{name}.log").read_text(errors="replace")[-bytes_:].strip()
        except FileNotFoundError:
            return ""


def wait_until(condition, limit_s, what, every_s=0.02):
    """What `condition` returns when it is true, or Missing."""
    end = time.monotonic() + limit_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise Missing(f"{what}: not within {limit_s} s")
        time.sleep(every_s)


def isolated_command(command):
    """The command in namespaces of its own, or None where that is not allowed, or `ip` is missing, which sets them up."""
    if shutil.which("ip") is None:
        return None
    for prefix in [UNSHARE, UNSHARE + ["--map-root-user"]]:
        try:
            probe = subprocess.run(prefix + ["true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if probe.returncode == 0:
            return prefix + command
    return None


def run_inside(peer, measure):
    isolated = os.environ[INSIDE + "_ISOLATED"] == "1"
    lab = Lab(peer, os.environ[INSIDE], isolated)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if isolated:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        measure(lab)
    except Missing as reason:
        lab.missing("all", reason)
    finally:
        lab.close()


def main(peer, programs, measure, time_limit_s, needs_isolation=False):
    """Runs `measure(lab)` inside, for at most so long. `programs` are what it needs to be installed."""
    if INSIDE in os.environ:
        return run_inside(peer, measure)
    # Where daemons are, and `ip`, but not on everybody's path.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    lab = Lab(peer, "/nonexistent", False)
    for program in programs:
        if shutil.which(program) is None:
            lab.missing("all", f"{program} is not installed: make setup-bench")
            return
    command = [sys.executable, *sys.argv]
    isolated = isolated_command(command)
    if isolated is None and needs_isolation:
        lab.missing("all", "namespaces are not allowed here")
        return
    directory = tempfile.mkdtemp(prefix="comb-peer-")
    # Turned into an exception, so that the directory goes with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = {**os.environ, INSIDE: directory, INSIDE + "_ISOLATED": "1" if isolated else "0"}
    process = subprocess.Popen(
        isolated or command, env=environment, start_new_session=True, preexec_fn=die_with_parent
    )
    try:
        process.wait(timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        lab.missing("rest", f"stopped after {time_limit_s} s")
    finally:
        # SIGTERM first: without a process namespace the daemons are ended by the program itself.
        for last in [signal.SIGTERM, signal.SIGKILL]:
            if process.poll() is None:
                os.killpg(process.pid, last)
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    pass
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if process.returncode else 0)
