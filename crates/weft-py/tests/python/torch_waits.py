"""Calls that one rank makes late: time-outs that name it, and futures that complete without the main thread."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import weft.torch  # noqa: F401

LATE = 2
dist.init_process_group("weft")
rank, size = dist.get_rank(), dist.get_world_size()
store = dist.distributed_c10d._get_default_store()


def expect_timeout(wait):
    start = time.monotonic()
    try:
        wait(timedelta(seconds=0.5))
        raise AssertionError("nobody was missing")
    except TimeoutError as error:
        assert str(error).endswith(f"it waits for rank {LATE}"), error
    assert time.monotonic() - start < 5, "it waited for the group's timeout"


def others_have_waited(times):
    while store.add("waited", 0) < times * (size - 1):
        time.sleep(0.01)


group = dist.distributed_c10d._get_default_group()
if rank == LATE:
    others_have_waited(1)
    group.monitored_barrier()
else:
    expect_timeout(group.monitored_barrier)
    store.add("waited", 1)
# The first barrier is complete now, and the group still works.
dist.barrier()

tensor = torch.ones(3)
if rank == LATE:
    others_have_waited(2)
work = dist.all_reduce(tensor, async_op=True)
called = threading.Event()
done = work.get_future().then(lambda future: (called.set(), future.value())[1])
if rank != LATE:
    expect_timeout(work.wait)
    assert not work.is_completed() and not called.is_set()
    store.add("waited", 1)
# A thread of the group completes the future.
assert called.wait(60)
assert tensor.tolist() == [size] * 3 and work.is_success()
assert done.wait()[0] is tensor or torch.equal(done.wait()[0], tensor)

# An error of the call reaches the future too. It ends the group, so all have finished the calls before.
store.add("finished", 1)
while store.add("finished", 0) < size:
    time.sleep(0.01)
mismatched = torch.ones(4 if rank == 0 else 5)
work = dist.all_reduce(mismatched, async_op=True)
assert "not the same at all ranks" in str(work.exception()), work.exception()
try:
    work.get_future().wait()
    raise AssertionError("a call that failed")
except Exception as error:
    assert "not the same at all ranks" in str(error), error
print("all right")
