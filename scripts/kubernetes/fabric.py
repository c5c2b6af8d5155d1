"""The network below the test's cluster: two nodes with four paths between them, of `weft lab`, and a network for Kubernetes' own traffic."""

import json

from machine import call

NODES = ("h0", "h1")
# The links whose loss is that of the paths.
PATHS = tuple(f"l0-s{spine}" for spine in range(4))
# Kubernetes' own programs reach each other past the fabric, whose loss is meant for pods.
MANAGEMENT = "192.168.250"
CONTROL = f"{MANAGEMENT}.1"


class Fabric:
    """Network namespaces for the nodes and for the control plane."""

    def __init__(self, weft, name):
        self.weft, self.name, self.control = weft, name, f"{name}-control"

    def __enter__(self):
        try:
            self.lab("up", "--spines", str(len(PATHS)))
            nodes = json.loads(self.lab("status", "--json"))["nodes"]
            self.nodes = {node["name"]: node for node in nodes}
            self.join_control()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        call("ip", "netns", "delete", self.control, check=False)
        self.lab("down", check=False)

    def lab(self, verb, *words, check=True):
        return call(self.weft, "lab", verb, "--name", self.name, *words, check=check).stdout

    def address(self, node):
        return self.nodes[node]["address"]

    def namespace(self, node):
        return self.nodes[node]["namespace"]

    def ip(self, namespace, *words):
        return call("ip", "-n", namespace, *words).stdout

    def join_control(self):
        """Connects the nodes with the control plane by a bridge."""
        call("ip", "netns", "add", self.control)
        self.ip(self.control, "link", "set", "lo", "up")
        self.ip(self.control, "link", "add", "nodes", "type", "bridge")
        self.ip(self.control, "address", "add", f"{CONTROL}/24", "dev", "nodes")
        self.ip(self.control, "link", "set", "nodes", "up")
        for number, node in enumerate(NODES):
            space, own = self.namespace(node), f"{MANAGEMENT}.{2 + number}"
            self.ip(self.control, "link", "add", node, "type", "veth", "peer", "name", "control", "netns", space)
            self.ip(self.control, "link", "set", node, "master", "nodes", "up")
            self.ip(space, "address", "add", f"{own}/24", "dev", "control")
            self.ip(space, "link", "set", "control", "up")
            # The API server reaches kubelets by the nodes' addresses in the fabric.
            self.ip(self.control, "route", "add", f"{self.address(node)}/32", "via", own)

    def received(self, node):
        """Returns the bytes that a node has received from the paths."""
        links = json.loads(self.ip(self.namespace(node), "-j", "-s", "-d", "link", "show"))
        is_path = lambda link: link.get("linkinfo", {}).get("info_kind") == "veth" and link["ifname"] != "control"
        return sum(link["stats64"]["rx"]["bytes"] for link in links if is_path(link))

    def lose(self, loss):
        """Sets the loss of every path in both directions, such as `1%`."""
        for path in PATHS:
            self.lab("set", path, "--clear", "--loss", loss)

    def route(self, prefix, node):
        """Routes a node's pods by their addresses, over all paths, as a routing protocol of the fabric would."""
        leaf = NODES.index(node)
        here, there = self.namespace(f"l{leaf}"), self.namespace(f"l{1 - leaf}")
        self.ip(here, "route", "replace", prefix, "via", self.address(node))
        for namespace in (there, *(self.namespace(f"s{spine}") for spine in range(len(PATHS)))):
            # The next hops of the route to the node itself, for another prefix.
            words = self.ip(namespace, "route", "show", f"10.{leaf + 1}.0.0/16").split()[1:]
            self.ip(namespace, "route", "replace", prefix, *words)
