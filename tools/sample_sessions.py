"""Write the small made-up sessions in tests/data/transcripts, on which `make eval` runs where no recorded ones are given."""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.equipment.sessions import Session  # noqa: E402

TARGET = ROOT / "tests" / "data" / "transcripts"
NOUNS = "order parcel route invoice voyage ticket sensor recipe oven batch signal tariff harbour cargo ledger".split()
VERBS = "load parse merge price check send store round split route".split()
LANGUAGES = {
    "bakery": (
        ".py",
        "def {name}({a}, {b}):\n    {a} = {a}.{c} + {b}\n    if not {a}:\n        return None\n    return {call}({a})\n",
    ),
    "atlas": (
        ".ts",
        "export function {name}({a}: number, {b}: string) {{\n  const {c} = {a} + {b}.length;\n  return {call}({c});\n}}\n",
    ),
    "relay": (".go", "func {name}({a} int, {b} string) int {{\n\t{c} := {a} + len({b})\n\treturn {call}({c})\n}}\n"),
}


def module(draw: random.Random, form: str, names: list[str]) -> str:
    parts = []
    for name in names:
        a, b, c = draw.sample(NOUNS, 3)
        parts.append(form.format(name=name, a=a, b=b, c=c, call=draw.choice(names)))
    return "\n".join(parts)


def session(project: str, number: int) -> Session:
    """An agent that changes functions one after another: finds, reads, edits, tests, says what is next."""
    draw = random.Random(f"{project}{number}")
    ending, form = LANGUAGES[project]
    files: dict[str, str] = {}
    where: dict[str, str] = {}
    for stem in draw.sample(NOUNS, 7):
        names = [f"{draw.choice(VERBS)}_{stem}_{draw.choice(NOUNS)}_{at}" for at in range(draw.randrange(30, 70))]
        files[f"src/{stem}{ending}"] = module(draw, form, names)
        where.update(dict.fromkeys(names, f"src/{stem}{ending}"))
    made = Session(cwd=f"/home/ann/{project}", files=files)
    names = sorted(where)
    done: list[str] = []
    for _ in range(5):
        # Work comes back to what it has touched, and to its neighbours.
        near = [name for name in names if done and where[name] == where[done[-1]]]
        chosen = [draw.choice(near or names), draw.choice(done or names), draw.choice(names)]
        done += chosen
        made.asked(f"Please give {chosen[0]} a second result, and adapt {chosen[1]} and {chosen[2]}.")
        made.todos(("in_progress", f"Change {chosen[0]}"), *[("pending", f"Adapt {name}") for name in chosen[1:]])
        for name in chosen:
            change(made, draw, name, where[name])
        made.run("make test", "ok" if draw.random() < 0.6 else f"FAIL {where[chosen[0]]}:12", failed=False)
        made.said(f"{chosen[0]} is done; next I'll look at what calls {chosen[2]}.")
    return made


def change(made: Session, draw: random.Random, name: str, path: str) -> None:
    lines = made.files[made.path(path)].split("\n")
    at = next(number for number, line in enumerate(lines) if f" {name}(" in line)
    made.grep(name, [(path, at + 1, lines[at])])
    if draw.random() < 0.5:
        made.read(path)
    else:
        made.read(path, max(1, at - 10), 40)
    made.thought(f"{name} in {path} returns one value only.")
    for step in range(draw.randrange(1, 4)):
        made.said(f"I'll change {name} in {path}:{at + 1}.")
        lines = made.files[made.path(path)].split("\n")
        old = "\n".join(lines[at : at + 2 + step])
        made.edit(path, old, old.replace("(", f"(v{made.counter}, ", 1).replace(f"v{made.counter}, ", "", step % 2))
        at = next(number for number, line in enumerate(made.files[made.path(path)].split("\n")) if f" {name}(" in line)


def main() -> None:
    for project in LANGUAGES:
        for number in range(1, 3):
            folder = TARGET / project
            folder.mkdir(parents=True, exist_ok=True)
            packed = gzip.compress(session(project, number).bytes(), mtime=0)
            (folder / f"{number}.jsonl.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
