"""The hook: finds the workspace and saves if anything changed. Standard library only, and little of it, until then."""

from __future__ import annotations

from posix import write

from holdfast.core.errors import HoldfastError, NoWorkspace, Refused, Unreachable
from holdfast.core.model import Event
from holdfast.frontends.surroundings import current_folder, now_ns, surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Engine

USAGE = "usage: launch.py save|tidy [--cwd DIR] [--config FILE]"


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: saved, unchanged, or not for us; 1: saving was due and failed. Never 2, which blocks an agent."""
    options = _options(arguments)
    if options is None:
        _say(USAGE)
        return 1
    try:
        engine = _engine(options.get("--cwd"), options.get("--config"))
        if arguments[0] == "tidy":
            return tidy(engine, current_folder())
        return save(engine, current_folder(), options.get("--config"))
    except HoldfastError as error:
        _say(f"holdfast: {error} {error.hint}")
    except Exception as error:
        _say(f"holdfast: {type(error).__name__}: {error}")
    return 1


def _say(text: str) -> None:
    try:
        write(2, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass  # nobody listens; the exit code says it


def save(engine: Engine, cwd: bytes, config: str | None = None) -> int:
    """Return the exit code. What was skipped or failed is kept for `status`."""
    try:
        event = Event(cwd, now_ns(), trigger="auto", message="auto", created_by="auto", adopt=True)
        if engine.handle(event).untidy:
            from holdfast.frontends import background

            background.tidy(cwd, config, surroundings().variables)
    except (NoWorkspace, Refused, Unreachable) as error:
        # A store out of reach is not the agent's trouble; it is told only if no notice can be kept.
        if not engine.note(cwd, "skipped", "auto", str(error)):
            _say(f"holdfast: {error}")
    except Exception as error:
        text = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        engine.note(cwd, "failed", "auto", text)
        raise
    return 0


def tidy(engine: Engine, cwd: bytes) -> int:
    """The background work after a save: retention, size cap, compaction, at the lowest priority."""
    from posix import nice

    nice(19)
    found = engine.locate(cwd)
    if found is not None:
        from holdfast.tidying import tidy as tidy_up

        thinned = tidy_up(engine, found[1])
        if thinned:
            engine.note(
                cwd, "thinned", "size", f"The store was over its cap: {len(thinned)} automatic checkpoints went."
            )
    return 0


def _engine(cwd: str | None, config: str | None) -> Engine:
    from holdfast.settings import load
    from holdfast.wiring import build

    if cwd is not None:
        from posix import chdir

        chdir(cwd)
    around = surroundings()
    # Whatever is wrong with the settings, the agent goes on: `status` and `doctor` tell the user.
    settings = load(config or around.config, around.holdfast_variables(), current_folder(), hook=True)
    return build(settings, around.data, around.home, now_ns)


def _options(arguments: Sequence[str]) -> dict[str, str] | None:
    if not arguments or arguments[0] not in ("save", "tidy") or len(arguments) % 2 == 0:
        return None
    pairs = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    return pairs if set(pairs) <= {"--cwd", "--config"} else None
