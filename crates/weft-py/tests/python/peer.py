"""A server in its own thread, as the other end of a test."""

import threading
from types import TracebackType

import weft


class Peer:
    """An echo server in a thread. `b"fail"` raises, and `b"ignore"` gets no answer."""

    def __init__(self, **options: weft._base.Option) -> None:
        self.seen: list[bytes] = []
        self.raised: BaseException | None = None
        self._changed = threading.Condition()
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with weft.Server("127.0.0.1:0", self._answer, **self._options) as server:
                self.server = server
                self.address = server.address
                self._ready.set()
                server.serve_forever()
        except BaseException as error:
            self.raised = error
        finally:
            self._ready.set()

    def _answer(self, message: weft.Message) -> memoryview | None:
        with self._changed:
            self.seen.append(bytes(message))
            self._changed.notify_all()
        if bytes(message) == b"fail":
            raise RuntimeError("as it was asked to")
        return None if bytes(message) == b"ignore" else message.body

    def first(self, count: int) -> list[bytes]:
        """Waits for `count` messages, 10 seconds at most, and returns the first of them."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.seen) >= count, timeout=10)
            return self.seen[:count]

    def __enter__(self) -> "Peer":
        self._thread.start()
        self._ready.wait()
        if self.raised:
            raise self.raised
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.stop()
        self._thread.join()
        if self.raised and not error:
            raise self.raised
