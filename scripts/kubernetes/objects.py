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


# Where the daemon of the RDMA device has its socket on a node.
DEVICE_FOLDER = "/run/weft-device"
DEVICE_SOCKET = f"{DEVICE_FOLDER}/device.sock"
# The user of the pods with the device: none that a node knows.
TENANT = 10001


def device_daemon():
    """Returns the DaemonSet of the RDMA device's daemon, in the network of the node."""
    folder = {"name": "device", "hostPath": {"path": DEVICE_FOLDER, "type": "DirectoryOrCreate"}}
    container = {
        "name": "device",
        "image": images.name_of("rdma"),
        "imagePullPolicy": "Never",
        "command": ["weft", "device", "serve", "--socket", DEVICE_SOCKET],
        "volumeMounts": [{"name": "device", "mountPath": DEVICE_FOLDER}],
    }
    labels = {APP: "weft-device"}
    template = {
        "hostNetwork": True,
        # The daemon asks the kernel whose processes attach, in pods too.
        "hostPID": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [folder],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "weft-device", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}},
    }


def with_device(name, node):
    """Returns a pod without privileges that has the daemon's socket."""
    made = pod(name, node, image="rdma")
    made["spec"]["volumes"] = [{"name": "device", "hostPath": {"path": DEVICE_FOLDER}}]
    container = made["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "device", "mountPath": DEVICE_FOLDER}]
    container["env"] = [{"name": "WEFT_DEVICE_SOCKET", "value": DEVICE_SOCKET}, {"name": "WEFT_DEVICE", "value": "tenant"}]
    container["securityContext"] = {
        "runAsUser": TENANT,
        "runAsGroup": TENANT,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return made
