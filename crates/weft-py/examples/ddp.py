"""Trains a model in several processes; the losses are the same with every backend. One process:

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 WEFT_JOB_TOKEN_FILE=job weft run -- python3 ddp.py weft
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft.torch  # noqa: F401  # registers the backend "weft"

backend, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
dist.init_process_group(backend)
torch.manual_seed(7)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
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
