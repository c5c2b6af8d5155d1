"""Concurrent ping-pongs: `ping_pong_asyncio.py 7000`, and `ping_pong_asyncio.py 10.0.0.1:7000 [SIDE_BY_SIDE [COUNT]]`."""

import asyncio
import sys

import weft


async def answer(port: str) -> None:
    async def echo(message: weft.aio.Message) -> memoryview:
        return message.body

    async with weft.aio.Server(f"0.0.0.0:{port}", echo) as server:
        print(f"answering at {server.address}", flush=True)
        await server.serve_forever()


async def ping(channel: weft.aio.Channel, name: bytes, count: int) -> None:
    for _ in range(count):
        response = await channel.call(name, timeout=5)
        if response.body != name:
            sys.exit("another body came back")


async def pings(address: str, side_by_side: int = 10, count: int = 100) -> None:
    async with await weft.aio.connect(address) as channel:
        async with asyncio.TaskGroup() as group:
            for number in range(side_by_side):
                group.create_task(ping(channel, b"%d" % number, count))
    print(f"{side_by_side} times {count} there and back")


if len(sys.argv) < 2:
    sys.exit(__doc__)
elif ":" in sys.argv[1]:
    asyncio.run(pings(sys.argv[1], *map(int, sys.argv[2:])))
else:
    asyncio.run(answer(sys.argv[1]))
