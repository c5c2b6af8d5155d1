"""The shape of a KV cache and of the requests that are moved: how many descriptors of how many bytes.

The model is Llama 3 8B in bfloat16: 32 layers, 8 heads of keys and values with 128 elements each.
"""

from dataclasses import dataclass

import numpy as np

LAYERS = 32
HEADS = 8
ELEMENTS = 128
ELEMENT_BYTES = 2
# Bytes of one token's keys, or values, in one layer.
TOKEN_BYTES = HEADS * ELEMENTS * ELEMENT_BYTES


@dataclass(frozen=True)
class Shape:
    """A cache of `blocks` blocks in each of `planes` arrays; a request moves the same blocks of all arrays."""

    name: str
    planes: int
    block_bytes: int
    block_tokens: int
    blocks: int
    # READ: the host that needs the blocks fetches them. WRITE: the host that has them sends them.
    operation: str

    @property
    def pieces(self) -> int:
        return self.planes * self.blocks

    @property
    def bytes(self) -> int:
        return self.pieces * self.block_bytes

    def request(self, tokens: int, random: np.random.Generator) -> np.ndarray:
        """Returns the numbers of the pieces of a request of that many tokens, in blocks that are free at random places."""
        count = -(-tokens // self.block_tokens)
        if count > self.blocks:
            raise SystemExit(f"{tokens} tokens do not fit into {self.blocks * self.block_tokens}: raise --cache-tokens")
        chosen = random.permutation(self.blocks)[:count]
        return (np.arange(self.planes)[:, None] * self.blocks + chosen).ravel()


def vllm(cache_tokens: int) -> Shape:
    """vLLM's NIXL connector: pages of 16 tokens; each layer has an array of keys and one of values. The decoder reads."""
    page = 16
    return Shape("vllm", 2 * LAYERS, page * TOKEN_BYTES, page, cache_tokens // page, "READ")


def lmcache(cache_tokens: int) -> Shape:
    """LMCache: chunks of 256 tokens with all layers in one piece of memory. The prefill host writes."""
    chunk = 256
    return Shape("lmcache", 1, chunk * TOKEN_BYTES * 2 * LAYERS, chunk, cache_tokens // chunk, "WRITE")


SHAPES = {"vllm": vllm, "lmcache": lmcache}
