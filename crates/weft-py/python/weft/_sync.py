"""Messages for programs that block."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ._base import BaseChannel, BaseNode, Message as BaseMessage, Option, log
from .errors import Closed, Full, Timeout

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Channel(BaseChannel):
    """A connection that carries messages, in both directions and in any number.

    As a context manager it closes itself, and its own node if it has one, at the end.
    """

    _node: Node

    def __init__(self, node: Node, number: int) -> None:
        super().__init__(node, number)
        self._owns_node = False

    def send(self, body: Buffer, timeout: float | None = None) -> int:
        """Sends a one-way message and returns its number.

        Waits while the queue for the window is full. The body is copied, unless it is `Node.memory`.
        Raises `Closed`, `TooLong`, `OutOfMemory`, or `Timeout`.
        """
        return self._node._submit(lambda: self._node._native.send(self._number, body), timeout)

    def call(self, body: Buffer, timeout: float | None = None) -> Message:
        """Sends a request and waits for its response.

        Raises the errors of `send`, `Timeout` after `timeout` seconds, and `Closed` if the channel ends.
        """
        return self._node._response(self._node._request(self, body, timeout), timeout)

    def calls(self, bodies: Iterable[Buffer], at_once: int, timeout: float | None = None) -> Generator[Message]:
        """Sends requests, of which at most `at_once` are pending, and iterates over their responses in the same order.

        The next request leaves before its turn's response is returned, so that the peer always has work. `timeout` is for
        each response. Raises the errors of `call`; requests that are pending then, or when the iteration ends early,
        are forgotten.
        """
        pending: deque[int] = deque()
        try:
            for body in bodies:
                pending.append(self._node._request(self, body, timeout))
                if len(pending) >= at_once:
                    yield self._node._response(pending.popleft(), timeout)
            while pending:
                yield self._node._response(pending.popleft(), timeout)
        finally:
            for request in pending:
                self._node._forget(self, request)

    def receive(self, timeout: float | None = None) -> Message:
        """Returns the next message or request on this channel. Raises `Closed` or `Timeout`."""
        self._node._until(lambda: bool(self._inbox or self._closed), timeout)
        if self._inbox:
            return self._inbox.popleft()
        raise self._closed or Timeout(f"no message in {timeout} s")

    def __iter__(self) -> Iterator[Message]:
        """Iterates over messages until the channel is closed."""
        while True:
            try:
                message = self.receive()
            except Closed:
                return
            yield message

    def close(self, timeout: float | None = None) -> None:
        """Closes the channel and waits until the peer has all messages sent, or is gone; `closed` has the reason.

        Raises `Timeout`, and `BufferError` while a memoryview of its own node's memory exists.
        """
        if not self._node.closed:
            self._node._native.close_channel(self._number)
            if not self._node._until(lambda: self._closed is not None, timeout):
                raise Timeout(f"the channel is not closed after {timeout} s")
        if self._owns_node:
            self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Message = BaseMessage[Channel]
"""A message received on a `Channel`."""


class Node(BaseNode[Channel]):
    """A device, its memory, and the channels of one thread: `Node(depth=64, keepalive="100ms")`.

    Options are `device`, `address`, `pages`, `streams`, `spin`, `show`, and those of `parameters`. Raises `DeviceError`
    if there is no RDMA device, and `OptionError`.
    """

    def __init__(self, **options: Option) -> None:
        super().__init__(options)
        self._tickets: dict[int, Channel | Exception] = {}
        self._calls: dict[int, tuple[Channel, Message | Exception | None]] = {}
        self._unaccepted: deque[Channel] = deque()
        self._channels_with_messages: deque[Channel] = deque()

    def connect(self, address: str) -> Channel:
        """Opens a channel to `"host:port"`. Raises `ConnectError`, after 5 seconds at most."""
        ticket = self._native.connect(address)
        self._until(lambda: ticket in self._tickets, None)
        outcome = self._tickets.pop(ticket)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def accept(self, timeout: float | None = None) -> Channel:
        """Returns the next channel that a peer opened, after `listen`. Raises `Timeout`."""
        if not self._until(lambda: bool(self._unaccepted), timeout):
            raise Timeout(f"nobody connected in {timeout} s")
        return self._unaccepted.popleft()

    def receive(self, timeout: float | None = None) -> Message:
        """Returns the next message or request of any channel. Raises `Timeout`."""
        if not self._until(self._has_message, timeout):
            raise Timeout(f"no message in {timeout} s")
        return self._channels_with_messages.popleft()._inbox.popleft()

    def close(self) -> None:
        """Ends the node at once, with its channels. Raises `BufferError` while a memoryview of its memory exists."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _has_message(self) -> bool:
        while self._channels_with_messages and not self._channels_with_messages[0]._inbox:
            self._channels_with_messages.popleft()
        return bool(self._channels_with_messages)

    def _until(self, found: Callable[[], bool], timeout: float | None) -> bool:
        """Waits until `found` returns True. Returns False after the timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._dispatch(self._native.poll())
            if found():
                return True
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._native.wait(left)

    def _submit(self, send: Callable[[], int], timeout: float | None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return send()
            except Full:
                if until is not None and time.monotonic() >= until:
                    raise Timeout(f"the window was full for {timeout} s") from None
            # No event reports that the window opens, so it is polled.
            self._native.wait(0.001)
            self._dispatch(self._native.poll())

    def _request(self, channel: Channel, body: Buffer, timeout: float | None) -> int:
        """Sends a request; `_response` or `_forget` follows."""
        number = self._submit(lambda: self._native.request(channel._number, body), timeout)
        self._calls[number] = (channel, None)
        return number

    def _response(self, request: int, timeout: float | None) -> Message:
        try:
            self._until(lambda: self._calls[request][1] is not None, timeout)
        finally:
            channel, outcome = self._calls.pop(request)
        if isinstance(outcome, BaseMessage):
            return outcome
        if outcome is None:
            self._native.forget(channel._number, request)
            raise Timeout(f"no response in {timeout} s")
        raise outcome

    def _forget(self, channel: Channel, request: int) -> None:
        del self._calls[request]
        if not self.closed:
            self._native.forget(channel._number, request)

    def _make(self, number: int) -> Channel:
        return Channel(self, number)

    def _connected(self, ticket: int, outcome: Channel | Exception) -> None:
        self._tickets[ticket] = outcome

    def _accepted(self, channel: Channel) -> None:
        self._unaccepted.append(channel)

    def _answered(self, request: int, message: Message) -> None:
        if request in self._calls:
            self._calls[request] = (message.channel, message)

    def _arrived(self, channel: Channel) -> None:
        self._channels_with_messages.append(channel)

    def _ended(self, channel: Channel) -> None:
        for number, (of, outcome) in self._calls.items():
            if of is channel and outcome is None:
                self._calls[number] = (of, channel._closed)


Handler = Callable[[Message], "Buffer | None"]
"""A function from a message to its answer; None if the message needs no answer, or gets one later."""


class Server:
    """A server that answers requests at an address.

    If a handler raises, the channel of its message ends, so that the peer does not wait for an answer; the exception
    is logged.
    """

    def __init__(self, address: str, handler: Handler, **options: Option) -> None:
        self.node = Node(**options)
        """The server's node."""
        self.address = self.node.listen(address)
        """The address at which it listens, with its port."""
        self._handler = handler
        self._stopped = False

    def serve_forever(self) -> None:
        """Serves until `stop`, or an exception such as KeyboardInterrupt."""
        while not self._stopped:
            try:
                message = self.node.receive(timeout=0.1)
            except Timeout:
                continue
            self._handle(message)

    def stop(self) -> None:
        """Makes `serve_forever` return soon. Any thread may call it."""
        self._stopped = True

    def _handle(self, message: Message) -> None:
        try:
            answer = self._handler(message)
            if message.is_request and answer is not None:
                message.respond(answer)
        except Closed:
            pass  # The requester is gone.
        except Exception:
            log.exception("the handler of %r failed; its channel ends", message)
            message.channel.abort()

    def close(self) -> None:
        """Ends the server at once, with its channels."""
        self.node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(address: str, **options: Option) -> Channel:
    """Opens a channel to `"host:port"` with its own node. Raises the errors of `Node` and `Node.connect`."""
    node = Node(**options)
    try:
        channel = node.connect(address)
    except BaseException:
        node.close()
        raise
    channel._owns_node = True
    return channel


def serve(address: str, handler: Handler, **options: Option) -> None:
    """Answers requests at `"host:port"` until an exception such as KeyboardInterrupt."""
    with Server(address, handler, **options) as server:
        server.serve_forever()


__all__ = ["Channel", "Handler", "Message", "Node", "Server", "connect", "serve"]
