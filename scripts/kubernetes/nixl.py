"""A stock wheel of NIXL in pods without privileges, which moves a KV cache between two nodes over shares of the device."""

import json
import os
import subprocess
import sysconfig
import time
from pathlib import Path

import images
import objects
from device import devices, end, row_of
from fabric import NODES
from machine import Failure, call, until
from overlay import address, delete, inside, until_ready

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/kv_cache"
IN_IMAGE = "/opt/kv_cache"
# The host that has the cache of requests, and the one that takes or gets it.
SERVING, MOVING = "prefill", "decode"
# Requests of 64 MiB each, and the first one, which also sets up the connection.
REQUESTS = 4
# Folders of the interpreter, and one of the wheel, for PyTorch, that the example does not import.
UNUSED = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "tkinter", "pip", "setuptools", "nixl_ep_cu12"}
# UCX otherwise asks the routes of an interface whether a peer is reached, and those of the device are the node's.
VARIABLES = {"UCX_TLS": "rc_verbs,ud_verbs,self", "UCX_IB_ROCE_REACHABILITY_MODE": "all"}
LIMIT = 300


def steps(run):
    with run.step(f"pods with {run.wheel.name} get shares of the device by a plain limit"):
        for name, node in zip((MOVING, SERVING), NODES):
            pod = objects.with_limit(name, node, image="nixl")
            pod["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in VARIABLES.items()]
            run.cluster.apply(pod)
        for name in (MOVING, SERVING):
            until_ready(run, name)
    for shape in ("vllm", "lmcache"):
        with run.step(f"the wheel moves a KV cache between pods of two nodes, as {shape} does, while each path loses packets"):
            move(run, shape)
    with run.step("the shares of these pods end with them"):
        delete(run, MOVING, SERVING)
        for node in NODES:
            until(f"{node} has no devices", lambda name=node: not devices(run, name))


def write_image(archive, wheel, programs):
    """Writes an image with the wheel's environment, its interpreter with the standard library, and the example."""
    files = environment(wheel) | {f"{IN_IMAGE}/{path.name}": path for path in EXAMPLE.glob("*.py")}
    images.write(archive, "nixl", programs, files)


def environment(wheel):
    """Returns the files of a virtual environment and of its interpreter, by their paths here, which it also has in the image."""
    python = wheel / "bin/python"
    words = "import sys, sysconfig; print(sysconfig.get_path('stdlib')); print(sysconfig.get_path('purelib'))"
    library, packages = map(Path, call(python, "-c", words).stdout.split())
    files = [python, wheel / "pyvenv.cfg"]
    for folder in (library, packages):
        parts = (path for path in folder.rglob("*") if path.is_file())
        files.extend(path for path in parts if not UNUSED & set(path.relative_to(folder).parts) and path.suffix != ".a")
    suffix = sysconfig.get_config_var("SHLIB_SUFFIX")
    for program in (python, *(path for path in files if suffix in path.name)):
        files.extend(images.libraries(program))
    # The wheel's libraries name each other by paths with `..`.
    return {os.path.normpath(path): path for path in files}


def words(run, pod, node, *arguments):
    """Returns the command of an end in its pod. The index chooses the address in the fabric among the node's addresses."""
    own = [f"UCX_IB_GID_INDEX={row_of(run, pod, node)}", run.wheel / "bin/python", f"{IN_IMAGE}/kv_cache.py"]
    return ["env", *own, *arguments, "--address", address(run, pod)]


def move(run, shape):
    before = received(run)
    command = run.cluster.command("exec", SERVING, "--", *words(run, SERVING, NODES[1], "serve", "--shape", shape))
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wanted = words(run, MOVING, NODES[0], address(run, SERVING), "--shape", shape, "--requests", str(REQUESTS), "--json")
        began = time.monotonic()
        done = inside(run, MOVING, *wanted, check=False, limit=LIMIT)
        took = time.monotonic() - began
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or len(lines) != REQUESTS + 2 or any(line["wrong"] for line in lines):
            raise Failure(f"exit code {done.returncode}: {done.stdout}{done.stderr}\nserver: {end(server)}")
        check_paths(run, lines[-1], before)
        say(run, lines, took)
    finally:
        end(server)


def received(run):
    """Returns the bytes that the nodes have received from the paths."""
    return sum(run.fabric.received(node) for node in NODES)


def check_paths(run, result, before):
    """Fails if the nodes have received less from the paths than what was moved: another network of theirs would not lose packets."""
    moved = (REQUESTS + 1) * result["descriptors"] * result["descriptor_bytes"]
    arrived = received(run) - before
    if arrived < moved:
        raise Failure(f"{moved} bytes were moved, and {arrived} were received from the paths")


def say(run, lines, took):
    result = lines[-1]
    size = result["descriptors"] * result["descriptor_bytes"] >> 20
    rate = result["gigabytes_per_second"] * 1000
    run.say(
        f"{result['shape']}: {len(lines) - 1} requests of {size} MiB in {result['descriptors']} descriptors, no wrong word, within {took:.1f} s; "
        f"without the first one {rate:.0f} MB/s, the longest {result['longest_seconds']:.2f} s"
    )
