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
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from ._torch_pair import Pair
from ._torch_work import Completer, Work
from ._weft import Group

_TYPES = {
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float64: "double",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.int16: "int16",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.bool: "bool",
}
# torch 2 has floats of eight bits.
for _name, _kind in (("float8_e4m3fn", "f8e4m3"), ("float8_e5m2", "f8e5m2")):
    if hasattr(torch, _name):
        _TYPES[getattr(torch, _name)] = _kind
_OPS = {
    "SUM": "sum",
    "PRODUCT": "prod",
    "MIN": "min",
    "MAX": "max",
    "AVG": "avg",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}
# The number of the latest works that are kept alive: C++ of old versions waits for them after Python has dropped them.
_MAX_KEPT_WORKS = 1024


def _op(op, flats):
    """Returns the name of a reduction. The factor of a PREMUL_SUM is applied to the tensors."""
    for name, ours in _OPS.items():
        if op == getattr(dist.ReduceOp, name, None):
            return ours
    # torch 2 tells the factor.
    premul = hasattr(dist.ReduceOp, "PREMUL_SUM") and op == dist.ReduceOp.PREMUL_SUM
    if premul and (state := op.__getstate__()):
        for flat in flats:
            flat.mul_(state[1])
        return "sum"
    raise ValueError(f"weft reduces by {', '.join(_OPS)} and PREMUL_SUM, not by {op}")


def _type(tensor):
    try:
        return _TYPES[tensor.dtype]
    except KeyError:
        known = ", ".join(str(known) for known in _TYPES)
        raise ValueError(f"weft reduces {known}, not {tensor.dtype}") from None


def _flat(tensor):
    if tensor.device.type != "cpu" or tensor.is_sparse:
        kind = "sparse" if tensor.is_sparse else tensor.device
        raise ValueError(
            f"weft takes dense tensors of the CPU, not {kind} ones: copy it with .cpu(), or use the backend nccl with "
            "Weft's net plugin"
        )
    return tensor.detach().reshape(-1)


def _memory(tensor):
    """Returns the bytes of a flat tensor."""
    return tensor.view(torch.uint8).numpy() if tensor.numel() else bytearray()


def _put_back(tensors, flats):
    """Copies flat tensors back to their tensors, if the flat ones are copies."""
    for tensor, flat in zip(tensors, flats):
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))


def _options():
    """Returns the options of WEFT_COLL. A group ignores those that are for groups of other sizes."""
    return dict(word.split("=", 1) for word in os.environ.get("WEFT_COLL", "").split())


class ProcessGroup(dist.ProcessGroup):
    """Ranks that perform collectives over Weft."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout.total_seconds()
        self._store, self._pairs = store, {}
        self._group_name = self._group_text = ""
        self._group = Group(rank, size, _options())
        store.set(f"weft/{rank}", self._group.address)
        self._group.connect([store.get(f"weft/{other}").decode() for other in range(size)])
        self._kept = collections.deque(maxlen=_MAX_KEPT_WORKS)
        # The works between the start and the end of coalescing.
        self._coalesced = None
        self._completer = Completer()
        self._queue = self._completer.works
        weakref.finalize(self, self._queue.put, None)
        _groups.add(self)

    def _submit(self, collective, flats, results, finish=None, kind="uint8", op="sum", root=0, opts=None):
        parts = [self._group.submit(collective, _memory(flat), kind, op, root) for flat in flats]
        timeout = getattr(opts, "timeout", timedelta(0)).total_seconds()
        work = Work(parts, results, finish, timeout if timeout > 0 else self._timeout)
        return self._track(work, self._queue)

    def _track(self, work, works):
        self._kept.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        works.put(work)
        return work

    def _in_place(self, collective, tensors, flats, **how):
        """Submits a collective on flat tensors, which are the tensors or copies of those that are not contiguous."""
        return self._submit(collective, flats, tensors, lambda: _put_back(tensors, flats), **how)

    def getBackendName(self):
        return "weft"

    def name(self):
        return "weft"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    getRank, getSize = rank, size

    # torch 2 asks a group for the backend of a device: this group is its own, and names no devices, for which torch would
    # look up backends where it is written in C++.
    supports_coalescing = supports_splitting = False

    def _get_backend(self, device):
        return self

    def supports_tensor_alloc(self, device):
        return False

    def setGroupName(self, name):
        self._group_name = name

    def getGroupName(self):
        return self._group_name

    def setGroupDesc(self, text):
        self._group_text = text

    def getGroupDesc(self):
        return self._group_text

    def allreduce(self, tensors, opts=None):
        flats = [_flat(tensor) for tensor in tensors]
        op = _op(opts.reduceOp if opts else dist.ReduceOp.SUM, flats)
        return self._in_place("all_reduce", tensors, flats, kind=_type(tensors[0]), op=op, opts=opts)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts):
        flats = [_flat(tensor) for tensor in tensors]
        return self._in_place("broadcast", tensors, flats, root=opts.rootRank, opts=opts)

    def reduce(self, tensors, opts):
        [tensor] = tensors
        flat = _flat(tensor).clone()

        def finish():
            if self._rank == opts.rootRank:
                tensor.copy_(flat.view(tensor.shape))

        how = {"kind": _type(tensor), "op": _op(opts.reduceOp, [flat]), "root": opts.rootRank}
        return self._submit("reduce", [flat], tensors, finish, opts=opts, **how)

    def _own_chunk(self, tensor, flat=None):
        """Returns memory for a tensor of each rank, with this rank's tensor in its place."""
        if flat is None:
            flat = torch.empty(self._size * tensor.numel(), dtype=tensor.dtype)
        flat.view(self._size, -1)[self._rank] = _flat(tensor)
        return flat

    def _put_chunks(self, flat, outputs):
        for output, got in zip(outputs, flat.chunk(self._size)):
            output.copy_(got.view(output.shape))

    def allgather(self, outputs, inputs, opts=None):
        flat = self._own_chunk(inputs[0])
        finish = lambda: self._put_chunks(flat, outputs[0])  # noqa: E731
        return self._submit("all_gather", [flat], outputs, finish, opts=opts)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        # A contiguous output receives in place; this rank's tensor may be its part already.
        flats = [_flat(output) for output in outputs]
        for tensor, flat in zip(inputs, flats):
            self._own_chunk(tensor, flat)
        return self._in_place("all_gather", outputs, flats, opts=opts)

    def all_gather_single(self, output, tensor, opts=None):
        return self.all_gather_single_coalesced([output], [tensor], opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _scatter(self, collective, flats, outputs, **how):
        def finish():
            for flat, output in zip(flats, outputs):
                output.copy_(flat.chunk(self._size)[self._rank].view(output.shape))

        return self._submit(collective, flats, outputs, finish, **how)

    def _reduce_scatter(self, outputs, flats, opts):
        how = {"kind": _type(flats[0]), "op": _op(opts.reduceOp, flats), "opts": opts}
        return self._scatter("reduce_scatter", flats, outputs, **how)

    def reduce_scatter(self, outputs, inputs, opts):
        flats = [torch.cat([_flat(tensor) for tensor in tensors]) for tensors in inputs]
        return self._reduce_scatter(outputs, flats, opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return self._reduce_scatter(outputs, [_flat(tensor).clone() for tensor in inputs], opts)

    def reduce_scatter_single(self, output, tensor, opts):
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs, inputs, opts):
        flat = self._own_chunk(inputs[0])

        def finish():
            if self._rank == opts.rootRank:
                self._put_chunks(flat, outputs[0])

        return self._submit("gather", [flat], outputs, finish, root=opts.rootRank, opts=opts)

    def scatter(self, outputs, inputs, opts):
        [output] = outputs
        if self._rank == opts.rootRank:
            flat = torch.cat([_flat(tensor) for tensor in inputs[0]])
        else:
            flat = torch.empty(self._size * output.numel(), dtype=output.dtype)
        return self._scatter("scatter", [flat], outputs, root=opts.rootRank, opts=opts)

    def alltoall(self, outputs, inputs, opts=None):
        """Exchanges tensors, which may differ in length: all are padded to the longest of any rank."""
        longest = torch.tensor([max(tensor.numel() for tensor in [*inputs, *outputs])])
        self._submit("all_reduce", [longest], [], kind="int64", op="max", opts=opts).wait()
        flat = torch.zeros((2, self._size, int(longest)), dtype=inputs[0].dtype)
        for place, tensor in zip(flat[0], inputs):
            place[: tensor.numel()] = _flat(tensor)

        def finish():
            for output, got in zip(outputs, flat[1]):
                output.copy_(got[: output.numel()].view(output.shape))

        return self._submit("alltoall", [flat.view(-1)], outputs, finish, opts=opts)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        if output_splits or input_splits:
            outputs = output.split(output_splits or len(output) // self._size)
            inputs = tensor.split(input_splits or len(tensor) // self._size)
            return self.alltoall(list(outputs), list(inputs), opts)
        count = tensor.numel()
        flat = torch.empty(2 * count, dtype=tensor.dtype)
        flat[:count] = _flat(tensor)
        finish = lambda: output.copy_(flat[count:].view(output.shape))  # noqa: E731
        return self._submit("alltoall", [flat], [output], finish, opts=opts)

    alltoall_base = all_to_all_single

    def barrier(self, opts=None):
        return self._submit("barrier", [torch.empty(0, dtype=torch.uint8)], [], opts=opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Waits for all ranks. Raises `Timeout` with the missing ranks, all of them whatever `wait_all_ranks` is."""
        self.barrier().wait(timeout or timedelta(seconds=self._timeout))

    def _message(self, tensors, ends, tag):
        sender, receiver = ends
        if sender == receiver:
            raise ValueError(f"rank {sender} sends to itself: copy the tensor")
        if (ends, tag) not in self._pairs:
            name = f"weft/message/{sender}>{receiver}/{tag}"
            end = ends.index(self._rank)
            # A pair's packets are not planned: its group exists for as long as the messages.
            options = {key: value for key, value in _options().items() if not key.startswith("controller")}
            self._pairs[ends, tag] = Pair(self._store, name, end, options)
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

    def start_coalescing(self, device=None):
        self._coalesced = []

    def end_coalescing(self, device=None):
        works, self._coalesced = self._coalesced, None
        return Work(works, [], None, self._timeout)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    def leave(self):
        for pair in self._pairs.values():
            pair.leave()
        self._group.leave()
        self._completer.end()

    abort = shutdown = leave


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
