"""Run the hook: read an agent's event from standard input, write the reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import nice, read, write
from time import sleep

from keepfast.agents.base import Agent, Reply
from keepfast.agents.registry import agent
from keepfast.app.checkpoint import Engine
from keepfast.app.hooks import Background, Deliver, HookCall
from keepfast.app.messages import language
from keepfast.app.open_stores import OpenStores
from keepfast.app.wiring import build, place
from keepfast.fsutil.lock_wait import HOOK, WAITING
from keepfast.hook.autosave import engine_of, options_of, say, settings_of
from keepfast.model.agent_event import AgentEvent
from keepfast.model.errors import Declined, KeepfastError, sentence
from keepfast.present import supervision
from keepfast.present.ancestors import nearest_program
from keepfast.present.background import attempt, detach, tidy
from keepfast.present.environment import Environment, Folders, current_folder, hook_environment, now_ns, program
from keepfast.present.former_name import take_over
from keepfast.present.resident import start_from_hook

QUIET = ("tool_starts", "tool_ended", "prompt", "subagent_ended")
"""Frequent kinds of events at which errors are not reported: the end of the turn reports them."""
SUPERVISED = "KEEPFAST_SUPERVISED"
"""The variable that names the client which the supervisor of unattended tasks runs."""
GUARD = "0"
"""The part number of the guard, which a supervisor installs itself: it only saves before destructive commands."""
READ_BYTES = 65536
NO_RESIDENT, DECLINED, SUPERVISED_RUN = "none", "declined", "supervised"
"""Values of `--resident`, by which the client says why it runs a hook itself: there is no resident, it left the event to us,
or variables say that this is a supervised run."""
WORKER_NICENESS = 10
USAGE = "usage: keepfast hook AGENT [--part N] [--config FILE]"
PACKAGE = __file__.rpartition("/hook/")[0] + "/"


class TurnedOff(Declined):
    """The settings forbid the resident that was asked."""


def serve(arguments: Sequence[str]) -> int:
    """Run `main` for the command line, which has parsed the options already."""
    return main(arguments)


def main(arguments: Sequence[str], folders: Folders | None = None) -> int:
    """Handle the event on standard input. The agent is never blocked: the exit code is 0, or 1 with one line on stderr.

    `folders`: the home, configuration and data folders that `install` recorded.
    """
    WAITING.seconds = HOOK
    options = options_of(["hook", *arguments[1:]])
    client = agent(arguments[0]) if arguments else None
    if options is None or client is None:
        say(USAGE)
        return 1
    try:
        payload = _payload()
    except OSError as error:
        say(f"keepfast: The client's payload cannot be read: {error.strerror}.")
        return 1
    environment = hook_environment(folders)
    if "--worker" in options:
        work_off(client, payload, environment, options)
        return 0
    is_claimed = environment.text(SUPERVISED) != "" and options.get("--part") != GUARD
    if is_claimed and _is_supervised(arguments[0], client, payload, environment, options.get("--config")):
        return 0  # the supervisor saves and reports, and has a guard of its own: nothing is done twice
    line = take_over(environment)
    output, problem, code = respond(
        client, payload, environment, Processes(options.get("--config"), environment), options, line
    )
    if problem:
        say(f"keepfast: {problem}")
    _write(output)
    if options.get("--resident") == NO_RESIDENT:
        start_from_hook(environment, options.get("--config"))
    return code


def work_off(client: Agent, payload: bytes, environment: Environment, options: Mapping[str, str]) -> None:
    """Save an event that the resident has recorded. Nobody waits for it."""
    nice(WORKER_NICENESS)
    WAITING.seconds = None
    event = client.read(payload, environment.variables)
    event.cwd = event.cwd or options["--cwd"].encode("utf-8", "surrogateescape")
    call = call_of(event, environment, Processes(options.get("--config"), environment), options)
    try:
        call.save_queued(int(options["--worker"]))
    finally:
        call.close()


def _is_supervised(name: str, client: Agent, payload: bytes, environment: Environment, config: str | None) -> bool:
    """Return whether a supervisor does the work of this hook. Anybody can set the variable, so `status` shows either answer."""
    folder, claimed = supervision.run_above(environment), environment.text(SUPERVISED)
    if not supervision.saves_for(folder, name):
        if folder and claimed != name and supervision.saves_for(folder, claimed):
            return False  # the variable is about another client, which has started this one
        folder = ""
    if folder and not supervision.note_suspension(folder):
        return True
    kind = supervision.HOOKS_SUSPENDED if folder else supervision.CLAIM_IGNORED
    text = (
        f"Hooks are inactive: the supervisor saves for run {environment.text(supervision.RUN)}."
        if folder
        else f"{SUPERVISED} is set, but no supervisor runs this client: hooks stay active."
    )
    try:
        cwd = client.read(payload, {}).cwd or current_folder()
        engine_of(environment, cwd, config).workspaces.note_once(cwd, kind, "hook", text)
    except (KeepfastError, OSError, ValueError):
        pass  # a notice is no reason to fail, or to save twice
    return bool(folder)


def respond(
    client: Agent,
    payload: bytes,
    environment: Environment,
    background: Background,
    options: Mapping[str, str],
    line: str = "",
    cwd: bytes = b"",
    open_stores: OpenStores | None = None,
) -> tuple[bytes, str, int]:
    """Return the standard output, an error line or nothing, and the exit code.

    `line` is a message to the user, put before the others. `cwd` and `open_stores`: in the resident, the client's current
    folder and the repositories that are open already.

    Raises `Declined` in the resident, and `ImportError`, `SyntaxError` or `OSError` where files of our own are missing.
    """
    event = None
    try:
        event = client.read(payload, environment.variables)
        event.cwd = event.cwd or cwd or current_folder()
        if event.reason == "clear" and not event.client:
            background.leave_to_process("the client is known by its processes alone")
            event.likely_client = nearest_program()
        reply = _reply_to(event, environment, background, options, open_stores)
        if line:
            reply.user_text = f"keepfast: {line}" + (f"\n{reply.user_text}" if reply.user_text else "")
        output, code = client.answer(event, reply)
        return output, reply.failed, code
    except Exception as error:
        if _is_torn(error) or isinstance(error, Declined):
            raise
        if isinstance(error, ValueError) and event is None:
            background.leave_to_process("the payload cannot be read")
            return b"", _unreadable(environment, options.get("--config"), str(error)), 1
        if isinstance(error, KeepfastError | OSError):
            if event is not None and event.kind in QUIET:
                return b"", "", 0
            return b"", f"{error} {error.hint}".strip() if isinstance(error, KeepfastError) else str(error), 1
        return b"", sentence(error), 1


def _is_torn(error: Exception) -> bool:
    """Return whether files of our own are missing: an upgrade removes them all and brings them back one by one."""
    if isinstance(error, OSError):
        return isinstance(error.filename, str) and error.filename.startswith(PACKAGE)
    return isinstance(error, ImportError | SyntaxError)


def _reply_to(
    event: AgentEvent,
    environment: Environment,
    background: Background,
    options: Mapping[str, str],
    open_stores: OpenStores | None = None,
) -> Reply:
    call = call_of(event, environment, background, options, open_stores)
    try:
        return call.answer()
    except (KeepfastError, OSError) as error:
        if _is_torn(error):
            raise
        explained = call.explained(error)
        if event.kind not in QUIET:
            call.engine.workspaces.note(event.cwd, "failed", call.trigger, str(explained), reported=True)
        raise explained from None
    finally:
        call.close()


def call_of(
    event: AgentEvent,
    environment: Environment,
    background: Background,
    options: Mapping[str, str],
    open_stores: OpenStores | None = None,
) -> HookCall:
    """Return the call of the hook for this event, with the settings of its folder."""
    settings = settings_of(environment, event.cwd, options.get("--config"))
    if open_stores is not None and settings["resident"] == "off":
        raise TurnedOff("the setting `resident` is off")
    part = options.get("--part", "1")
    number = int(part) if part.isascii() and part.isdigit() else 1

    def language() -> str:
        return _language(settings["language"], environment)

    return HookCall(
        place(settings, environment.data, event.cwd),
        settings,
        lambda: build(settings, environment.data, environment.home, now_ns, event.cwd, open_stores=open_stores),
        now_ns,
        background,
        event,
        language,
        number,
        _deliver(language, environment),
        options.get("--event", ""),
        saves_tool_calls(settings["capture.tool_calls"], open_stores is not None, options.get("--resident", "")),
        lambda: program(environment),
    )


def saves_tool_calls(setting: str, is_resident: bool, reason: str) -> bool:
    """Return whether each tool call makes a checkpoint. `reason`: why the client did not get an answer from the resident."""
    if setting == "auto":
        return is_resident or reason in (DECLINED, SUPERVISED_RUN)
    return setting == "all"


def _deliver(language: Callable[[], str], environment: Environment) -> Deliver:
    """Return the function that answers the start of a session."""

    def deliver(engine: Engine, root: bytes, workspace: str, event: AgentEvent, part: int) -> Reply:
        from keepfast.app.deliver import Delivery

        return Delivery(engine, root, workspace, event, part, language, lambda: program(environment)).reply()

    return deliver


class Processes:
    """Work done by other processes: implements `Background`."""

    def __init__(self, config: str | None, environment: Environment) -> None:
        self.config, self.environment = config, environment

    def detach(self, work: Callable[[], object], at: int = 0) -> None:
        detach(work)

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        return attempt(work, seconds)

    def tidy(self, folder: bytes) -> None:
        tidy(folder, self.config, self.environment)

    def pause(self, seconds: float) -> None:
        sleep(seconds)

    def leave_to_process(self, why: str) -> None:
        pass  # this is the process


def _payload() -> bytes:
    """Read all of standard input: a client that cannot write its whole payload reports an error."""
    parts = []
    while part := read(0, READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def _unreadable(environment: Environment, config: str | None, why: str) -> str:
    text = f"The client's payload cannot be read: {why}."
    try:
        folder = current_folder()
        engine_of(environment, folder, config).workspaces.note(folder, "skipped", "hook", text, reported=True)
    except (KeepfastError, OSError):
        pass  # the client gets the text in any case
    return text


def _language(setting: str, environment: Environment) -> str:
    return language(setting, environment.text("LC_ALL"), environment.text("LC_MESSAGES"), environment.text("LANG"))


def _write(output: bytes) -> None:
    try:
        while output:
            output = output[write(1, output) :]
    except OSError:
        pass  # the client has ended
