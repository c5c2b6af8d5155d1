"""RDMA programs in pods without privileges: shares of the device of a daemon on each node, by dynamic resource allocation."""

import json
import re
import subprocess
import time

import objects
from fabric import CONTROL, NODES
from machine import Failure, until
from overlay import MANIFESTS, address, delete, inside, kustomize, until_ready, until_rolled_out

PORT = 18515
SIZE, MESSAGES = 1 << 20, 1000
# The pod with a plain limit, and the one with a claim, on a node each.
LIMITED, CLAIMING = "limited", "claiming"


def libraries(release):
    """Returns the libraries of `weft run`, by their paths in an image."""
    return {f"/usr/lib/weft/verbs/{path.name}": path for path in (release / "verbs").glob("*.so*")}


def steps(run):
    with run.step("a device daemon and a driver on each node, which publish the nodes' devices"):
        kustomize(run, MANIFESTS / "rdma")
        # The address of the service of the API is kube-proxy's, which does not run here.
        names = (f"KUBERNETES_SERVICE_HOST={CONTROL}", "KUBERNETES_SERVICE_PORT=6443")
        run.cluster.kubectl("--namespace=kube-system", "set", "env", "daemonset/weft-rdma", "--containers=driver", *names)
        until_rolled_out(run, "weft-rdma")
        until("both nodes have a ResourceSlice", lambda: pools(run) == set(NODES))
    with run.step("pods get shares of the device, by a plain limit and by a claim"):
        run.cluster.apply(objects.with_limit(LIMITED, NODES[0]), *objects.with_claim(CLAIMING, NODES[1]))
        for name, node in zip((LIMITED, CLAIMING), NODES):
            until_ready(run, name)
            if len(devices(run, node)) != 1:
                raise Failure(f"{node} has the devices {devices(run, node)}")
        (share,) = devices(run, NODES[1])
        if (share["limits"]["queue_pairs"], share["owner"]) != (objects.QUEUE_PAIRS, objects.TENANT):
            raise Failure(f"the claim's device is {share}")
    with run.step("ib_write_bw between pods of two nodes, while each path loses packets"):
        write(run)
    with run.step("shares end with their pods"):
        delete(run, LIMITED, CLAIMING)
        for node in NODES:
            until(f"{node} has no devices", lambda name=node: not devices(run, name))


def pools(run):
    slices = run.cluster.items("resourceslices")
    return {part["spec"]["pool"]["name"] for part in slices if part["spec"]["driver"] == "weft.dev"}


def devices(run, node):
    """Returns the devices of the daemon on a node."""
    pods = run.cluster.items("--namespace=kube-system", "pods", "--selector=app.kubernetes.io/name=weft-rdma", f"--field-selector=spec.nodeName={node}")
    (pod,) = pods
    words = ("exec", pod["metadata"]["name"], "--container=device", "--", "weft", "device", "list", "--socket", "/run/weft-device/device.sock", "--json")
    return json.loads(run.cluster.kubectl("--namespace=kube-system", *words).stdout)


def row_of(run, name, node):
    """Returns the row of the device's table of addresses that has the node's address in the fabric."""
    shown = inside(run, name, "ibv_devinfo", "-v").stdout
    row = re.search(rf"GID\[ *(\d+)\]:\s+::ffff:{re.escape(run.fabric.address(node))}\b", shown)
    if not row:
        raise Failure(f"the device in {name} has no row for {run.fabric.address(node)}: {shown}")
    return row[1]


def write(run):
    command = ["ib_write_bw", "-s", SIZE, "-n", MESSAGES, "-p", PORT, "--report_gbits", "-F"]
    rows = {name: row_of(run, name, node) for name, node in zip((LIMITED, CLAIMING), NODES)}
    words = run.cluster.command("exec", CLAIMING, "--", *command, "-x", rows[CLAIMING])
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until("ib_write_bw listens", lambda: server.poll() is not None or is_listening(run, CLAIMING), 30)
        began = time.monotonic()
        done = inside(run, LIMITED, *command, "-x", rows[LIMITED], address(run, CLAIMING), check=False)
        took = time.monotonic() - began
        # Its own figure counts cycles of a processor whose frequency it guesses.
        if done.returncode or not re.search(rf"^ *{SIZE} +{MESSAGES} ", done.stdout, re.MULTILINE):
            raise Failure(f"exit code {done.returncode}: {done.stdout}{done.stderr}\nserver: {end(server)}")
        run.say(f"{MESSAGES} WRITEs of 1 MiB took {took:.1f} s, with the start of the program: {MESSAGES * SIZE * 8 / took / 1e9:.2f} Gb/s")
        if server.wait(60):
            raise Failure(f"the server's exit code is {server.returncode}")
    finally:
        end(server)


def is_listening(run, name):
    tables = inside(run, name, "cat", "/proc/net/tcp", "/proc/net/tcp6", check=False).stdout
    return re.search(rf":{PORT:04X} \S+ 0A ", tables)


def end(program):
    """Ends a program, and returns what it printed, the first time."""
    program.kill()
    return "" if program.stdout.closed else program.communicate()[0]
