"""What nodes, channels and messages are, whether their owner waits in a thread or in an asyncio loop."""

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
    """Where the time of a traced call went, ns."""

    request_ns: int
    """The request's way: T2 - T1 - Toff."""
    peer_ns: int
    """At the peer: T3 - T2."""
    response_ns: int
    """The response's way: T4 - T3 + Toff."""
    offset_ns: int
    """How far the peer's clock is ahead: Toff."""


def text(value: Option) -> str:
    """An option's value as Weft reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


C = TypeVar("C", bound="BaseChannel")


class Message(Generic[C]):
    """A message that arrived.

    Its body lies in the memory that the device wrote it to, which is the message's for as long as anybody looks at it. A
    request that nobody has any more and that was not answered is declined: it no longer counts as one that waits
    for its answer (`unanswered`), of which a peer may have so many.
    """

    __slots__ = ("_native", "channel")

    def __init__(self, native: _weft.Message, channel: C) -> None:
        self._native = native
        self.channel = channel
        """The channel that it came by."""

    @property
    def body(self) -> memoryview:
        """The body, not copied. It is valid for as long as it exists."""
        return memoryview(self._native)

    def __bytes__(self) -> bytes:
        return bytes(memoryview(self._native))

    def __len__(self) -> int:
        return len(self._native)

    @property
    def is_request(self) -> bool:
        """Whether it asks for an answer."""
        return self._native.kind == "request"

    @property
    def number(self) -> int:
        """The number of the request that it is or answers; 0 if it is neither."""
        return self._native.number

    @property
    def trace(self) -> Trace | None:
        """Where the time of the call went that it answers, if the call was traced (`trace_every`)."""
        trace = self._native.trace
        return None if trace is None else Trace(*trace)

    def respond(self, body: Buffer) -> None:
        """Answers it.

        Raises `NoRequest` if it is no request, or was answered; `Full`, `TooLong`, `Closed` as `send` does.
        """
        self.channel._respond(self._native.number, body)

    def release(self) -> None:
        """Gives its memory back now. Raises `BufferError` while a memoryview of it exists."""
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
        """Why it is closed; None while it is open."""
        return self._closed

    @property
    def state(self) -> dict[str, int]:
        """Counts, and how full its window is. Raises `Closed`."""
        state = self._node._native.channel_state(self._number)
        if state is None:
            raise self._closed or Closed("the channel is closed")
        return state

    def abort(self) -> None:
        """Ends it at once, with what is under way on it; the peer finds out by itself."""
        self._node._native.abort_channel(self._number)
        self._node._touched()

    def _respond(self, number: int, body: Buffer) -> None:
        self._node._native.respond(self._number, number, body)
        self._node._touched()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Channel {self._number:#x}{' closed' * bool(self._closed)}>"


class BaseNode(Generic[C]):
    """A device, its memory, and the channels of one thread."""

    def __init__(self, options: dict[str, Option]) -> None:
        self._native = _weft.Node({name: text(value) for name, value in options.items()})
        self._channels: dict[int, C] = {}

    def listen(self, address: str) -> str:
        """Takes channels at `"host:port"`, where port 0 is any. Says which address it became.

        Raises `ConnectError` if somebody listens there, or the address is not this host's.
        """
        return self._native.listen(address)

    def memory(self, length: int) -> _weft.Memory:
        """Registered memory, to be written through a memoryview and sent without a copy.

        It must not change until the message is delivered. Raises `OutOfMemory` at `memory_limit`.
        """
        return self._native.memory(length)

    def set(self, **parameters: Option) -> None:
        """Changes parameters while the node runs. Raises `OptionError`."""
        for name, value in parameters.items():
            self._native.set(name, text(value))

    @property
    def parameters(self) -> dict[str, str]:
        """Every parameter with its value."""
        return self._native.parameters()

    @property
    def state(self) -> dict[str, int]:
        """Bytes of registered memory, channels and queue pairs."""
        return self._native.state()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed

    def _dispatch(self, events: list[_weft.Event]) -> None:
        """Tells everybody what happened."""
        for event in events:
            if event.kind == "connected":
                self._connected(event.number, self._channel(event.channel))
            elif event.kind == "connect-failed":
                self._connected(event.number, event.error or Error("no connection"))
            elif event.kind == "accept-failed":
                log.warning("a peer's channel did not come about: %s", event.error)
            elif event.kind == "open" and event.channel not in self._channels:
                self._accepted(self._channel(event.channel))
            elif event.kind == "message" and event.message is not None:
                self._received(event.message, self._channels.get(event.channel))
            elif event.kind == "closed" and event.channel in self._channels:
                channel = self._channels.pop(event.channel)
                channel._closed = event.error or Closed("closed")
                self._ended(channel)

    def _received(self, native: _weft.Message, channel: C | None) -> None:
        if channel is None:  # A filter rule kept it until its channel was gone.
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

    def _touched(self) -> None:
        """Something was handed in."""

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
