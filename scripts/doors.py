#!/usr/bin/env python3
"""Stock wheels of NIXL and Mooncake on Weft's device and on their own TCP, between two hosts with four paths (`make doors`).

    scripts/doors.py test      every wheel: no loss, 1 % loss on every path, and a path that dies in mid-transfer
    scripts/doors.py bench     the newest wheels: Weft, perftest on Weft's device and TCP in turn, on one host and between two, without loss
                               and with 1 % on every path

A host is a network namespace of `weft lab`, so this runs as root. The wheels are those of `scripts/setup.sh doors`.
Every word that arrives is compared (examples/kv_cache). The exit code is 1 if a transfer over Weft fails.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/kv_cache/kv_cache.py"
PATHS = [f"l0-s{spine}" for spine in range(4)]
# Seconds after which a transfer has failed.
LIMIT = 180
# Requests of a measured transfer, each of 64 MiB.
MEASURED_REQUESTS = 3
# The program of perftest that moves what a shape does, and the size of its messages, bytes.
PERFTEST = {"vllm": ("ib_read_bw", 32 << 10), "lmcache": ("ib_write_bw", 32 << 20)}


@dataclass(frozen=True)
class Condition:
    """The place of the ends, and the state of all paths."""

    name: str
    # Options of `weft lab set`.
    options: tuple = ()
    # A path goes silent in mid-transfer.
    dies: bool = False
    one_host: bool = False


LOSS = ("--loss", "1%")
# A rate that two processors can fill, with a queue that marks as switches' do.
SLOW = ("--rate", "1Gbps", "--mark-above", "100KB")
TESTED = [Condition("no loss"), Condition("1 % loss", LOSS), Condition("a path dies", dies=True)]
MEASURED = [
    Condition("one host", one_host=True),
    Condition("two hosts"),
    Condition("two hosts, 1 % loss", LOSS),
    Condition("two hosts, 1 Gb/s a path", SLOW),
    Condition("two hosts, 1 Gb/s a path, 1 % loss", SLOW + LOSS),
]


class Failure(Exception):
    """A transfer that failed, and what its programs printed."""


@dataclass(frozen=True)
class Door:
    """A wheel, and what carries its bytes."""

    wheel: Path
    stack: str
    carrier: str
    prefix: list = field(default_factory=list, hash=False)
    environment: dict = field(default_factory=dict, hash=False)

    @property
    def name(self):
        return f"{self.wheel.name} over {self.carrier}"


def doors(weft, wheels):
    """Returns the two doors of each wheel, Weft's first; newer wheels first."""
    found = []
    for wheel in sorted(wheels.glob("*-*"), key=lambda wheel: version(wheel.name), reverse=True):
        stack = wheel.name.split("-")[0]
        prefix = [weft, "run", "--for", stack, "--"]
        tcp = {"nixl": {"UCX_TLS": "tcp,self"}}.get(stack, {})
        own = {"mooncake": "mooncake-tcp"}.get(stack, stack)
        found.append((Door(wheel, stack, "Weft", prefix), Door(wheel, own, "TCP", [], tcp)))
    if not found:
        sys.exit(f"doors: no wheels in {wheels}: scripts/setup.sh doors installs them")
    return found


def version(name):
    return [int(number) for number in re.findall(r"\d+", name)]


class Lab:
    """Two hosts and four paths between them."""

    def __init__(self, weft):
        self.weft, self.name = weft, f"doors-{os.getpid()}"

    def __enter__(self):
        self.call("up", "--spines", "4")
        nodes = json.loads(self.call("status", "--json"))["nodes"]
        self.nodes = {node["name"]: node for node in nodes}
        return self

    def __exit__(self, *_):
        self.call("down")

    def call(self, *words):
        command = [self.weft, "lab", words[0], "--name", self.name, *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def set(self, path, *options):
        self.call("set", path, "--clear", *options)

    @contextmanager
    def paths(self, condition):
        """Puts every path into a condition, in both directions."""
        for path in PATHS:
            self.set(path, *condition.options)
        try:
            yield
        finally:
            for path in PATHS:
                self.set(path)

    def start(self, host, door, *words):
        """Starts an end of the example on a host."""
        python = door.wheel / "bin/python"
        command = [*door.prefix, str(python), str(EXAMPLE), *words, "--stack", door.stack, "--address", self.nodes[host]["address"]]
        return self.spawn(host, command, door.environment)

    def spawn(self, host, command, environment=None):
        """Starts a program on a host."""
        inside = ["ip", "netns", "exec", self.nodes[host]["namespace"], *command]
        environment = os.environ | (environment or {})
        return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def transfer(lab, door, shape, requests, one_host=False, on_request=lambda number: None):
    """Moves requests between h0 and h1, or between two programs of h0, and returns the example's last line. Calls back after each request."""
    ends = [lab.start("h0", door, "serve", "--shape", shape)]
    limit = threading.Timer(LIMIT, lambda: [end.send_signal(signal.SIGKILL) for end in ends])
    limit.start()
    printed = {0: [], 1: []}
    try:
        for line in ends[0].stdout:
            printed[0].append(line)
            if line.startswith("serving"):
                break
        words = [lab.nodes["h0"]["address"], "--shape", shape, "--requests", str(requests), "--json"]
        ends.append(lab.start("h0" if one_host else "h1", door, *words))
        result = None
        for line in ends[1].stdout:
            printed[1].append(line)
            if line.startswith("{"):
                result = json.loads(line)
                if "request" in result:
                    on_request(result["request"])
        code = ends[1].wait()
        # UCX 1.23 crashes at exit where it used TCP, after the last line.
        ended_well = code == 0 or (door.carrier == "TCP" and code == -signal.SIGSEGV)
        if not ended_well or not result or "request" in result:
            raise Failure(explain(ends[0], printed, code))
        return result
    finally:
        limit.cancel()
        for end in ends:
            end.kill()
            end.wait()
            end.stdout.close()


def explain(server, printed, code):
    server.kill()
    printed[0].extend(server.stdout)
    parts = [f"h{end}: {line}" for end in printed for line in printed[end][-8:]]
    return f"exit code {code}\n    " + "    ".join(parts)


def test(lab, pairs):
    """Moves requests of both shapes over Weft, with every wheel and in every condition."""
    failures = 0
    for door, _ in pairs:
        for condition in TESTED:
            for shape in ("vllm", "lmcache"):
                # A request of the other shape is answered over TCP, which may use the path that dies.
                if not condition.dies or shape == "vllm":
                    failures += not passes(lab, door, shape, condition)
    return failures


def passes(lab, door, shape, condition):
    def kill_a_path(number):
        if condition.dies and number == 0:
            # During the next request.
            threading.Timer(0.01, lab.set, (PATHS[2], "--silent")).start()

    with lab.paths(condition):
        try:
            result = transfer(lab, door, shape, 4, on_request=kill_a_path)
        except Failure as failure:
            print(f"FAILED  {door.name}, {shape}, {condition.name}: {failure}", flush=True)
            return False
    rate, longest = result["gigabytes_per_second"], result["longest_seconds"]
    print(f"ok      {door.name}, {shape}, {condition.name}: {rate:.3f} GB/s, longest {longest:.2f} s, no wrong word", flush=True)
    return True


def perftest(lab, shape, one_host):
    """Moves as many bytes with perftest on Weft's device, which spends nothing on a stack above. Returns GB/s."""
    program, size = PERFTEST[shape]
    messages = MEASURED_REQUESTS * (64 << 20) // size
    # A queue pair has one buffer of this size. Copies within one host are measured from memory, not from the processor's cache.
    pairs = 64 if one_host and shape == "vllm" else 1
    options = {"-s": size, "-n": messages // pairs, "-t": min(messages // pairs, 128), "-q": pairs}
    words = [str(word) for option in options.items() for word in option]
    command = [lab.weft, "run", "--", program, *words, "--report_gbits"]
    server = lab.spawn("h0", command)
    limit = threading.Timer(LIMIT, lambda: server.send_signal(signal.SIGKILL))
    limit.start()
    try:
        until_listening(server, 18515)
        client = lab.spawn("h0" if one_host else "h1", [*command, lab.nodes["h0"]["address"]])
        printed, _ = client.communicate(timeout=LIMIT)
        # Size, messages, peak and average bandwidth, Gb/s.
        row = re.search(rf"^ *{size} +{messages} +\S+ +([\d.]+)", printed, re.MULTILINE)
        if client.returncode or not row:
            raise Failure(printed)
        return float(row[1]) / 8
    finally:
        limit.cancel()
        server.kill()
        server.communicate()


def until_listening(program, port):
    """Waits until a TCP port is listened on where the program runs, or the program has ended."""
    tables = [Path(f"/proc/{program.pid}/net/{table}") for table in ("tcp", "tcp6")]
    listening = re.compile(rf":{port:04X} \S+ 0A ")
    while program.poll() is None and not any(listening.search(table.read_text()) for table in tables):
        time.sleep(0.01)


def bench(lab, pairs, rounds):
    """Prints the goodput of Weft, of perftest on Weft's device and of TCP, taken in turn, for the newest wheel of each stack."""
    newest = {}
    for pair in pairs:
        newest.setdefault(pair[0].stack, pair)
    print("| wheel | shape | where | Weft, MB/s | perftest on Weft, MB/s | TCP, MB/s | ratio to TCP |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    failures = 0
    for pair in newest.values():
        for shape in ("vllm", "lmcache"):
            for condition in MEASURED:
                with lab.paths(condition):
                    rates = in_turn(lab, pair, shape, condition, rounds)
                failures += not rates[0]
                middle = [statistics.median(rate) if rate else None for rate in rates]
                shown = [f"{rate * 1000:.0f}" if rate else "failed" for rate in middle]
                ratio = f"{middle[0] / middle[2]:.1f}" if middle[0] and middle[2] else "-"
                row = [pair[0].wheel.name, shape, condition.name, *shown, ratio]
                print(f"| {' | '.join(row)} |", flush=True)
    return failures


def in_turn(lab, pair, shape, condition, rounds):
    """Returns the rates of Weft, perftest and TCP, of those rounds that did not fail."""

    def carried_by(door):
        return lambda: transfer(lab, door, shape, MEASURED_REQUESTS, condition.one_host)["gigabytes_per_second"]

    weft, tcp = pair
    measured = {
        weft.name: carried_by(weft),
        "perftest": lambda: perftest(lab, shape, condition.one_host),
        tcp.name: carried_by(tcp),
    }
    rates = {name: [] for name in measured}
    for _ in range(rounds):
        for name, measure in measured.items():
            try:
                rates[name].append(measure())
            except Failure as failure:
                print(f"doors: {name}, {shape}: {failure}", file=sys.stderr)
    return list(rates.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["test", "bench"])
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    parser.add_argument("--weft", default=str(target / "release/weft"), help="the command, beside its libraries")
    parser.add_argument("--wheels", type=Path, default=target / "doors", help="the folder of the wheels' environments")
    parser.add_argument("--only", default="", help="only wheels whose name contains this, such as nixl")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the benchmark [3]")
    options = parser.parse_args()
    pairs = [pair for pair in doors(options.weft, options.wheels) if options.only in pair[0].wheel.name]
    with Lab(options.weft) as lab:
        failures = test(lab, pairs) if options.what == "test" else bench(lab, pairs, options.rounds)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
