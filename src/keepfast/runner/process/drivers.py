"""Drivers: the command line, environment and files of each kind of agent."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from hashlib import sha256
from shutil import which
from typing import Any, NamedTuple

from keepfast.agents import launcher
from keepfast.model.errors import Usage
from keepfast.runner.domain.options import Options
from keepfast.runner.domain.protocol import TOOL
from keepfast.runner.domain.records import Agent, Run, Task
from keepfast.runner.process.output import ClaudeOutput, Output, PlainOutput
from keepfast.runner.process.redaction import clean_text, is_telling
from keepfast.runner.process.shims import TOKEN

ALLOWED = frozenset((
    "PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
))  # fmt: skip
"""Variables of our environment that every agent gets; each driver adds those that its client needs."""
SUPERVISED = "KEEPFAST_SUPERVISED"
"""The variable that names the supervised client: hooks that people installed for it do nothing."""
KEYS = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
"""Variables with the key of Claude Code's account; it uses the first that is set."""
ACCOUNT = re.compile(r"\w+_(?:BASE_URL|API_BASE|API_KEY|AUTH_TOKEN|OAUTH_TOKEN|CONFIG_DIR)|CODEX_HOME")
"""Variables that choose the account of an arbitrary program."""
PLAIN = re.compile(r"[\w./-]+")
TOOLS = "keepfast.runner.process.agent_tools"
HOOK = os.path.abspath(f"{os.path.dirname(__file__)}/../../hook/launch.py")
TOOL_NAMES = ("phase_complete", "ask_user", "request_secret", "report_error", "report_progress")


class Launch(NamedTuple):
    """The command and environment for a shim, and the files to write into the run's folder first."""

    command: list[str]
    environment: dict[str, str]
    files: dict[str, str]


class Driver:
    """The driver for an arbitrary command, whose prompt is its standard input; the base class of other drivers."""

    name = "command"
    client = ""
    """The client's name in `agents/`; empty if its conversations cannot be read."""
    can_resume = False
    stops_at_tools = False
    variables: tuple[str, ...] = ()

    def __init__(self, agent: Agent, options: Options) -> None:
        self.agent, self.options = agent, options

    def check(self, variables: Mapping[str, str]) -> str:
        """Return why this agent cannot be started here; empty if it can."""
        program = self._program()
        if which(program, path=variables.get("PATH", os.defpath)) is None:
            return f"The agent's program {program!r} was not found."
        return ""

    def launch(
        self,
        task: Task,
        run: Run,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        folders: Sequence[str] = (),
    ) -> Launch:
        """Return how to start the agent. `folders` are the user's home, configuration and data, for hooks."""
        places = {"session": run.session, "workspace": task.workspace}  # the shim knows the place of `{prompt_file}`
        command = [_filled(word, places) for word in self._command()]
        return Launch(command, self._environment(task, run, variables, secrets), {})

    def output(self, now: float, zone: tzinfo) -> Output:
        return PlainOutput(now, zone)

    def transcript(self, session: str, variables: Mapping[str, str]) -> str:
        """Return the client's transcript of this session; empty if there is none, and it cannot be resumed."""
        return ""

    def mention(self, path: str, first: int, last: int) -> str:
        """Return text for a prompt that makes the client read these lines of a file; empty if it has no such syntax."""
        return ""

    def account(self, variables: Mapping[str, str], secrets: Mapping[str, str] | None = None) -> str:
        """Return the key of the account whose limits apply: agent, configuration, endpoint, digest of the API key.

        `variables` are ours, `secrets` those of the task. An arbitrary program has the account that the task gives it.
        """
        own = {**self._set(), **(secrets or {})}
        chosen = sorted((name, value) for name, value in own.items() if ACCOUNT.fullmatch(name))
        mark = _mark(json.dumps(chosen)) if chosen else "own"
        return f"{clean_text(f'{self.name}:{self._program()}')}:{mark}"

    def _command(self) -> list[str]:
        return list(self.agent["command"])

    def _set(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.agent.get("set", {}).items()}

    def _program(self) -> str:
        return self._command()[0]

    def _environment(
        self, task: Task, run: Run, variables: Mapping[str, str], secrets: Mapping[str, str]
    ) -> dict[str, str]:
        names = {*self.variables, *self.options.environment, *self.agent.get("environment", [])}
        passed = {
            name: value
            for name, value in variables.items()
            if name in ALLOWED or name.startswith("LC_") or name in names or _starts(name, names)
        }
        return {
            **passed,
            **self._set(),
            **secrets,
            TOKEN: run.token,
            "KEEPFAST_RUN": run.id,
            "KEEPFAST_TASK": task.id,
            "KEEPFAST_PHASE": str(run.phase),
            "KEEPFAST_ATTEMPT": str(run.number),
            "KEEPFAST_RESUMED": str(run.resume),
            **({SUPERVISED: self.client} if self.client else {}),
        }


class Claude(Driver):
    """Claude Code, headless: stream-json, a session id of ours, without the workspace's own configuration."""

    name = "claude"
    client = "claude-code"
    can_resume = True
    stops_at_tools = True
    variables = (
        "ANTHROPIC_*", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_*",
        "AWS_*", "CLOUD_ML_REGION", "IS_SANDBOX", "API_TIMEOUT_MS", "BASH_*",
    )  # fmt: skip

    def launch(
        self,
        task: Task,
        run: Run,
        variables: Mapping[str, str],
        secrets: Mapping[str, str],
        folders: Sequence[str] = (),
    ) -> Launch:
        mode = self.agent.get("permission_mode") or self.options.permission_mode
        allowed = [*(self.agent.get("allowed_tools") or self.options.allowed_tools)]
        allowed += [f"{TOOL}{name}" for name in TOOL_NAMES]
        words = [*self._command(), "-p", "--output-format", "stream-json", "--verbose"]
        words += ["--resume" if run.resume else "--session-id", run.session]
        words += ["--settings", f"{run.folder}/settings.json", "--setting-sources", "user"]
        words += ["--mcp-config", f"{run.folder}/mcp.json", "--strict-mcp-config"]
        words += ["--permission-mode", mode, "--allowedTools", ",".join(allowed)]
        if self.agent.get("model"):
            words += ["--model", str(self.agent["model"])]
        words += [str(word) for word in self.agent.get("arguments", [])]
        # Only the names of these variables are written: our programs read the values from their environment.
        chosen = self.agent.get("set", {}).items()
        names = sorted({*secrets, *[name for name, value in chosen if is_telling(name, str(value))]})
        files = {
            "settings.json": json.dumps(_claude_settings(run.folder, names), indent=1),
            "mcp.json": json.dumps(_claude_tools(run.folder, names), indent=1),
            launcher.NAME: launcher.script(sys.executable, HOOK, f"{run.folder}/{launcher.NAME}", folders),
        }
        return Launch(words, self._environment(task, run, variables, secrets), files)

    def output(self, now: float, zone: tzinfo) -> Output:
        return ClaudeOutput(now, zone)

    def transcript(self, session: str, variables: Mapping[str, str]) -> str:
        if not session:
            return ""
        paths = glob.glob(f"{glob.escape(self._config(variables))}/projects/*/{glob.escape(session)}.jsonl")
        return max(paths, key=os.path.getmtime) if paths else ""

    def mention(self, path: str, first: int, last: int) -> str:
        # The client ends a mention at a blank or special character; such names would be cut.
        return f"@{path}#L{first}-{last}" if PLAIN.fullmatch(path) else ""

    def account(self, variables: Mapping[str, str], secrets: Mapping[str, str] | None = None) -> str:
        environment = {**variables, **self._set(), **(secrets or {})}
        key = next(filter(None, (environment.get(name) for name in KEYS)), "")
        mark = _mark(key) if key else "login"
        return f"claude:{self._config(environment)}:{clean_text(environment.get('ANTHROPIC_BASE_URL', ''))}:{mark}"

    def _command(self) -> list[str]:
        return list(self.agent.get("command") or self.options.agent)

    def _config(self, variables: Mapping[str, str]) -> str:
        environment = {**variables, **self._set()}
        return str(environment.get("CLAUDE_CONFIG_DIR") or environment.get("HOME", "") + "/.claude")


KINDS: dict[str, type[Driver]] = {"claude": Claude, "command": Driver}


def driver(agent: Agent, options: Options) -> Driver:
    """Return the driver of a task's `agent`. Raises `Usage`."""
    kind = agent.get("kind", "command" if agent.get("command") else "claude")
    if kind not in KINDS:
        raise Usage(f"Unknown kind of agent: {kind!r}.", f"Choose one of {', '.join(KINDS)}.")
    return KINDS[kind](agent, options)


def _claude_settings(folder: str, names: list[str]) -> dict[str, Any]:
    """Return the client's settings with our hooks: shell commands of two milliseconds for pauses and messages, and the guard."""
    place = shlex.quote(folder)
    deny = {
        "continue": False,
        "stopReason": "paused by keepfast",
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "This task is being paused; the tool was not run. End your turn.",
        },
    }
    stop = {"continue": False, "stopReason": "paused by keepfast"}
    before = f"[ ! -e {place}/pause ] || {{ : > {place}/stopped; printf %s {shlex.quote(json.dumps(deny))}; }}"
    after = (
        f"if [ -e {place}/pause ]; then : > {place}/stopped; printf %s {shlex.quote(json.dumps(stop))}; "
        f"elif [ -e {place}/nudge ]; then mv {place}/nudge {place}/nudged && cat {place}/nudged; fi"
    )
    failure = f"({launcher.clean([sys.executable, '-I', '-m', TOOLS, '--failure', folder, *names])}) 2>/dev/null || :"

    def hook(command: str) -> list[dict[str, Any]]:
        return [{"hooks": [{"type": "command", "command": command, "timeout": 10}]}]

    # An agent runs for hours, and keepfast may be upgraded or removed meanwhile.
    guard = launcher.hook(f"{folder}/{launcher.NAME}", "hook", Claude.client, "--part", "0", shell="sh")
    saves = {"matcher": "Bash", "hooks": [{"type": "command", "command": guard, "timeout": 30}]}
    starts = [*hook(before), saves]
    return {"hooks": {"PreToolUse": starts, "PostToolUse": hook(after), "StopFailure": hook(failure)}}


def _claude_tools(folder: str, names: list[str]) -> dict[str, Any]:
    server = {
        "type": "stdio",
        "command": "/bin/sh",
        "args": ["-c", launcher.clean([sys.executable, "-I", "-m", TOOLS, folder, *names])],
        "alwaysLoad": True,
    }
    return {"mcpServers": {"keepfast": server}}


def _mark(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _starts(name: str, names: set[str]) -> bool:
    return any(name_pattern.endswith("*") and name.startswith(name_pattern[:-1]) for name_pattern in names)


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace("{" + name + "}", value)
    return word
