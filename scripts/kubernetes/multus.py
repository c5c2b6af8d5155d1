"""Multus: pods with a second interface, in another network of the overlay."""

import json
import re

import objects
from controller import until_accepted
from fabric import NODES
from machine import Failure, until
from overlay import daemon, delete, inside, until_ready

# The numbers of the pods' network and of the second one, and the beginning of the second one's addresses.
PODS_VNI, VNI = 100, 200
PREFIX = "10.200"
PINGS = 200
USER = "multus"
ANNOTATION = "k8s.v1.cni.cncf.io/networks"
NETWORK = "storage"
# A pod on each node.
PODS = {"left": NODES[0], "right": NODES[1]}


def steps(run):
    with run.step("a second WeftNetwork, and Multus before Weft's plugin on both nodes"):
        run.cluster.apply({"apiVersion": "weft.dev/v1alpha1", "kind": "WeftNetwork", "metadata": {"name": NETWORK}, "spec": {"vni": VNI}})
        until_accepted(run, NETWORK)
        install(run)
    with run.step("pods of both nodes have an interface in each network"):
        for name, node in PODS.items():
            run.cluster.apply(attached(name, node))
        for name, node in PODS.items():
            until_ready(run, name)
            check_interfaces(run, name, node)
    with run.step("they reach each other in both networks, while each path loses packets"):
        for interface in ("eth0", "net1"):
            ping(run, interface)
    with run.step("an annotation that asks for another pod's Ethernet address is refused"):
        refuse_address(run)
    with run.step("both ports end with a pod"):
        delete(run, *PODS)
        for node in NODES:
            until(f"{node} has no ports of pods", lambda name=node: not pod_ports(run, name))
            until(f"no address of {NETWORK} is reserved on {node}", lambda name=node: not reserved(run, name))


def install(run):
    """Puts Multus on each node with Weft's network as the default one, and defines the second one."""
    run.cluster.apply(DEFINITION, ROLE, BINDING)
    run.cluster.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION['metadata']['name']}")
    for number, node in enumerate(NODES):
        machine = run.cluster.nodes[node]
        machine.run("cp", run.programs / "multus/multus", "/opt/cni/bin/")
        machine.run("sh", "-c", f"cat >{KUBECONFIG}", input=run.cluster.kubeconfig(USER).read_text(encoding="ascii"))
        network = machine.run("cat", "/etc/cni/net.d/10-weft.conflist").stdout
        run.cluster.apply(definition(f"pods-{node}", "kube-system", network), definition(name_on(node), "default", json.dumps(storage(number))))
        # The runtime takes the first file.
        multus = MULTUS | {"clusterNetwork": f"pods-{node}"}
        machine.run("sh", "-c", "cat >/etc/cni/net.d/00-multus.conf", input=json.dumps(multus))


KUBECONFIG = "/etc/cni/multus.kubeconfig"
# `clusterNetwork` is a definition: of a file Multus 4.2.2 to 4.3.0 forget the addresses' ranges when an interface is deleted.
MULTUS = {"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": KUBECONFIG}


def name_on(node):
    """Returns the name of a node's definition: `host-local` has a range of addresses for each node."""
    return f"{NETWORK}-{node}"


def storage(number):
    """Returns the configuration of the second network on a node."""
    ranges = [[{"subnet": f"{PREFIX}.0.0/16", "rangeStart": f"{PREFIX}.{number}.2", "rangeEnd": f"{PREFIX}.{number}.254"}]]
    return {"cniVersion": "1.0.0", "name": NETWORK, "type": "weft-cni", "vni": VNI, "ipam": {"type": "host-local", "ranges": ranges}}


def definition(name, namespace, config):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metadata, "spec": {"config": config}}


def attached(name, node, **wanted):
    """Returns a pod with an interface in the second network."""
    pod = objects.pod(name, node)
    pod["metadata"]["annotations"] = {ANNOTATION: json.dumps([{"name": name_on(node), **wanted}])}
    return pod


def interface(run, name, device):
    """Returns the Ethernet and the IP address of a pod's interface."""
    shown = inside(run, name, "ip", "address", "show", "dev", device).stdout
    mac, own = re.search(r"link/ether (\S+)", shown), re.search(r"inet ([\d.]+)/16", shown)
    if not mac or not own:
        raise Failure(f"{device} of {name}: {shown}")
    return mac[1], own[1]


def pod_ports(run, node):
    """Returns the ports of pods on a node: pod, network, interface and Ethernet address."""
    status = json.loads(daemon(run, node, "weft", "vpc", "status", "--json").stdout)
    found = [port for port in status["ports"] if port["name"].startswith("cni/")]
    return {(port["labels"]["pod"], port["vni"], port["name"].rpartition("/")[2]): port for port in found}


def check_interfaces(run, name, node):
    ports, number = pod_ports(run, node), NODES.index(node)
    for device, vni, prefix in (("eth0", PODS_VNI, "10.244"), ("net1", VNI, PREFIX)):
        mac, own = interface(run, name, device)
        if not own.startswith(f"{prefix}.{number}."):
            raise Failure(f"{device} of {name} on {node} has the address {own}")
        port = ports.get((name, vni, device))
        if not port or port["mac"] != mac:
            raise Failure(f"the daemon of {node} has ports {list(ports)}, and not {device} of {name} with {mac}: {port}")
        run.say(f"{name} on {node}: {device} has {own} in network {vni}")


def ping(run, device):
    _, peer = interface(run, "right", device)
    done = inside(run, "left", "ping", "-c", PINGS, "-i", "0.02", "-W", "10", "-I", device, "-q", peer, check=False)
    answered = re.search(r"(\d+) packets received", done.stdout)
    if not answered or int(answered[1]) != PINGS:
        raise Failure(f"by {device}: {done.stdout}{done.stderr}")
    run.say(f"{PINGS} pings by {device} to {peer}, all answered")


def refuse_address(run):
    mac, _ = interface(run, "right", "net1")
    run.cluster.apply(attached("thief", NODES[0], mac=mac))
    said = until("an event of the pod names allowAddresses", lambda: next((text for text in refusals(run, "thief") if "allowAddresses" in text), None))
    run.say(f"the pod's event: ... {said[-160:]}")
    delete(run, "thief")


def refusals(run, name):
    """Returns what kubelet says about a sandbox that it cannot make for this pod, the newest first; a former pod may have had the name."""
    uid = run.cluster.get("pod", name)["metadata"]["uid"]
    events = run.cluster.items("events", f"--field-selector=involvedObject.kind=Pod,involvedObject.uid={uid},reason=FailedCreatePodSandBox")
    return [event["message"] for event in sorted(events, key=last_seen, reverse=True)]


def last_seen(event):
    """Returns the time at which an event was last seen, as a text that sorts by time."""
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]


def reserved(run, node):
    listed = run.cluster.nodes[node].run("sh", "-c", f"ls /var/lib/cni/networks/{NETWORK} 2>/dev/null || true").stdout.split()
    return [entry for entry in listed if entry.startswith(f"{PREFIX}.")]


# What deployments of Multus define and allow, as far as the plugin needs it.
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
    "spec": {
        "group": "k8s.cni.cncf.io",
        "scope": "Namespaced",
        "names": {"plural": "network-attachment-definitions", "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
                    }
                },
            }
        ],
    },
}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": USER},
    "rules": [
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch", "update"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": USER},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
}
