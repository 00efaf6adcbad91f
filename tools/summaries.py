"""Print the summary of a checkpoint at four moments of each recorded session, and which of these summaries name no work.

Usage: python tools/summaries.py FOLDER... [--half a|b] [--only-empty] [--most SHARE]

Reads the transcripts of Claude Code and Codex (`.jsonl`, `.jsonl.gz`) and exports of opencode (`.json`, `.json.gz`). The exit code
is 1 if more than `--most` of the summaries say nothing. The check is independent of the rules that make summaries.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from keepfast.agents import transcript
from keepfast.agents.transcript import Conversation
from keepfast.agents.turns import Call, Turn
from keepfast.resume import extractor as notes

MOMENTS = (0.25, 0.5, 0.75, 1.0)
ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
ACTS = {"bash": "run", "read": "read", "grep": "search", "glob": "search", "edit": "edit", "write": "write"}

MARKUP = re.compile(r"^\s*(?:[\[{<]|```|\||---|#!)")
NOTICE = re.compile(
    r"^(?:caveat:|stop hook|hook |\[request interrupted|this session is being continued|task-notification|base directory for)",
    re.I,
)
ANNOUNCED = re.compile(r":\s*$")
LINK = re.compile(r"https?://\S+")
FOLDERS = re.compile(r"(?<![\w/])[~.]{0,2}/(?:[\w.@+-]+/)+")
WORD = re.compile(r"[^\W\d_][\w'’]*")
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# Words that name no work: common words, assent, and the routine around any change.
EMPTY = frozenset(
    """a an the this that these those it its them they there here i you we he she me my your our us is are was were be been
    being am do does did done doing have has had can could should would will shall may might must to of in on at by for from
    with without into onto and or but so if then else as not no yes yeah yep ok okay sure please thanks thank great good nice
    cool perfect fine right well just also too now again still more most some any all both each one two first next last other
    same such very really let lets let's i'll i'm it's that's don't what which who how why when where go going ahead continue
    proceed carry start begin keep try get make use want need like think look see check know sounds looks thing things stuff
    way work works working fix fixed change changes changed update updated implement implemented following plan plans task
    tasks step steps part above below code file files commit commits push pull pr merge branch rebase run rerun test tests
    review ready done finish finished complete completed answer question issue problem option up out off over back""".split()
)
FEWEST = 2


class Moment(NamedTuple):
    session: str
    share: float
    summary: str
    verdict: str  # empty: it says something


def judge(summary: str) -> str:
    """Return why the summary names no work; empty if it does."""
    text = summary.strip()
    if not text:
        return "empty"
    if MARKUP.match(text):
        return "markup"
    if NOTICE.match(text):
        return "a notice"
    if ANNOUNCED.search(text) and len(text) < 60:
        return "announces, and stops"
    bare = FOLDERS.sub(" ", LINK.sub(" changeset number ", text))
    telling = {word.lower() for word in WORD.findall(bare)} - EMPTY
    if len(telling) >= FEWEST or len(WIDE.findall(bare)) >= 4:
        return ""
    return "names no work"


def find(folders: list[str]) -> list[str]:
    found = []
    for folder in folders:
        for base, inner, names in os.walk(folder):
            inner.sort()
            found += [os.path.join(base, name) for name in names if name.endswith(ENDINGS)]
    return sorted(found)


def moments(path: str) -> Iterator[tuple[float, Conversation]]:
    with open(path, "rb") as file:
        data = transcript.unpacked(file.read())
    if ".jsonl" not in path:
        messages = json.loads(data)["messages"]
        for share in MOMENTS:
            yield share, _exported(messages[: max(1, round(len(messages) * share))])
        return
    lines = data.splitlines(keepends=True)
    for share in MOMENTS:
        yield share, transcript.read(b"".join(lines[: max(1, round(len(lines) * share))]))


def _exported(messages: list[dict[str, Any]]) -> Conversation:
    """Return the parts of an opencode export that summaries need."""
    conversation = Conversation(client="opencode")
    for message in messages:
        asked = message["info"]["role"] == "user"
        for part in message["parts"]:
            if part["type"] == "text" and not part.get("synthetic"):
                words = "command" if re.match(r"/\w[\w:-]*$", part["text"].strip()) else "asked"
                conversation.turns.append(Turn(words if asked else "said", part["text"], number=conversation.calls))
            elif part["type"] == "tool":
                conversation.calls += 1
                state = part["state"]
                call = Call(
                    str(conversation.calls),
                    part["tool"],
                    ACTS.get(part["tool"], "other"),
                    conversation.calls,
                    state["input"],
                )
                call.done, call.output = state["status"] == "completed", str(state.get("output", ""))
                conversation.turns.append(Turn("call", number=conversation.calls, call=call))
                if isinstance(state["input"].get("filePath"), str):
                    conversation.files.touch(
                        conversation.calls, state["input"]["filePath"], edited=call.act in ("edit", "write")
                    )
    return conversation


def measure(path: str) -> Iterator[Moment]:
    for share, conversation in moments(path):
        taken = notes.take(conversation)
        if any(
            turn.kind in ("asked", "command") for turn in conversation.turns
        ):  # before that there is nothing to name
            summary = taken.summary()
            yield Moment(os.path.basename(path), share, summary, judge(summary))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", metavar="FOLDER")
    options.add_argument(
        "--half", choices=("a", "b"), help="every other session, to develop on one half and to judge on the other"
    )
    options.add_argument("--only-empty", action="store_true", help="print only the summaries that say nothing")
    options.add_argument("--most", type=float, default=0.05, metavar="SHARE", help="allowed share (default 0.05)")
    given = options.parse_args()
    paths = find(given.folders)
    if given.half:
        paths = paths[0 if given.half == "a" else 1 :: 2]
    found = [moment for path in paths for moment in measure(path)]
    for moment in found:
        if moment.verdict or not given.only_empty:
            print(f"{moment.session} {moment.share:4.0%} {moment.verdict or 'ok':>20}  {moment.summary}")
    empty = [moment for moment in found if moment.verdict]
    last = [moment for moment in found if moment.share == 1]
    print(f"{len(empty)} of {len(found)} summaries of {len(paths)} sessions say nothing", end="; ")
    print(f"at the end of a session {sum(bool(moment.verdict) for moment in last)} of {len(last)}")
    return 1 if len(empty) > given.most * len(found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
