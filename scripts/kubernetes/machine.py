"""Machines of the test's cluster: process, mount, network and host name namespaces that share this machine's kernel, and end as a machine does that loses power."""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

# The first process of a machine. Programs that lose their parent become its children, and the kernel reaps them, since it
# ignores SIGCHLD. Folders that programs write to are layers of the machine's own above this system's; a second union mount
# cannot lie on such a layer, so containerd and kubelet have plain folders.
FIRST_PROCESS = """
trap '' CHLD
umount --recursive /run/netns
echo "$2" >/proc/sys/kernel/hostname
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
for folder in etc opt var; do
    mkdir -p "$1/$folder" "$1/.$folder"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$1/$folder,workdir=$1/.$folder" "/$folder"
done
for folder in kubelet containerd; do
    mkdir -p "$1/$folder" "/var/lib/$folder"
    mount --bind "$1/$folder" "/var/lib/$folder"
done
mount --make-rshared /
touch /run/started
exec sleep infinity
"""


class Failure(Exception):
    """What has gone wrong, for people."""


def until(what, condition, limit=60):
    """Returns the first true value of `condition`, which is called again and again until the limit, seconds."""
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise Failure(f"not so after {limit} s: {what}")
        time.sleep(0.05)
    return value


def call(*command, check=True, limit=120, **options):
    """Runs a program to its end, and returns its result."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=limit, **options)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{' '.join(map(str, command))}: no end after {limit} s: {late.stdout!r} {late.stderr!r}") from None
    if check and done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


class Machine:
    """A machine. Its programs see each other only; `folder` is its disk, which outlives it."""

    def __init__(self, name, namespace, folder, logs):
        self.name, self.namespace, self.folder, self.logs = name, namespace, folder, logs
        self.unshare = None
        self.programs = {}

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        spaces = ["unshare", "--mount", "--propagation", "private", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        first = [*spaces, "sh", "-euc", FIRST_PROCESS, "sh", str(self.folder), self.name]
        with self.log("machine") as log:
            self.unshare = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.namespace}", *first], stdout=log, stderr=log, preexec_fn=end_with_parent
            )
        until(f"{self.name} runs", self.has_started, 20)

    def has_started(self):
        if self.unshare.poll() is not None:
            raise Failure(f"the namespaces of {self.name} could not be made: see {self.name}-machine.log")
        return bool(self.first()) and not self.run("test", "-e", "/run/started", check=False).returncode

    def first(self):
        """Returns the id of the machine's first process."""
        pid = self.unshare.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").strip()

    def inside(self, command):
        spaces = ["nsenter", "--target", self.first(), "--mount", "--uts", "--pid", "--net", "--"]
        return [*spaces, *(str(word) for word in command)]

    def run(self, *command, **options):
        """Runs a program on the machine to its end."""
        return call(*self.inside(command), **options)

    def spawn(self, name, *command):
        """Starts a program, which runs until the machine's end, and whose output is in a log."""
        with self.log(name) as log:
            self.programs[name] = subprocess.Popen(self.inside(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ended(self):
        """Returns the programs that have ended by themselves, by the names of their logs."""
        return [f"{self.name}-{name}" for name, program in self.programs.items() if program.poll() is not None]

    def log(self, name):
        return open(self.logs / f"{self.name}-{name}.log", "ab")

    def lose_power(self):
        """Ends all programs of the machine at once."""
        if self.unshare is None:
            return
        if first := self.first():
            # With the first process of a process namespace the kernel kills all.
            os.kill(int(first), signal.SIGKILL)
        self.unshare.wait()
        for program in self.programs.values():
            program.wait()
        self.unshare, self.programs = None, {}


def end_with_parent():
    """Has the kernel kill this process when its parent ends, by whatever cause."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
