"""Zstandard, and threads that compress while the main one reads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

_package: Any = None


def zstd_module() -> Any:
    """Return the package of Zstandard. It is loaded on first use: that takes 7 ms, and most commands compress nothing."""
    global _package
    if _package is None:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        _package = zstd
    return _package


def zstd_library() -> str:
    """Return the path of the package's compiled part; empty if it is linked into Python."""
    return getattr(zstd_module()._zstd.__spec__, "origin", None) or ""


def compress(data: bytes, level: int) -> bytes:
    """Return one whole Zstandard frame."""
    packed: bytes = make_compressor(level)(data)
    return packed


def make_compressor(level: int) -> Callable[[bytes], bytes]:
    """Return a function that makes whole frames, one after another in the same working memory."""
    compressor = zstd_module().ZstdCompressor(level=level)
    mode = compressor.FLUSH_FRAME

    def squeeze(data: bytes) -> bytes:
        packed: bytes = compressor.compress(data, mode)
        return packed

    return squeeze


class Job:
    """A call that runs in a thread; `result` waits for it and returns what it returned, or raises what it raised."""

    __slots__ = ("_done", "_error", "_result", "value")

    def __init__(self, value: bytes) -> None:
        self.value = value
        self._done = Lock()
        self._done.acquire()
        self._result = b""
        self._error: BaseException | None = None

    def run(self, work: Callable[[bytes], bytes]) -> None:
        try:
            self._result = work(self.value)
        except BaseException as error:
            self._error = error
        finally:
            self.value = b""
            self._done.release()

    def result(self) -> bytes:
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result


def start_job(work: Callable[[bytes], bytes]) -> Job | None:
    """Run `work` in a thread of its own; None if no thread can be started."""
    job = Job(b"")
    try:
        Thread(target=job.run, args=(work,), daemon=True).start()
    except RuntimeError:
        return None
    return job


class Workers:
    """A pool of threads with one queue."""

    def __init__(self, count: int, make_work: Callable[[], Callable[[bytes], bytes]]) -> None:
        self._queue: Any = SimpleQueue()
        self._most, self._count, self._make_work = count, 0, make_work

    def submit(self, value: bytes) -> Job:
        job = Job(value)
        self._queue.put(job)
        # A further thread only if the present ones do not keep up: it would take the processor from its neighbour.
        if self._count < self._most and (not self._count or self._queue.qsize() > 1):
            try:
                Thread(target=self._run, args=(self._make_work(),), daemon=True).start()
            except RuntimeError:
                self._run_queued()  # no thread can be started: the present ones do it, or this one if there are none
            else:
                self._count += 1
        return job

    def _run_queued(self) -> None:
        if self._count:
            return
        work = self._make_work()
        while not self._queue.empty():
            self._queue.get().run(work)

    def close(self) -> None:
        """End the threads after their current jobs. Queued jobs are dropped, so nobody may wait for one."""
        while not self._queue.empty():
            self._queue.get()
        for _ in range(self._count):
            self._queue.put(None)

    def _run(self, work: Callable[[bytes], bytes]) -> None:
        while (job := self._queue.get()) is not None:
            job.run(work)
