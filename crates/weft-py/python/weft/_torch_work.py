"""The works of `weft.torch`: collectives and messages in progress, with the futures of PyTorch."""
# torch does not declare all types, which mypy would need.
# mypy: ignore-errors

import queue
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.futures import Future

from .errors import Timeout

_Work = getattr(dist, "Work", None) or dist._Work

# The seconds that a group that is left waits for its threads.
_END_SECONDS = 5


class Work(_Work):
    """A collective or a message in progress.

    `parts` are what it consists of: each has `is_done()`, and `wait(seconds)`, which raises the part's error. `finish`
    stores the results after all parts are done. Any number of threads may wait.
    """

    def __init__(self, parts, results, finish, timeout):
        super().__init__()
        self._parts, self._results, self._finish, self._timeout = parts, results, finish, timeout
        self._lock, self._is_over, self._error = threading.Lock(), False, None
        self._future = Future()

    def complete(self, seconds=None):
        """Waits for the parts and stores the results, once. Returns the results, or raises the work's error.

        If `seconds` pass first, it raises `Timeout` and the work goes on; the group's timeout ends the work.
        """
        until, error = time.monotonic() + (seconds or self._timeout), None
        try:
            for part in self._parts:
                part.wait(max(0.0, until - time.monotonic()))
        except Timeout as late:
            if seconds:
                raise
            error = late
        except Exception as other:
            error = other
        self._end(error)
        if self._error:
            raise self._error
        return self._results

    def _end(self, error):
        with self._lock:
            if self._is_over:
                return
            try:
                if self._finish and not error:
                    with torch.no_grad():
                        self._finish()
            except Exception as other:
                error = other
            self._error, self._parts, self._finish = error, (), None
            self._is_over = True
        # Without the lock: callbacks of the future may wait for this work.
        if error:
            self._future.set_exception(error)
        else:
            self._future.set_result(self._results)

    def is_done(self):
        if not self._is_over and all(part.is_done() for part in self._parts):
            try:
                self.complete()
            except Exception:
                pass  # `wait` raises it.
        return self._is_over

    is_completed = is_done

    def is_success(self):
        return self.is_done() and self._error is None

    def exception(self):
        try:
            self.complete()
        except Exception as error:
            return error
        return None

    def wait(self, timeout=timedelta(0)):
        self.complete(timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
        return True

    def synchronize(self):
        self.wait()

    def result(self):
        return self.complete()

    def get_future(self):
        return self._future

    getFuture = get_future


class Completer:
    """A thread that completes works in order, so that futures complete while Python computes."""

    def __init__(self, before=lambda: None):
        self.works, self._before = queue.SimpleQueue(), before
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self._before()
        while (work := self.works.get()) is not None:
            try:
                work.complete()
            except Exception:
                pass  # The caller of `wait` receives it.
            del work

    def end(self):
        """Ends the thread after the works so far. A thread in torch's C++ when the interpreter ends would abort it."""
        self.works.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_SECONDS)
