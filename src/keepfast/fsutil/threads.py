"""Work shared by two threads: each takes the next piece until none is left or one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, TypeVar

Piece = TypeVar("Piece")


def by_two(following: Callable[[], Piece | None], act: Callable[[Piece], None]) -> None:
    """Call `act` with every piece that `following` returns, from two threads at once; both have ended when this returns.

    Raises the first error; the other thread then stops after its piece.
    """
    failed: list[BaseException] = []
    helped = Lock()
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
        Thread(target=help_out, daemon=True).start()
    except RuntimeError:  # no more threads: this one does everything
        helped.release()
    go_on()
    helped.acquire()
    if failed:
        raise failed[0]


def share(pieces: list[Piece], act: Callable[[Piece], None]) -> None:
    """Do the same for the pieces of a list, last first; the list is empty afterwards."""

    def following() -> Piece | None:
        try:
            return pieces.pop()
        except IndexError:  # checking first would be a race with the other thread
            return None

    by_two(following, act)


class Beside:
    """A function call that runs in its own thread; without a thread, it runs when its result is asked for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._done, self._is_done = work, Lock(), False
        self._result: Any = None
        self._error: BaseException | None = None
        self._done.acquire()
        try:
            Thread(target=self._run, daemon=True).start()
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
        """Wait for the call; return its result, or raise its error."""
        with self._done:
            pass
        if not self._is_done:
            self._done.acquire()
            self._run()
        if self._error is not None:
            raise self._error
        return self._result
