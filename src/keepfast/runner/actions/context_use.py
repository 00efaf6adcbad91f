"""How full an agent's memory is: told after each request, saved and said where a band is crossed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepfast.app.messages import text
from keepfast.model.budget import Usage, band, usage
from keepfast.runner.actions import checkpoints
from keepfast.runner.db import queries

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.runner.domain.records import Run, Task
    from keepfast.runner.process.output import Figure, Output


def told(runtime: Runtime, run: Run) -> int:
    """How many requests of a run were told of already."""
    last = queries.last_event_of_run(runtime.tables, run, "context")
    return int(last.read()["request"]) if last is not None else 0


def tell(runtime: Runtime, run: Run, output: Output, known: int) -> int:
    """Log how full the agent's memory was after each request since; return how many were told of. In a transaction."""
    account = {
        name: {"used": window.used, "resetsAt": window.resets_at} for name, window in sorted(output.windows.items())
    }
    for number, figure in enumerate(output.figures[known:], known + 1):
        full = measured(runtime, figure)
        facts = {
            "request": number, "used": full.used, "window": full.budget or None,
            "percent": round(full.percent, 1) if full.budget else None, "model": figure.model or None, "account": account,
        }  # fmt: skip
        runtime.tables.log(run.task, runtime.now(), "context", facts, run.id)
    return max(known, len(output.figures))


def bands(runtime: Runtime, run: Run) -> set[int]:
    """The bands that a run has crossed already."""
    events = queries.events_of_run(runtime.tables, run, "context_band")
    return {int(one.read()["band"]) for one in events}


def act(runtime: Runtime, task: Task, run: Run, output: Output, known: set[int]) -> str:
    """Save where the newest request crossed a band, once a run; return what the agent is to be told of it, if anything."""
    if not output.figures:
        return ""
    full = measured(runtime, output.figures[-1])
    crossed = band(full.percent, runtime.options.context_threshold) if full.budget else None
    if crossed is None or crossed.at in known:
        return ""
    known.add(crossed.at)
    taken = checkpoints.take(runtime, task, run, crossed.trigger, f"{run.id}:{crossed.trigger}", output)
    with runtime.tables.write() as tables:
        facts = {"band": crossed.at, "percent": round(full.percent, 1), "used": full.used, "window": full.budget}
        tables.log(task.id, runtime.now(), "context_band", facts, run.id)
    if crossed.is_quiet:
        return ""
    name = "budget_warning" if crossed.is_warning else "budget"
    said = text(name, runtime.options.language, percent=full.reached)
    kept = {"checkpoint": f"v{taken.version}"} if taken is not None else {}
    form = "budget_agent" if taken is not None else "budget_agent_plain"
    return text(form, runtime.options.language, message=said, used=full.used, budget=full.budget, **kept)


def measured(runtime: Runtime, figure: Figure) -> Usage:
    asked = runtime.options.context_tokens or figure.window
    return usage(figure.used, figure.model, asked, runtime.options.context_windows, {})
