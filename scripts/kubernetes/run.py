#!/usr/bin/env python3
"""A Kubernetes of two nodes on this machine whose pods' network is Weft's overlay, over a fabric that loses packets (`make kubernetes`).

    scripts/kubernetes/run.py            everything, as root, in a few minutes
    scripts/kubernetes/run.py --hold     the same, then the cluster stays until Ctrl-C

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd and kubelet are those of `scripts/setup.sh kubernetes`; the images
are made of this machine's files. The exit code is 1 at the first step that fails, which is named. Logs are in out/kubernetes.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import controller
import device
import images
import multus
import nixl
import overlay
import restarts
from cluster import Cluster
from fabric import NODES, Fabric
from machine import Failure, call, until

ROOT = Path(__file__).resolve().parents[2]
REDIS = ("/usr/bin/redis-server", "/usr/bin/redis-cli", "/usr/bin/redis-benchmark")
# The steps by their parts, in this order. `overlay` or `controller` gives the pods a network.
PARTS = {"overlay": overlay, "restarts": restarts, "device": device, "nixl": nixl, "controller": controller, "multus": multus}
RDMA = ("/usr/bin/ib_write_bw", "/usr/bin/ibv_devinfo")


class Run:
    """The steps, and what they share."""

    def __init__(self, options, folder, logs):
        self.folder, self.logs = folder, logs
        self.weft = options.release / "weft"
        self.release, self.rounds = options.release, options.rounds
        self.name = f"k8s-{os.getpid()}"
        target = options.target
        self.programs = target
        self.wheel, self.parts = options.wheel, options.parts
        self.fabric = self.cluster = self.fleet = None

    @contextmanager
    def step(self, what):
        print(f"kubernetes: {what}", flush=True)
        try:
            yield
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            if self.cluster:
                self.cluster.keep_objects()
                for name in self.cluster.ended():
                    print(f"kubernetes: ended by itself: see {name}.log", file=sys.stderr)
            sys.exit(f"kubernetes: FAILED: {what}: {failure}\nkubernetes: logs and objects are in {self.logs}")

    def say(self, text):
        print(f"    {text}", flush=True)

    def all(self, stack):
        with self.step("a fabric of four paths between two nodes"):
            self.fabric = stack.enter_context(Fabric(self.weft, self.name))
        with self.step("images"):
            archives = self.images()
        with self.step("the control plane"):
            self.cluster = stack.enter_context(Cluster(self.fabric, self.programs, self.folder, self.logs))
            self.cluster.start_control()
        with self.step("two nodes"):
            for node in NODES:
                self.cluster.start_node(node, archives)
            until("both nodes are registered", lambda: all(self.cluster.get("node", node) for node in NODES), 120)
        for name in self.parts:
            PARTS[name].steps(self)

    def images(self):
        """Makes the images, and returns their archives."""
        archives = {name: self.folder / f"{name}.tar" for name in ("busybox", "tools", "weft")}
        images.write(archives["busybox"], "busybox")
        images.write(archives["tools"], "tools", REDIS)
        # Without symbols, as in packages: they are five times the program.
        programs = [self.folder / name for name in ("weft", "weft-dra", "weft-kube")]
        for program in programs:
            call("strip", "-o", program, self.release / program.name)
        files = {"/usr/lib/cni/weft-cni": self.release / "weft-cni"} | device.libraries(self.release)
        images.write(archives["weft"], "weft", [*programs, *RDMA], files)
        if "nixl" in self.parts:
            archives["nixl"] = self.folder / "nixl.tar"
            nixl.write_image(archives["nixl"], self.wheel, RDMA)
        return list(archives.values())


def missing(options):
    """Returns what the parts need and is not there, each with the command that makes it."""
    setup, make = "scripts/setup.sh kubernetes", "make kubernetes"
    wanted = {options.target / f"kubernetes/{name}": setup for name in ("kube-apiserver", "kubelet", "kubectl", "helm")}
    wanted |= {options.target / name: setup for name in ("containerd/containerd", "cni/host-local")}
    wanted |= {options.release / name: make for name in ("weft", "weft-dra", "weft-kube", "weft-cni", "verbs")}
    if "multus" in options.parts:
        wanted[options.target / "multus/multus"] = setup
    absent = [f"{path}: {command}" for path, command in wanted.items() if not path.exists()]
    # A virtual environment is there also where pip could not install the wheel in it.
    if "nixl" in options.parts and not any(options.wheel.glob("lib/python*/site-packages/nixl*")):
        absent.append(f"a wheel of NIXL in {options.wheel}: {setup}")
    return absent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
    parser.add_argument("--target", type=Path, default=target, help="the folder in which scripts/setup.sh has built Kubernetes")
    parser.add_argument("--release", type=Path, default=target / "release", help="the folder of weft, weft-dra, weft-kube, weft-cni, which is static, and verbs")
    parser.add_argument("--wheel", type=Path, default=target / "doors/nixl-1.5.1", help="the virtual environment with NIXL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these, in this order: restarts after overlay, nixl after device, multus after controller")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the measurements [3]")
    parser.add_argument("--hold", action="store_true", help="keep the cluster until Ctrl-C")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("kubernetes: error: nodes are namespaces: run it as root")
    if absent := missing(options):
        sys.exit("\n    ".join(["kubernetes: error: missing, each with the command that makes it (--parts leaves parts out):", *absent]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("kubernetes: ended by SIGTERM"))
    logs = ROOT / "out/kubernetes"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="weft-kubernetes-"))
        stack.callback(shutil.rmtree, folder)
        run = Run(options, folder, logs)
        run.all(stack)
        if options.hold:
            print(f"kubernetes: the cluster stays until Ctrl-C; kubectl: {' '.join(map(str, run.cluster.command('get', 'pods')))}")
            signal.sigwait({signal.SIGINT})
    print("kubernetes: all steps passed")


if __name__ == "__main__":
    main()
