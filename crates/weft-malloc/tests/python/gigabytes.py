"""Allocates and frees gigabytes; the memory returns to the system, and new buffers are zero."""

import threading

MB = 1 << 20


def resident():
    """Returns the resident memory of this process, bytes."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmRSS"].split()[0]) * 1024


def buffers():
    for size in (MB // 8, MB, 5 * MB, 40 * MB, 100 * MB):
        zero = bytearray(size)
        assert zero.count(0) == size
        zero[:] = b"x" * size
        grown = zero + zero
        del zero
        assert grown.count(b"x") == 2 * size


def rounds():
    for _ in range(2):
        buffers()


before = resident()
threads = [threading.Thread(target=rounds) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert resident() < before + 100 * MB, (before, resident())

# A list, and bytes that grow by realloc.
items, text = [], bytearray()
for i in range(1_000_000):
    items.append(i)
for i in range(300):
    text += bytes([i % 251]) * 100_000
assert sum(items) == 999_999 * 500_000
assert all(text[i * 100_000] == i % 251 for i in range(300))
print("done")
