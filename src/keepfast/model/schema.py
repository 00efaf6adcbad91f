"""Every setting: its type, default, range, meaning, what makes it tighter, and who may set it (docs/settings.md)."""

from __future__ import annotations

from typing import Any

from keepfast.model.artefacts import ALWAYS, IF_IGNORED

FLAG, TRISTATE, CHOICE = "true or false", "true, false or prompt", "one of"
NUMBER, SIZE, TIME = "a whole number", "a size such as 100MB", "a time such as 90s, 10min or 2h"
TEXT, LIST, COMMAND, NUMBERS = "text", "a list of strings", "a command as a list of words", "an object of whole numbers"
PATH, PATHS, URL, HOURS = (
    "an absolute path",
    "a list of absolute paths",
    "an http or https address",
    "hours such as 22:00-07:00",
)

LOWER, HIGHER, LOWER_NOT_ZERO = "lower", "higher", "lower, where 0 is no limit"
MORE, FEWER = "more items", "fewer items"
"""What makes a value tighter: files are saved no worse, and no more is done, reported, sent or spent."""


class Setting:
    """One row. `allowed` is a range or the choices; `tighter` a rule, or the choices from loose to tight.

    Where nothing is tighter, the project's file and the agent may not set it.
    """

    __slots__ = ("allowed", "default", "from_environment", "kind", "meaning", "tighter")

    def __init__(
        self,
        kind: str,
        default: Any,
        meaning: str,
        allowed: tuple[Any, ...] | None = None,
        tighter: str | tuple[Any, ...] | None = None,
        from_environment: bool = True,
    ) -> None:
        self.kind, self.default, self.meaning, self.allowed = kind, default, meaning, allowed
        self.tighter, self.from_environment = tighter, from_environment


SECTIONS = (
    "hooks",
    "checkpoint",
    "capture",
    "budget",
    "analysis",
    "retention",
    "restore",
    "store",
    "report",
    "supervisor",
    "web",
)
VERSION = 1
"""Version of the settings file format. Unknown settings of a later version are ignored."""
OFF_ON, ON_OFF = (False, True), (True, False)
DAY = 86_400

TABLE: dict[str, Setting] = {
    "adopt": Setting(
        CHOICE, "any",
        "Which folders hooks protect automatically at a session's first event: any folder, git repositories, or "
        "none, so that only folders where `keepfast init` ran are protected (marked, never).",
        ("any", "git", "marked", "never"),
        from_environment=False,
    ),
    "resident": Setting(
        CHOICE, "auto",
        "Keep a process that answers hooks without starting Python; auto: the first hook starts it.",
        ("auto", "off"),
        from_environment=False,
    ),
    "language": Setting(CHOICE, "auto", "Language of messages; auto: from the locale.", ("auto", "en", "ko")),
    # What hooks of the agent's client do by themselves.
    "hooks.auto_checkpoint_on_clear": Setting(
        TRISTATE, "prompt", (
            "Save a checkpoint when the conversation is cleared; prompt: save it and ask whether to keep it."
        ),
        tighter=(False, "prompt", True),
    ),
    "hooks.auto_resume_on_start": Setting(
        TRISTATE, True, (
            "Give a new session the resume brief of the last one; prompt: offer it."
        ), tighter=(True, "prompt", False)
    ),
    "hooks.resume_on_startup": Setting(
        CHOICE, "brief", (
            "Resume brief at the startup of a session: the first part (brief), both parts (full), or nothing "
            "(off)."
        ),
        ("brief", "full", "off"), ("full", "brief", "off"),
    ),
    "hooks.resume_within_days": Setting(
        NUMBER, 7, (
            "Maximum age in days of a checkpoint whose brief is given automatically at startup."
        ), (1, 36500), LOWER
    ),
    "hooks.checkpoint_threshold_percent": Setting(
        NUMBER, 70, "Percent of the token budget at which a checkpoint is saved without a message.", (70, 95), LOWER
    ),
    "hooks.verify_before_clear": Setting(
        FLAG, True, (
            "Compare the files with the last checkpoint before or after a clear, and show the changes."
        ), tighter=OFF_ON
    ),
    "hooks.before_command": Setting(
        CHOICE, "ask",
        "Before a destructive command: save the files it names, and ask the user if that fails (ask); save "
        "only (deadline); or do nothing (off).",
        ("ask", "deadline", "off"), ("off", "deadline", "ask"),
    ),
    "hooks.before_command_unasked": Setting(
        CHOICE, "notice", (
            "If that save fails and the user cannot be asked: warn agent and user and continue, or deny the "
            "command."
        ),
        ("notice", "deny"), ("notice", "deny"),
    ),
    "hooks.before_command_deadline": Setting(
        TIME, 5, "Maximum time that a destructive command waits for its checkpoint.", (1, 60), HIGHER
    ),
    "report.commands": Setting(
        CHOICE, "damage",
        "Tell the agent after a shell command: what it damaged beyond the paths that it names (damage), all that it "
        "changed beyond them (all), or nothing (off).",
        ("damage", "all", "off"), ("off", "damage", "all"),
    ),
    # The document that describes the state of the work. These limit what it shows, never what is saved.
    "checkpoint.mode": Setting(
        CHOICE, "stateful", (
            "Describe the state of the work in each checkpoint, or only summarise it. Files are saved in both "
            "cases."
        ),
        ("stateful", "summary"), ("stateful", "summary"),
    ),
    "checkpoint.capture_files": Setting(FLAG, True, "List the session's files in that description.", tighter=ON_OFF),
    "checkpoint.capture_analysis": Setting(
        FLAG, True, "Include task, next steps, decisions and blockers in that description.", tighter=ON_OFF
    ),
    "checkpoint.max_checkpoint_size": Setting(
        SIZE, 10 << 20, (
            "Size limit of all files in that description; files that do not fit are listed."
        ), (0, None), LOWER
    ),
    "checkpoint.max_file_size": Setting(SIZE, 1 << 20, "Size limit of one file in that description.", (0, None), LOWER),
    "checkpoint.exclude_patterns": Setting(
        LIST, ["node_modules/**", "*.log", "*.bin"], "Patterns of files excluded from that description.", tighter=MORE
    ),
    "checkpoint.auto_summary_enabled": Setting(
        FLAG, True, "Give automatic checkpoints a summary from the conversation.", tighter=ON_OFF
    ),
    "checkpoint.max_auto_summaries": Setting(
        NUMBER, 10, "Number of automatic checkpoints of a session that are listed to the agent with their summaries.",
        (0, 1000), LOWER,
    ),
    "checkpoint.cleanup_after_days": Setting(
        NUMBER, 30, "Days for which one automatic checkpoint a day is kept.", (1, 36500), HIGHER
    ),
    # The snapshot: which files are saved.
    "capture.exclude": Setting(
        LIST, list(ALWAYS),
        "Patterns of dependency, build and cache folders that are excluded, in .gitignore syntax.", tighter=FEWER,
    ),
    "capture.exclude_ignored": Setting(
        LIST, list(IF_IGNORED),
        "Folders that are excluded only if .gitignore lists them and a file of the tool that generates "
        "them is next to them.",
        tighter=FEWER,
    ),
    "capture.exclude_marked": Setting(
        LIST, ["CACHEDIR.TAG", "pyvenv.cfg"], (
            "Names of marker files: a folder that contains one is excluded."
        ), tighter=FEWER
    ),
    "capture.ignored": Setting(
        CHOICE, "all", "Which files ignored by .gitignore are saved: all, small ones, or none.",
        ("all", "small", "none"), ("none", "small", "all"),
    ),
    "capture.ignored_file_size": Setting(
        SIZE, 1 << 20, "Largest ignored file that is saved if `capture.ignored` is small.", (0, None), HIGHER
    ),
    "capture.ignored_folder_files": Setting(
        NUMBER, 1000,
        "Ignored folders with more files are excluded if `capture.ignored` is small or the tree exceeds "
        "`capture.max_files`.",
        (0, None), HIGHER,
    ),
    "capture.tool_calls": Setting(
        CHOICE, "auto",
        "Save what each tool call of an agent changed: while the resident runs (auto), always (all), or not (off).",
        ("auto", "all", "off"), ("off", "auto", "all"),
    ),
    "capture.max_file_size": Setting(SIZE, 100 << 20, (
        "Largest file that is saved; larger files are excluded and listed."
    ), (1, None)),
    "capture.max_files": Setting(
        NUMBER,
        200_000,
        "Largest number of files in a workspace. Of a larger one, only the files that a destructive "
        "command names are saved. Time and memory grow with the number of files.",
        (1, None),
    ),
    "capture.accelerator": Setting(FLAG, True, "Use the compiled stat cache check if available."),
    # How full the model's context window is.
    "budget.tokens": Setting(
        NUMBER, 0, "Token budget of a session; 0: as reported by client and model.", (0, 100_000_000), LOWER_NOT_ZERO
    ),
    "budget.windows": Setting(
        NUMBERS, {}, "Context windows by prefix of the model name; overrides the built-in table.", (1000, 100_000_000)
    ),
    # Notes by a model, an extra.
    "analysis.llm": Setting(
        CHOICE, "off", "What makes notes from the conversation: built-in rules only, Anthropic's API, or a command.",
        ("off", "anthropic", "command"), ("command", "anthropic", "off"), from_environment=False,
    ),
    "analysis.command": Setting(
        COMMAND, [], "Command for notes: reads the conversation on standard input, writes JSON.", from_environment=False
    ),
    "analysis.model": Setting(TEXT, "", "Model for notes; empty: the smallest current one.", from_environment=False),
    "analysis.url": Setting(
        URL, "", "URL of the API, https unless on loopback; empty: Anthropic's.", from_environment=False
    ),
    "analysis.key_file": Setting(
        PATH, "", "File with the API key, readable only by you.", from_environment=False
    ),
    "analysis.timeout": Setting(TIME, 20, "Timeout of the request for notes.", (1, 600), from_environment=False),
    # How long checkpoints are kept.
    "retention.keep_last": Setting(
        NUMBER, 10, (
            "Number of newest automatic checkpoints of each session or task that are always kept."
        ), (1, None), HIGHER
    ),
    "retention.hourly_hours": Setting(NUMBER, 24, (
        "Hours for which one automatic checkpoint an hour is kept."
    ), (0, None), HIGHER),
    "retention.max_size": Setting(
        SIZE, 10 << 30, (
            "Size limit of the store; the oldest automatic checkpoints are forgotten above it."
        ), (1 << 20, None)
    ),
    # What a restore restores.
    "restore.privileged_attributes": Setting(
        FLAG, False, (
            "Restore attributes that grant rights or belong to the system: `security.*`, `trusted.*`, root's "
            "ACLs."
        ),
        from_environment=False,
    ),
    # Where they are kept.
    "store.url": Setting(
        TEXT, "", "Folder of the store for new workspaces; empty: in the user's data folder.", from_environment=False
    ),
    "store.durable": Setting(
        FLAG, True, "Sync every write to disk; false only for benchmarks.", from_environment=False
    ),
    # Unattended tasks.
    "supervisor.roots": Setting(
        PATHS, [], "Folders that are searched for workspaces with tasks.", from_environment=False
    ),
    "supervisor.database": Setting(
        TEXT, "", "Address of the task database; empty: a file in the data folder.", from_environment=False
    ),
    "supervisor.agent": Setting(
        COMMAND, ["claude"], "The agent's program and its fixed arguments.", from_environment=False
    ),
    "supervisor.permission_mode": Setting(
        CHOICE, "acceptEdits", "Default permission mode of the agent.",
        ("acceptEdits", "plan", "default", "bypassPermissions"), from_environment=False,
    ),
    "supervisor.concurrency": Setting(NUMBER, 4, (
        "Maximum number of agents that run at the same time."
    ), (1, 1000), from_environment=False),
    "supervisor.checkpoint_interval": Setting(
        TIME, 600, "Time between checkpoints while an agent runs.", (1, DAY), from_environment=False
    ),
    "supervisor.resume_with": Setting(
        CHOICE, "auto", (
            "How a task resumes: with its conversation history, with a resume brief, or whichever costs less."
        ),
        ("auto", "history", "brief"), from_environment=False,
    ),
    "supervisor.cold_history": Setting(
        NUMBER, 100_000, (
            "Maximum tokens of history that are sent again after a long wait if `resume_with` is auto; 0: no "
            "limit."
        ),
        (0, None), from_environment=False,
    ),
    "supervisor.max_windows": Setting(
        NUMBER, 3, (
            "Number of usage limit windows that a task waits for automatically."
        ), (0, 1000), from_environment=False
    ),
    "supervisor.max_attempts": Setting(
        NUMBER, 3, "Attempts at a phase before a person is asked.", (1, 100), from_environment=False
    ),
    "supervisor.max_tokens": Setting(
        NUMBER, 0, (
            "Tokens that a task may use before a person is asked; 0: no limit."
        ), (0, None), from_environment=False
    ),
    "supervisor.stuck_after": Setting(
        TIME, 1800, (
            "A run without output or file changes for this long is held until a person looks at it."
        ), (10, 7 * DAY),
        from_environment=False,
    ),
    "supervisor.silent_after": Setting(
        TIME, 300, "A run without output for this long is checked more closely.", (10, 7 * DAY), from_environment=False
    ),
    "supervisor.marker_grace": Setting(
        TIME, 300, "An agent is ended after this long without output following its final marker, error or question.",
        (1, 7 * DAY), from_environment=False,
    ),
    "supervisor.pause_grace": Setting(
        TIME, 60, "How long a pause waits for the agent's current tool call before it ends the process.", (1, 3600),
        from_environment=False,
    ),
    "supervisor.stop_grace": Setting(
        TIME, 15, "How long a process may take to exit before it is killed.", (1, 3600), from_environment=False
    ),
    "supervisor.question_timeout": Setting(
        TIME, 1800, (
            "How long an agent's process is kept waiting for an answer to its question."
        ), (10, 7 * DAY), from_environment=False
    ),
    "supervisor.auto_approve_after": Setting(
        TIME, 0, (
            "An unanswered review is approved after this long if its verification passed; 0: never."
        ), (0, 365 * DAY),
        from_environment=False,
    ),
    "supervisor.verify_timeout": Setting(
        TIME, 900, "Timeout of a task's verification command.", (1, 7 * DAY), from_environment=False
    ),
    "supervisor.allowed_tools": Setting(
        LIST, ["Read", "Glob", "Grep", "Edit", "Write", "TodoWrite"], "Tools that an agent may use without asking.",
        from_environment=False,
    ),
    "supervisor.environment": Setting(
        LIST, [], "Names of additional environment variables passed to an agent.", from_environment=False
    ),
    "supervisor.notify_bell": Setting(FLAG, True, (
        "Ring the terminal bell when a person is needed."
    ), from_environment=False),
    "supervisor.notify_command": Setting(
        COMMAND, [], "Command to run when a person is needed, with JSON on its standard input.", from_environment=False
    ),
    "supervisor.notify_webhook": Setting(URL, "", (
        "URL to post JSON to when a person is needed."
    ), from_environment=False),
    "supervisor.notify_ntfy": Setting(
        URL, "", "URL of an ntfy topic to notify when a person is needed.", from_environment=False
    ),
    "supervisor.quiet_hours": Setting(
        HOURS, "", "Local hours without notifications; they are sent afterwards.", from_environment=False
    ),
    # The page.
    "web.host": Setting(TEXT, "127.0.0.1", "Address that the web page listens on.", from_environment=False),
    "web.port": Setting(NUMBER, 8765, "Port of the web page; 0: any free port.", (0, 65535), from_environment=False),
    "web.open": Setting(FLAG, True, "Open a browser when the web page starts on a desktop.", from_environment=False),
    "web.password_file": Setting(
        PATH, "", "File whose first line is the password (12 characters or more).", from_environment=False
    ),
    "web.tls_certificate": Setting(PATH, "", (
        "File with the TLS certificate chain; required for addresses other than loopback."
    ), from_environment=False),
    "web.tls_key": Setting(PATH, "", "File with the private key of the certificate.", from_environment=False),
    "web.allowed_hosts": Setting(
        LIST, [], (
            "Additional host names of the web page: `name`, or the origin shown by a reverse proxy."
        ), from_environment=False
    ),
    "web.trusted_proxy": Setting(
        LIST, [], "Addresses of reverse proxies on other machines whose user header is trusted.", from_environment=False
    ),
    "web.proxy_header": Setting(
        TEXT, "", "Header in which such a proxy names the user; empty: none.", from_environment=False
    ),
    "web.proxy_users": Setting(
        LIST, [], "Users accepted from such a proxy: `name:role`, or `name` for a viewer.", from_environment=False
    ),
    "web.session_days": Setting(NUMBER, 30, "How long a browser stays signed in.", (1, 3650), from_environment=False),
}  # fmt: skip

ALIASES = {
    "KEEPFAST_AUTO_CHECKPOINT_ON_CLEAR": "hooks.auto_checkpoint_on_clear",
    "KEEPFAST_AUTO_RESUME_ON_START": "hooks.auto_resume_on_start",
    "KEEPFAST_AUTO_RESUME": "hooks.auto_resume_on_start",
    "KEEPFAST_CHECKPOINT_THRESHOLD": "hooks.checkpoint_threshold_percent",
    "KEEPFAST_VERIFY_BEFORE_CLEAR": "hooks.verify_before_clear",
    "KEEPFAST_CHECKPOINT_MODE": "checkpoint.mode",
    "KEEPFAST_CHECKPOINT_MAX_SIZE": "checkpoint.max_checkpoint_size",
}
"""Short names of variables. Inside hooks only these apply, and only to tighten."""


def variable(key: str) -> str:
    """Return the long name of the variable that sets this key."""
    return "KEEPFAST_" + key.upper().replace(".", "_")
