"""Made-up sessions in the shape that Claude Code records them, for the tests of notes, brief and eval."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

CWD = "/home/ann/shop"


class Session:
    """Writes a transcript step by step; file contents follow the edits, as they would in the client."""

    def __init__(self, cwd: str = CWD, branch: str = "main", files: dict[str, str] | None = None) -> None:
        self.cwd, self.branch = cwd, branch
        self.files = {self.path(name): text for name, text in (files or {}).items()}
        self.entries: list[dict[str, Any]] = []
        self.parent: str | None = None
        self.counter = 0
        self.filled = 20_000

    def path(self, name: str) -> str:
        return name if name.startswith("/") else f"{self.cwd}/{name}"

    # What people and agents say

    def asked(self, text: str, **more: Any) -> str:
        return self._entry("user", message={"role": "user", "content": text}, **more)

    def said(self, text: str) -> str:
        return self._assistant({"type": "text", "text": text})

    def thought(self, text: str) -> str:
        return self._assistant({"type": "thinking", "thinking": text})

    # What agents do

    def call(
        self, tool: str, arguments: dict[str, Any], output: str = "", result: Any = None, failed: bool = False
    ) -> str:
        """A call with its result; returns the call's id."""
        identity = self.begin(tool, arguments)
        self.end(identity, output, result, failed)
        return identity

    def begin(self, tool: str, arguments: dict[str, Any]) -> str:
        identity = f"toolu_{self.counter:05}"
        self._assistant({"type": "tool_use", "id": identity, "name": tool, "input": arguments})
        return identity

    def end(self, identity: str, output: str, result: Any = None, failed: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": identity, "content": output, "is_error": failed}
        self._entry("user", message={"role": "user", "content": [block]}, toolUseResult=result)
        self.filled += len(output) // 3 + 40

    def read(self, name: str, start: int = 1, count: int | None = None) -> None:
        path = self.path(name)
        lines = self.files[path].split("\n")
        shown = lines[start - 1 : None if count is None else start - 1 + count]
        file = {
            "filePath": path,
            "content": "\n".join(shown),
            "numLines": len(shown),
            "startLine": start,
            "totalLines": len(lines),
        }
        numbered = "\n".join([f"{number:6}→{line}" for number, line in enumerate(shown, start)])
        self.call("Read", {"file_path": path}, numbered, {"type": "text", "file": file})

    def edit(self, name: str, old: str, new: str, *, everywhere: bool = False) -> None:
        path = self.path(name)
        original = self.files[path]
        assert old in original, (name, old)
        changed = original.replace(old, new, -1 if everywhere else 1)
        result = {
            "filePath": path,
            "oldString": old,
            "newString": new,
            "originalFile": original,
            "structuredPatch": patch(original, changed),
            "userModified": False,
            "replaceAll": everywhere,
        }
        self.files[path] = changed
        self.call(
            "Edit",
            {"file_path": path, "old_string": old, "new_string": new},
            f"The file {path} has been updated.",
            result,
        )

    def write(self, name: str, content: str) -> None:
        path = self.path(name)
        before = self.files.get(path)
        result = {
            "type": "create" if before is None else "update",
            "filePath": path,
            "content": content,
            "originalFile": before,
            "structuredPatch": [] if before is None else patch(before, content),
        }
        self.files[path] = content
        self.call("Write", {"file_path": path, "content": content}, f"File created at: {path}", result)

    def run(self, command: str, output: str = "", failed: bool = False) -> None:
        self.call("Bash", {"command": command}, output, {"stdout": output, "stderr": "", "interrupted": False}, failed)

    def grep(self, pattern: str, hits: list[tuple[str, int, str]]) -> None:
        content = "\n".join([f"{self.path(name)}:{line}:{text}" for name, line, text in hits])
        result = {"mode": "content", "filenames": [], "content": content, "numFiles": 0, "numLines": len(hits)}
        self.call("Grep", {"pattern": pattern, "output_mode": "content"}, content, result)

    def todos(self, *items: tuple[str, str]) -> None:
        listed = [{"content": text, "status": status, "activeForm": text} for status, text in items]
        self.call("TodoWrite", {"todos": listed}, "Todos have been modified successfully.", {"newTodos": listed})

    def answered(self, question: str, answer: str) -> None:
        arguments = {"questions": [{"question": question, "options": []}]}
        self.call("AskUserQuestion", arguments, f'"{question}"="{answer}"', {"answers": {question: answer}})

    def planned(self, plan: str, refused: str = "") -> None:
        if refused:
            words = f"The user doesn't want to proceed with this tool use. The user provided feedback: the user said:\n{refused}"
            self.call("ExitPlanMode", {"plan": plan}, words, f"Error: {words}", failed=True)
        else:
            self.call("ExitPlanMode", {"plan": plan}, "User has approved your plan.", {"plan": plan})

    def compacted(self, summary: str) -> None:
        before = self.parent
        self.parent = None
        self._entry("system", subtype="compact_boundary", logicalParentUuid=before, compactMetadata={"trigger": "auto"})
        self._entry("user", message={"role": "user", "content": summary}, isCompactSummary=True)

    def rewind_to(self, uuid: str) -> None:
        """The next entry goes on from an older one, as after /rewind."""
        self.parent = uuid

    # What it comes to

    def bytes(self) -> bytes:
        return b"".join([json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in self.entries])

    def save(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path

    def _assistant(self, block: dict[str, Any]) -> str:
        usage = {"input_tokens": 4, "cache_read_input_tokens": self.filled, "output_tokens": 50}
        message = {
            "id": f"msg_{self.counter:05}",
            "role": "assistant",
            "model": "claude-test-1",
            "content": [block],
            "usage": usage,
        }
        return self._entry("assistant", message=message)

    def _entry(self, kind: str, **more: Any) -> str:
        self.counter += 1
        uuid = f"00000000-0000-4000-8000-{self.counter:012}"
        minutes, seconds = divmod(self.counter * 7, 60)
        entry = {
            "type": kind,
            "uuid": uuid,
            "parentUuid": self.parent,
            "sessionId": "5e551011",
            "cwd": self.cwd,
            "gitBranch": self.branch,
            "timestamp": f"2026-03-01T{9 + minutes // 60:02}:{minutes % 60:02}:{seconds:02}.000Z",
            "isSidechain": False,
            **more,
        }
        self.entries.append(entry)
        if not entry["isSidechain"]:
            self.parent = uuid
        return uuid


def patch(before: str, after: str) -> list[dict[str, Any]]:
    """Hunks with three lines of context, as the client records them."""
    old, new = before.split("\n"), after.split("\n")
    hunks = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(3):
        lines = []
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [" " + line for line in old[a:b]]
            else:
                lines += ["-" + line for line in old[a:b]] + ["+" + line for line in new[c:d]]
        first, last = group[0], group[-1]
        hunks.append(
            {
                "oldStart": first[1] + 1,
                "oldLines": last[2] - first[1],
                "newStart": first[3] + 1,
                "newLines": last[4] - first[3],
                "lines": lines,
            }
        )
    return hunks
