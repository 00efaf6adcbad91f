"""Work that two threads share: each takes the next piece until none is left, or until one of them has failed."""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Piece = TypeVar("Piece")


def by_two(following: Callable[[], Piece | None], act: Callable[[Piece], None]) -> None:
    """Call `act` with every piece that `following` gives, from two threads at once; both have ended when it returns.

    Raises what one of them raised first; the other then stops after its piece.
    """
    failed: list[BaseException] = []
    helped = allocate_lock()
    helped.acquire()

    def go_on() -> None:
        try:
            while not failed and (piece := following()) is not None:
                act(piece)
        except BaseException as error:
            failed.append(error)

    def help_out() -> None:
        try:
            go_on()
        finally:
            helped.release()

    try:
        start_new_thread(help_out, ())  # `threading` costs 3 ms to load
    except RuntimeError:  # no more threads: then alone
        helped.release()
    go_on()
    helped.acquire()
    if failed:
        raise failed[0]


def share(left: list[Piece], act: Callable[[Piece], None]) -> None:
    """The same for the pieces of a list, which is empty afterwards; the last piece comes first."""

    def following() -> Piece | None:
        try:
            return left.pop()
        except IndexError:  # asking first whether there is one would leave the other thread time to take it
            return None

    by_two(following, act)


class Beside:
    """Something that a thread of its own does meanwhile; where there is no thread for it, it is done when it is wanted."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._done, self._is_done = work, allocate_lock(), False
        self._result: Any = None
        self._error: BaseException | None = None
        self._done.acquire()
        try:
            start_new_thread(self._run, ())
        except RuntimeError:
            self._done.release()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._is_done = True
            self._done.release()

    def result(self) -> Any:
        """Wait for it; return what it returned, or raise what it raised."""
        with self._done:
            pass
        if not self._is_done:
            self._done.acquire()
            self._run()
        if self._error is not None:
            raise self._error
        return self._result
