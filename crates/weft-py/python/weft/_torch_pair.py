"""The messages of `weft.torch` between two ranks."""
# mypy: ignore-errors

import threading
import time

from ._torch_work import Completer
from ._weft import Group
from .errors import Closed, Timeout


class Message:
    """A message that waits until its two ranks are connected, and then for its transfer."""

    def __init__(self, memory, what):
        self.memory, self._what = memory, what
        self._begun, self._work, self._error = threading.Event(), None, None

    def begin(self, submit):
        try:
            self._work = submit(self.memory)
        except Exception as error:
            self._error = error
        self._begun.set()

    def is_done(self):
        return self._begun.is_set() and (self._work is None or self._work.is_done())

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        if not self._begun.wait(timeout):
            raise Timeout(f"{self._what}: the other rank did not post it in {timeout} s")
        if self._error:
            raise self._error
        self._work.wait(max(0.0, deadline - time.monotonic()))


class Pair:
    """Messages of one tag from one rank to another, in order.

    They are broadcasts in a group of the two ranks, which connect at the first message, as NCCL's ranks do. A separate
    thread connects to the other rank and completes futures: a message that the other rank has not posted yet blocks
    nothing else.
    """

    def __init__(self, store, name, end, options):
        self._store, self._name, self._end, self._options = store, name, end, options
        self._lock, self._group, self._error, self._waiting = threading.Lock(), None, None, []
        self._is_left = False
        self._completer = Completer(self._begin)
        self.works = self._completer.works

    def post(self, memory):
        message = Message(memory, self._name)
        with self._lock:
            if self._group or self._error:
                message.begin(self._submit)
            else:
                self._waiting.append(message)
        return message

    def leave(self):
        self._is_left = True
        with self._lock:
            if self._group:
                self._group.leave()
        self._completer.end()

    def _submit(self, memory):
        if self._error:
            raise self._error
        return self._group.submit("broadcast", memory, "uint8", "sum", 0)

    def _begin(self):
        try:
            found = self._connect()
        except Exception as error:
            found = error
        with self._lock:
            self._group, self._error = (None, found) if isinstance(found, Exception) else (found, None)
            for message in self._waiting:
                message.begin(self._submit)
            self._waiting = []

    def _connect(self):
        group = Group(self._end, 2, self._options)
        keys = [f"{self._name}/{end}" for end in range(2)]
        self._store.set(keys[self._end], group.address)
        self._store.add(keys[self._end] + "/there", 1)
        # A store serves one call at a time, so a call must not block until another thread has stored a value.
        pause = 0.001
        while not self._store.add(keys[1 - self._end] + "/there", 0):
            if self._is_left:
                raise Closed(f"{self._name}: the group was left before the other rank posted it")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        group.connect([self._store.get(key).decode() for key in keys])
        return group
