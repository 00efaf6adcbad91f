"""Notes and files to build briefs of."""

from __future__ import annotations

import random

from keepfast.agents import transcript
from keepfast.resume import brief, extractor
from keepfast.resume.brief import Brief, Facts
from tests.equipment.sessions import Session

HOUR = 3_600_000_000_000
NOW = 1_000 * HOUR
WORDS = "order basket price item total customer invoice rate discount ledger parcel coupon refund stock".split()


def module(seed: int, functions: int = 30) -> str:
    """A made-up Python module."""
    draw = random.Random(seed)
    parts = ["import json", "from decimal import Decimal", ""]
    for number in range(functions):
        name, other = draw.choice(WORDS), draw.choice(WORDS)
        parts += [
            "",
            f"def {name}_{other}_{number}({name}, {other}=None):",
            f'    """The {name} of a {other}."""',
            f"    if {other} is None:",
            f"        {other} = {name}.get('{draw.choice(WORDS)}', 0)",
            f"    result = {name}.{draw.choice(WORDS)} + {other} * {draw.randrange(100)}",
            f"    return round(result, {draw.randrange(5)})",
            "",
        ]
    return "\n".join(parts)


def shop(files: int = 6, functions: int = 30) -> Session:
    """A session that read several modules and is in the middle of changing one."""
    session = Session(files={f"shop/part{number}.py": module(number, functions) for number in range(files)})
    session.asked("Make the totals exact: use Decimal everywhere, and keep the public names.")
    for number in range(files):
        session.read(f"shop/part{number}.py")
    session.todos(("completed", "Read the modules"), ("in_progress", "Change part0"), ("pending", "Run the tests"))
    text = session.files[session.path("shop/part0.py")]
    old = next(line for line in text.split("\n") if "return round" in line)
    session.edit("shop/part0.py", old, old.replace("round(", "exact("))
    session.run("pytest -q", "E   AssertionError: shop/part0.py:14\n1 failed in 0.2s", failed=True)
    session.said("Now I'll fix the rounding in shop/part0.py:14.")
    return session


def built(session: Session, tokens: int = 5_000, **more: object) -> Brief:
    conversation = transcript.read(session.bytes())
    facts = Facts(summary="Exact totals", version="v5", checkpoint="cp-1", saved_at=NOW - 2 * HOUR)
    return brief.build(
        extractor.take(conversation),
        conversation.files.newest_first(),
        facts=facts,
        now=NOW,
        tokens=tokens,
        **more,  # type: ignore[arg-type]
    )
