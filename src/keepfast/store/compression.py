"""Zstandard's compiled module without its Python package, and threads that compress while the main one reads."""

from __future__ import annotations

import sys
from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PACKAGE = "backports.zstd"
_native: Any = None


def zstd_module() -> Any:
    """Return the compiled module of Zstandard; it loads in 0.4 ms, its package in 7."""
    global _native
    if _native is None:
        try:
            import _zstd as _native  # type: ignore[import-not-found]  # the standard library's, from Python 3.14 on
        except ImportError:
            _native = load_compiled(PACKAGE + "._zstd") or _import_package()
    return _native


def load_compiled(name: str) -> Any:
    """Load a package's compiled module without the package; None if it is not found."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    from _frozen_importlib import ModuleSpec, module_from_spec
    from _frozen_importlib_external import ExtensionFileLoader
    from _imp import extension_suffixes
    from posix import stat

    for folder in sys.path:
        for suffix in extension_suffixes():
            path = f"{folder}/{name.replace('.', '/')}{suffix}"
            try:
                stat(path)
            except (OSError, ValueError):
                continue
            try:
                loader = ExtensionFileLoader(name, path)
                module = module_from_spec(ModuleSpec(name, loader, origin=path))
                loader.exec_module(module)
            except ImportError:
                return None
            sys.modules[name] = module  # a later import of the whole package must get this very module
            return module
    return None


def _import_package() -> Any:
    from backports.zstd import _zstd

    return _zstd


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
        self._done = allocate_lock()
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
        start_new_thread(job.run, (work,))
    except RuntimeError:
        return None
    return job


class Workers:
    """A pool of threads with one queue. Loading `concurrent.futures` would cost 20 ms."""

    def __init__(self, count: int, make_work: Callable[[], Callable[[bytes], bytes]]) -> None:
        from _queue import SimpleQueue

        self._queue: Any = SimpleQueue()
        self._most, self._count, self._make_work = count, 0, make_work

    def submit(self, value: bytes) -> Job:
        job = Job(value)
        self._queue.put(job)
        # A further thread only if the present ones do not keep up: it would take the processor from its neighbour.
        if self._count < self._most and (not self._count or self._queue.qsize() > 1):
            try:
                start_new_thread(self._run, (self._make_work(),))
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
