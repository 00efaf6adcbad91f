"""Settings of a long-running process: reloaded when one of their files changes; an unreadable file changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from os import stat

from keepfast.model.errors import KeepfastError
from keepfast.settings import FLAG, PROJECT_FILE, Settings, load, project_root

Stamp = tuple[tuple[int, int, int, int] | None, ...]


class LiveSettings:
    """Settings that follow their files: `now()` returns the current ones, `generation` grows with every change."""

    def __init__(
        self,
        path: str,
        variables: Mapping[str, str],
        cwd: bytes | None = None,
        *,
        required: bool = False,
        agent: bool = False,
        flags: Mapping[str, object] | None = None,
        stores: str = "",
    ) -> None:
        """Load the settings. Raises what `load` raises: a process must not start with part of its settings."""
        self._path, self._variables, self._cwd, self._required = path, variables, cwd, required
        self._agent = agent
        self._flags, self._stores = dict(flags or {}), stores
        self._settings = Settings()
        self.generation = 1
        self.problem = ""
        """Why the present files could not be loaded; empty if they were."""
        self._stamp = self._stamped()
        self._settings = self._load()

    def now(self) -> Settings:
        """Return the current settings; costs two calls of `stat` if nothing has changed."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._settings = self._load()
                self.problem = ""
                self.generation += 1
            except KeepfastError as error:
                self.problem = f"{error} {error.hint}"
        return self._settings

    def _load(self) -> Settings:
        store = str(self._flags.get("store.url", ""))
        settings = load(
            self._path,
            self._variables,
            self._cwd,
            required=self._required,
            agent=self._agent,
            stores=self._stores,
            store=store,
        )
        for key, value in self._flags.items():
            settings.put(key, value, FLAG)
        return settings

    def _stamped(self) -> Stamp:
        root = project_root(self._settings["store.url"], self._cwd, self._stores) if self._cwd is not None else None
        places = [self._path.encode("utf-8", "surrogateescape")]
        if root is not None:
            places.append(root + PROJECT_FILE)
        return tuple([_stamp(place) for place in places])


def _stamp(path: bytes) -> tuple[int, int, int, int] | None:
    try:
        seen = stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
