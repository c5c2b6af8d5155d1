"""Messages for asyncio: the classes of `weft` with `await`.

    async with await weft.aio.connect("10.0.0.1:7000") as channel:
        answer = await channel.call(b"hello", timeout=1)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from ._base import BaseChannel, BaseNode, Message as BaseMessage, Option, log
from .errors import Closed, Full, Timeout

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Channel(BaseChannel):
    """A connection that carries messages. As a context manager it closes itself, and its own node, at the end."""

    _node: Node

    def __init__(self, node: Node, number: int) -> None:
        super().__init__(node, number)
        self._owns_node = False

    async def send(self, body: Buffer) -> int:
        """Sends a one-way message and returns its number.

        Waits while the window is full. Raises `Closed`, `TooLong` or `OutOfMemory`.
        """
        return await self._node._submit(lambda: self._node._native.send(self._number, body))

    async def call(self, body: Buffer, timeout: float | None = None) -> Message:
        """Sends a request and waits for its response.

        Raises the errors of `send`, `Timeout` after `timeout` seconds, and `Closed` if the channel ends.
        """
        node = self._node
        try:
            async with asyncio.timeout(timeout):
                return await node._call(self, body)
        except TimeoutError as error:
            if isinstance(error, Timeout):
                raise
            raise Timeout(f"no response in {timeout} s") from None

    async def receive(self) -> Message:
        """Returns the next message or request on this channel. Raises `Closed`."""
        while not self._inbox:
            if self._closed:
                raise self._closed
            await self._node._wait_for_events()
        return self._inbox.popleft()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterates over messages until the channel is closed."""
        while True:
            try:
                message = await self.receive()
            except Closed:
                return
            yield message

    async def close(self) -> None:
        """Closes the channel and waits until the peer has all messages sent, or is gone."""
        if not self._node.closed:
            self._node._native.close_channel(self._number)
            self._node._schedule()
            while self._closed is None:
                await self._node._wait_for_events()
        if self._owns_node:
            self._node.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


Message = BaseMessage[Channel]
"""A message received on a `Channel`."""


class Node(BaseNode[Channel]):
    """A device, its memory, and the channels of one running loop. Options and errors are those of `weft.Node`."""

    def __init__(self, **options: Option) -> None:
        super().__init__(options)
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[int, asyncio.Future[Channel]] = {}
        self._calls: dict[int, tuple[Channel, asyncio.Future[Message]]] = {}
        self._unaccepted: deque[Channel] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._descriptor = self._native.event_fd()
        self._loop.add_reader(self._descriptor, self._process_events)
        self._schedule()

    async def connect(self, address: str) -> Channel:
        """Opens a channel to `"host:port"`. Raises `ConnectError`, after 5 seconds at most."""
        ticket = self._native.connect(address)
        future: asyncio.Future[Channel] = self._loop.create_future()
        self._tickets[ticket] = future
        self._schedule()
        return await future

    async def accept(self) -> Channel:
        """Returns the next channel that a peer opened, after `listen`."""
        while not self._unaccepted:
            await self._wait_for_events()
        return self._unaccepted.popleft()

    def close(self) -> None:
        """Ends the node at once, with its channels. Raises `BufferError` while a memoryview of its memory exists."""
        if self.closed:
            return
        self._loop.remove_reader(self._descriptor)
        try:
            self._native.close()
        except BaseException:
            self._loop.add_reader(self._descriptor, self._process_events)
            raise
        if self._timer:
            self._timer.cancel()
        gone = Closed("the node is closed")
        for channel in self._channels.values():
            channel._closed = gone
            self._ended(channel)
        self._channels.clear()
        waiting: list[asyncio.Future[Any]] = [*self._tickets.values(), *self._waiting]
        for future in waiting:
            if not future.done():
                future.set_exception(gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _process_events(self) -> None:
        """Processes pending work and prepares to sleep."""
        self._scheduled = False
        if self.closed:
            return
        self._dispatch(self._native.process_event())
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        sleep = self._native.arm()
        if sleep is None:
            self._schedule()
        else:
            self._timer = self._loop.call_later(sleep, self._process_events)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._process_events)

    async def _wait_for_events(self) -> None:
        """Waits until the node has processed events."""
        if self.closed:
            raise Closed("the node is closed")
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        await future

    async def _submit(self, send: Callable[[], int]) -> int:
        while True:
            try:
                number = send()
            except Full:
                await self._wait_for_events()
            else:
                self._schedule()
                return number

    async def _call(self, channel: Channel, body: Buffer) -> Message:
        number = await self._submit(lambda: self._native.request(channel._number, body))
        future: asyncio.Future[Message] = self._loop.create_future()
        self._calls[number] = (channel, future)
        try:
            return await future
        finally:
            del self._calls[number]
            if future.cancelled() and not self.closed:
                self._native.forget(channel._number, number)

    def _make(self, number: int) -> Channel:
        return Channel(self, number)

    def _connected(self, ticket: int, outcome: Channel | Exception) -> None:
        future = self._tickets.pop(ticket)
        if future.done():  # The caller was cancelled.
            if isinstance(outcome, Channel):
                outcome.abort()
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _accepted(self, channel: Channel) -> None:
        self._unaccepted.append(channel)

    def _answered(self, request: int, message: Message) -> None:
        _, future = self._calls.get(request, (None, None))
        if future and not future.done():
            future.set_result(message)

    def _arrived(self, channel: Channel) -> None:
        pass  # `receive` checks the inbox after every `_process_events`.

    def _ended(self, channel: Channel) -> None:
        for of, future in self._calls.values():
            if of is channel and not future.done():
                future.set_exception(channel._closed or Closed("closed"))


Handler = Callable[[Message], "Awaitable[Buffer | None]"]
"""A function from a message to its answer; None if the message needs no answer, or gets one later."""


class Server:
    """A server that answers requests at an address, each in its own task.

    If a handler raises, the channel of its message ends, so that the peer does not wait for an answer; the exception
    is logged.
    """

    def __init__(self, address: str, handler: Handler, **options: Option) -> None:
        self.node = Node(**options)
        """The server's node."""
        self.address = self.node.listen(address)
        """The address at which it listens, with its port."""
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve_forever(self) -> None:
        """Serves until the task is cancelled, or `close` is called."""
        while not self.node.closed:
            try:
                channel = await self.node.accept()
            except Closed:
                return
            self._start(self._serve(channel))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, channel: Channel) -> None:
        async for message in channel:
            self._start(self._handle(message))

    async def _handle(self, message: Message) -> None:
        try:
            answer = await self._handler(message)
            if message.is_request and answer is not None:
                message.respond(answer)
        except Closed:
            pass  # The requester is gone.
        except Exception:
            log.exception("the handler of %r failed; its channel ends", message)
            message.channel.abort()

    def close(self) -> None:
        """Ends the server at once, with its channels."""
        for task in self._tasks:
            task.cancel()
        self.node.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


async def connect(address: str, **options: Option) -> Channel:
    """Opens a channel to `"host:port"` with its own node. Raises the errors of `Node` and `Node.connect`."""
    node = Node(**options)
    try:
        channel = await node.connect(address)
    except BaseException:
        node.close()
        raise
    channel._owns_node = True
    return channel


async def serve(address: str, handler: Handler, **options: Option) -> None:
    """Answers requests at `"host:port"` until the task is cancelled."""
    async with Server(address, handler, **options) as server:
        await server.serve_forever()


__all__ = ["Channel", "Handler", "Message", "Node", "Server", "connect", "serve"]
