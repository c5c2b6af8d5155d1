"""Numpy arrays from one of Ray's actors to another over Weft: importing this registers the tensor transport "weft".

    @ray.remote(enable_tensor_transport=True)
    class Worker:
        @ray.method(tensor_transport="weft")
        def weights(self): return numpy.ones(1_000_000)

The actor that makes an array keeps it and serves it; the actor that receives it fetches it in pieces, into its own
memory. The raylets and their workers run under `weft run`, or on RDMA hardware.
"""
# Ray does not declare all types, which mypy would need.
# mypy: ignore-errors

import hmac
import secrets
import struct
import threading
from dataclasses import dataclass

import numpy
import ray
from ray.experimental import register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)

from ._sync import Server, connect
from .errors import Error

PIECE = 4 << 20
"""The maximum number of bytes of a piece."""
TIMEOUT = 30.0
"""The seconds after which a piece counts as lost with its actor."""

# A request: the secret of the actor, the array's number in its object, the offset; the object's id follows.
_REQUEST = struct.Struct("<16sIQ")


@dataclass
class Metadata(TensorTransportMetadata):
    """Where the arrays of an object are."""

    address: str = ""
    """The address of the actor that has them."""
    secret: bytes = b""
    """What only those know to whom Ray gave this."""


class _Store:
    """The arrays of this process, and the thread that serves them."""

    def __init__(self):
        self.arrays, self.secret = {}, secrets.token_bytes(16)
        self._server = Server(f"{ray.util.get_node_ip_address()}:0", self._answer)
        self.address = self._server.address
        threading.Thread(target=self._server.serve_forever, name="weft-ray", daemon=True).start()

    def _answer(self, message):
        body = bytes(message)
        secret, number, offset = _REQUEST.unpack_from(body)
        if not hmac.compare_digest(secret, self.secret):
            raise PermissionError("a request without the secret of this actor")
        arrays = self.arrays.get(body[_REQUEST.size :].decode())
        # An array that is no longer there has no bytes, which the peer notices.
        return b"" if arrays is None else _bytes(arrays[number])[offset : offset + PIECE]


def _bytes(array):
    """Returns the bytes of a contiguous array, without a copy."""
    return memoryview(array.reshape(-1).view(numpy.uint8))


class Transport(TensorTransportManager):
    """Ray's interface to the transport."""

    def __init__(self):
        self._lock, self._store, self._channels = threading.Lock(), None, {}

    def tensor_transport_backend(self):
        return "WEFT"

    @staticmethod
    def is_one_sided():
        return True

    @staticmethod
    def can_abort_transport():
        return True

    def actor_has_tensor_transport(self, actor):
        return True

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        with self._lock:
            self._store = self._store or _Store()
        arrays = [numpy.asarray(array, order="C") for array in rdt_object]
        if any(array.dtype.hasobject for array in arrays):
            raise TypeError("weft moves arrays of numbers; an array of Python's objects has none of its own")
        self._store.arrays[obj_id] = arrays
        shapes = [(array.shape, array.dtype) for array in arrays]
        return Metadata(shapes, "cpu", self._store.address, self._store.secret)

    def get_communicator_metadata(self, src_actor, dst_actor, backend=None):
        return CommunicatorMetadata()

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        about = tensor_transport_metadata
        buffers = target_buffers or [numpy.empty(shape, kind) for shape, kind in about.tensor_meta]
        # One thread at a time uses a channel.
        with self._lock:
            channel = self._channels.get(about.address)
            if channel is None or channel.closed:
                channel = self._channels[about.address] = connect(about.address)
            for number, buffer in enumerate(buffers):
                whole = buffer if buffer.flags.c_contiguous else numpy.empty(buffer.shape, buffer.dtype)
                self._fetch(channel, about.secret, obj_id, number, _bytes(whole))
                if whole is not buffer:
                    numpy.copyto(buffer, whole)
        return buffers

    def _fetch(self, channel, secret, obj_id, number, into):
        offset = 0
        while offset < len(into):
            request = _REQUEST.pack(secret, number, offset) + obj_id.encode()
            with channel.call(request, timeout=TIMEOUT).body as piece:
                if len(piece) == 0:
                    raise Error(f"object {obj_id} is no longer at {channel}: Ray freed it there")
                if len(piece) > len(into) - offset:
                    raise Error(f"object {obj_id}, array {number}: {len(piece)} bytes at {offset} of {len(into)}")
                into[offset : offset + len(piece)] = piece
                offset += len(piece)

    def send_multiple_tensors(self, tensors, tensor_transport_metadata, communicator_metadata):
        raise NotImplementedError("the receiver fetches the arrays")

    def garbage_collect(self, obj_id, tensor_transport_meta, tensors):
        if self._store:
            self._store.arrays.pop(obj_id, None)

    def abort_transport(self, obj_id, communicator_metadata):
        """Does nothing: a fetch ends by itself when its actor is gone, or after `TIMEOUT`."""


register_tensor_transport("WEFT", ["cpu"], Transport, numpy.ndarray)
