"""Children by fork, by multiprocessing and by subprocess: each process has its memory as at the fork."""

import multiprocessing
import os
import subprocess
import sys

MB = 1 << 20
shared = bytearray(b"p" * (8 * MB))
short_lived = bytearray(b"s" * (30 * MB))


def by_fork():
    global short_lived
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(to_child[0], 1)
        ok = shared.count(b"p") == 8 * MB and short_lived.count(b"s") == 30 * MB
        shared[:MB] = b"c" * MB
        os.write(to_parent[1], b"!")
        os._exit(0 if ok else 1)
    shared[4 * MB :] = b"q" * (4 * MB)
    short_lived = None
    other = bytearray(b"o" * (30 * MB))
    os.write(to_child[1], b"!")
    os.read(to_parent[0], 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shared.count(b"p") == 4 * MB and shared.count(b"q") == 4 * MB
    assert other.count(b"o") == 30 * MB
    shared[4 * MB :] = b"p" * (4 * MB)


def work(number):
    """Returns what a worker sees, and stores where its parent must not see it."""
    seen = shared.count(b"p")
    shared[:] = bytes([number]) * len(shared)
    return seen if number == 0 else bytes([number]) * MB


def by_multiprocessing():
    workers = multiprocessing.get_context("fork")
    with workers.Pool(2) as pool:
        results = pool.map(work, range(1, 5))
    assert [result.count(number) for number, result in enumerate(results, 1)] == [MB] * 4
    with workers.Pool(1) as pool:
        assert pool.map(work, [0]) == [8 * MB]
    assert shared.count(b"p") == 8 * MB


def by_subprocess():
    script = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read().upper())"
    for preparation in (None, os.setsid):
        result = subprocess.run(
            [sys.executable, "-c", script], input=bytes(shared), capture_output=True, preexec_fn=preparation, check=True
        )
        assert result.stdout.count(b"P") == 8 * MB and not result.stderr


by_fork()
by_multiprocessing()
by_subprocess()
print("done")
