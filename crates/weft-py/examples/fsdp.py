"""Trains a model whose parameters are sharded over several processes; the losses are the same with every backend.

Each process runs `weft run -- python3 fsdp.py weft`, or all of a host `weft run -- torchrun ... fsdp.py weft`.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import weft.torch  # noqa: F401  # registers the backend "weft"

backend, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
dist.init_process_group(backend)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
for layer in model[0], model[2], model:
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

torch.manual_seed(100 + dist.get_rank())
for step in range(steps):
    inputs = torch.randn(32, 64)
    labels = inputs[:, :10].argmax(dim=1)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {mean.item() / dist.get_world_size():.9f}")
dist.destroy_process_group()
