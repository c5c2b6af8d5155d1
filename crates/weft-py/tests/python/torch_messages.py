"""Messages between ranks, as pipelines exchange them: the output is the same with every backend."""

import os
import sys

import torch
import torch.distributed as dist

backend = sys.argv[1]
if backend == "weft":
    import weft.torch  # noqa: F401

    # Messages are in groups of two ranks, which ignore an order and a hierarchy of three.
    os.environ["WEFT_COLL"] = "channels=auto algorithm=hierarchical:3 order=0,2,1"

dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
after, before = (rank + 1) % size, (rank - 1) % size


def own(of, seed, shape=(64, 33)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * of + seed))


# All ranks send before any receives.
got = torch.empty(64, 33)
sent = dist.isend(own(rank, 1), after)
dist.irecv(got, before).wait()
sent.wait()
assert torch.equal(got, own(before, 1))

# Many messages of different lengths, in order; with weft, into tensors that are not contiguous.
works = [dist.isend(own(rank, seed, (seed, 5)), after) for seed in range(1, 40)]
for seed in range(1, 40):
    got = torch.empty(5, seed).t() if backend == "weft" else torch.empty(seed, 5)
    dist.recv(got, before)
    assert torch.equal(got, own(before, seed, (seed, 5))), seed
for work in works:
    work.wait()

# Tags are independent: the second message is received first.
works = [dist.isend(own(rank, tag), after, tag=tag) for tag in (7, 8)]
for tag in (8, 7):
    got = torch.empty(64, 33)
    dist.recv(got, before, tag=tag)
    assert torch.equal(got, own(before, tag)), tag
for work in works:
    work.wait()

# A receive without its send blocks no collective.
got = torch.empty(64, 33)
waits = dist.irecv(got, before)
total = torch.ones(3)
dist.all_reduce(total)
assert total.tolist() == [size] * 3
dist.send(own(rank, 2), after)
waits.wait()
assert torch.equal(got, own(before, 2))

# A pipeline: micro-batches pass through a layer of every rank, and their gradients return.
layer = own(rank, 3, (16, 16)) / 4
layer.requires_grad_()
for step in range(3):
    loss = 0.0
    inputs, outputs = [], []
    for batch in range(4):
        x = own(0, 10 * step + batch, (8, 16))
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_()
        y = torch.tanh(x @ layer)
        inputs.append(x)
        outputs.append(y)
        if rank + 1 < size:
            dist.send(y.detach(), rank + 1)
    for x, y in zip(inputs, outputs):
        gradient = torch.empty(8, 16)
        if rank + 1 < size:
            dist.recv(gradient, rank + 1)
        else:
            loss += float(y.square().mean())
            gradient = 2 * y.detach() / y.numel()
        y.backward(gradient)
        if rank > 0:
            dist.send(x.grad, rank - 1)
    with torch.no_grad():
        layer -= 0.5 * layer.grad
        layer.grad = None
    losses = torch.tensor([loss])
    dist.broadcast(losses, size - 1)
    print(f"step {step} loss {float(losses):.9f}")

# Both directions at once.
there, back = torch.empty(64, 33), torch.empty(64, 33)
ops = [dist.P2POp(dist.isend, own(rank, 4), after), dist.P2POp(dist.irecv, there, before)]
ops += [dist.P2POp(dist.isend, own(rank, 5), before), dist.P2POp(dist.irecv, back, after)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
assert torch.equal(there, own(before, 4)) and torch.equal(back, own(after, 5))
dist.barrier()
print("all right")
dist.destroy_process_group()
