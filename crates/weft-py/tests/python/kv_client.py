"""A Python client of the sharded key-value store in Rust: `kv_client.py HOST:PORT,HOST:PORT...`."""

import sys

import weft


def fnv(key: bytes) -> int:
    """Returns the hash that selects a key's shard, as in the other clients."""
    value = 0xCBF2_9CE4_8422_2325
    for byte in key:
        value = (value ^ byte) * 0x0100_0000_01B3 % 2**64
    return value


class Store:
    """The store's operations over its shards."""

    def __init__(self, node: weft.Node, addresses: list[str]) -> None:
        self._shards = [node.connect(address) for address in addresses]

    def _ask(self, operation: bytes, key: bytes, value: bytes = b"") -> bytes | None:
        shard = self._shards[fnv(key) % len(self._shards)]
        answer = bytes(shard.call(operation + bytes([len(key)]) + key + value, timeout=5))
        return answer[1:] if answer[:1] == b"+" else None

    def set(self, key: bytes, value: bytes) -> None:
        self._ask(b"s", key, value)

    def get(self, key: bytes) -> bytes | None:
        return self._ask(b"g", key)

    def delete(self, key: bytes) -> bytes | None:
        return self._ask(b"d", key)


with weft.Node() as node:
    store = Store(node, sys.argv[1].split(","))
    # Some values are too long for a frame.
    want = {b"key%d" % number: b"%d" % number * (1 + number % 10 * 300) for number in range(200)}
    for key, value in want.items():
        store.set(key, value)
    assert {key: store.get(key) for key in want} == want
    assert store.delete(b"key7") == want[b"key7"]
    assert store.get(b"key7") is None and store.get(b"nothing") is None
    print(f"{len(want)} values kept by {len(sys.argv[1].split(','))} shards")
