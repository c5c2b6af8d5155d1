"""One sweep on every kind of executor that is named, each of which must give the table of this thread.

    python clusters.py pool dask ray submitit slurm
"""

import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import weft

SCENARIO = {
    "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2},
    "workload": [{"kind": "permutation", "size": "100KB"}],
}
GRID = {"transport.policy": ["single", "oblivious", "dwrr"], "seed": [1, 2]}


def sweep(executor: object) -> weft.sim.Sweep:
    return weft.sim.sweep(SCENARIO, GRID, executor=executor)


def pool() -> weft.sim.Sweep:
    with ProcessPoolExecutor(2) as executor:
        return sweep(executor)


def dask() -> weft.sim.Sweep:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        by_executor = sweep(client.get_executor())
        assert sweep(client).hash == by_executor.hash, "the client itself is an executor too"
        return by_executor


def ray() -> weft.sim.Sweep:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        return sweep(ray)
    finally:
        ray.shutdown()


def on_submitit(cluster: str) -> weft.sim.Sweep:
    import submitit

    # The folder must be one that the workers share.
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(timeout_min=5, cpus_per_task=1)
        return sweep(executor)


EXECUTORS: dict[str, Callable[[], weft.sim.Sweep]] = {
    "pool": pool,
    "dask": dask,
    "ray": ray,
    "submitit": lambda: on_submitit("local"),
    "slurm": lambda: on_submitit("slurm"),
}

if __name__ == "__main__":
    here = sweep(None)
    assert not here.failed and len(here.table) == 6
    for name in sys.argv[1:] or EXECUTORS:
        started = time.monotonic()
        found = EXECUTORS[name]()
        assert not found.failed, found.failed
        assert found.hash == here.hash, (name, found.table.to_csv(), here.table.to_csv())
        print(f"{name}: 6 runs, {time.monotonic() - started:.1f} s, hash {found.hash[:12]}", flush=True)
