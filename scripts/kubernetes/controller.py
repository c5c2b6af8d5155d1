"""The controller and the chart: the fleet in etcd, networks, and what happens when the leading controller ends, or none runs."""

import re
import time

import images
import objects
import policies
from fabric import CONTROL, NODES
from fleet import ENDPOINT, SECRET, Fleet
from machine import Failure, until
from overlay import LOSS, MANIFESTS, address, check_interface, delete, inside, ports, until_ready, until_rolled_out
from probe import now

REPLICAS = 2
LEASE_SECONDS = 15
PINGS = 20


def steps(run):
    with run.step("the chart in place of the plain DaemonSet, with the fleet's etcd behind TLS"):
        remove_daemonset(run)
        run.fleet = Fleet(run.cluster.control)
        run.fleet.start()
        install(run)
    with run.step("the pods' WeftNetwork is accepted, and in the fleet"):
        until_accepted(run, "weft-pods")
        run.say(f"networks/100/settings: {run.fleet.get('networks/100/settings')}")
    policies.steps(run)
    with run.step("the chart's pods have interfaces of the overlay"):
        for name in ("web", policies.FRIEND):
            check_interface(run, name)
    with run.step("the leading controller and its pod are killed, and a policy is written at once"):
        kill_leader(run)
    with run.step("without a controller a new pod is not reached, and others go on"):
        await_policies(run)
    delete(run, "web", policies.FRIEND, policies.STRANGER)


def remove_daemonset(run):
    """Deletes the pods of the plain DaemonSet's network, then the DaemonSet, if it is there: the chart's has its name."""
    folder = run.folder / f"manifests-{MANIFESTS.name}"
    if not folder.exists():
        run.fabric.lose(LOSS)
        return
    run.cluster.kubectl("delete", "deployments,pods", "--all", "--wait=true", "--timeout=60s")
    for node in NODES:
        until(f"{node} has no ports of pods", lambda name=node: not ports(run, name))
    run.cluster.kubectl("delete", "--wait=true", "--kustomize", folder)


def install(run):
    """Installs the chart with helm, and returns when the daemons and the controllers run."""
    run.cluster.apply(run.fleet.secret())
    repository, _, tag = images.name_of("weft").rpartition(":")
    hosts = ",".join(run.fabric.address(node) for node in NODES)
    values = {
        "image.repository": repository,
        "hosts": f"{{{hosts}}}",
        "etcd.endpoints": f"{{{ENDPOINT}}}",
        "etcd.tlsSecret": SECRET,
        # The address of the service of the API is kube-proxy's, which does not run here.
        "apiServer.host": CONTROL,
        "apiServer.port": "6443",
        "controller.replicas": REPLICAS,
        "controller.leaseSeconds": LEASE_SECONDS,
    }
    words = [f"--set={name}={value}" for name, value in values.items()]
    files = [f"HELM_{kind}_HOME={run.folder}/helm" for kind in ("CACHE", "CONFIG", "DATA")]
    helm = ["env", *files, run.cluster.program("helm"), f"--kubeconfig={run.cluster.kubeconfig('admin')}"]
    run.cluster.control.run(*helm, "install", "weft", MANIFESTS / "chart", "--namespace=kube-system", f"--set-string=image.tag={tag}", *words)
    until_rolled_out(run, "weft")
    until_controllers_run(run)
    for node in NODES:
        until(f"{node} is ready", lambda name=node: run.cluster.is_ready(name), 60)


def until_controllers_run(run):
    run.cluster.kubectl("--namespace=kube-system", "rollout", "status", "deployment/weft-kube", "--timeout=120s", limit=130)


def until_accepted(run, name):
    condition = until(f"the WeftNetwork {name} has a condition", lambda: accepted(run, name))
    if condition["status"] != "True":
        raise Failure(f"the WeftNetwork {name} is not accepted: {condition}")


def accepted(run, name):
    network = run.cluster.get("weftnetwork", name) or {}
    conditions = network.get("status", {}).get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == "Accepted"), None)


def controllers(run):
    """Returns the names of the controllers' pods, those that end among them, with their nodes."""
    pods = run.cluster.items("--namespace=kube-system", "pods", "--selector=app.kubernetes.io/component=controller")
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}


def leader(run):
    """Returns who holds the Lease: the name of the node, and a part that no other process has."""
    lease = run.cluster.get("--namespace=kube-system", "lease", "weft-kubernetes")
    return lease["spec"].get("holderIdentity", "") if lease else ""


def kill_leader(run):
    former = until("a controller holds the Lease", lambda: leader(run))
    node = former.rpartition("-")[0]
    before = controllers(run)
    if sorted(before.values()) != sorted(NODES) or node not in NODES:
        raise Failure(f"the leader is {former}, and the controllers are {before}")
    (killed,) = (name for name, place in before.items() if place == node)
    began = time.monotonic()
    kill(run, node, "weft-kube")
    run.cluster.kubectl("--namespace=kube-system", "delete", "pod", killed, "--grace-period=0", "--force")
    since = policies.put(run, policies.DENY)
    everything = [(client, port) for client in (policies.FRIEND, policies.STRANGER) for port in (policies.NAMED, policies.OTHER)]
    next_leader = until("another controller holds the Lease", lambda: (now_leads := leader(run)) != former and now_leads, 60)
    run.say(f"the leader was {former}; {next_leader} leads after {time.monotonic() - began:.1f} s at most")
    policies.settle(run, "the policy is in force", since, blocked=everything, limit=LEASE_SECONDS + policies.LIMIT)
    policies.settle(run, "and without it everything is reached", policies.remove(run, "deny"), reached=everything)
    until_controllers_run(run)


def kill(run, node, program):
    """Ends the processes of a program on a node as the kernel does, without their notice."""
    script = f'for process in /proc/[0-9]*; do [ "$(cat $process/comm)" = {program} ] && kill -9 "${{process#/proc/}}" && echo killed; done 2>/dev/null; true'
    if "killed" not in run.cluster.nodes[node].run("sh", "-c", script).stdout:
        raise Failure(f"{node} has no process {program}")


def await_policies(run):
    """Starts a pod while no controller runs: nothing passes to it until one has written that it has no policies."""
    scale(run, 0)
    until("no controller runs", lambda: not controllers(run))
    run.cluster.apply(objects.pod("late", NODES[1]))
    until_ready(run, "late")
    answered = {"to it": pings(run, policies.FRIEND, "late"), "from it": pings(run, "late", "web")}
    if any(answered.values()):
        raise Failure(f"a pod without policies of the controller's: pings were answered {answered}")
    run.say(f"of {PINGS} pings to the new pod and as many from it none was answered")
    policies.settle(run, "other pods are reached", now(), reached=[(policies.FRIEND, policies.NAMED)])
    began = time.monotonic()
    scale(run, REPLICAS)
    until("the new pod is reached", lambda: pings(run, policies.FRIEND, "late", 1), 90)
    run.say(f"reached {time.monotonic() - began:.1f} s after the controllers were wanted again")
    delete(run, "late")
    began = time.monotonic()
    run.cluster.apply(objects.pod("later", NODES[1]))
    until_ready(run, "later")
    ready = time.monotonic()
    until("a new pod is reached", lambda: pings(run, policies.FRIEND, "later", 1))
    run.say(f"with controllers a new pod is ready after {ready - began:.1f} s, and reached {time.monotonic() - ready:.1f} s later at most")
    delete(run, "later")


def scale(run, replicas):
    run.cluster.kubectl("--namespace=kube-system", "scale", "deployment/weft-kube", f"--replicas={replicas}")


def pings(run, client, server, count=PINGS):
    """Returns how many pings of a pod to another one are answered."""
    done = inside(run, client, "ping", "-c", count, "-i", "0.1", "-W", "1", "-q", address(run, server), check=False)
    answered = re.search(r"(\d+) packets received", done.stdout)
    if not answered:
        raise Failure(done.stdout + done.stderr)
    return int(answered[1])
