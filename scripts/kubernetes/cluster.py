"""A Kubernetes: etcd, API server, controllers and scheduler on a machine of their own, and nodes with containerd and kubelet."""

import contextlib
import json
import os
import secrets
from pathlib import Path

from fabric import CONTROL, NODES
from machine import Failure, Machine, call, until

# The users of the API besides the nodes, and the group of each.
GROUPS = {"admin": "system:masters", "controllers": "system:masters", "scheduler": "system:masters", "multus": "plugins"}
API = f"https://{CONTROL}:6443"
# Folders in which cgroups of version 1 are, one a controller.
CGROUPS = Path("/sys/fs/cgroup")
# Settings of the whole machine that kubelet changes.
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")


class Cluster:
    """The control plane and the nodes. `programs` has what `scripts/setup.sh kubernetes` builds, by folder."""

    def __init__(self, fabric, programs, folder, logs):
        self.fabric, self.programs, self.folder, self.logs = fabric, programs, folder, logs
        self.control = Machine("control", fabric.control, folder / "control", logs)
        self.nodes = {node: Machine(node, fabric.namespace(node), folder / node, logs) for node in NODES}
        self.tokens = {user: secrets.token_hex(16) for user in (*GROUPS, *NODES)}
        self.sysctls = {}

    def __enter__(self):
        self.sysctls = {name: read_sysctl(name) for name in SYSCTLS}
        return self

    def __exit__(self, *_):
        for machine in (*self.nodes.values(), self.control):
            machine.lose_power()
        for node in NODES:
            self.remove_cgroups(node)
        for name, value in self.sysctls.items():
            with contextlib.suppress(OSError):
                Path("/proc/sys", name).write_text(value, encoding="ascii")

    def program(self, name):
        return self.programs / "kubernetes" / name

    def start_control(self):
        """Starts the control plane, and returns when its API answers."""
        self.control.start()
        folder = self.control.folder
        call("openssl", "genrsa", "-out", folder / "accounts.key", "2048")
        lines = [
            f"{token},{user_of(user)},{user},{GROUPS.get(user, 'system:nodes')}\n" for user, token in self.tokens.items()
        ]
        (folder / "tokens").write_text("".join(lines), encoding="ascii")
        self.control.spawn("etcd", "etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync")
        self.control.spawn(
            "kube-apiserver",
            self.program("kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={CONTROL}",
            "--secure-port=6443",
            # It makes its certificate itself.
            f"--cert-dir={folder}",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={folder}/accounts.key",
            f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-account-issuer=https://weft.test",
            "--service-cluster-ip-range=10.96.0.0/16",
            # Nodes have no names in DNS.
            "--kubelet-preferred-address-types=InternalIP",
            # The overlay's daemon makes interfaces in the namespaces of pods.
            "--allow-privileged=true",
        )
        until("the API server is ready", lambda: self.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok", 180)
        # With these a dead node is noticed within seconds.
        patience = ["--node-monitor-grace-period=8s", "--node-monitor-period=1s"]
        self.control.spawn(
            "kube-controller-manager",
            self.program("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig('controllers')}",
            f"--service-account-private-key-file={folder}/accounts.key",
            f"--root-ca-file={folder}/apiserver.crt",
            "--leader-elect=false",
            *patience,
        )
        self.control.spawn(
            "kube-scheduler", self.program("kube-scheduler"), f"--kubeconfig={self.kubeconfig('scheduler')}", "--leader-elect=false"
        )
        account = ("get", "serviceaccount", "default", "--namespace")
        for namespace in ("default", "kube-system"):
            until("the controllers run", lambda space=namespace: not self.kubectl(*account, space, check=False).returncode, 120)

    def kubeconfig(self, user):
        """Writes the file by which a user reaches the API, and returns its path."""
        path = self.folder / f"{user}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": API, "certificate-authority": f"{self.control.folder}/apiserver.crt"}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config), encoding="ascii")
        return path

    def command(self, *words):
        """Returns the command line of `kubectl` with these words."""
        return self.control.inside([self.program("kubectl"), f"--kubeconfig={self.kubeconfig('admin')}", *words])

    def kubectl(self, *words, **options):
        return call(*self.command(*words), **options)

    def apply(self, *objects):
        everything = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", input=json.dumps(everything))

    def get(self, *words):
        """Returns what `kubectl get` prints as an object; `None` if there is none of that name."""
        done = self.kubectl("get", "--output=json", "--ignore-not-found", *words)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def items(self, *words):
        """Returns a list of objects of `kubectl get`; it prints nothing where there is none."""
        found = self.get(*words)
        return found["items"] if found else []

    def start_node(self, node, archives=()):
        """Starts a node, and imports images into its containerd if it is started for the first time."""
        machine = self.nodes[node]
        machine.start()
        if archives:
            # This system may have networks and plugins of its own.
            machine.run("sh", "-c", "rm -rf /etc/cni /opt/cni && mkdir -p /etc/cni/net.d /opt/cni/bin")
            machine.run("cp", self.programs / "cni/host-local", "/opt/cni/bin/")
        (machine.folder / "containerd.toml").write_text(CONTAINERD, encoding="ascii")
        built = self.programs / "containerd"
        path = f"PATH={built}:{os.environ['PATH']}"
        machine.spawn("containerd", "env", path, built / "containerd", "--config", machine.folder / "containerd.toml")
        ctr = (built / "ctr", "--namespace", "k8s.io")
        until(f"containerd of {node} answers", lambda: not machine.run(*ctr, "version", check=False).returncode)
        for archive in archives:
            machine.run(*ctr, "images", "import", archive)
        self.make_cgroups(node)
        (machine.folder / "kubelet.json").write_text(json.dumps(kubelet(self.cgroup(node))), encoding="ascii")
        machine.spawn(
            "kubelet",
            self.program("kubelet"),
            f"--config={machine.folder}/kubelet.json",
            f"--kubeconfig={self.kubeconfig(node)}",
            f"--hostname-override={node}",
            f"--node-ip={self.fabric.address(node)}",
        )

    def is_ready(self, node):
        found = self.get("node", node)
        return bool(found) and any(state["type"] == "Ready" and state["status"] == "True" for state in found["status"].get("conditions", ()))

    def cgroup(self, node):
        return f"/{self.fabric.name}-{node}"

    def hierarchies(self):
        return [folder for folder in CGROUPS.iterdir() if (folder / "cgroup.procs").exists()]

    def make_cgroups(self, node):
        """Makes the folder of a node's pods in each hierarchy: kubelet makes it on no node but its only one."""
        for hierarchy in self.hierarchies():
            own = Path(f"{hierarchy}{self.cgroup(node)}")
            own.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (own / name).exists():
                    (own / name).write_text((hierarchy / name).read_text(encoding="ascii"), encoding="ascii")

    def remove_cgroups(self, node):
        """Removes them, once the kernel has ended their processes."""
        for hierarchy in self.hierarchies():
            own = Path(f"{hierarchy}{self.cgroup(node)}")
            for folder, _, _ in os.walk(own, topdown=False):
                until(f"{folder} is empty", lambda path=folder: is_removed(path), 30)

    def ended(self):
        """Returns the programs that have ended by themselves, by the names of their logs."""
        return [name for machine in (self.control, *self.nodes.values()) for name in machine.ended()]

    def keep_objects(self):
        """Writes the state of all objects beside the logs, for whoever looks for the cause of a failure."""
        parts = []
        for words in (("get", "nodes,pods", "--all-namespaces", "--output=wide"), ("describe", "pods", "--all-namespaces"), ("events", "--all-namespaces")):
            with contextlib.suppress(Failure):
                parts.append(self.kubectl(*words, check=False, limit=30).stdout)
        (self.logs / "objects.txt").write_text("\n".join(parts), encoding="utf-8")


def user_of(user):
    return f"system:node:{user}" if user in NODES else user


def read_sysctl(name):
    path = Path("/proc/sys", name)
    return path.read_text(encoding="ascii") if path.exists() else ""


def is_removed(folder):
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


CONTAINERD = """version = 3
root = '/var/lib/containerd'
state = '/run/containerd'

[grpc]
address = '/run/containerd/containerd.sock'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'weft.test/busybox:1'

[plugins.'io.containerd.cri.v1.runtime'.cni]
use_internal_loopback = true

[plugins.'io.containerd.cri.v1.runtime']
# Root without CAP_SYS_RESOURCE cannot lower the score.
restrict_oom_score_adj = true
"""


def kubelet(cgroup):
    """Returns kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # This system's cgroups are perhaps those of version 1, and there is no systemd on the node.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failSwapOn": False,
        # Only the control plane is in the network of this port.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # The disk is that of the machine below, which is not the test's to watch.
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "1s",
        "nodeLeaseDurationSeconds": 4,
    }
