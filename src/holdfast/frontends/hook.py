"""The hook: an agent's client tells of an event and is answered. Standard library only, and little of it, until a save."""

from __future__ import annotations

from posix import read, write

from holdfast.core.errors import HoldfastError, NoWorkspace, Refused, Unreachable
from holdfast.frontends.surroundings import current_folder, now_ns, surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.agents.base import Agent, Reply
    from holdfast.attending import Background, Deliver
    from holdfast.core.agent_event import AgentEvent
    from holdfast.engine import Engine
    from holdfast.frontends.surroundings import Surroundings
    from holdfast.settings import Settings

USAGE = "usage: launch.py save|tidy [--cwd DIR] [--config FILE] | hook AGENT [--part N] [--config FILE]"
QUIET = ("tool_starts", "tool_ended", "prompt", "subagent_ended")
"""Kinds of events at which a client is not told what is wrong: it is told at the end of the turn."""
SUPERVISED = "HOLDFAST_SUPERVISED"
"""Names the client that runs under a supervisor of ours."""
PART = 65536


def run(arguments: Sequence[str]) -> int:
    """Save, or tidy. Exit code 0: saved, unchanged, or not for us; 1: it was due and failed. Never 2: it blocks agents."""
    options = _options(arguments)
    if options is None:
        _say(USAGE)
        return 1
    try:
        cwd = options.get("--cwd")
        if cwd is not None:
            from posix import chdir

            chdir(cwd)
        engine = _engine(surroundings(), current_folder(), options.get("--config"))
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
    try:
        payload = _payload()
    except OSError as error:
        _say(f"holdfast: The client's payload cannot be read: {error.strerror}.")
        return 1
    around = surroundings()
    if around.text(SUPERVISED) == arguments[0] and options.get("--part") != "0":
        return 0  # a supervisor saves, tells, and brings a guard of its own: nothing is done twice
    said, problem, code = respond(client, payload, around, Processes(options.get("--config")), options)
    if problem:
        _say(f"holdfast: {problem}")
    _write(said)
    return code


def respond(
    client: Agent, payload: bytes, around: Surroundings, background: Background, options: Mapping[str, str]
) -> tuple[bytes, str, int]:
    """Return what goes to standard output, one line about what went wrong or nothing, and the exit code."""
    event = None
    try:
        event = client.read(payload, around.variables)
        event.cwd = event.cwd or current_folder()
        reply = _attend(event, around, background, options)
        said, code = client.answer(event, reply)
        return said, reply.failed, code
    except ValueError as error:
        if event is not None:
            return b"", f"{type(error).__name__}: {error}", 1
        return b"", _unreadable(around, options.get("--config"), str(error)), 1
    except (HoldfastError, OSError) as error:
        if event is not None and event.kind in QUIET:
            return b"", "", 0
        return b"", f"{error} {error.hint}".strip() if isinstance(error, HoldfastError) else str(error), 1
    except Exception as error:
        return b"", f"{type(error).__name__}: {error}", 1


def _attend(event: AgentEvent, around: Surroundings, background: Background, options: Mapping[str, str]) -> Reply:
    from holdfast.attending import Attending
    from holdfast.wiring import build, place

    settings = _settings(around, event.cwd, options.get("--config"))
    part = options.get("--part", "1")
    number = int(part) if part.isascii() and part.isdigit() else 1

    def language() -> str:
        return _language(settings["language"], around)

    attending = Attending(
        place(settings, around.data),
        settings,
        lambda: build(settings, around.data, around.home, now_ns),
        now_ns,
        background,
        event,
        language,
        number,
        _deliver(language),
    )
    try:
        return attending.attend()
    except (HoldfastError, OSError) as error:
        if event.kind not in QUIET:
            attending.engine.note(event.cwd, "failed", event.kind, str(error))
        raise
    finally:
        attending.close()


def _deliver(language: Callable[[], str]) -> Deliver:
    """How the start of a session is answered; what that takes is loaded only then."""

    def deliver(engine: Engine, root: bytes, workspace: str, event: AgentEvent, part: int) -> Reply:
        from holdfast.delivering import Delivery

        return Delivery(engine, root, workspace, event, part, language).reply()

    return deliver


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

    def pause(self, seconds: float) -> None:
        from time import sleep

        sleep(seconds)


def _payload() -> bytes:
    """All of standard input: a client that cannot get rid of its payload takes that for an error."""
    parts = []
    while part := read(0, PART):
        parts.append(part)
    return b"".join(parts)


def _unreadable(around: Surroundings, config: str | None, why: str) -> str:
    text = f"The client's payload cannot be read: {why}."
    try:
        folder = current_folder()
        _engine(around, folder, config).note(folder, "skipped", "hook", text)
    except (HoldfastError, OSError):
        pass  # it is said all the same
    return text


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
    from holdfast.core.model import Event

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


def _engine(around: Surroundings, folder: bytes, config: str | None) -> Engine:
    from holdfast.wiring import build

    return build(_settings(around, folder, config), around.data, around.home, now_ns)


def _settings(around: Surroundings, folder: bytes, config: str | None) -> Settings:
    from holdfast.settings import load

    # Whatever is wrong with the settings, the agent goes on: `status` and `doctor` tell the user.
    return load(config or around.config, around.holdfast_variables(), folder, hook=True, data=around.data)


def _options(arguments: Sequence[str]) -> dict[str, str] | None:
    known = {"save": {"--cwd", "--config"}, "tidy": {"--cwd", "--config"}, "hook": {"--part", "--config"}}
    if not arguments or arguments[0] not in known or len(arguments) % 2 == 0:
        return None
    pairs = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    return pairs if set(pairs) <= known[arguments[0]] else None
