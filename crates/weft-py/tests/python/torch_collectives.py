"""Every collective of the process group, on tensors of every type, compared with the expected result."""

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
for kind in weft.torch._TYPES:
    got = own(kind)
    dist.all_reduce(got)
    same(got, sum(own(torch.float64, of) for of in everybody).to(kind))
    got = own(kind)
    dist.all_reduce(got, op=dist.ReduceOp.MAX)
    same(got, own(kind, size - 1))

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

works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(20)]
for work in works:
    work.wait()
    assert work.is_completed()

pair = dist.new_group([0, 1])
if rank < 2:
    got = own()
    dist.all_reduce(got, group=pair)
    same(got, own(of=0) + own(of=1))
dist.barrier()
print("all right")
dist.destroy_process_group()
