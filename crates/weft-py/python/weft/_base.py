"""The common parts of nodes, channels and messages, for threads and for asyncio loops."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from . import _weft
from .errors import Closed, Error

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("weft")

Option = str | int | float | bool
"""The value of an option: `depth=64`, `keepalive="100ms"`, `streams=True`."""


class Trace(NamedTuple):
    """The times of a traced call, ns."""

    request_ns: int
    """The request's transit time: T2 - T1 - Toff."""
    peer_ns: int
    """The time at the peer: T3 - T2."""
    response_ns: int
    """The response's transit time: T4 - T3 + Toff."""
    offset_ns: int
    """The offset of the peer's clock: Toff, positive if it is ahead."""


def text(value: Option) -> str:
    """Returns an option's value as text for Weft."""
    return str(value).lower() if isinstance(value, bool) else str(value)


C = TypeVar("C", bound="BaseChannel")


class Message(Generic[C]):
    """A received message.

    Its body stays in the memory to which the device wrote it, and the message owns that memory until the last
    memoryview is gone. A request that was dropped without an answer is declined: it no longer counts as one of at
    most `unanswered` pending requests of the peer.
    """

    __slots__ = ("_native", "channel")

    def __init__(self, native: _weft.Message, channel: C) -> None:
        self._native = native
        self.channel = channel
        """The channel on which the message arrived."""

    @property
    def body(self) -> memoryview:
        """The body, without a copy. It is valid as long as the memoryview exists."""
        return memoryview(self._native)

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self._native))

    def __len__(self) -> int:
        return len(self._native)

    @property
    def is_request(self) -> bool:
        """True if the message is a request."""
        return self._native.kind == "request"

    @property
    def number(self) -> int:
        """The number of the request that this message is or answers; 0 for a one-way message."""
        return self._native.number

    @property
    def trace(self) -> Trace | None:
        """The times of the call that this message answers, if the call was traced (`trace_every`)."""
        trace = self._native.trace
        return None if trace is None else Trace(*trace)

    def respond(self, body: Buffer) -> None:
        """Answers the request.

        Raises `NoRequest` if the message is not a request, or was answered; `Full`, `TooLong`, `Closed` as `send` does.
        """
        self.channel._respond(self._native.number, body)

    def release(self) -> None:
        """Releases the message's memory now. Raises `BufferError` while a memoryview of it exists."""
        self._native.release()

    def __repr__(self) -> str:
        return f"<weft.Message {self._native.kind} of {len(self)} bytes>"


class BaseChannel:
    """A connection that carries messages."""

    def __init__(self, node: BaseNode[Self], number: int) -> None:
        self._node = node
        self._number = number
        self._inbox: deque[Message[Any]] = deque()
        self._closed: Exception | None = None

    @property
    def closed(self) -> Exception | None:
        """The reason why the channel is closed; None while it is open."""
        return self._closed

    @property
    def state(self) -> dict[str, int]:
        """The channel's counters and its window. Raises `Closed`."""
        state = self._node._native.channel_state(self._number)
        if state is None:
            raise self._closed or Closed("the channel is closed")
        return state

    def abort(self) -> None:
        """Ends the channel at once and drops its messages in flight, without notice to the peer."""
        self._node._native.abort_channel(self._number)
        self._node._schedule()

    def switch(self, to: str) -> None:
        """Moves the channel to `"rdma"` or `"tcp"`, in both directions; both ends must keep a TCP connection (`streams`).

        Raises `Closed` if the channel is not open, `Error` if it has no TCP connection, or RDMA is broken.
        """
        self._node._native.switch(self._number, to)
        self._node._schedule()

    def _respond(self, number: int, body: Buffer) -> None:
        self._node._native.respond(self._number, number, body)
        self._node._schedule()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Channel {self._number:#x}{' closed' * bool(self._closed)}>"


class BaseNode(Generic[C]):
    """A device, its memory, and the channels of one thread."""

    def __init__(self, options: dict[str, Option]) -> None:
        self._native = _weft.Node({name: text(value) for name, value in options.items()})
        self._channels: dict[int, C] = {}

    def listen(self, address: str) -> str:
        """Accepts channels at `"host:port"`; port 0 selects a free port. Returns the address with its port.

        Raises `ConnectError` if the address is in use, or not this host's.
        """
        return self._native.listen(address)

    def memory(self, length: int) -> _weft.Memory:
        """Allocates registered memory, to write through a memoryview and send without a copy.

        Its bytes must not change until the message is delivered. Raises `OutOfMemory` at `memory_limit`.
        """
        return self._native.memory(length)

    def set(self, **parameters: Option) -> None:
        """Changes parameters while the node runs. Raises `OptionError`."""
        for name, value in parameters.items():
            self._native.set(name, text(value))

    @property
    def parameters(self) -> dict[str, str]:
        """All parameters with their values."""
        return self._native.parameters()

    @property
    def state(self) -> dict[str, int]:
        """The number of bytes of registered memory, of channels and of queue pairs."""
        return self._native.state()

    @property
    def closed(self) -> bool:
        """True if the node was closed."""
        return self._native.closed

    def _dispatch(self, events: list[_weft.Event]) -> None:
        """Passes events to the calls and channels that wait for them."""
        for event in events:
            if event.kind == "connected":
                self._connected(event.number, self._channel(event.channel))
            elif event.kind == "connect-failed":
                self._connected(event.number, event.error or Error("no connection"))
            elif event.kind == "accept-failed":
                log.warning("a peer's channel could not be opened: %s", event.error)
            elif event.kind == "open" and event.channel not in self._channels:
                self._accepted(self._channel(event.channel))
            elif event.kind == "message" and event.message is not None:
                self._received(event.message, self._channels.get(event.channel))
            elif event.kind == "closed" and event.channel in self._channels:
                channel = self._channels.pop(event.channel)
                channel._closed = event.error or Closed("closed")
                self._ended(channel)

    def _received(self, native: _weft.Message, channel: C | None) -> None:
        if channel is None:  # A filter rule delayed it until its channel had ended.
            return
        message = Message(native, channel)
        if native.kind == "response":
            self._answered(message.number, message)
        else:
            channel._inbox.append(message)
            self._arrived(channel)

    def _channel(self, number: int) -> C:
        channel = self._channels.get(number)
        if channel is None:
            channel = self._channels[number] = self._make(number)
        return channel

    def _schedule(self) -> None:
        """Schedules progress after new work was submitted."""

    def _make(self, number: int) -> C:
        raise NotImplementedError

    def _connected(self, ticket: int, outcome: C | Exception) -> None:
        raise NotImplementedError

    def _accepted(self, channel: C) -> None:
        raise NotImplementedError

    def _answered(self, request: int, message: Message[C]) -> None:
        raise NotImplementedError

    def _arrived(self, channel: C) -> None:
        raise NotImplementedError

    def _ended(self, channel: C) -> None:
        raise NotImplementedError
