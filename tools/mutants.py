"""Take out one check at a time and see that its tests notice: `python tools/mutants.py [WORD…]` (`make mutants`).

Each row names a check, the line that makes it, what stands there instead, and the tests that must fail then. The sources are
copied, so that nothing here is changed. A row whose file, line or tests are gone is stale: it is named, the other rows are
tried, and the end is not 0. Checks of the page have rows of their own in tests/web/mutants.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
PATIENCE = 900


class Mutant(NamedTuple):
    check: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = (
    # Access control
    Mutant("hooks take no folder from variables", "present/environment.py",
           "folders or default_folders())", "folders or folders_from(dict(environb)))", "tests/hook/test_environment.py"),
    Mutant("names of the kernel are refused", "present/trust.py",
           "if any(_contains(top, path) for top in KERNEL_FOLDERS):", "if False:", "tests/cli/test_trust.py"),
    Mutant("folders in a project are refused", "present/trust.py",
           "        if inside:\n", "        if False:\n", "tests/cli/test_trust.py"),
    Mutant("folders of others are refused", "present/trust.py",
           'return _foreign_owner(existing) or (_foreign_owner(os.path.dirname(existing)) if os.path.isfile(existing) else "")', 'return ""',
           "tests/cli/test_trust.py"),
    Mutant("a supervisor is believed by its shim", "present/supervision.py",
           'return folder if _process_in(read_start(folder + LOCK_FILE)) in above else ""', "return folder",
           "tests/hook/test_environment.py tests/runner/process/test_guard.py"),
    Mutant("a run that is over silences nobody", "present/supervision.py",
           "if not _is_held(folder + LOCK_FILE):", "if False:",
           "tests/hook/test_environment.py tests/runner/process/test_guard.py"),
    Mutant("a link in the place of a marker is not followed", "workspace/marker.py",
           'folder + b"/" + MARKER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW', 'folder + b"/" + MARKER, O_RDONLY | O_DIRECTORY',
           "tests/cli/test_markers.py tests/hook/test_markers.py"),
    Mutant("a marker counts for its own folder", "settings/ownership.py",
           "return HERE if is_same_folder(folder, where) else ELSEWHERE", "return HERE",
           "tests/cli/test_markers.py tests/hook/test_markers.py"),
    Mutant("an unknown marker counts for nothing", "settings/ownership.py",
           "elif verdict != UNKNOWN or names_known_store(found_marker, store, stores):", "else:",
           "tests/cli/test_markers.py tests/hook/test_markers.py"),
    Mutant("an agent does not say that a folder moved", "cli/init.py",
           "if moved and session.environment.is_agents():", "if False:", "tests/cli/test_markers.py"),
    Mutant("no variable leads Python to another library", "agents/launcher.py",
           "        forget=FORGET,\n", '        forget="",\n', "tests/hook/test_python_variables.py"),
    # No leaks
    Mutant("no cut goes through a secret", "secrets/cuts.py",
           "return text[: min([first + start for start in lost], default=most)]", "return text[:most]",
           "tests/secrets/test_cuts.py"),
    Mutant("keys over two lines are found", "secrets/redaction.py",
           '((sent, JOINT, "\\0"), (text, ESCAPE', '((text, ESCAPE', "tests/secrets/test_services.py"),
    Mutant("keys in pickles are found", "workspace/secret_check.py",
           "if content.endswith(PICKLE_END) and", "if False and", "tests/secrets/test_services.py"),
    Mutant("values without their escapes are known", "secrets/values.py",
           "values.update([_plain(value) for value in values])", "pass", "tests/secrets/test_values.py"),
    Mutant("a short text is compared with every reading of a sealed file", "secrets/values.py",
           "tuple(dict.fromkeys([*readings, *map(_plain, readings)]))", "tuple(readings)", "tests/secrets/test_values.py"),
    Mutant("weak passphrases are refused", "secrets/strength.py",
           "return int(min(bits, MAX_BITS_PER_CHARACTER * len(set(folded))))", "return 1000", "tests/secrets/test_strength.py"),
    Mutant("a rotated key seals no more", "store/keys.py",
           '{**entry, "seals": False} if _id(entry) in opened else entry', "entry", "tests/store/test_keys.py"),
    Mutant("old keys go at a rotation", "store/keys.py",
           "            for path in old:\n                _unlink(path)\n", "            for path in ():\n                _unlink(path)\n",
           "tests/store/test_keys.py"),
    Mutant("what people write into tasks is sealed", "runner/actions/vault.py",
           "return Marked(_marked(runtime, value, name, sealed), sealed)", "return Marked(value, sealed)",
           "tests/runner/test_leaks.py"),
    Mutant("copies of sealed files are sealed", "workspace/reader.py",
           "return group in self._sealed_groups or self.sink.is_copy(size, data)", "return group in self._sealed_groups",
           "tests/store/test_sealed_copies.py"),
    Mutant("hard links to sealed files are sealed", "workspace/reader.py",
           "return group in self._sealed_groups or self.sink.is_copy(size, data)", "return self.sink.is_copy(size, data)",
           "tests/store/test_sealed_copies.py"),
    Mutant("what may be secret is read first", "workspace/reader.py",
           "    candidates.sort(key=_rank)\n", "", "tests/store/test_sealed_copies.py"),
    Mutant("tiny contents are no copies", "store/sealed_copies.py",
           "        if size < MIN_BYTES:\n", "        if False:\n", "tests/store/test_sealed_copies.py"),
    Mutant("backups of secret files are secret", "secrets/marks.py",
           "        if original != name:\n", "        if False:\n", "tests/store/test_secret_files.py"),
    Mutant("values of sealed files are in no brief", "app/resume.py",
           "redact=secrets.redact_text", "redact=redact", "tests/hook/test_work_summary.py"),
    Mutant("values of sealed files are in no notes", "app/worker.py",
           "secrets = KnownSecrets(engine.repository(), place[1] if place is not None else \"\")",
           "secrets = KnownSecrets(engine.repository(), \"\")", "tests/hook/test_work_summary.py"),
    # Errors are reported; nothing hangs
    Mutant("the reserve is renewed before a save", "store/reserve.py",
           "            _grow(folder, required)\n", "            pass\n", "tests/faults/test_reserve.py"),
    Mutant("a reserve that was used is taken back", "store/reserve.py",
           "                _reclaim(folder)\n", "                pass\n", "tests/faults/test_reserve.py tests/faults/test_full_store.py"),
    Mutant("turns that lead nowhere are attempts", "runner/scheduler/outcomes.py",
           "if attempts < self.runtime.options.max_attempts:\n            self._back_off(tables, BACKOFF, attempts, self.judged.reason)",
           "if True:\n            self._back_off(tables, BACKOFF, attempts, self.judged.reason)", "tests/runner/scheduler/test_runaway.py"),
    Mutant("a runaway task is held", "runner/scheduler/turns.py",
           "if len(begun) < RUNAWAY_FACTOR * self.runtime.options.max_attempts:", "if True:", "tests/runner/scheduler/test_runaway.py"),
    Mutant("fields of a header are what they should be", "model/header.py",
           "    for names, is_good in _RULES:\n", "    for names, is_good in ():\n", "tests/model/test_header.py tests/store/test_bundle.py"),
    Mutant("notes of a header are what they should be", "model/header.py",
           'if valid_notes(header.get("notes", {})) != header.get("notes", {}):', "if False:", "tests/model/test_header.py tests/store/test_bundle.py"),
    Mutant("unpacking is bounded", "store/bundle.py",
           "if self.unpacked > MAX_UNPACKED + UNPACKED_FACTOR * self._whole:", "if False:", "tests/store/test_bundle.py"),
    Mutant("a manifest is bounded", "store/bundle.py", " or manifest > MAX_MANIFEST:", ":", "tests/store/test_bundle.py"),
    Mutant("attributes that give rights are asked for", "workspace/staged_files.py",
           "if not self._may_set(key):", "if False:",
           "tests/store/test_bundle.py tests/app/restore/test_entry_kinds.py"),
    Mutant("a tree that is too large is told", "app/hooks.py",
           "self._broken_settings_warning() or self._failed_save_warning() or self._never_saved_warning()",
           "self._broken_settings_warning()",
           "tests/hook/test_unsaved_folders.py"),
    Mutant("who destroys something hears of a store that is out of reach", "app/hooks.py",
           "if threat is None or not threat.is_certain:", "if True:", "tests/hook/test_unsaved_folders.py tests/cli/test_lost_store.py"),
    Mutant("what a destructive command names is kept in a large tree", "app/hooks.py",
           'if threat is not None and b"" not in paths and self._is_too_large():', "if False:", "tests/hook/test_unsaved_folders.py"),
    Mutant("a tree that may be too large is counted without the lock", "app/checkpoint.py",
           "            self.refuse_too_many(root, FOREVER)\n", "            pass\n", "tests/hook/test_unsaved_folders.py"),
)  # fmt: skip


def main(words: list[str]) -> int:
    failed = 0
    chosen = [one for one in MUTANTS if all(word in one.check for word in words)]
    for mutant in chosen:
        why = stale(mutant)
        said = "STALE" if why else tried(mutant)
        failed += said != "caught"
        print(f"{said:9} {mutant.check} ({mutant.file}){': ' if why else ''}{why}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


def stale(mutant: Mutant) -> str:
    """Return why the row is stale; empty if its line occurs exactly once in its file and its tests exist."""
    path = HERE / "src/keepfast" / mutant.file
    if not path.is_file():
        return "there is no such file"
    places = path.read_text().count(mutant.old)
    if places != 1:
        return f"its text stands there {places} times: {mutant.old!r}"
    gone = [name for name in mutant.tests.split() if not (HERE / name).is_file()]
    return f"no such tests: {', '.join(gone)}" if gone or not mutant.tests else ""


def tried(mutant: Mutant) -> str:
    """Run the tests on a copy without this check: `caught` if one of them fails."""
    with tempfile.TemporaryDirectory(prefix="keepfast-mutant-") as name:
        folder = Path(name)
        for part in ("src", "tests", "tools", "docs", "plugin", ".claude-plugin", "bench", "examples"):
            shutil.copytree(HERE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "setup.py", "CHANGELOG.md", "LICENSE"):
            shutil.copy(HERE / part, folder / part)
        path = folder / "src/keepfast" / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests.split()]
        variables = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "TOO LONG"
        if done.returncode == 1:
            return "caught"
        return "SURVIVED" if done.returncode == 0 else f"exit {done.returncode}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
