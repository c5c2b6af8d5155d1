"""A ping-pong of messages. One end: `ping_pong.py 7000`. The other: `ping_pong.py 10.0.0.1:7000 [SIZE [COUNT]]`."""

import sys
import time

import weft


def answer(port: str) -> None:
    with weft.Server(f"0.0.0.0:{port}", lambda message: message.body) as server:
        print(f"answering at {server.address}", flush=True)
        server.serve_forever()


def ping(address: str, size: int = 64, count: int = 1000) -> None:
    with weft.connect(address) as channel:
        body, start = bytes(size), time.perf_counter()
        for _ in range(count):
            if channel.call(body, timeout=5).body != body:
                sys.exit("another body came back")
        each = (time.perf_counter() - start) / (2 * count)
    print(f"{count} times {size} bytes there and back: {each * 1e6:.1f} us one way")


if len(sys.argv) < 2:
    sys.exit(__doc__)
elif ":" in sys.argv[1]:
    ping(sys.argv[1], *map(int, sys.argv[2:]))
else:
    answer(sys.argv[1])
