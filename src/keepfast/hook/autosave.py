"""Save by command line, without an agent's event, and tidy up afterwards: the verbs `save` and `tidy` of the launcher."""

from __future__ import annotations

from collections.abc import Sequence
from os import chdir, nice, write

from keepfast.app.checkpoint import Engine
from keepfast.app.tidy import tidy as tidy_up
from keepfast.app.wiring import build
from keepfast.model.errors import KeepfastError, NoWorkspace, Unreachable, sentence
from keepfast.model.event import Event
from keepfast.present import background
from keepfast.present.environment import Environment, Folders, current_folder, hook_environment, now_ns
from keepfast.present.former_name import take_over
from keepfast.settings import Settings, load

USAGE = "usage: launch.py [--folders HOME CONFIG DATA] save|tidy [--cwd DIR] [--config FILE]"


def run(arguments: Sequence[str], folders: Folders | None = None) -> int:
    """Save or tidy; return the exit code. 0: saved, unchanged or not in a workspace; 1: failed. Never 2, which blocks agents."""
    options = options_of(arguments)
    if options is None:
        say(USAGE)
        return 1
    try:
        cwd = options.get("--cwd")
        if cwd is not None:
            chdir(cwd)
        environment = hook_environment(folders)
        take_over(environment)
        engine = engine_of(environment, current_folder(), options.get("--config"))
        if arguments[0] == "tidy":
            return tidy(engine, current_folder())
        return save(engine, current_folder(), environment, options.get("--config"))
    except KeepfastError as error:
        say(f"keepfast: {error} {error.hint}")
    except Exception as error:
        say(f"keepfast: {sentence(error)}")
    return 1


def save(engine: Engine, cwd: bytes, environment: Environment, config: str | None = None) -> int:
    """Save the folder and return the exit code. A skipped or failed save becomes a notice for `status`."""
    try:
        event = Event(cwd, now_ns(), trigger="auto", message="auto", created_by="auto", adopt=True)
        if engine.handle(event).needs_tidying:
            background.tidy(cwd, config, environment)
    except (NoWorkspace, Unreachable) as error:
        # The agent can do nothing about a store out of reach.
        engine.workspaces.note(cwd, "skipped", "auto", str(error))
    except Exception as error:
        engine.workspaces.note(cwd, "failed", "auto", sentence(error), reported=True)
        raise
    return 0


def tidy(engine: Engine, cwd: bytes) -> int:
    """Do the work that follows a save, at the lowest priority: retention, size limit, compaction."""
    nice(19)
    location = engine.workspaces.locate(cwd)
    if location is not None:
        thinned, over = tidy_up(engine, location[1])
        if thinned:
            count = "1 automatic checkpoint" if len(thinned) == 1 else f"{len(thinned)} automatic checkpoints"
            engine.workspaces.note(cwd, "thinned", "size", f"The store was over retention.max_size: forgot {count}.")
        if over:
            text = (
                "The store is {:,} bytes over retention.max_size: the remaining checkpoints are pinned, named, "
                "manual or the newest."
            )
            engine.workspaces.note(cwd, "over_size", "size", text.format(over))
    return 0


def engine_of(environment: Environment, folder: bytes, config: str | None) -> Engine:
    return build(settings_of(environment, folder, config), environment.data, environment.home, now_ns, folder)


def settings_of(environment: Environment, folder: bytes, config: str | None) -> Settings:
    # Invalid settings do not stop the agent: `status` and `doctor` report them.
    return load(
        config or environment.config, environment.keepfast_variables(), folder, hook=True, data=environment.data
    )


def options_of(arguments: Sequence[str]) -> dict[str, str] | None:
    allowed = {
        "save": {"--cwd", "--config"},
        "tidy": {"--cwd", "--config"},
        "hook": {"--part", "--config", "--event", "--resident", "--worker", "--cwd"},
    }
    if not arguments or arguments[0] not in allowed or len(arguments) % 2 == 0:
        return None
    pairs = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    return pairs if set(pairs) <= allowed[arguments[0]] else None


def say(text: str) -> None:
    try:
        write(2, text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass  # stderr is closed; the exit code tells
