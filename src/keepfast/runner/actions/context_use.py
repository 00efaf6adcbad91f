"""Use of an agent's context window: logged after each request; crossing a band makes a checkpoint and tells the agent."""

from __future__ import annotations

from keepfast.app.messages import text
from keepfast.model.budget import TokenUsage, band, usage
from keepfast.runner.actions import checkpoints
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.process.output import Figure, Output


def logged_requests(runtime: Runtime, run: Run) -> int:
    """Return how many requests of a run were logged."""
    last = queries.last_event_of_run(runtime.tables, run, "context")
    return int(last.read()["request"]) if last is not None else 0


def log_usage(runtime: Runtime, run: Run, output: Output, logged: int) -> int:
    """Log the use of the context window after each new request; return how many are logged now. Inside a transaction."""
    account = {
        name: {"used": window.used, "resetsAt": window.resets_at} for name, window in sorted(output.windows.items())
    }
    for number, figure in enumerate(output.figures[logged:], logged + 1):
        full = usage_of(runtime, figure)
        facts = {
            "request": number, "used": full.used, "window": full.budget or None,
            "percent": round(full.percent, 1) if full.budget else None, "model": figure.model or None, "account": account,
        }  # fmt: skip
        runtime.tables.log(run.task, runtime.now(), "context", facts, run.id)
    return max(logged, len(output.figures))


def bands(runtime: Runtime, run: Run) -> set[int]:
    """Return the bands that a run has crossed."""
    events = queries.events_of_run(runtime.tables, run, "context_band")
    return {int(one.read()["band"]) for one in events}


def save_at_band(runtime: Runtime, task: Task, run: Run, output: Output, crossed_bands: set[int]) -> str:
    """Make a checkpoint if the newest request crossed a band, once per run; return the message for the agent, or nothing."""
    if not output.figures:
        return ""
    full = usage_of(runtime, output.figures[-1])
    crossed = band(full.percent, runtime.options.context_threshold) if full.budget else None
    if crossed is None or crossed.at in crossed_bands:
        return ""
    crossed_bands.add(crossed.at)
    reference = checkpoints.take(runtime, task, run, crossed.trigger, f"{run.id}:{crossed.trigger}", output)
    with runtime.tables.write() as tables:
        facts = {"band": crossed.at, "percent": round(full.percent, 1), "used": full.used, "window": full.budget}
        tables.log(task.id, runtime.now(), "context_band", facts, run.id)
    if crossed.is_quiet:
        return ""
    name = "budget_warning" if crossed.is_warning else "budget"
    message = text(name, runtime.options.language, percent=full.reached)
    fields = {"checkpoint": f"v{reference.version}"} if reference is not None else {}
    form = "budget_agent" if reference is not None else "budget_agent_plain"
    return text(form, runtime.options.language, message=message, used=full.used, budget=full.budget, **fields)


def usage_of(runtime: Runtime, figure: Figure) -> TokenUsage:
    window = runtime.options.context_tokens or figure.window
    return usage(figure.used, figure.model, window, runtime.options.context_windows, {})
