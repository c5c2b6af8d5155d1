"""Programs that block."""

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from contextlib import closing

import weft
from peer import Peer


class Calls(unittest.TestCase):
    def test_bodies_of_every_length_come_back(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            for length in (0, 1, 64, 4096, 4097, 3_000_000):
                body = os.urandom(length)
                answer = channel.call(body, timeout=5)
                self.assertEqual((len(answer), bytes(answer)), (length, body))

    def test_bodies_are_objects_with_a_buffer(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            for body in (b"x", bytearray(b"x"), memoryview(b"xyz")[:1]):
                self.assertEqual(bytes(channel.call(body, timeout=5)), b"x")
            with self.assertRaises(TypeError):
                channel.call("text")  # type: ignore[arg-type]
            with self.assertRaises(BufferError):
                channel.call(memoryview(b"abcdef")[::2])

    def test_several_calls_are_pending_at_once_and_their_responses_are_in_order(self) -> None:
        with weft.Node() as server, weft.Node() as client:
            thread = threading.Thread(target=answer_in_reverse, args=(server, 3, 9))
            address = server.listen("127.0.0.1:0")
            thread.start()
            channel = client.connect(address)
            sent = 0
            received: list[bytes] = []

            def bodies() -> Iterator[bytes]:
                nonlocal sent
                for number in range(9):
                    sent += 1
                    self.assertLessEqual(sent - len(received), 3)
                    yield b"%d" % number

            for message in channel.calls(bodies(), at_once=3, timeout=5):
                received.append(bytes(message))
            thread.join()
            self.assertEqual(received, [b"%d" % number for number in range(9)])

    def test_calls_that_end_early_are_forgotten(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            responses = channel.calls([b"first", b"ignore", b"ignore"], at_once=2, timeout=0.1)
            self.assertEqual(bytes(next(responses)), b"first")
            with self.assertRaisesRegex(weft.Timeout, "no response in 0.1 s"):
                next(responses)
            self.assertEqual(channel.state["asked"], 0)
            with closing(channel.calls([b"x"] * 5, at_once=4)) as responses:
                next(responses)
            self.assertEqual(channel.state["asked"], 0)
            self.assertEqual(bytes(channel.call(b"x", timeout=5)), b"x")

    def test_messages_come_in_both_directions(self) -> None:
        with Peer() as peer, weft.Node() as node:
            channel = node.connect(peer.address)
            numbers = [channel.send(b"%d" % number) for number in range(100)]
            self.assertEqual(numbers, sorted(set(numbers)))
            channel.close(timeout=5)
            self.assertIsInstance(channel.closed, weft.Closed)
            self.assertEqual(peer.first(100), [b"%d" % number for number in range(100)])

    def test_messages_beyond_the_backlog_wait_for_the_window(self) -> None:
        with Peer() as peer, weft.connect(peer.address, backlog=4, depth=8) as channel:
            for number in range(500):
                channel.send(b"%d" % number, timeout=5)
            channel.call(b"last", timeout=5)
            self.assertEqual(len(peer.seen), 501)

    def test_a_node_receives_from_all_its_channels(self) -> None:
        with weft.Node() as server, weft.Node() as client:
            address = server.listen("127.0.0.1:0")
            thread = threading.Thread(target=answer_two, args=(server,))
            thread.start()
            one, two = client.connect(address), client.connect(address)
            self.assertEqual(bytes(two.call(b"two", timeout=5)), b"two")
            self.assertEqual(bytes(one.call(b"one", timeout=5)), b"one")
            self.assertEqual([bytes(one.receive(5)), bytes(two.receive(5))], [b"own way"] * 2)
            thread.join()

    def test_a_channel_moves_to_tcp_and_back(self) -> None:
        with Peer() as peer, weft.connect(peer.address, streams=True) as channel:
            for carrier, on_tcp in (("tcp", 1), ("rdma", 0)):
                channel.switch(carrier)
                while channel.state["on_tcp"] != on_tcp:
                    self.assertEqual(bytes(channel.call(b"x", timeout=5)), b"x")
            with self.assertRaisesRegex(ValueError, "expected \"rdma\" or \"tcp\""):
                channel.switch("udp")
        with Peer() as peer, weft.connect(peer.address) as channel:
            with self.assertRaisesRegex(weft.Error, "no stream is attached"):
                channel.switch("tcp")

    def test_a_filter_drops_requests(self) -> None:
        with Peer() as peer, weft.Node() as node:
            channel = node.connect(peer.address)
            node.set(filter="out drop requests")
            self.assertEqual(node.parameters["filter"], "out drop requests")
            with self.assertRaises(weft.Timeout):
                channel.call(b"x", timeout=0.1)
            with self.assertRaisesRegex(weft.OptionError, "is no filter rule"):
                node.set(filter="out dorp")
            node.set(filter="none")
            self.assertEqual(bytes(channel.call(b"x", timeout=5)), b"x")

    def test_calls_can_be_traced(self) -> None:
        with Peer() as peer, weft.connect(peer.address, trace_every=1) as channel:
            trace = channel.call(b"x", timeout=5).trace
            assert trace
            self.assertGreater(sum(trace[:3]), 0)
            self.assertGreater(channel.state["clock_offset_ns"] + 10**9, 0)


def answer_in_reverse(server: weft.Node, at_once: int, count: int) -> None:
    """Answers no request before `at_once` of them are pending, and the last of these first."""
    for _ in range(count // at_once):
        for message in reversed([server.receive(timeout=5) for _ in range(at_once)]):
            message.respond(message.body)
    server.accept(timeout=5).close(timeout=5)


def answer_two(server: weft.Node) -> None:
    for _ in range(2):
        message = server.receive(timeout=5)
        message.channel.send(b"own way")
        message.respond(message.body)
        try:
            message.respond(b"twice")
        except weft.NoRequest:
            continue
        raise AssertionError("a request was answered twice")
    server.accept(timeout=5).close(timeout=5)
    server.accept(timeout=5).close(timeout=5)


class Failures(unittest.TestCase):
    def test_no_listener(self) -> None:
        with self.assertRaisesRegex(weft.ConnectError, "nobody listens there") as raised:
            weft.connect("127.0.0.1:1")
        self.assertIsInstance(raised.exception, ConnectionError)

    def test_a_foreign_listener(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def speak() -> None:
                with listener.accept()[0] as connection:
                    connection.sendall(b"H" * 100)
                    connection.recv(100)

            thread = threading.Thread(target=speak)
            thread.start()
            with self.assertRaisesRegex(weft.ConnectError, "does not speak X-RDMA"):
                weft.connect(f"127.0.0.1:{listener.getsockname()[1]}")
            thread.join()

    def test_invalid_options_and_addresses(self) -> None:
        for options, why in (
            ({"depth": 2}, "expected 3 to 4096"),
            ({"keepalife": "1s"}, "keepalive"),
            ({"streams": "maybe"}, "true or false"),
        ):
            with self.assertRaisesRegex(weft.OptionError, why):
                weft.Node(**options)
        with self.assertRaisesRegex(weft.DeviceError, "no RDMA device \"nothing\""):
            weft.Node(device="nothing")
        with weft.Node() as node:
            with self.assertRaisesRegex(ValueError, "HOST:PORT"):
                node.connect("nowhere")
            with self.assertRaisesRegex(weft.OptionError, "off-line"):
                node.set(depth=64)
            node.set(keepalive="100ms")
            self.assertEqual(node.parameters["keepalive"], "100ms")
            address = node.listen("127.0.0.1:0")
            with self.assertRaisesRegex(weft.ConnectError, "in use"):
                node.listen(address)

    def test_no_response_in_time(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            start = time.monotonic()
            with self.assertRaises(weft.Timeout) as raised:
                channel.call(b"ignore", timeout=0.05)
            self.assertIsInstance(raised.exception, TimeoutError)
            self.assertLess(time.monotonic() - start, 4)
            self.assertEqual(bytes(channel.call(b"next", timeout=5)), b"next")

    def test_requests_that_are_never_answered_make_room_for_others(self) -> None:
        with Peer(unanswered=2) as peer, weft.connect(peer.address, depth=4) as channel:
            for _ in range(20):
                with self.assertRaises(weft.Timeout):
                    channel.call(b"ignore", timeout=0.01)
            self.assertEqual(bytes(channel.call(b"next", timeout=5)), b"next")

    def test_too_long(self) -> None:
        with Peer(longest="64KiB") as peer, weft.connect(peer.address) as channel:
            with self.assertRaisesRegex(weft.TooLong, "65536"):
                channel.call(bytes(65537))

    def test_a_handler_that_fails_ends_the_channel(self) -> None:
        logging.disable()
        self.addCleanup(logging.disable, logging.NOTSET)
        with Peer() as peer, weft.Node() as node:
            channel = node.connect(peer.address)
            with self.assertRaises(weft.Closed):
                channel.call(b"fail", timeout=5)
            with self.assertRaises(weft.Closed):
                channel.send(b"more")
            self.assertEqual(bytes(node.connect(peer.address).call(b"x", timeout=5)), b"x")

    def test_a_node_is_for_one_thread(self) -> None:
        with weft.Node() as node:
            refused = threading.Event()

            def wait() -> None:
                while not refused.is_set():
                    try:
                        node.accept(timeout=0.1)
                    except weft.Timeout:
                        continue
                    except weft.Error as error:
                        self.assertRegex(str(error), "a node of its own")
                        refused.set()

            threads = [threading.Thread(target=wait) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=10)
            self.assertTrue(refused.is_set(), "one of them was there first")

    def test_a_closed_node_raises_closed(self) -> None:
        node = weft.Node()
        node.close()
        node.close()
        for use in (lambda: node.state, lambda: node.memory(1), lambda: node.connect("127.0.0.1:1")):
            with self.assertRaisesRegex(weft.Closed, "the node is closed"):
                use()


class MemoryOfBodies(unittest.TestCase):
    def test_a_body_stays_while_a_memoryview_exists(self) -> None:
        with Peer() as peer, weft.Node() as node:
            channel = node.connect(peer.address)
            view = channel.call(b"kept" * 100_000, timeout=5).body
            gc.collect()
            for _ in range(50):
                channel.call(b"over" * 100_000, timeout=5)
            self.assertEqual(view[:8], b"keptkept")
            self.assertTrue(view.readonly)
            with self.assertRaisesRegex(BufferError, "1 memoryviews"):
                node.close()
            view.release()

    def test_memory_comes_back_when_messages_are_dropped(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            channel.call(b"x", timeout=5)
            for _ in range(200):
                channel.call(bytes(1_000_000), timeout=5)
            self.assertLess(channel._node.state["memory_bytes"], 64 << 20)

    def test_a_released_message_has_no_body(self) -> None:
        with Peer() as peer, weft.connect(peer.address) as channel:
            answer = channel.call(b"x", timeout=5)
            view = answer.body
            with self.assertRaises(BufferError):
                answer.release()
            view.release()
            answer.release()
            answer.release()
            with self.assertRaisesRegex(ValueError, "released"):
                answer.body

    def test_registered_memory_is_sent_without_a_copy(self) -> None:
        with Peer() as peer, weft.Node() as node, weft.Node() as other:
            channel = node.connect(peer.address)
            memory = node.memory(100_000)
            with memoryview(memory) as view:
                view[:] = b"y" * 100_000
                with self.assertRaises(BufferError):
                    memory.release()
            self.assertEqual(bytes(channel.call(memory, timeout=5)), b"y" * 100_000)
            with self.assertRaisesRegex(weft.Error, "another node"):
                other.connect(peer.address).send(memory)
            while True:
                try:
                    memory.release()
                    break
                except BufferError:
                    with self.assertRaises(weft.Timeout):
                        node.receive(timeout=0.01)
            with self.assertRaisesRegex(ValueError, "released"):
                memoryview(memory)


class Signals(unittest.TestCase):
    def test_an_interrupt_ends_a_wait(self) -> None:
        program = (
            "import weft\n"
            "with weft.Server('127.0.0.1:0', print) as server:\n"
            "    print('waiting', flush=True)\n"
            "    server.node.receive()\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout
        self.assertEqual(child.stdout.readline(), "waiting\n")
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=10)
        self.assertIn("KeyboardInterrupt", errors)

    def test_other_threads_run_while_one_waits(self) -> None:
        with weft.Node() as node:
            counted = 0
            stop = threading.Event()

            def wait() -> None:
                with self.assertRaises(weft.Timeout):
                    node.receive(timeout=0.3)
                stop.set()

            thread = threading.Thread(target=wait)
            thread.start()
            while not stop.is_set():
                counted += 1
            thread.join()
            self.assertGreater(counted, 1000)


if __name__ == "__main__":
    unittest.main()
