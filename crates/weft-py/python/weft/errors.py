"""The exceptions of the package. All derive from `weft.Error`, and most also from a built-in exception."""


class Error(Exception):
    """An operation of Weft failed."""


class DeviceError(Error):
    """There is no RDMA device, or it does not work."""


class OptionError(Error, ValueError):
    """An option does not exist, or cannot have this value."""


class ConnectError(Error, ConnectionError):
    """A channel could not be opened, or an address is not available for listening."""


class Closed(Error, ConnectionError):
    """The channel or the node is closed."""


class Timeout(Error, TimeoutError):
    """The operation did not finish within its timeout."""


class Full(Error):
    """The queue of messages that wait for the channel's window is full."""


class TooLong(Error, ValueError):
    """The body is longer than the peer's maximum."""


class NoRequest(Error, LookupError):
    """There is no such request to answer, or it was answered."""


class OutOfMemory(Error, MemoryError):
    """There is no registered memory left."""
