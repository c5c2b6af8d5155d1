"""What can go wrong. All are `weft.Error`, and what Python programs know such failures as besides."""


class Error(Exception):
    """Something that Weft was asked for did not happen."""


class DeviceError(Error):
    """There is no RDMA device to use, or it does not work."""


class OptionError(Error, ValueError):
    """An option does not exist, or cannot have this value."""


class ConnectError(Error, ConnectionError):
    """A channel is not to be had, or an address not to be listened at."""


class Closed(Error, ConnectionError):
    """The channel or the node is closed."""


class Timeout(Error, TimeoutError):
    """It took too long."""


class Full(Error):
    """As many messages wait for the channel's window as may."""


class TooLong(Error, ValueError):
    """The body is longer than the peer takes."""


class NoRequest(Error, LookupError):
    """There is no such request to answer, or it was answered."""


class OutOfMemory(Error, MemoryError):
    """There is no registered memory left."""
