"""Messages of every kind between two hosts, whose bytes are checked: `echoes.py 7001`, and `echoes.py 10.0.0.1:7001`."""

import asyncio
import os
import sys

import weft

LENGTHS = (0, 1, 64, 4096, 4097, 100_000, 3_000_000)


def serve(port: str) -> None:
    """Answers requests with their bodies, and sends other messages back."""
    def answer(message: weft.Message) -> memoryview | None:
        if message.is_request:
            return message.body
        message.channel.send(message.body)
        return None

    with weft.Server(f"0.0.0.0:{port}", answer) as server:
        server.serve_forever()


def exchange(address: str) -> int:
    """Returns the number of bodies that came back as they were sent."""
    same = 0
    with weft.Node() as node:
        channels = [node.connect(address) for _ in range(4)]
        memory = node.memory(max(LENGTHS))
        for length in LENGTHS:
            for channel in channels:
                body = os.urandom(length)
                same += bytes(channel.call(body, timeout=20)) == body
                channel.send(body)
                same += bytes(channel.receive(timeout=20)) == body
        with memoryview(memory) as view:
            view[:] = body
        same += bytes(channels[0].call(memory, timeout=20)) == body
    return same


async def side_by_side(address: str, calls: int) -> int:
    """Returns the number of concurrent calls whose body came back."""
    bodies = [os.urandom(50_000) for _ in range(calls)]
    async with await weft.aio.connect(address) as channel:
        answers = await asyncio.gather(*(channel.call(body, timeout=20) for body in bodies))
        return sum(bytes(answer.body) == body for answer, body in zip(answers, bodies, strict=True))


if ":" in sys.argv[1]:
    print(f"{exchange(sys.argv[1])} bodies and {asyncio.run(side_by_side(sys.argv[1], 20))} side by side, all as they were sent")
else:
    serve(sys.argv[1])
