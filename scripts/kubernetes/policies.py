"""Network policies between pods of two nodes, and the time until a change of them is in force."""

import objects
from fabric import NODES
from machine import Failure
from overlay import address, until_ready
from probe import check_never, command, now, until_reached

# The port that a policy names, and one that none allows.
NAMED, OTHER = 6379, 6380
NAME = "redis"
# A client that a policy allows, and one that none does.
FRIEND, STRANGER = "friend", "stranger"
# The seconds that a change may take while a leader is there.
LIMIT = 20


def steps(run):
    with run.step("pods without policies reach each other"):
        begin(run)
        settle(run, "without policies", now(), reached=[(client, port) for client in (FRIEND, STRANGER) for port in (NAMED, OTHER)])
    with run.step("a NetworkPolicy that selects all pods and allows nothing"):
        since = put(run, DENY)
        settle(run, "nothing is reached", since, blocked=[(client, port) for client in (FRIEND, STRANGER) for port in (NAMED, OTHER)])
    with run.step("a NetworkPolicy that allows pods by label one named port"):
        since = put(run, ALLOW)
        settle(run, "the named port is reached", since, reached=[(FRIEND, NAMED)])
        for client, port in ((FRIEND, OTHER), (STRANGER, NAMED), (STRANGER, OTHER)):
            check_never(run, client, port, since)
    with run.step("the policies are deleted"):
        since = remove(run, "allow", "deny")
        settle(run, "everything is reached", since, reached=[(client, port) for client in (FRIEND, STRANGER) for port in (NAMED, OTHER)])


def begin(run):
    """Starts a server with two ports on a node, and two clients on the other one."""
    server = objects.pod("web", NODES[1], ("sh", "-c", f"{shell(OTHER)} & exec {shell(NAMED)}"))
    server["spec"]["containers"][0]["ports"] = [{"name": NAME, "containerPort": NAMED}]
    run.cluster.apply(server)
    until_ready(run, "web")
    for client in (FRIEND, STRANGER):
        run.cluster.apply(objects.pod(client, NODES[0], command(address(run, "web"), (NAMED, OTHER))))
    for client in (FRIEND, STRANGER):
        until_ready(run, client)


def shell(port):
    """Returns the command of a server as a shell reads it."""
    return " ".join(word or "''" for word in (*objects.REDIS, "--port", str(port)))


def policy(name, **spec):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


DENY = policy("deny", podSelector={}, policyTypes=["Ingress"])
ALLOW = policy(
    "allow",
    podSelector={"matchLabels": {objects.APP: "web"}},
    policyTypes=["Ingress"],
    ingress=[{"from": [{"podSelector": {"matchLabels": {objects.APP: FRIEND}}}], "ports": [{"port": NAME}]}],
)


def put(run, wanted):
    """Writes a policy. Returns the time before, so that measured times include that of `kubectl`."""
    before = now()
    run.cluster.apply(wanted)
    return before


def remove(run, *names):
    """Deletes policies. Returns the time before."""
    before = now()
    run.cluster.kubectl("delete", "networkpolicy", *names)
    return before


def settle(run, what, since, reached=(), blocked=(), limit=LIMIT):
    """Waits until clients reach ports, or do not any more, and prints the time since then, which may not pass a limit."""
    times = [until_reached(run, client, port, since) for client, port in reached]
    times += [until_reached(run, client, port, since, reached=False) for client, port in blocked]
    if max(times) > limit:
        raise Failure(f"{what} after {max(times):.1f} s")
    run.say(f"{what} after {max(times):.1f} s")
