"""Every setting: its type, default, range, meaning, what makes it tighter, and who may set it (docs/settings.md)."""

from __future__ import annotations

from keepfast.model.artefacts import ALWAYS, IF_IGNORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAG, TRISTATE, CHOICE = "true or false", "true, false or prompt", "one of"
NUMBER, SIZE, TIME = "a whole number", "a size such as 100MB", "a time such as 90s, 10min or 2h"
TEXT, LIST, COMMAND, NUMBERS = "text", "a list of texts", "a command as a list of words", "an object of whole numbers"
PATH, PATHS, URL, HOURS = (
    "an absolute path",
    "a list of absolute paths",
    "an http or https address",
    "hours such as 22:00-07:00",
)

LOWER, HIGHER, LOWER_NOT_ZERO = "lower", "higher", "lower, where 0 is no limit"
MORE, FEWER = "more items", "fewer items"
"""What makes a value tighter: files are kept no worse, and no more is done, told, sent or spent."""


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
    "supervisor",
    "web",
)
VERSION = 1
"""Of the file. One of a later version is read as far as it is understood."""
OFF_ON, ON_OFF = (False, True), (True, False)
DAY = 86_400

TABLE: dict[str, Setting] = {
    "adopt": Setting(
        CHOICE, "any",
        "Which folders hooks protect by themselves at a session's first event: all, git repositories, or none.",
        ("any", "git", "marked", "never"),
        from_environment=False,
    ),
    "language": Setting(CHOICE, "auto", "Language of messages; auto: as the locale says.", ("auto", "en", "ko")),
    # What the agent's client asks us to do by itself.
    "hooks.auto_checkpoint_on_clear": Setting(
        TRISTATE, "prompt", "Keep a checkpoint when the conversation is cleared; prompt: keep it and ask.",
        tighter=(False, "prompt", True),
    ),
    "hooks.auto_resume_on_start": Setting(
        TRISTATE, True, "Tell a new session where the last one was; prompt: offer it.", tighter=(True, "prompt", False)
    ),
    "hooks.resume_on_startup": Setting(
        CHOICE, "brief", "How much a session that starts from nothing is told: the first part, both, or nothing.",
        ("brief", "full", "off"), ("full", "brief", "off"),
    ),
    "hooks.resume_within_days": Setting(
        NUMBER, 7, "An older checkpoint is not told of by itself at startup.", (1, 36500), LOWER
    ),
    "hooks.checkpoint_threshold_percent": Setting(
        NUMBER, 70, "Share of the token budget at which a quiet checkpoint is taken.", (70, 95), LOWER
    ),
    "hooks.verify_before_clear": Setting(
        FLAG, True, "Compare with the last checkpoint before or after a clear, and show the difference.", tighter=OFF_ON
    ),
    "hooks.before_command": Setting(
        CHOICE, "ask",
        "Before a destructive command: save what it names, and ask the person there where that failed; save only; or neither.",
        ("ask", "deadline", "off"), ("off", "deadline", "ask"),
    ),
    "hooks.before_command_unasked": Setting(
        CHOICE, "notice", "Where it failed and nobody can be asked: tell agent and user and go on, or deny the command.",
        ("notice", "deny"), ("notice", "deny"),
    ),
    "hooks.before_command_deadline": Setting(
        TIME, 5, "How long a destructive command waits for its checkpoint.", (1, 60), HIGHER
    ),
    # The document that describes the state of the work. It bounds what is told, never what is kept.
    "checkpoint.mode": Setting(
        CHOICE, "stateful", "Describe the state of the work in each checkpoint, or only sum it up. Files are kept in both.",
        ("stateful", "summary"), ("stateful", "summary"),
    ),
    "checkpoint.capture_files": Setting(FLAG, True, "Name the session's files in that description.", tighter=ON_OFF),
    "checkpoint.capture_analysis": Setting(
        FLAG, True, "Put task, next steps, decisions and blockers into that description.", tighter=ON_OFF
    ),
    "checkpoint.max_checkpoint_size": Setting(
        SIZE, 10 << 20, "Size of all files in that description; what does not fit is named.", (0, None), LOWER
    ),
    "checkpoint.max_file_size": Setting(SIZE, 1 << 20, "Size of one file in that description.", (0, None), LOWER),
    "checkpoint.exclude_patterns": Setting(
        LIST, ["node_modules/**", "*.log", "*.bin"], "Files that are not in that description.", tighter=MORE
    ),
    "checkpoint.auto_summary_enabled": Setting(
        FLAG, True, "Give automatic checkpoints a summary from the conversation.", tighter=ON_OFF
    ),
    "checkpoint.max_auto_summaries": Setting(
        NUMBER, 10, "How many automatic checkpoints of a session are listed to the agent with their summaries.",
        (0, 1000), LOWER,
    ),
    "checkpoint.cleanup_after_days": Setting(
        NUMBER, 30, "How long daily automatic checkpoints are kept.", (1, 36500), HIGHER
    ),
    # The snapshot: which files are kept.
    "capture.exclude": Setting(
        LIST, list(ALWAYS),
        "Dependency, build and cache folders that are never looked at; the syntax of .gitignore.", tighter=FEWER,
    ),
    "capture.exclude_ignored": Setting(
        LIST, list(IF_IGNORED),
        "Folders that are left out only if .gitignore names them and the file of a tool that makes them lies beside them.",
        tighter=FEWER,
    ),
    "capture.exclude_marked": Setting(
        LIST, ["CACHEDIR.TAG", "pyvenv.cfg"], "A folder that holds such a file is left out.", tighter=FEWER
    ),
    "capture.ignored": Setting(
        CHOICE, "all", "Files that .gitignore leaves out: all, as any other file, small ones, or none.",
        ("all", "small", "none"), ("none", "small", "all"),
    ),
    "capture.ignored_file_size": Setting(
        SIZE, 1 << 20, "Where `capture.ignored` is small: largest ignored file that is kept.", (0, None), HIGHER
    ),
    "capture.ignored_folder_files": Setting(
        NUMBER, 1000,
        "An ignored folder with more files is left out where `capture.ignored` is small, or the tree is over `capture.max_files`.",
        (0, None), HIGHER,
    ),
    "capture.max_file_size": Setting(SIZE, 100 << 20, "Larger files are listed as left out.", (1, None)),
    "capture.max_files": Setting(
        NUMBER,
        200_000,
        "A tree with more files is not saved whole; of it, only what a destructive command names. Twice as many files take"
        " twice the time and memory.",
        (1, None),
    ),
    "capture.accelerator": Setting(FLAG, True, "Use the compiled check of known files where it is there."),
    # How full the model's window is.
    "budget.tokens": Setting(
        NUMBER, 0, "Tokens that count as full; 0: what client and model say.", (0, 100_000_000), LOWER_NOT_ZERO
    ),
    "budget.windows": Setting(
        NUMBERS, {}, "Windows of models, by the beginning of their names, over the table that is built in.", (1000, 100_000_000)
    ),
    # Notes by a model, an extra.
    "analysis.llm": Setting(
        CHOICE, "off", "Who reads the conversation for notes: nobody but our own rules, Anthropic's API, or a command.",
        ("off", "anthropic", "command"), ("command", "anthropic", "off"), from_environment=False,
    ),
    "analysis.command": Setting(
        COMMAND, [], "The command: conversation on its standard input, JSON on its output.", from_environment=False
    ),
    "analysis.model": Setting(TEXT, "", "The model that is asked; empty: the smallest current one.", from_environment=False),
    "analysis.url": Setting(
        URL, "", "Address of the API, https unless it is on this machine; empty: Anthropic's.", from_environment=False
    ),
    "analysis.key_file": Setting(
        PATH, "", "File with the key of the API, readable by you alone.", from_environment=False
    ),
    "analysis.timeout": Setting(TIME, 20, "How long the answer may take.", (1, 600), from_environment=False),
    # How long checkpoints are kept.
    "retention.keep_last": Setting(
        NUMBER, 10, "Newest automatic checkpoints of each session or task that are always kept.", (1, None), HIGHER
    ),
    "retention.hourly_hours": Setting(NUMBER, 24, "For this long, one automatic checkpoint an hour is kept.", (0, None), HIGHER),
    "retention.max_size": Setting(
        SIZE, 10 << 30, "Size of the store from which the oldest automatic ones are thinned.", (1 << 20, None)
    ),
    # What a restore brings back.
    "restore.privileged_attributes": Setting(
        FLAG, False, "Bring back attributes that give rights or belong to the system: `security.*`, `trusted.*`, root's ACLs.",
        from_environment=False,
    ),
    # Where they are kept.
    "store.url": Setting(
        TEXT, "", "Folder of the store for new workspaces; empty: the data folder of the user.", from_environment=False
    ),
    "store.durable": Setting(
        FLAG, True, "Sync every write; false is for benches on a scratch disk only.", from_environment=False
    ),
    # Unattended tasks.
    "supervisor.roots": Setting(
        PATHS, [], "Folders that are searched for workspaces with tasks.", from_environment=False
    ),
    "supervisor.database": Setting(
        TEXT, "", "Address of the task database; empty: a file in the data folder.", from_environment=False
    ),
    "supervisor.agent": Setting(
        COMMAND, ["claude"], "The agent's program and words that it is always given.", from_environment=False
    ),
    "supervisor.permission_mode": Setting(
        CHOICE, "acceptEdits", "What the agent may do unasked, where a task does not say it.",
        ("acceptEdits", "plan", "default", "bypassPermissions"), from_environment=False,
    ),
    "supervisor.concurrency": Setting(NUMBER, 4, "Agents that run at the same time.", (1, 1000), from_environment=False),
    "supervisor.checkpoint_interval": Setting(
        TIME, 600, "Time between checkpoints while an agent runs.", (1, DAY), from_environment=False
    ),
    "supervisor.resume_with": Setting(
        CHOICE, "auto", "How a task goes on: with its history, with the brief, or whichever costs less.",
        ("auto", "history", "brief"), from_environment=False,
    ),
    "supervisor.cold_history": Setting(
        NUMBER, 100_000, "Tokens of history that are sent again after a longer wait, where `resume_with` is auto; 0: any number.",
        (0, None), from_environment=False,
    ),
    "supervisor.max_windows": Setting(
        NUMBER, 3, "Windows of a usage limit that a task may wait through by itself.", (0, 1000), from_environment=False
    ),
    "supervisor.max_attempts": Setting(
        NUMBER, 3, "Attempts at a phase before a human is asked.", (1, 100), from_environment=False
    ),
    "supervisor.max_tokens": Setting(
        NUMBER, 0, "Tokens that a task may use before a human is asked; 0: no limit.", (0, None), from_environment=False
    ),
    "supervisor.stuck_after": Setting(
        TIME, 1800, "A run that says and changes nothing for this long is held for a human.", (10, 7 * DAY),
        from_environment=False,
    ),
    "supervisor.silent_after": Setting(
        TIME, 300, "A run that says nothing for this long is looked at more closely.", (10, 7 * DAY), from_environment=False
    ),
    "supervisor.marker_grace": Setting(
        TIME, 300, "An agent that has said its last word (a marker, an error, a question) and then nothing for this long is ended.",
        (1, 7 * DAY), from_environment=False,
    ),
    "supervisor.pause_grace": Setting(
        TIME, 60, "How long a pause waits for the agent's next step before it ends the process.", (1, 3600),
        from_environment=False,
    ),
    "supervisor.stop_grace": Setting(
        TIME, 15, "How long a process may take to end before it is killed.", (1, 3600), from_environment=False
    ),
    "supervisor.question_timeout": Setting(
        TIME, 1800, "How long an agent's question keeps its process waiting.", (10, 7 * DAY), from_environment=False
    ),
    "supervisor.auto_approve_after": Setting(
        TIME, 0, "A review that nobody answers for this long is approved if its verification passed; 0: never.", (0, 365 * DAY),
        from_environment=False,
    ),
    "supervisor.verify_timeout": Setting(
        TIME, 900, "How long a task's verification may take.", (1, 7 * DAY), from_environment=False
    ),
    "supervisor.allowed_tools": Setting(
        LIST, ["Read", "Glob", "Grep", "Edit", "Write", "TodoWrite"], "Tools that an agent may use unasked.",
        from_environment=False,
    ),
    "supervisor.environment": Setting(
        LIST, [], "Names of further variables that an agent is given from our own environment.", from_environment=False
    ),
    "supervisor.notify_bell": Setting(FLAG, True, "Ring the terminal when a human is needed.", from_environment=False),
    "supervisor.notify_command": Setting(
        COMMAND, [], "Run this when a human is needed: JSON on its standard input.", from_environment=False
    ),
    "supervisor.notify_webhook": Setting(URL, "", "Post JSON here when a human is needed.", from_environment=False),
    "supervisor.notify_ntfy": Setting(
        URL, "", "An ntfy topic that is told when a human is needed.", from_environment=False
    ),
    "supervisor.quiet_hours": Setting(
        HOURS, "", "Local time in which nobody is told; it is made up for afterwards.", from_environment=False
    ),
    # The page.
    "web.host": Setting(TEXT, "127.0.0.1", "Address that the page listens on.", from_environment=False),
    "web.port": Setting(NUMBER, 8765, "Port of the page; 0: any that is free.", (0, 65535), from_environment=False),
    "web.open": Setting(FLAG, True, "Open a browser when the page starts on a desktop.", from_environment=False),
    "web.password_file": Setting(
        PATH, "", "File whose first line is the password (12 characters or more).", from_environment=False
    ),
    "web.tls_certificate": Setting(PATH, "", "Certificate chain; needed beyond this machine.", from_environment=False),
    "web.tls_key": Setting(PATH, "", "The certificate's key.", from_environment=False),
    "web.allowed_hosts": Setting(
        LIST, [], "Further names of the page: `name`, or the origin that a proxy before it shows.", from_environment=False
    ),
    "web.trusted_proxy": Setting(
        LIST, [], "Addresses of reverse proxies, on other machines, whose user header is believed.", from_environment=False
    ),
    "web.proxy_header": Setting(
        TEXT, "", "Header in which such a proxy names the user; empty: none is believed.", from_environment=False
    ),
    "web.proxy_users": Setting(
        LIST, [], "Who may come in through such a proxy: `name:role`, or `name` for a viewer.", from_environment=False
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
"""Short names of variables. Inside hooks only these count, and only to tighten."""


def variable(key: str) -> str:
    """The long name of the variable that sets this key."""
    return "KEEPFAST_" + key.upper().replace(".", "_")
