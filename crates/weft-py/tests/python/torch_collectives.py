"""Every collective of the process group, on tensors of every type, compared with the expected result."""

import functools
import inspect
import warnings

import torch
import torch.distributed as dist

import weft.torch  # noqa: F401

dist.init_process_group("weft")
rank, size = dist.get_rank(), dist.get_world_size()


def own(kind=torch.float32, of=rank, shape=(2, 3)):
    return (torch.arange(6).reshape(shape) + of).to(kind)


def same(got, want):
    assert got.dtype == want.dtype and torch.equal(got, want), (got, want)


everybody = range(size)


def drawn(kind, op, of):
    """Returns random numbers of a rank: integers of the type's whole range, so that sums wrap around."""
    draw = torch.Generator().manual_seed(100 + of)
    if kind == torch.bool:
        return torch.randint(0, 2, (41,), generator=draw).to(kind)
    if kind.is_floating_point:
        return (3 * torch.randn(41, generator=draw)).to(kind)
    most = 30 if op == "AVG" else min(torch.iinfo(kind).max, 2**40)
    return torch.randint(0, most, (41,), generator=draw).to(kind)


def expected(op, tensors):
    """Returns what torch computes, floats in binary64, and the most that rounding to the type may change it."""
    kind = tensors[0].dtype
    wide = torch.float64 if kind.is_floating_point else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in tensors])
    if kind == torch.bool:
        how = {"SUM": stack.any(0), "PRODUCT": stack.all(0), "BXOR": stack.sum(0) % 2 == 1}
        how |= {"MIN": how["PRODUCT"], "MAX": how["SUM"], "BAND": how["PRODUCT"], "BOR": how["SUM"]}
        return how[op], 0
    bitwise = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    if op in bitwise:
        return functools.reduce(bitwise[op], tensors), 0
    want = {"SUM": stack.sum, "PRODUCT": stack.prod, "MIN": stack.amin, "MAX": stack.amax, "AVG": stack.sum}[op](0)
    if not kind.is_floating_point:
        return (torch.div(want, size, rounding_mode="trunc") if op == "AVG" else want).to(kind), 0
    want = want / size if op == "AVG" else want
    scale = {"MIN": 0, "MAX": 0, "PRODUCT": want.abs()}.get(op, stack.abs().sum(0))
    about = torch.finfo(kind)
    return want, size * about.eps * (scale + 100 * about.tiny)


count = 0
for kind in weft.torch._TYPES:
    for name in weft.torch._OPS:
        op, tensors = getattr(dist.ReduceOp, name), [drawn(kind, name, of) for of in everybody]
        got = tensors[rank].clone()
        if (kind.is_floating_point and name.startswith("B")) or (kind == torch.bool and name == "AVG"):
            try:
                dist.all_reduce(got, op=op)
                raise AssertionError(f"{name} of {kind}")
            except ValueError as error:
                assert weft.torch._OPS[name] in str(error) and weft.torch._TYPES[kind] in str(error), error
            continue
        dist.all_reduce(got, op=op)
        want, within = expected(name, tensors)
        if kind.is_floating_point:
            assert got.dtype == kind and ((got.double() - want).abs() <= within).all(), (kind, name, got, want)
        else:
            same(got, want)
        count += 1
print(f"{count} reductions as torch computes them")

try:
    dist.all_reduce(torch.zeros(2, dtype=torch.complex64).real.to_sparse())
    raise AssertionError("a sparse tensor")
except ValueError as error:
    assert ".cpu()" in str(error), error

# A tensor that is not contiguous.
got = torch.zeros(3, 2).t()
got.copy_(own())
dist.all_reduce(got)
same(got.contiguous(), sum(own(of=of) for of in everybody))

got = own(torch.bool, of=0) if rank == 1 else torch.zeros(2, 3, dtype=torch.bool)
dist.broadcast(got, 1)
same(got, own(torch.bool, of=0))

got = own()
dist.reduce(got, 2)
same(got, sum(own(of=of) for of in everybody) if rank == 2 else own())

outs = [torch.empty(2, 3) for _ in everybody]
dist.all_gather(outs, own())
for of, out in enumerate(outs):
    same(out, own(of=of))

out = torch.empty(2, 3)
dist.reduce_scatter(out, [own(of=of) for of in everybody])
same(out, size * own())

one = hasattr(dist, "all_gather_into_tensor")
if one:
    out = torch.empty(2 * size, 3)
    dist.all_gather_into_tensor(out, own())
    same(out, torch.cat([own(of=of) for of in everybody]))
    # In place: the input is a part of the output.
    out = torch.zeros(2 * size, 3)
    out[2 * rank : 2 * rank + 2] = own()
    dist.all_gather_into_tensor(out, out[2 * rank : 2 * rank + 2])
    same(out, torch.cat([own(of=of) for of in everybody]))
    out = torch.empty(2, 3)
    dist.reduce_scatter_tensor(out, torch.cat([size * own(of=of + 1) for of in everybody]), op=dist.ReduceOp.AVG)
    assert torch.allclose(out, size * own(of=rank + 1)), out
    if hasattr(dist, "_make_nccl_premul_sum") and torch.__version__ >= "2":
        got = own()
        dist.all_reduce(got, op=dist._make_nccl_premul_sum(0.5))
        same(got, sum(own(of=of) for of in everybody) / 2)

outs = [torch.empty(2, 3) for _ in everybody] if rank == 0 else None
dist.gather(own(), outs, dst=0)
for of, out in enumerate(outs or []):
    same(out, own(of=of))

dist.scatter(out, [own(of=10 + of) for of in everybody] if rank == 1 else None, src=1)
same(out, own(of=10 + rank))

outs = [torch.empty(of + 1) for of in everybody]
dist.all_to_all(outs, [torch.full((rank + 1,), 10.0 * rank + to) for to in everybody])
for of, out in enumerate(outs):
    same(out, torch.full((of + 1,), 10.0 * of + rank))

out = torch.empty(size, 2)
dist.all_to_all_single(out, torch.arange(2.0 * size).reshape(size, 2) + 100 * rank)
same(out, torch.stack([torch.arange(2.0) + 2 * rank + 100 * of for of in everybody]))
splits = [of + rank for of in everybody]
out = torch.empty(sum(splits))
dist.all_to_all_single(out, torch.full((sum(splits),), float(rank)), splits, splits)
same(out, torch.cat([torch.full((of + rank,), float(of)) for of in everybody]))

works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
for work in works:
    work.wait()
    assert work.is_completed()

# Many calls in one.
tensors = [own(of=rank + number) for number in range(5)]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dist.all_reduce_coalesced(tensors)
for number, got in enumerate(tensors):
    same(got, sum(own(of=of + number) for of in everybody))
if "async_ops" in inspect.signature(dist.distributed_c10d._coalescing_manager).parameters:
    for how in ({}, {"device": torch.device("cpu")}):
        tensors = [own(of=rank + number) for number in range(5)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True, **how) as calls:
            for tensor in tensors:
                dist.all_reduce(tensor)
        calls.wait()
        for number, got in enumerate(tensors):
            same(got, sum(own(of=of + number) for of in everybody))
    outs = [torch.empty(2 * size, 3) for _ in range(3)]
    with dist.distributed_c10d._coalescing_manager():
        for number, out in enumerate(outs):
            dist.all_gather_into_tensor(out, own(of=rank + number))
    for number, out in enumerate(outs):
        same(out, torch.cat([own(of=of + number) for of in everybody]))
    outs = [torch.empty(2, 3) for _ in range(3)]
    with dist.distributed_c10d._coalescing_manager():
        for number, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, torch.cat([own(of=of + number) for of in everybody]))
    for number, out in enumerate(outs):
        same(out, size * own(of=rank + number))

pair = dist.new_group([0, 1])
if rank < 2:
    got = own()
    dist.all_reduce(got, group=pair)
    same(got, own(of=0) + own(of=1))
dist.barrier()
print("all right")
dist.destroy_process_group()
