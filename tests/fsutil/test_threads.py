"""Work for two threads: every piece is done once, and what goes wrong in either thread is told."""

from __future__ import annotations

from threading import Barrier, Event, get_ident

import pytest

from keepfast.fsutil import threads as together
from keepfast.fsutil.threads import share

PATIENCE = 60


def test_every_piece_is_done_once_and_by_both() -> None:
    left, done = list(range(1, 100)), list[tuple[int, int]]()
    both = Barrier(2, timeout=PATIENCE)

    def act(piece: int) -> None:
        if piece in (98, 99):
            both.wait()  # neither goes on before the other has come
        done.append((piece, get_ident()))

    share(left, act)

    assert sorted(piece for piece, _ in done) == list(range(1, 100))
    assert len({thread for _, thread in done}) == 2


@pytest.mark.parametrize("in_caller", [True, False])
def test_what_goes_wrong_in_either_thread_is_raised_and_ends_both(in_caller: bool) -> None:
    left, caller, failed = list(range(1, 1001)), get_ident(), Event()
    both = Barrier(2, timeout=PATIENCE)

    def act(piece: int) -> None:
        if piece in (999, 1000):
            both.wait()
        if (get_ident() == caller) == in_caller:
            failed.set()
            raise OSError("the disk is full")
        assert failed.wait(PATIENCE)

    with pytest.raises(OSError, match="full"):
        share(left, act)

    assert left  # the other has stopped before the end


def test_a_piece_that_the_other_thread_takes_at_the_last_moment_is_not_missed() -> None:
    class Raced(list[int]):
        def __bool__(self) -> bool:
            return True  # there was one when we looked

    share(Raced(), lambda piece: pytest.fail(f"{piece} came from nowhere"))


def test_where_no_thread_can_be_had_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    left, done = [1, 2, 3], set[tuple[int, int]]()

    share(left, lambda piece: done.add((piece, get_ident())))

    assert done == {(piece, get_ident()) for piece in (1, 2, 3)}


def test_what_is_done_beside_gives_its_result_or_its_error() -> None:
    begun, go_on = Event(), Event()

    def work() -> int:
        begun.set()
        assert go_on.wait(PATIENCE)
        return get_ident()

    beside = together.Beside(work)
    assert begun.wait(PATIENCE)
    go_on.set()
    assert beside.result() == beside.result() != get_ident()

    def fail() -> None:
        raise OSError("the disk is full")

    beside = together.Beside(fail)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            beside.result()


def test_without_a_thread_it_is_done_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    done: list[int] = []
    beside = together.Beside(lambda: done.append(get_ident()))
    assert not done
    beside.result()
    beside.result()
    assert done == [get_ident()]
