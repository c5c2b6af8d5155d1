"""What pods notice of a rolling upgrade of the DaemonSet, and of a node that loses power and returns."""

import time

import objects
from fabric import NODES
from machine import Failure, until
from overlay import address, check_interface, delete, inside, is_ready, ports, start, until_ready, until_rolled_out


def steps(run):
    with run.step("a rolling upgrade of the DaemonSet, under requests between pods"):
        upgrade(run)
    with run.step("a node loses power: the pods of the other one go on, and a Deployment moves there"):
        lose_node(run)
    with run.step("the node returns: its pods are there again, and reach the others"):
        return_node(run)


def start_client(run, name, node, server):
    """Starts a client without end of a pod with Redis."""
    run.cluster.apply(objects.pod(name, node, objects.requests_to(address(run, server))))
    until_ready(run, name)
    until(f"{name} gets answers", lambda: requests(run, name)[0] > 10)


def requests(run, name):
    """Returns a client's numbers of requests that were answered and that failed, and the seconds of the longest one."""
    answered, failed, longest = (inside(run, name, "cat", "/tmp/requests", check=False).stdout.split() or (0, 0, 0))[:3]
    return int(answered), int(failed), int(longest) / 100


def check_requests(run, name, before, while_):
    """Waits until a client has more answers than before, and fails if a request has failed."""
    answered, failed, longest = until(
        f"{name} gets answers after {while_}", lambda: (now := requests(run, name))[0] > before + 100 and now
    )
    if failed:
        raise Failure(f"{failed} requests of {name} failed during {while_}, {answered} were answered")
    run.say(f"{name}: {answered} requests answered, none failed, the longest took {longest:.2f} s")


def daemons(run):
    items = run.cluster.items("--namespace=kube-system", "pods", "--selector=app.kubernetes.io/name=weft")
    return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in items}


def upgrade(run):
    start_client(run, "requester", NODES[0], "server")
    before, began = daemons(run), time.monotonic()
    answered = requests(run, "requester")[0]
    run.cluster.kubectl("--namespace=kube-system", "rollout", "restart", "daemonset/weft")
    until_rolled_out(run, "weft")
    took = time.monotonic() - began
    after = daemons(run)
    if any(before[node] == after[node] for node in NODES):
        raise Failure(f"not every daemon was replaced: {before}, then {after}")
    run.say(f"both daemons were replaced within {took:.1f} s")
    check_requests(run, "requester", answered, "the upgrade")
    # The server names a client as long as its connection lasts.
    kept = [line for line in inside(run, "server", "redis-cli", "CLIENT", "LIST").stdout.splitlines() if "name=kept" in line]
    ages = [int(word.removeprefix("age=")) for line in kept for word in line.split() if word.startswith("age=")]
    if not ages or max(ages) < took:
        raise Failure(f"the connection from before the upgrade is gone: {kept}")
    run.say(f"a connection with requests one after the other is {max(ages)} s old")
    delete(run, "requester")


def lose_node(run):
    start(run, local_server=NODES[0], stays=NODES[1])
    start_client(run, "neighbour", NODES[0], "local-server")
    run.cluster.apply(objects.deployment("replaced", NODES[1]))
    until("the Deployment is on the second node", lambda: replaced_on(run, NODES[1]), 120)
    answered = requests(run, "neighbour")[0]
    machine, began = run.cluster.nodes[NODES[1]], time.monotonic()
    machine.lose_power()
    # The interfaces of a real node would be gone too.
    for interface in ("weft0", "cni0"):
        run.fabric.ip(run.fabric.namespace(NODES[1]), "link", "delete", interface)
    run.cluster.remove_cgroups(NODES[1])
    until("the node is not ready", lambda: not run.cluster.is_ready(NODES[1]), 60)
    run.say(f"not ready after {time.monotonic() - began:.1f} s")
    until("the Deployment is on the first node", lambda: replaced_on(run, NODES[0]), 120)
    run.say(f"the Deployment's pod is ready on the other node after {time.monotonic() - began:.1f} s")
    check_requests(run, "neighbour", answered, "the loss of the other node")


def replaced_on(run, node):
    items = run.cluster.items("pods", "--selector=app.kubernetes.io/name=replaced")
    return any(pod["spec"].get("nodeName") == node and is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in items)


def restarts_of(run, name):
    statuses = run.cluster.get("pod", name)["status"].get("containerStatuses", ())
    return sum(status["restartCount"] for status in statuses)


def return_node(run):
    node, began = NODES[1], time.monotonic()
    run.cluster.start_node(node)
    until("the node is ready", lambda: run.cluster.is_ready(node), 120)
    for name in ("stays", "server"):
        until(f"{name} is started again", lambda pod=name: restarts_of(run, pod) > 0 and is_ready(run.cluster.get("pod", pod)), 120)
    until_rolled_out(run, "weft")
    run.say(f"ready, with its pods, after {time.monotonic() - began:.1f} s")
    until("the Deployment's former pod is gone", lambda: len(run.cluster.items("pods", "--selector=app.kubernetes.io/name=replaced")) == 1)
    for name in ("stays", "server"):
        check_interface(run, name)
        until(
            f"the client reaches {name}",
            lambda pod=name: not inside(run, "client", "ping", "-c", "1", "-W", "1", address(run, pod), check=False).returncode,
        )
    # Ports of pods from before the end would stay in the daemon's list of changes.
    until(f"{node} has ports of its pods only", lambda: ports(run, node) == ["server", "stays"])
    start(run, new=node)
    check_interface(run, "new")
    delete(run, "stays", "new", "neighbour", "local-server")
