"""Weft's DaemonSet as the pods' network: it becomes ready, pods of two nodes reach each other, and Redis beside the bridge plugin's network."""

import csv
import json
import re
import shutil
import statistics
from pathlib import Path

import images
import objects
from fabric import NODES
from machine import Failure, until

MANIFESTS = Path(__file__).resolve().parents[2] / "dist/kubernetes"
# The beginnings of the pods' addresses: Weft's, as dist/kubernetes has them, and the bridge plugin's.
PODS, BRIDGED = "10.244", "10.245"
LOSS = "1%"
PINGS = 1000
# The pods of the overlay's daemon, of dist/kubernetes and of its chart.
DAEMONS = "app.kubernetes.io/name=weft,app.kubernetes.io/component!=controller"
BENCHMARK = ("redis-benchmark", "-t", "get,set", "-c", "50", "-n", "20000", "-d", "64", "-r", "10000", "--csv")


def steps(run):
    with run.step("the bridge plugin's network, with routes in the fabric"):
        bridge_network(run)
        start(run, bridged_server=NODES[1], bridged_client=NODES[0])
    with run.step("Weft's DaemonSet is ready on both nodes"):
        deploy(run)
    with run.step("pods of both nodes have interfaces of the overlay"):
        start(run, server=NODES[1], client=NODES[0])
        for name in ("server", "client"):
            check_interface(run, name)
    with run.step(f"pods reach each other while each path loses {LOSS}"):
        run.fabric.lose(LOSS)
        lost = {name: pings_lost(run, name) for name in ("bridged-", "")}
        run.say(f"pings lost, of {PINGS}: {lost['bridged-']} by the bridge plugin's network, {lost['']} by Weft's")
        if lost[""]:
            raise Failure("the overlay retransmits, and pings were lost")
    with run.step(f"Redis between pods of two nodes, each path loses {LOSS}"):
        measure(run)
        delete(run, "bridged-server", "bridged-client")


def start(run, **places):
    """Starts pods that sleep, or serve with Redis if they are named a server, and returns when they run."""
    for name, node in places.items():
        name = name.replace("_", "-")
        run.cluster.apply(objects.pod(name, node, objects.REDIS if name.endswith("server") else ("sleep", "2147483647")))
    for name in places:
        until_ready(run, name.replace("_", "-"))


def until_ready(run, name):
    until(f"the pod {name} is ready", lambda: is_ready(run.cluster.get("pod", name)), 120)


def is_ready(pod):
    states = pod["status"].get("conditions", ()) if pod else ()
    return any(state["type"] == "Ready" and state["status"] == "True" for state in states)


def delete(run, *names):
    run.cluster.kubectl("delete", "pod", "--wait=true", "--timeout=60s", *names)


def address(run, name):
    return run.cluster.get("pod", name)["status"]["podIP"]


def inside(run, name, *command, **options):
    """Runs a program in a pod of the default namespace."""
    return run.cluster.kubectl("exec", name, "--", *command, **options)


def bridge_network(run):
    """Gives each node the bridge plugin's network, in which pods' packets take the paths of the fabric as they are."""
    for number, node in enumerate(NODES):
        machine = run.cluster.nodes[node]
        subnet = f"{BRIDGED}.{number}.0/24"
        ranges = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ranges}
        network = {"cniVersion": "1.0.0", "name": "bridged", "plugins": [bridge]}
        machine.run("cp", run.programs / "cni/bridge", "/opt/cni/bin/")
        machine.run("sh", "-c", "cat >/etc/cni/net.d/20-bridged.conflist", input=json.dumps(network))
        run.fabric.route(subnet, node)
    for node in NODES:
        until(f"{node} is ready", lambda name=node: run.cluster.is_ready(name), 60)


def deploy(run):
    """Applies dist/kubernetes, and takes the bridge plugin's network away."""
    hosts = " ".join(run.fabric.address(node) for node in NODES)
    kustomize(run, MANIFESTS, (r"HOSTS=.*", f"HOSTS={hosts}"))
    until_rolled_out(run, "weft")
    for node in NODES:
        # The plugin's network has been written beside this one, which pods had before.
        run.cluster.nodes[node].run("rm", "/etc/cni/net.d/20-bridged.conflist")
        run.cluster.nodes[node].run("test", "-e", "/etc/cni/net.d/10-weft.conflist")
        until(f"{node} is ready", lambda name=node: run.cluster.is_ready(name), 60)


def kustomize(run, manifests, *changes):
    """Applies a folder of manifests with the name of the image and other lines changed, as their first lines ask."""
    folder = run.folder / f"manifests-{manifests.name}"
    shutil.copytree(manifests, folder)
    file = folder / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    name, _, tag = images.name_of("weft").rpartition(":")
    for pattern, value in ((r"newName: .*", f"newName: {name}"), (r"newTag: .*", f'newTag: "{tag}"'), *changes):
        text, count = re.subn(pattern, value, text)
        if count != 1:
            raise Failure(f"{manifests}/{file.name} has {count} lines {pattern}")
    file.write_text(text, encoding="utf-8")
    run.cluster.kubectl("apply", "--kustomize", folder)


def until_rolled_out(run, name):
    run.cluster.kubectl("--namespace=kube-system", "rollout", "status", f"daemonset/{name}", "--timeout=120s", limit=130)
    status = run.cluster.get("--namespace=kube-system", "daemonset", name)["status"]
    if status["numberReady"] != len(NODES):
        raise Failure(f"{status['numberReady']} pods of the DaemonSet {name} are ready, of {len(NODES)}")


def daemon(run, node, *command):
    """Runs a program in the pod of Weft's daemon on a node."""
    pods = run.cluster.items("--namespace=kube-system", "pods", f"--selector={DAEMONS}", f"--field-selector=spec.nodeName={node}")
    (pod,) = pods
    return run.cluster.kubectl("--namespace=kube-system", "exec", pod["metadata"]["name"], "--container=weft", "--", *command)


def ports(run, node):
    """Returns the pods whose interfaces the daemon of a node has, by name."""
    status = json.loads(daemon(run, node, "weft", "vpc", "status", "--json").stdout)
    return sorted(port["labels"]["pod"] for port in status["ports"] if port["name"].startswith("cni/"))


def check_interface(run, name):
    pod = run.cluster.get("pod", name)
    node, own = pod["spec"]["nodeName"], pod["status"]["podIP"]
    if not own.startswith(f"{PODS}.{NODES.index(node)}."):
        raise Failure(f"{name} on {node} has the address {own}")
    shown = inside(run, name, "ip", "address", "show", "dev", "eth0").stdout
    if f"inet {own}/16" not in shown:
        raise Failure(f"{name} has no interface with {own}: {shown}")
    if name not in ports(run, node):
        raise Failure(f"the daemon of {node} has ports of {ports(run, node)}, not of {name}")


def pings_lost(run, prefix):
    """Returns the number of pings between pods that were not answered."""
    server = address(run, f"{prefix}server")
    done = inside(run, f"{prefix}client", "ping", "-c", PINGS, "-i", "0.01", "-W", "10", "-q", server, check=False)
    answered = re.search(r"(\d+) packets received", done.stdout)
    if not answered:
        raise Failure(done.stdout + done.stderr)
    return PINGS - int(answered[1])


def measure(run):
    """Runs redis-benchmark in both networks in turn, and prints the medians."""
    rows = {}
    for _ in range(run.rounds):
        for prefix, network in (("bridged-", "bridge plugin"), ("", "Weft")):
            done = inside(run, f"{prefix}client", *BENCHMARK, "-h", address(run, f"{prefix}server"), limit=300)
            for row in csv.DictReader(done.stdout.splitlines()):
                rows.setdefault((row.pop("test"), network), []).append(row)
    columns = {"requests/s": "rps", "p50, ms": "p50_latency_ms", "p99, ms": "p99_latency_ms", "longest, ms": "max_latency_ms"}
    run.say(f"medians of {run.rounds} rounds in turn, 50 connections, values of 64 bytes")
    run.say(f"{'test':5} {'network':14}" + "".join(f"{name:>13}" for name in columns))
    for (test, network), measured in sorted(rows.items()):
        middle = [statistics.median(float(row[column]) for row in measured) for column in columns.values()]
        run.say(f"{test:5} {network:14}" + "".join(f"{value:13.1f}" for value in middle))
