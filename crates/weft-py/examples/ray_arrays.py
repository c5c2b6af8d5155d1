"""Arrays from one Ray actor to another, over Weft and by Ray's object store: `weft run -- python3 ray_arrays.py [MEBIBYTES [weft|store]]`.

On a cluster, which RAY_ADDRESS names, the actors are on different nodes.
"""

import sys
import time

import numpy
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import weft.ray  # noqa: F401  # registers the transport "weft"

mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
ways = sys.argv[2:] or ["weft", "store"]


@ray.remote(enable_tensor_transport=True)
class Source:
    def store(self, count: int) -> list[numpy.ndarray]:
        return [numpy.arange(count, dtype=numpy.float32), numpy.full((3, 5), 7)]

    @ray.method(tensor_transport="weft")
    def weft(self, count: int) -> list[numpy.ndarray]:
        return self.store(count)


@ray.remote(enable_tensor_transport=True)
class Sink:
    def check(self, arrays: list[numpy.ndarray]) -> int:
        large, small = arrays
        assert (large == numpy.arange(len(large), dtype=numpy.float32)).all()
        assert small.shape == (3, 5) and (small == 7).all()
        return large.nbytes + small.nbytes


ray.init(include_dashboard=False, log_to_driver=False)
nodes = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
source = Source.options(scheduling_strategy=nodes[0]).remote()
sink = Sink.options(scheduling_strategy=nodes[-1]).remote()
for way in ways:
    for _ in range(3):
        start = time.perf_counter()
        received = ray.get(sink.check.remote(getattr(source, way).remote(mebibytes << 18)))
        print(f"{received} bytes by {way} in {1e3 * (time.perf_counter() - start):.0f} ms")
ray.shutdown()
