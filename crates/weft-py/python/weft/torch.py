"""A process group for PyTorch: importing this registers the backend "weft".

    import weft.torch
    torch.distributed.init_process_group("weft")

Tensors must be on the CPU. A separate thread performs collectives while Python computes. Options are words in the
environment: WEFT_COLL="lanes=4 channels=shm". Ranks that other hosts reach authenticate with the job's token, from
WEFT_JOB_TOKEN or from the file that WEFT_JOB_TOKEN_FILE names (`weft adm token FILE` creates it). Programs run under
`weft run`, or on RDMA hardware.
"""
# torch does not declare all types, which mypy would need.
# mypy: ignore-errors

import atexit
import collections
import os
import queue
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.futures import Future

from ._weft import Group
from .errors import Timeout

_Work = getattr(dist, "Work", None) or dist._Work

_TYPES = {
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float64: "double",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.int8: "int8",
}
# The number of the latest works that are kept alive: C++ may wait for them after Python has dropped them.
_MAX_KEPT_WORKS = 1024
_OPS = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVG": "avg"}


def _op(op):
    for name, ours in _OPS.items():
        if op == getattr(dist.ReduceOp, name, None):
            return ours
    raise ValueError(f"weft reduces by {', '.join(_OPS)}, not by {op}")


def _type(tensor):
    try:
        return _TYPES[tensor.dtype]
    except KeyError:
        known = ", ".join(str(known) for known in _TYPES)
        raise ValueError(f"weft reduces {known}, not {tensor.dtype}") from None


def _flat(tensor):
    if tensor.device.type != "cpu" or tensor.is_sparse:
        raise ValueError(f"weft takes dense tensors of the processor, not {tensor.layout} on {tensor.device}")
    return tensor.detach().reshape(-1)


def _memory(tensor):
    """Returns the bytes of a flat tensor."""
    return tensor.view(torch.uint8).numpy() if tensor.numel() else bytearray()


def _put_back(tensors, flats):
    """Copies flat tensors back to their tensors, if the flat ones are copies."""
    for tensor, flat in zip(tensors, flats):
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))


class Work(_Work):
    """A collective or a message in progress."""

    def __init__(self, works, results, finish, timeout):
        super().__init__()
        self._works, self._results, self._finish = works, results, finish
        self._timeout, self._lock = timeout, threading.Lock()
        self._future = Future()

    def _complete(self, timeout=None):
        """Waits for the work and stores its results, once. Returns the results."""
        with self._lock:
            if self._future.done():
                return self._future.value()
            try:
                for work in self._works:
                    work.wait(timeout or self._timeout)
                if self._finish:
                    with torch.no_grad():
                        self._finish()
            except Exception as error:
                self._future.set_exception(error)
                raise
            finally:
                self._works, self._finish = [], None
            self._future.set_result(self._results)
            return self._results

    def is_completed(self):
        return self._future.done() or all(work.is_done() for work in list(self._works))

    def is_success(self):
        return self._future.done() and self.exception() is None

    def exception(self):
        try:
            self._complete()
        except Exception as error:
            return error
        return None

    def wait(self, timeout=timedelta(0)):
        self._complete(timeout.total_seconds() or None)
        return True

    def synchronize(self):
        self.wait()

    def result(self):
        return self._complete()

    def get_future(self):
        return self._future

    getFuture = get_future


class _Message:
    """A message that waits until its two ranks are connected, and then for its transfer."""

    def __init__(self, memory, what):
        self.memory, self._what = memory, what
        self._begun, self._work, self._error = threading.Event(), None, None

    def begin(self, submit):
        try:
            self._work = submit(self.memory)
        except Exception as error:
            self._error = error
        self._begun.set()

    def is_done(self):
        return self._begun.is_set() and (self._work is None or self._work.is_done())

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        if not self._begun.wait(timeout):
            raise Timeout(f"{self._what}: the other rank did not post it in {timeout} s")
        if self._error:
            raise self._error
        self._work.wait(max(0.0, deadline - time.monotonic()))


class _Pair:
    """Messages of one tag from one rank to another, in order.

    They are broadcasts in a group of the two ranks, which connect at the first message, as NCCL's ranks do. A separate
    thread connects to the other rank and completes futures: a message that the other rank has not posted yet blocks
    nothing else.
    """

    def __init__(self, store, name, end, options):
        self._store, self._name, self._end, self._options = store, name, end, options
        self._lock, self._group, self._error, self._waiting = threading.Lock(), None, None, []
        self.works = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def post(self, memory):
        message = _Message(memory, self._name)
        with self._lock:
            if self._group or self._error:
                message.begin(self._submit)
            else:
                self._waiting.append(message)
        return message

    def leave(self):
        with self._lock:
            if self._group:
                self._group.leave()

    def _submit(self, memory):
        if self._error:
            raise self._error
        return self._group.submit("broadcast", memory, "uint8", "sum", 0)

    def _run(self):
        try:
            found = self._connect()
        except Exception as error:
            found = error
        with self._lock:
            self._group, self._error = (None, found) if isinstance(found, Exception) else (found, None)
            for message in self._waiting:
                message.begin(self._submit)
            self._waiting = []
        _complete_all(self.works)

    def _connect(self):
        group = Group(self._end, 2, self._options)
        keys = [f"{self._name}/{end}" for end in range(2)]
        self._store.set(keys[self._end], group.address)
        self._store.add(keys[self._end] + "/there", 1)
        # A store serves one call at a time, so a call must not block until another thread has stored a value.
        pause = 0.001
        while not self._store.add(keys[1 - self._end] + "/there", 0):
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        group.connect([self._store.get(key).decode() for key in keys])
        return group


def _complete_all(works):
    while True:
        work = works.get()
        try:
            work._complete()
        except Exception:
            # The caller of `wait` receives the exception.
            pass
        del work


class ProcessGroup(dist.ProcessGroup):
    """Ranks that perform collectives over Weft."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout.total_seconds()
        words = os.environ.get("WEFT_COLL", "").split()
        self._options = dict(word.split("=", 1) for word in words)
        self._store, self._pairs = store, {}
        self._group = Group(rank, size, self._options)
        store.set(f"weft/{rank}", self._group.address)
        self._group.connect([store.get(f"weft/{other}").decode() for other in range(size)])
        # C++ keeps only its own half of a Work and waits for Python's half, even when the work is done: keep the
        # latest ones.
        self._kept = collections.deque(maxlen=_MAX_KEPT_WORKS)
        # A thread finishes works in order, so that futures complete while Python computes.
        self._queue = queue.SimpleQueue()
        threading.Thread(target=_complete_all, args=(self._queue,), daemon=True).start()
        _groups.add(self)

    def _submit(self, collective, flats, results, finish=None, kind="uint8", op="sum", root=0):
        works = [self._group.submit(collective, _memory(flat), kind, op, root) for flat in flats]
        return self._track(Work(works, results, finish, self._timeout), self._queue)

    def _track(self, work, works):
        self._kept.append(work)
        works.put(work)
        return work

    def _in_place(self, collective, tensors, **how):
        """Submits a collective on the tensors, or on copies of those that are not contiguous."""
        flats = [_flat(tensor) for tensor in tensors]
        return self._submit(collective, flats, tensors, lambda: _put_back(tensors, flats), **how)

    def getBackendName(self):
        return "weft"

    def name(self):
        return "weft"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def allreduce(self, tensors, opts=None):
        op = _op(opts.reduceOp if opts else dist.ReduceOp.SUM)
        return self._in_place("all_reduce", tensors, kind=_type(tensors[0]), op=op)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors, opts):
        return self._in_place("broadcast", tensors, root=opts.rootRank)

    def reduce(self, tensors, opts):
        [tensor] = tensors
        flat = _flat(tensor).clone()

        def finish():
            if self._rank == opts.rootRank:
                tensor.copy_(flat.view(tensor.shape))

        how = {"kind": _type(tensor), "op": _op(opts.reduceOp), "root": opts.rootRank}
        return self._submit("reduce", [flat], tensors, finish, **how)

    def _own_chunk(self, tensor):
        """Returns memory for a tensor of each rank, with this rank's tensor in its place."""
        flat = torch.empty(self._size * tensor.numel(), dtype=tensor.dtype)
        flat.view(self._size, -1)[self._rank] = _flat(tensor)
        return flat

    def _put_chunks(self, flat, outputs):
        for output, got in zip(outputs, flat.chunk(self._size)):
            output.copy_(got.view(output.shape))

    def allgather(self, outputs, inputs, opts=None):
        flat = self._own_chunk(inputs[0])
        return self._submit("all_gather", [flat], outputs, lambda: self._put_chunks(flat, outputs[0]))

    def _allgather_base(self, output, tensor, opts=None):
        flat = self._own_chunk(tensor)
        return self._submit("all_gather", [flat], [output], lambda: output.copy_(flat.view(output.shape)))

    def _scatter(self, collective, flat, output, **how):
        def finish():
            output.copy_(flat.chunk(self._size)[self._rank].view(output.shape))

        return self._submit(collective, [flat], [output], finish, **how)

    def reduce_scatter(self, outputs, inputs, opts):
        flat = torch.cat([_flat(tensor) for tensor in inputs[0]])
        how = {"kind": _type(flat), "op": _op(opts.reduceOp)}
        return self._scatter("reduce_scatter", flat, outputs[0], **how)

    def _reduce_scatter_base(self, output, tensor, opts):
        how = {"kind": _type(tensor), "op": _op(opts.reduceOp)}
        return self._scatter("reduce_scatter", _flat(tensor).clone(), output, **how)

    def gather(self, outputs, inputs, opts):
        flat = self._own_chunk(inputs[0])

        def finish():
            if self._rank == opts.rootRank:
                self._put_chunks(flat, outputs[0])

        return self._submit("gather", [flat], outputs, finish, root=opts.rootRank)

    def scatter(self, outputs, inputs, opts):
        [output] = outputs
        if self._rank == opts.rootRank:
            flat = torch.cat([_flat(tensor) for tensor in inputs[0]])
        else:
            flat = torch.empty(self._size * output.numel(), dtype=output.dtype)
        return self._scatter("scatter", flat, output, root=opts.rootRank)

    def alltoall(self, outputs, inputs, opts=None):
        """Exchanges tensors, which may differ in length: all are padded to the longest of any rank."""
        longest = torch.tensor([max(tensor.numel() for tensor in [*inputs, *outputs])])
        self._in_place("all_reduce", [longest], kind="int64", op="max").wait()
        flat = torch.zeros((2, self._size, int(longest)), dtype=inputs[0].dtype)
        for place, tensor in zip(flat[0], inputs):
            place[: tensor.numel()] = _flat(tensor)

        def finish():
            for output, got in zip(outputs, flat[1]):
                output.copy_(got[: output.numel()].view(output.shape))

        return self._submit("alltoall", [flat.view(-1)], outputs, finish)

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts=None):
        outputs = output.split(output_splits or len(output) // self._size)
        inputs = tensor.split(input_splits or len(tensor) // self._size)
        return self.alltoall(list(outputs), list(inputs))

    def barrier(self, opts=None):
        return self._submit("barrier", [torch.empty(0, dtype=torch.uint8)], [])

    def _message(self, tensors, ends, tag):
        sender, receiver = ends
        if sender == receiver:
            raise ValueError(f"rank {sender} sends to itself: copy the tensor")
        if (ends, tag) not in self._pairs:
            name = f"weft/message/{sender}>{receiver}/{tag}"
            end = ends.index(self._rank)
            self._pairs[ends, tag] = _Pair(self._store, name, end, self._options)
        pair = self._pairs[ends, tag]
        flats = [_flat(tensor) for tensor in tensors]
        messages = [pair.post(_memory(flat)) for flat in flats]
        finish = None if self._rank == sender else lambda: _put_back(tensors, flats)
        return self._track(Work(messages, tensors, finish, self._timeout), pair.works)

    def send(self, tensors, to, tag=0):
        return self._message(tensors, (self._rank, to), tag)

    def recv(self, tensors, source, tag=0):
        return self._message(tensors, (source, self._rank), tag)

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("weft needs the source rank: recv(tensor, src=...)")

    def leave(self):
        for pair in self._pairs.values():
            pair.leave()
        self._group.leave()


_groups = weakref.WeakSet()


@atexit.register
def _leave():
    for group in list(_groups):
        group.leave()


def _create(store, rank, size, timeout):
    return ProcessGroup(store, rank, size, timeout)


try:
    dist.Backend.register_backend("weft", _create, devices=["cpu"])
except TypeError:
    # torch 1 has no parameter `devices`.
    dist.Backend.register_backend("weft", _create)
