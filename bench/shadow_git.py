"""Shadow git, as agents run it and as well as it can be run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from .measure import Usage, run
from .peer import MARKER, Peer


class Git(Peer):
    """Shadow git: a GIT_DIR outside the tree, no user or system settings, `gc` only when asked."""

    settings: ClassVar[dict[str, str]] = {}

    def environment(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.store),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_OPTIONAL_LOCKS": "1",
        }

    def opening(self) -> list[list[str]]:
        # Automatic gc would run in the background, while another tool is being measured.
        settings = {"gc.auto": "0", "maintenance.auto": "false", "core.autocrlf": "false", **self.settings}
        settings |= {"user.name": "bench", "user.email": "bench@localhost", "commit.gpgSign": "false"}
        return [["git", "init", "-q"], *(["git", "config", key, value] for key, value in settings.items())]

    def begin(self) -> None:
        super().begin()
        exclude = self.store / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text(f"{MARKER}/\n")

    def compact(self, timeout: float) -> Usage | None:
        return run(["git", "gc", "--quiet", "--prune=now"], self.tree, self.env, timeout)

    def count(self) -> int:
        return self.ask(["git", "ls-files", "-z"]).count("\0")


class GitCline(Git):
    """Shadow git as Cline runs it: `git add . --ignore-errors`, then a commit."""

    name = "git-cline"
    about = "git add . --ignore-errors, git commit --allow-empty; default settings"

    def saving(self) -> list[list[str]]:
        commit = ["git", "commit", "--quiet", "--allow-empty", "--no-verify", "-m", "checkpoint"]
        return [["git", "add", ".", "--ignore-errors"], commit]

    def reading(self, path: str) -> list[str]:
        return ["git", "cat-file", "blob", f"HEAD:{path}"]


class GitTuned(Git):
    """The strongest shadow git: every setting that helps a large tree, and no commit."""

    name = "git-tuned"
    about = "feature.manyFiles, index v4, untracked cache, index.threads; git add -A, git write-tree"
    settings: ClassVar[dict[str, str]] = {
        "feature.manyFiles": "true",
        "index.version": "4",
        "index.threads": "true",
        "core.untrackedCache": "true",
        "core.preloadIndex": "true",
        "core.fsmonitor": "false",
    }

    def __init__(self, folder: Path, tree: Path) -> None:
        super().__init__(folder, tree)
        self.trees: list[str] = []

    def saving(self) -> list[list[str]]:
        return [["git", "add", "-A"], ["git", "write-tree"]]

    def save(self) -> Usage:
        usage = super().save()
        self.trees.append(usage.output.split()[-1])
        return usage

    def reading(self, path: str) -> list[str]:
        return ["git", "cat-file", "blob", f"{self.trees[-1]}:{path}"]

    def compact(self, timeout: float) -> Usage | None:
        # gc packs only what a ref reaches, so the saved trees are first chained as commits. This is not measured.
        parent: list[str] = []
        for tree in dict.fromkeys(self.trees):
            commit = self.ask(["git", "commit-tree", tree, *parent, "-m", "checkpoint"]).strip()
            parent = ["-p", commit]
        self.ask(["git", "update-ref", "refs/heads/checkpoints", parent[-1]])
        return super().compact(timeout)


class GitTunedFsync(GitTuned):
    """The same, and each object reaches the disk before git goes on."""

    name = "git-tuned+fsync"
    about = "git-tuned with core.fsync=all"
    settings: ClassVar[dict[str, str]] = {**GitTuned.settings, "core.fsync": "all"}
