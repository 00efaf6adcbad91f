"""The whole bench: `python -m bench` measures start, hooks, saves and restores; `--quick` only shows that all works."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from .ground import PATIENCE_SECONDS, Ground
from .measure import Failed
from .plan import Plan, add_options, plan_of
from .report import Report
from .restores import closing_table, measure_restores
from .saves import measure_saves, print_closing, print_opening
from .startup import measure_startup, startup_table
from .trees import Unavailable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="keepfast beside shadow git, restic and borg.")
    add_options(parser)
    options = parser.parse_args()
    plan = plan_of(options, parser)
    only = "client" if options.client else options.only
    parts = (only,) if only else ("startup", "hooks", "client", "saves", "restores")
    report = Report(quick=plan.quick, seed=plan.seed)
    signal.signal(signal.SIGTERM, interrupt)
    code = 0
    try:
        measure(parts, plan, report, options.json)
    except KeyboardInterrupt:
        say("Interrupted; what was measured so far follows.")
        code = 130
    except Unavailable as problem:
        say(str(problem))
        return 1
    print_closing(report)
    return code


def measure(parts: tuple[str, ...], plan: Plan, report: Report, path: Path | None) -> None:
    def keep() -> None:
        if path is not None:
            report.write(path)

    print_opening()
    patience = PATIENCE_SECONDS if plan.minutes is None else plan.minutes * 6  # a tenth of it
    with Ground(plan.cache, plan.limit, 0.0 if plan.quick else patience, say) as ground:
        if "startup" in parts:
            # The start comes first: later the disk is busy with what the saves have written.
            try:
                report.startup = measure_startup(plan, ground, say)
                print(f"\n{startup_table(report.startup)}", flush=True)
            except (Failed, Unavailable) as problem:
                report.notes.append(f"The start was not measured: {problem}")
            keep()
        if "hooks" in parts:
            from .hooks import FEW, MANY, hooks_table, measure_hooks

            try:
                sizes = (FEW,) if plan.quick else (FEW, MANY)
                report.hooks = measure_hooks(ground.fresh("hooks"), sizes, plan.startup, say)
                print(f"\n{hooks_table(report.hooks)}", flush=True)
            except Failed as problem:
                report.notes.append(f"Hooks were not measured: {problem}")
            keep()
        if "client" in parts:
            from .client import client_table, measure_client

            try:
                report.client = measure_client(plan, say)
                print(f"\n{client_table(report.client)}", flush=True)
            except Failed as problem:
                report.notes.append(f"Hooks in the real client were not measured: {problem}")
            keep()
        if "saves" in parts:
            measure_saves(plan, ground, report, keep, say)
        if "restores" in parts:
            restores = measure_restores(plan, ground, say)
            report.restores = restores.as_json()
            print(f"\n{closing_table(restores)}", flush=True)
            keep()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
