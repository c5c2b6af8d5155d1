"""Messages over RDMA, and the simulator of Weft's fabrics.

    with weft.connect("10.0.0.1:7000") as channel:
        print(bytes(channel.call(b"hello", timeout=1)))

    weft.serve("0.0.0.0:7000", lambda message: message.body)

They run on the machine's libibverbs.so.1: that of RDMA hardware, or Weft's own (`weft run -- python3 program.py`).
`weft.aio` is the same interface for asyncio.

    result = weft.sim.run("incast", seed=1)

`weft.sim` and `weft.experiment` need neither RDMA nor a library of it.
"""

from . import aio, experiment, sim
from ._base import Trace
from ._sync import Channel, Message, Node, Server, connect, serve
from ._weft import Memory
from .errors import (
    Closed,
    ConnectError,
    DeviceError,
    Error,
    Full,
    NoRequest,
    OptionError,
    OutOfMemory,
    Timeout,
    TooLong,
)

__all__ = [
    "Channel",
    "Closed",
    "ConnectError",
    "DeviceError",
    "Error",
    "Full",
    "Memory",
    "Message",
    "NoRequest",
    "Node",
    "OptionError",
    "OutOfMemory",
    "Server",
    "Timeout",
    "TooLong",
    "Trace",
    "aio",
    "connect",
    "experiment",
    "serve",
    "sim",
]
