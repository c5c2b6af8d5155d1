"""Objects of Kubernetes that the test applies, besides those of dist/kubernetes."""

import images

APP = "app.kubernetes.io/name"


def spec(node, image, command, patience=300):
    """Returns the specification of a pod on a node, or on any; without its node it stays for `patience` seconds."""
    unreachable = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": patience} for key in unreachable],
        "containers": [{"name": "main", "image": images.name_of(image), "imagePullPolicy": "Never", "command": command}],
    }


def pod(name, node, command=("sleep", "2147483647"), image="tools", **patience):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {APP: name}},
        "spec": spec(node, image, list(command), **patience),
    }


REDIS = ("redis-server", "--save", "", "--appendonly", "no", "--protected-mode", "no", "--bind", "0.0.0.0")


def requests_to(address):
    """Returns the command of a client without end: requests on a connection each, counted, and beside them requests on one connection."""
    script = f"""
        (echo CLIENT SETNAME kept; while :; do echo INCR kept; done) | redis-cli -h {address} >/dev/null 2>&1 &
        answered=0 failed=0 longest=0
        while :; do
            read -r began rest </proc/uptime
            if [ "$(timeout 60 redis-cli -h {address} INCR answered 2>&1 | grep -c '^[0-9]*$')" = 1 ]; then
                answered=$((answered + 1))
            else
                failed=$((failed + 1))
            fi
            read -r ended rest </proc/uptime
            took=$(((${{ended%.*}} - ${{began%.*}}) * 100 + 1${{ended#*.}} - 1${{began#*.}}))
            [ "$took" -le "$longest" ] || longest=$took
            echo "$answered $failed $longest" >/tmp/part
            mv /tmp/part /tmp/requests
        done
    """
    return ("sh", "-c", script)


def deployment(name, first):
    """Returns a deployment of one pod that begins on a node, and is made again on another one 2 s after its node is lost."""
    template = spec(None, "tools", ["sleep", "2147483647"], patience=2)
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [first]}]}
    template["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {APP: name}},
            "template": {"metadata": {"labels": {APP: name}}, "spec": template},
        },
    }


# The user of a pod with a claim: none that a node knows.
TENANT = 10001
# The queue pairs that it may have.
QUEUE_PAIRS = 16


def with_limit(name, node, image="weft"):
    """Returns a pod whose limit is the resource by which the device class is known to those who write no claims."""
    made = pod(name, node, image=image)
    container = made["spec"]["containers"][0]
    container["resources"] = {"limits": {"weft.dev/rdma": "1"}}
    container["securityContext"] = UNPRIVILEGED
    return made


def with_claim(name, node):
    """Returns a pod of another user than root, and the template of its claim."""
    request = {"deviceClassName": "weft.dev", "capacity": {"requests": {"queuePairs": str(QUEUE_PAIRS)}}}
    parameters = {"opaque": {"driver": "weft.dev", "parameters": {"owner": TENANT}}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "share", "exactly": request}], "config": [parameters]}}},
    }
    made = pod(name, node, image="weft")
    made["spec"]["resourceClaims"] = [{"name": "rdma", "resourceClaimTemplateName": name}]
    container = made["spec"]["containers"][0]
    container["resources"] = {"claims": [{"name": "rdma"}]}
    container["securityContext"] = UNPRIVILEGED | {"runAsUser": TENANT, "runAsGroup": TENANT}
    return template, made


UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
