"""The hook: an agent's client tells of an event and is answered. Standard library only, and little of it, until a save."""

from __future__ import annotations

from posix import read, write

from holdfast.core.errors import HoldfastError, NoWorkspace, Unreachable
from holdfast.core.model import Event
from holdfast.frontends.surroundings import current_folder, now_ns, surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.agents.base import Reply
    from holdfast.core.agent_event import AgentEvent
    from holdfast.engine import Engine
    from holdfast.frontends.surroundings import Surroundings

USAGE = "usage: launch.py save|tidy [--cwd DIR] [--config FILE] | hook AGENT [--part N] [--config FILE]"
FREQUENT = ("tool_starts", "tool_ended")
"""Kinds of events that come many times a turn: what is wrong is said at the end of the turn, not at each of them."""
PART = 65536


def run(arguments: Sequence[str]) -> int:
    """Save, or tidy. Exit code 0: saved, unchanged, or not for us; 1: it was due and failed. Never 2: it blocks agents."""
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


def serve(arguments: Sequence[str]) -> int:
    """The same as `main`, for the command line, which has read the options."""
    return main(arguments)


def main(arguments: Sequence[str]) -> int:
    """Attend to the event on standard input. The agent is never blocked: the exit code is 0, or 1 with one line."""
    from holdfast.agents.registry import agent

    options = _options(["hook", *arguments[1:]])
    client = agent(arguments[0]) if arguments else None
    if options is None or client is None:
        _say(USAGE)
        return 1
    event = None
    try:
        payload = _payload()
        around = surroundings()
        try:
            event = client.read(payload, around.variables)
        except ValueError as error:
            return _unreadable(options.get("--config"), str(error))
        if not event.cwd:
            event.cwd = current_folder()
        reply = _attend(event, around, options)
        said, code = client.answer(event, reply)
        if reply.failed:
            _say(f"holdfast: {reply.failed}")
        _write(said)
        return code
    except (HoldfastError, OSError) as error:
        if event is not None and event.kind in FREQUENT:
            return 0
        _say(f"holdfast: {error} {error.hint}" if isinstance(error, HoldfastError) else f"holdfast: {error}")
    except Exception as error:
        _say(f"holdfast: {type(error).__name__}: {error}")
    return 1


def _attend(event: AgentEvent, around: Surroundings, options: dict[str, str]) -> Reply:
    from holdfast.attending import Attending

    config = options.get("--config")
    engine = _engine(None, config)
    part = options.get("--part", "1")
    attending = Attending(
        engine,
        Processes(config),
        event,
        lambda: _language(engine.settings["language"], around),
        int(part) if part.isascii() and part.isdigit() else 1,
    )
    try:
        return attending.attend()
    except (HoldfastError, OSError) as error:
        if event.kind not in FREQUENT:
            engine.note(event.cwd, "failed", event.kind, str(error))
        raise


class Processes:
    """Work that is done by other processes, which are only loaded if there is some."""

    def __init__(self, config: str | None) -> None:
        self.config = config

    def detach(self, work: Callable[[], object]) -> None:
        from holdfast.frontends.background import detach

        detach(work)

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        from holdfast.frontends.background import attempt

        return attempt(work, seconds)

    def tidy(self, folder: bytes) -> None:
        from holdfast.frontends.background import tidy

        tidy(folder, self.config, surroundings().variables)


def _payload() -> bytes:
    """All of standard input: a client that cannot get rid of its payload takes that for an error."""
    parts = []
    while part := read(0, PART):
        parts.append(part)
    return b"".join(parts)


def _unreadable(config: str | None, why: str) -> int:
    text = f"The client's payload cannot be read: {why}."
    try:
        _engine(None, config).note(current_folder(), "skipped", "hook", text)
    except (HoldfastError, OSError):
        pass  # it is said all the same
    _say(f"holdfast: {text}")
    return 1


def _language(setting: str, around: Surroundings) -> str:
    from holdfast.core.messages import language

    return language(setting, around.text("LC_ALL"), around.text("LC_MESSAGES"), around.text("LANG"))


def _write(said: bytes) -> None:
    try:
        while said:
            said = said[write(1, said) :]
    except OSError:
        pass  # the client has gone


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
    except (NoWorkspace, Unreachable) as error:
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
    known = {"save": {"--cwd", "--config"}, "tidy": {"--cwd", "--config"}, "hook": {"--part", "--config"}}
    if not arguments or arguments[0] not in known or len(arguments) % 2 == 0:
        return None
    pairs = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    return pairs if set(pairs) <= known[arguments[0]] else None
