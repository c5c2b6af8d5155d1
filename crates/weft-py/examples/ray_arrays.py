"""Arrays from one Ray actor to another over Weft: `weft run -- python3 ray_arrays.py [MEBIBYTES]`."""

import sys
import time

import numpy
import ray

import weft.ray  # noqa: F401  # registers the transport "weft"

mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 64


@ray.remote(enable_tensor_transport=True)
class Source:
    @ray.method(tensor_transport="weft")
    def arrays(self, count: int) -> list[numpy.ndarray]:
        return [numpy.arange(count, dtype=numpy.float32), numpy.full((3, 5), 7)]


@ray.remote(enable_tensor_transport=True)
class Sink:
    def check(self, arrays: list[numpy.ndarray]) -> int:
        large, small = arrays
        assert (large == numpy.arange(len(large), dtype=numpy.float32)).all()
        assert small.shape == (3, 5) and (small == 7).all()
        return large.nbytes + small.nbytes


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
source, sink = Source.remote(), Sink.remote()
for _ in range(3):
    start = time.perf_counter()
    received = ray.get(sink.check.remote(source.arrays.remote(mebibytes << 18)))
    print(f"{received} bytes in {1e3 * (time.perf_counter() - start):.0f} ms")
ray.shutdown()
