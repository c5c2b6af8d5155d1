"""All-reduce of floats by gloo. Prints each size in bytes, the mean seconds of a round and the number of wrong elements."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, ranks, rounds = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
for word in sys.argv[2:]:
    at = torch.arange(int(word) // 4)
    took, wrong = 0.0, 0
    for _ in range(rounds):
        buffer = ((at + rank) % 100).float()
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        took += time.perf_counter() - start
        want = sum(((at + other) % 100).float() for other in range(ranks))
        wrong += int((buffer != want).sum())
    if rank == 0:
        print(word, took / rounds, wrong, flush=True)
