#!/usr/bin/env python3
"""Moves the KV cache of requests between two hosts, as an inference server with separate prefill and decode does.

On one host, then on the other one (weft run --for mooncake with --stack mooncake):

    weft run --for nixl -- python3 examples/kv_cache/kv_cache.py serve
    weft run --for nixl -- python3 examples/kv_cache/kv_cache.py 192.0.2.7

Without `weft run` NIXL's UCX takes what it finds, such as TCP. Every word of both caches is different from all others,
and every word that was moved is compared; the exit code is 1 if one is wrong or a transfer fails.
"""

import argparse
import json
import socket
import sys
import time
from multiprocessing.connection import Client, Listener

import numpy as np

from shape import SHAPES
from stacks import STACKS, TransferError

KEY = b"kv-cache example"
# Added to each word of the second host's cache.
OTHER = np.uint64(1 << 40)


def main():
    options = parse()
    shape = SHAPES[options.shape](options.cache_tokens)
    if options.peer == "serve":
        serve(options, shape)
    else:
        move(options, shape)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", help="`serve`, or the address of the host that serves")
    parser.add_argument("--stack", choices=STACKS, default="nixl")
    parser.add_argument("--shape", choices=SHAPES, default="vllm")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a request [512: 64 MiB]")
    parser.add_argument("--cache-tokens", type=int, default=1024, help="tokens that a host has room for [1024]")
    parser.add_argument("--requests", type=int, default=10, help="requests to move [10]")
    parser.add_argument("--seconds", type=float, default=60, help="stop after the request that ends later than this [60]")
    parser.add_argument("--address", help="this host's address [the one that reaches the peer]")
    parser.add_argument("--port", type=int, default=7200, help="TCP port of the serving host [7200]")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each request, and one for all")
    return parser.parse_args()


def cache(shape, offset):
    """Returns a cache whose words are numbered from `offset`."""
    memory = np.arange(shape.bytes // 8, dtype=np.uint64)
    memory += offset
    return memory


def expected(shape, pieces, offset):
    """Returns the words of pieces as `cache` made them."""
    words = shape.block_bytes // 8
    return (pieces[:, None] * words + np.arange(words)).astype(np.uint64) + offset


def wrong_words(shape, memory, pieces, expected_pieces, offset):
    """Returns the number of words in `pieces` that are not those of `expected_pieces` of the other host's cache."""
    found = memory.reshape(shape.pieces, -1)[pieces]
    return int(np.count_nonzero(found != expected(shape, expected_pieces, offset)))


def serve(options, shape):
    """Has the blocks, or gets them, and says at the end of each request if its words are right."""
    memory = cache(shape, np.uint64(0))
    stack = STACKS[options.stack]("serving", options.address or own_address(), memory, shape.pieces, shape.block_bytes)
    with Listener((options.address or "0.0.0.0", options.port), authkey=KEY) as listener:
        print(f"serving {shape.bytes >> 20} MiB on port {options.port}", flush=True)
        with listener.accept() as peer:
            peer.send_bytes(stack.describe())
            stack.connect(peer.recv_bytes())
            while True:
                while not peer.poll(0):
                    stack.serve()
                try:
                    moved = json.loads(peer.recv_bytes())
                except EOFError:
                    stack.close()
                    return
                here, there = (np.array(moved[side]) for side in ("there", "here"))
                wrong = wrong_words(shape, memory, here, there, OTHER)
                memory.reshape(shape.pieces, -1)[here] = expected(shape, here, np.uint64(0))
                peer.send_bytes(json.dumps({"wrong": wrong}).encode())


def move(options, shape):
    """Moves the requests, one after the other."""
    memory = cache(shape, OTHER)
    address = options.address or own_address(options.peer)
    stack = STACKS[options.stack]("moving", address, memory, shape.pieces, shape.block_bytes)
    random = np.random.default_rng(1)
    seconds, wrong = [], 0
    with connect(options) as peer:
        description = peer.recv_bytes()
        peer.send_bytes(stack.describe())
        stack.connect(description)
        began = time.monotonic()
        # The first request also sets up the connection.
        for number in range(options.requests + 1):
            here, there = (shape.request(options.tokens, random) for _ in range(2))
            taken, bad = request(stack, shape, peer, memory, here, there)
            wrong += bad
            report_one(options, shape, number, taken, len(here), bad)
            if number > 0:
                seconds.append(taken)
            if number > 0 and time.monotonic() - began > options.seconds:
                break
        stack.close()
    report_all(options, shape, seconds, len(here), wrong)
    if wrong:
        sys.exit(1)


def request(stack, shape, peer, memory, here, there):
    """Moves one request. Returns its duration in seconds, and the number of wrong words."""
    began = time.perf_counter()
    try:
        stack.move(shape.operation, here, there)
    except TransferError as error:
        sys.exit(f"kv_cache: the transfer failed: {error}")
    taken = time.perf_counter() - began
    if shape.operation == "READ":
        wrong = wrong_words(shape, memory, here, there, np.uint64(0))
        memory.reshape(shape.pieces, -1)[here] = expected(shape, here, OTHER)
        return taken, wrong
    peer.send_bytes(json.dumps({"here": here.tolist(), "there": there.tolist()}).encode())
    return taken, json.loads(peer.recv_bytes())["wrong"]


def report_one(options, shape, number, seconds, pieces, wrong):
    if options.json:
        print(json.dumps({"request": number, "seconds": seconds, "wrong": wrong}), flush=True)
        return
    rate = pieces * shape.block_bytes / seconds / 1e9
    note = " with set-up" if number == 0 else ""
    print(f"request {number}: {seconds * 1e3:.1f} ms, {rate:.2f} GB/s{note}, {wrong} wrong words", flush=True)


def report_all(options, shape, seconds, pieces, wrong):
    size = pieces * shape.block_bytes
    middle = float(np.median(seconds))
    if options.json:
        result = {"stack": options.stack, "shape": shape.name, "requests": len(seconds), "descriptors": pieces}
        result |= {"descriptor_bytes": shape.block_bytes, "median_seconds": middle, "longest_seconds": max(seconds)}
        print(json.dumps(result | {"gigabytes_per_second": size / middle / 1e9, "wrong": wrong}), flush=True)
        return
    print(
        f"{options.stack}, {shape.name}: {len(seconds)} requests of {pieces} descriptors of {shape.block_bytes} bytes: "
        f"median {middle * 1e3:.1f} ms, {size / middle / 1e9:.2f} GB/s, longest {max(seconds) * 1e3:.1f} ms"
    )


def connect(options):
    """Connects to the serving host, which may still start."""
    until = time.monotonic() + 20
    while True:
        try:
            return Client((options.peer, options.port), authkey=KEY)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                sys.exit(f"kv_cache: nothing serves on {options.peer} port {options.port}: start `kv_cache.py serve` there")
            time.sleep(0.05)


def own_address(peer="192.0.2.1"):
    """Returns this host's address on the way to `peer`; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))
            return probe.getsockname()[0]
        except OSError:
            sys.exit("kv_cache: this host has no route: name its own address with --address")


if __name__ == "__main__":
    main()
