"""RDMA programs in pods without privileges, on the device of a daemon on each node."""

import re
import subprocess
from pathlib import Path

import objects
from fabric import NODES
from machine import Failure, until
from overlay import address, inside, until_ready, until_rolled_out

PORT = 18515
SIZE, MESSAGES = 1 << 20, 1000


def libraries(release):
    """Returns the libraries of `weft run`, by their paths in an image, and what perftest asks about the device."""
    folder = release / "verbs"
    found = {f"/usr/lib/weft/verbs/{path.name}": path for path in folder.glob("*.so*")}
    return found | {"/usr/bin/ibv_devinfo": Path("/usr/bin/ibv_devinfo")}


def steps(run):
    with run.step("a device daemon on each node"):
        run.cluster.apply(objects.device_daemon())
        until_rolled_out(run, "weft-device")
        for pod in run.cluster.items("--namespace=kube-system", "pods", "--selector=app.kubernetes.io/name=weft-device"):
            create = ("weft", "device", "create", "--socket", objects.DEVICE_SOCKET, "tenant", "--owner", objects.TENANT)
            run.cluster.kubectl("--namespace=kube-system", "exec", pod["metadata"]["name"], "--", *create)
    with run.step("ib_write_bw between pods of two nodes, while each path loses packets"):
        for name, node in zip(("writer", "written"), NODES):
            run.cluster.apply(objects.with_device(name, node))
        for name in ("writer", "written"):
            until_ready(run, name)
        write(run)


def row_of(run, name, node):
    """Returns the row of the device's table of addresses that has the node's address in the fabric."""
    shown = inside(run, name, "weft", "run", "--device", "tenant", "--", "ibv_devinfo", "-v").stdout
    row = re.search(rf"GID\[ *(\d+)\]:\s+::ffff:{re.escape(run.fabric.address(node))}\b", shown)
    if not row:
        raise Failure(f"the device in {name} has no row for {run.fabric.address(node)}: {shown}")
    return row[1]


def write(run):
    command = ["weft", "run", "--device", "tenant", "--", "ib_write_bw", "-s", SIZE, "-n", MESSAGES, "-p", PORT, "--report_gbits", "-F"]
    rows = {name: row_of(run, name, node) for name, node in zip(("writer", "written"), NODES)}
    words = run.cluster.command("exec", "written", "--", *command, "-x", rows["written"])
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until("ib_write_bw listens", lambda: server.poll() is not None or is_listening(run, "written"), 30)
        done = inside(run, "writer", *command, "-x", rows["writer"], address(run, "written"), check=False)
        # Size, messages, peak and average, Gb/s.
        row = re.search(rf"^ *{SIZE} +{MESSAGES} +\S+ +([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or not row:
            raise Failure(f"exit code {done.returncode}: {done.stdout}{done.stderr}\nserver: {end(server)}")
        run.say(f"{MESSAGES} WRITEs of 1 MiB: {row[1]} Gb/s")
        if server.wait(60):
            raise Failure(f"the server's exit code is {server.returncode}")
    finally:
        end(server)


def is_listening(run, name):
    tables = inside(run, name, "cat", "/proc/net/tcp", "/proc/net/tcp6", check=False).stdout
    return re.search(rf":{PORT:04X} \S+ 0A ", tables)


def end(program):
    program.kill()
    return program.communicate()[0]
