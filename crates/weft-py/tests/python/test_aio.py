"""Programs in an asyncio loop."""

import asyncio
import logging
import unittest
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import weft
from peer import Peer


async def answer(message: weft.aio.Message) -> memoryview | None:
    if bytes(message) == b"fail":
        raise RuntimeError("as it was asked to")
    if bytes(message) == b"ignore":
        return None
    return message.body


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Runs a server in this loop."""
    async with weft.aio.Server("127.0.0.1:0", answer) as server:
        task = asyncio.create_task(server.serve_forever())
        yield server.address
    await task


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_both_ends_in_one_loop(self) -> None:
        async with serving() as address, await weft.aio.connect(address) as channel:
            for length in (0, 1, 4096, 4097, 3_000_000):
                response = await channel.call(bytes(length), timeout=5)
                self.assertEqual(response.body, bytes(length))

    async def test_calls_side_by_side(self) -> None:
        async with serving() as address, await weft.aio.connect(address, backlog=16) as channel:
            async def call(number: int) -> bytes:
                return bytes(await channel.call(b"%d" % number, timeout=5))

            answers = await asyncio.gather(*map(call, range(300)))
            self.assertEqual(answers, [b"%d" % number for number in range(300)])

    async def test_the_loop_runs_while_a_call_waits(self) -> None:
        async with serving() as address, await weft.aio.connect(address) as channel:
            call = asyncio.create_task(channel.call(b"ignore"))
            turns = 0
            while turns < 1000:
                await asyncio.sleep(0)
                turns += 1
            self.assertFalse(call.done())
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
            self.assertEqual(bytes(await channel.call(b"next", timeout=5)), b"next")

    async def test_a_loop_with_nothing_to_do_sleeps(self) -> None:
        async with serving() as address, await weft.aio.connect(address, keepalive="10s") as channel:
            await channel.call(b"x", timeout=5)
            node = channel._node
            await asyncio.sleep(0.1)
            turns = 0
            turn = node._process_events

            def counted() -> None:
                nonlocal turns
                turns += 1
                turn()

            node._process_events = counted  # type: ignore[method-assign]
            node._schedule()
            await asyncio.sleep(0.3)
            self.assertLess(turns, 30)

    async def test_messages_of_a_peer_one_after_the_other(self) -> None:
        async with weft.aio.Node() as server, weft.aio.Node() as client:
            address = server.listen("127.0.0.1:0")
            near = await client.connect(address)
            far = await server.accept()
            for number in range(100):
                await far.send(b"%d" % number)
            closing = asyncio.create_task(far.close())
            received = [bytes(message) async for message in near]
            self.assertEqual(received, [b"%d" % number for number in range(100)])
            await closing
            self.assertRegex(str(near.closed), "closed by the peer")
            with self.assertRaises(weft.Closed):
                await near.receive()

    async def test_failures(self) -> None:
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        with self.assertRaisesRegex(weft.ConnectError, "nobody listens there"):
            await weft.aio.connect("127.0.0.1:1")
        async with serving() as address, weft.aio.Node() as node:
            channel = await node.connect(address)
            with self.assertRaises(weft.Timeout):
                await channel.call(b"ignore", timeout=0.05)
            with self.assertRaises(weft.Closed):
                await channel.call(b"fail", timeout=5)
            channel = await node.connect(address)
            call = asyncio.create_task(channel.call(b"ignore"))
            await channel.call(b"x", timeout=5)
            node.close()
            with self.assertRaisesRegex(weft.Closed, "the node is closed"):
                await call
            node.close()

    async def test_a_peer_that_waits_in_a_thread(self) -> None:
        with Peer() as peer:
            async with await weft.aio.connect(peer.address) as channel:
                self.assertEqual(bytes(await channel.call(b"x", timeout=5)), b"x")
                await channel.send(b"y")
            self.assertEqual(peer.first(2), [b"x", b"y"])


if __name__ == "__main__":
    unittest.main()
