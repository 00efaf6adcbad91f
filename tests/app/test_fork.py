"""A fork is the checkpoint's state in a folder of its own; nothing of the source runs or changes, and work comes home."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from keepfast.workspace.git_clone import GitPlumbing
from tests.equipment.box import Box
from tests.equipment.wild_tree import contents, look, wild
from tests.faults.disks import formatted, missing

CLEAN = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
NAME = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str, text: bytes = b"") -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**CLEAN, **NAME}, capture_output=True, check=True, input=text
    )
    return done.stdout.decode()


def forked(box: Box, *words: str, cwd: Path | None = None) -> Path:
    answer = box.call("fork", *words, "--json", cwd=cwd)
    assert answer.code == 0, answer
    assert answer.json()["same"] and not answer.json()["kept"], answer
    return Path(answer.json()["root"])


# The folder


@pytest.mark.parametrize("folder", ["/", "/etc", "~"])
def test_a_fork_goes_into_no_folder_that_init_refuses(box: Box, folder: str) -> None:
    """By that rule, and not only because something is in the way there."""
    folder = str(box.home) if folder == "~" else folder

    done = box.call("fork", "v1", folder, "--json")

    assert (done.code, done.json()["error"]["kind"]) == (2, "refused")
    assert not Path(folder, ".keepfast").exists()


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_a_fork_shares_the_blocks_of_files_that_did_not_change(kind: str, tmp_path: Path) -> None:
    if reason := missing("mount", "losetup", f"mkfs.{kind}"):
        pytest.skip(reason)
    with formatted(tmp_path / "disk", kind, 512) as disk:
        box = Box(disk / "box")
        box.variables["XDG_DATA_HOME"] = str(tmp_path / "elsewhere")  # the store's own copy is not counted
        assert box.call("init").code == 0
        large, small = os.urandom(40 << 20), os.urandom(3 << 20)
        box.put("large", large)
        box.put("changed", small)
        box.put("run.sh", "#!/bin/sh\n").chmod(0o755)
        box.save()
        box.put("changed", os.urandom(3 << 20))
        os.sync()
        before = os.statvfs(disk).f_bfree * os.statvfs(disk).f_frsize

        folder = forked(box, "v1", str(disk / "fork"))

        os.sync()
        taken = before - os.statvfs(disk).f_bfree * os.statvfs(disk).f_frsize
        assert (folder / "large").read_bytes() == large
        assert (folder / "changed").read_bytes() == small  # from the store: the file on disk is another one by now
        assert (folder / "run.sh").stat().st_mode & 0o777 == 0o755
        assert taken < 20 << 20, f"{taken:,} bytes for a fork of 43 MB"
        (folder / "large").write_bytes(b"mine")
        assert (box.project / "large").read_bytes() == large


def test_a_fork_where_no_blocks_can_be_shared_is_a_copy(box: Box, tmp_path: Path) -> None:
    then = box.call("cat", "v1", "plain.txt").raw
    box.put("plain.txt", "X" * len(then))  # the same size: it has to be looked into

    folder = forked(box, "v1", str(tmp_path / "fork"))

    assert (folder / "plain.txt").read_bytes() == then


def test_a_fork_is_the_state_with_bytes_modes_links_and_times(box: Box) -> None:
    base = Box(box.base.parent / "again")
    base.call("init")
    wild(base.project)
    base.save()
    before = look(base.project)

    folder = forked(base, "v1", "../copy")

    assert look(folder) == before
    assert look(base.project) == before
    sparse = os.lstat(folder / "sparse")
    assert sparse.st_blocks * 512 < sparse.st_size


def test_older_versions_can_be_forked(box: Box) -> None:
    for version in ("v1", "v2", "v3"):
        folder = forked(box, version, f"../{version}")

        assert box.call("restore", version, "-y", "--theirs").code == 0
        assert contents(folder) == contents(box.project)


def test_a_fork_is_a_workspace_of_its_own_that_knows_its_parent(box: Box) -> None:
    folder = forked(box, "v2", "../copy")
    source = box.versions()
    (folder / "mine").write_text("only here")

    assert box.call("save", cwd=folder).code == 0

    assert [row["version"] for row in box.call("list", "--json", cwd=folder).json()] == ["v2", "v1"]
    assert box.versions() == source
    first = box.call("show", "v1", "--json", cwd=folder).json()
    assert first["trigger"] == "fork" and first["pinned"]
    assert first["message"] == f"fork of v2 of {box.project}"
    assert first["tags"] == ["fork of " + box.call("show", "v2", "--json").json()["id"]]
    assert first["tree"] == box.call("show", "v2", "--json").json()["tree"]
    assert box.call("verify").code == 0
    assert box.call("rebuild").code == 0
    assert box.call("status", cwd=folder).code == 0


def test_without_a_reference_the_newest_is_forked(box: Box, tmp_path: Path) -> None:
    box.put("newest.txt", "x\n")
    box.save()

    assert box.call("fork", str(tmp_path / "trial")).code == 0
    assert (tmp_path / "trial/newest.txt").read_text() == "x\n"
    assert (box.call("fork", "@").code, box.call("fork", "v1").code) == (2, 2)


def test_a_fork_of_a_fork_has_the_fork_as_parent(box: Box) -> None:
    one = forked(box, "v1", "../one")
    (one / "more").write_text("x")
    box.call("save", cwd=one)

    answer = box.call("fork", "v2", "../two", "--json", cwd=one).json()

    assert contents(box.home / "two") == contents(one)
    assert answer["parent"] == box.call("status", "--json", cwd=one).json()["workspace"]["id"]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(box: Box) -> None:
    (box.home / "empty").mkdir()
    (box.home / "full").mkdir()
    (box.home / "full/x").touch()
    (box.home / "file").touch()

    assert box.call("fork", "v1", "../empty").code == 0
    assert box.call("fork", "v1", "../full").code == 14
    assert box.call("fork", "v1", "../file").code == 14
    assert os.listdir(box.home / "full") == ["x"]
    assert b"plain.txt" in contents(box.home / "empty")
    assert [name for name in os.listdir(box.home) if name.startswith(".") and "fork" in name] == []


def test_a_fork_inside_the_workspace_is_refused_unless_it_is_left_out(box: Box) -> None:
    assert box.call("fork", "v1", "deep/copy").code == 2
    assert box.call("fork", "v1", ".keepfast/copy").code == 2
    assert box.call("fork", "v1", ".").code in (2, 14)
    assert box.call("fork", "v1", str(box.store / "copy")).code == 2
    assert not (box.project / "deep/copy").exists()

    assert box.call("fork", "v1", "node_modules/copy").code == 0
    box.put(".gitignore", "out/\n")
    box.put("Makefile")
    assert box.call("fork", "v1", "out/copy").code == 0
    named = box.call("diff", "v3", "--name-only").out.splitlines()
    assert [line.partition(" (excluded")[0] for line in named] == [
        "A  .gitignore",
        "A  Makefile",
        "-  node_modules",
        "-  out",
    ]


def test_what_was_left_out_is_named(box: Box) -> None:
    (box.project / "node_modules").mkdir()
    os.mkfifo(box.project / "pipe")
    box.save()

    answer = box.call("fork", "latest", "../copy", "--json").json()

    assert [one["path"] for one in answer["left_out"]] == ["node_modules", "pipe"]
    said = box.call("fork", "latest", "../copy2").err
    assert "skipped node_modules" in said


def test_the_next_save_in_a_fork_finds_nothing_changed(box: Box) -> None:
    folder = forked(box, "v3", "../copy")

    assert box.call("save", "--auto", "--json", cwd=folder).json()["status"] == "unchanged"


def test_exit_codes(box: Box, other: Box) -> None:
    assert box.call("fork").code == 2
    assert box.call("fork", "v1").code == 2
    assert box.call("fork", "v9", "../x").code == 4
    assert box.call("fork", "cp-zzz", "../x").code == 4
    assert other.call("fork", "v1", "../x").code == 3
    assert box.call("fork", "v1", "../x", "--patch", "y").code == 2
    assert box.call("fork", "v1", "../x", "--git").code == 4  # there is no repository
    assert box.call("fork", "--back", "../nothing").code == 2
    assert not (box.home / "x").exists()


def test_a_failure_leaves_no_folder_behind(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepfast.workspace.apply import Apply

    def full(self: Apply, plan: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Apply, "run", full)
    before = sorted(os.listdir(box.home))

    assert box.call("fork", "v1", "../copy").code == 1
    assert sorted(os.listdir(box.home)) == before


# With git


@pytest.fixture
def repository(tmp_path: Path) -> Box:
    """A repository with two commits and a work tree that differs from both."""
    box = Box(tmp_path / "git")
    git(box.project, "init", "-q", "-b", "main")
    box.put("tracked", "one\ntwo\nthree\n")
    box.put("src/kept", "kept\n")
    box.put("src/gone", "gone\n")
    box.put(".gitignore", "*.log\n")
    (box.project / "link").symlink_to("tracked")
    git(box.project, "add", ".")
    git(box.project, "commit", "-qm", "first")
    box.put("tracked", "one\ntwo\nthree\nfour\n")
    git(box.project, "commit", "-qam", "second")
    (box.project / ".git/info/exclude").write_text("*.private\n")
    box.call("init")
    box.put("tracked", "one\n2\nthree\nfour\n")
    (box.project / "src/gone").unlink()
    box.put("new", "untracked\n")
    box.put("some.log", "ignored\n")
    box.put("my.private", "excluded\n")
    (box.project / "src/kept").chmod(0o755)
    box.save()
    return box


def bytes_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def test_a_fork_with_git_shows_the_difference_between_commit_and_checkpoint(repository: Box) -> None:
    box, before = repository, bytes_of(repository.project / ".git")

    folder = forked(box, "v1", "../copy", "--git")

    assert bytes_of(box.project / ".git") == before
    expected = git(box.project, "status", "--porcelain", "--ignored=no")
    assert git(folder, "status", "--porcelain") == expected == " D src/gone\n M src/kept\n M tracked\n?? new\n"
    assert git(folder, "rev-parse", "HEAD") == git(box.project, "rev-parse", "HEAD")
    assert git(folder, "log", "--format=%s") == "second\nfirst\n"
    assert git(folder, "branch", "--show-current") == "keepfast/v1\n"
    assert git(folder, "fsck", "--full", "--strict") == ""
    assert contents(folder) == contents(box.project)
    assert not (folder / ".git/objects/info/alternates").exists()


def test_the_fork_is_at_the_commit_of_the_checkpoint_not_at_the_newest(repository: Box) -> None:
    old = git(repository.project, "rev-parse", "HEAD")
    git(repository.project, "commit", "-qam", "third")
    git(repository.project, "pack-refs", "--all")
    git(repository.project, "gc", "-q")

    folder = forked(repository, "v1", "../copy", "--git")

    assert git(folder, "rev-parse", "HEAD") == old


def test_a_worktree_can_be_forked(repository: Box) -> None:
    git(repository.project, "worktree", "add", "-q", "../tree", "-b", "side")
    tree = repository.home / "tree"
    repository.call("init", cwd=tree)
    repository.call("save", cwd=tree)

    folder = forked(repository, "v1", "../copy", "--git", cwd=tree)

    assert git(folder, "status", "--porcelain") == ""


def test_a_commit_that_is_gone_is_a_sentence(repository: Box) -> None:
    git(repository.project, "checkout", "-q", "--orphan", "other")
    git(repository.project, "commit", "-qam", "unrelated")
    git(repository.project, "branch", "-D", "main")
    git(repository.project, "reflog", "expire", "--expire=all", "--all")
    git(repository.project, "gc", "-q", "--prune=now")

    answer = repository.call("fork", "v1", "../copy", "--git")

    assert answer.code == 4
    assert "is no longer in" in answer.err
    assert not (repository.home / "copy").exists()
    assert repository.call("fork", "v1", "../copy").code == 0


def test_without_git_a_sentence(repository: Box) -> None:
    repository.variables["PATH"] = "/nowhere:relative"

    answer = repository.call("fork", "v1", "../copy", "--git")

    assert answer.code == 2
    assert "git is not installed" in answer.err


def test_a_hostile_repository_runs_nothing(repository: Box) -> None:
    """Everything in `.git` that can name a program names one that would leave a mark."""
    box, marks = repository, repository.home / "marks"
    marks.mkdir()
    program = box.put("evil", f'#!/bin/sh\necho "$0 $@" >> {marks}/ran\nexit 1\n')
    program.chmod(0o755)
    hooks = box.project / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman",
                 "post-update", "pre-auto-gc", "sendemail-validate"):  # fmt: skip
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    with open(box.project / ".git/config", "a") as file:
        file.write(f"""
[core]
\tfsmonitor = {program}
\thooksPath = {hooks}
\tsshCommand = {program}
\tpager = {program}
\teditor = {program}
\taskPass = {program}
\tgitProxy = {program}
\talternateRefsCommand = {program}
\tattributesFile = {box.project}/attributes
[filter "evil"]
\tclean = {program}
\tsmudge = {program}
\tprocess = {program}
\trequired = true
[diff]
\texternal = {program}
[uploadpack]
\tpackObjectsHook = {program}
[credential]
\thelper = !{program}
[remote "origin"]
\turl = ext::{program}
\tuploadpack = {program}
\tpromisor = true
[extensions]
\tpartialClone = origin
[include]
\tpath = {box.project}/included
[alias]
\tinit = !{program}
\tpack-objects = !{program}
[gpg]
\tprogram = {program}
""")
    box.put("included", f"[core]\n\tfsmonitor = {program}\n")
    box.put("attributes", "* filter=evil\n")
    box.put(".gitattributes", "* filter=evil diff=evil\n")
    box.put("git", f"#!/bin/sh\ntouch {marks}/git\n").chmod(0o755)
    box.save()
    box.variables["PATH"] = f"{box.project}:.:{box.variables['PATH']}"
    box.variables |= {
        "GIT_DIR": str(box.project / ".git"), "GIT_SSH_COMMAND": str(program), "GIT_EXTERNAL_DIFF": str(program),
        "GIT_EXEC_PATH": str(box.project), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(program), "GIT_TEMPLATE_DIR": str(box.project / ".git"),
    }  # fmt: skip
    (box.home / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n")
    before = bytes_of(box.project / ".git")

    answer = box.run("fork", "latest", "../copy", "--git")
    back = box.run("fork", "--back", "../copy")
    branch = box.run("fork", "--back", "../copy", "--branch", "trial")

    assert (answer.code, back.code, branch.code) == (0, 0, 0), answer
    assert list(marks.iterdir()) == []
    assert bytes_of(box.project / ".git") == before
    config = (box.home / "copy/.git/config").read_text()
    assert "evil" not in config
    assert not (box.home / "copy/.git/hooks").exists()
    subprocess.run(["git", "status"], cwd=box.project, env=CLEAN, capture_output=True, timeout=20, check=False)
    assert (marks / "ran").exists()  # the traps are set: an ordinary git walks into them
    assert git(box.home / "copy", "rev-parse", "HEAD") == git(
        box.project, "-c", "core.fsmonitor=false", "rev-parse", "HEAD"
    )


def test_a_part_of_a_repository_is_forked_without_git_only(repository: Box) -> None:
    part = repository.project / "src"
    repository.call("init", cwd=part)
    repository.call("save", cwd=part)

    assert repository.call("fork", "v1", str(repository.home / "copy"), "--git", cwd=part).code == 2
    assert repository.call("fork", "v1", str(repository.home / "copy"), cwd=part).code == 0


def test_odd_paths_of_repositories_are_no_trouble(tmp_path: Path) -> None:
    box = Box(tmp_path / 'a:b "c"\\ 한')
    git(box.project, "init", "-q")
    box.put("x", "x")
    git(box.project, "add", ".")
    git(box.project, "commit", "-qm", "c")
    box.call("init")
    box.save()

    assert git(forked(box, "v1", "../c:d", "--git"), "status", "--porcelain") == ""


# The way home


def test_work_in_a_fork_comes_home_as_a_patch(repository: Box) -> None:
    box = repository
    folder = forked(box, "v1", "../copy", "--git")
    (folder / "tracked").write_text("one\n2\nthree and a half\nfour\n")
    (folder / "src/added").write_text("new file\n")
    (folder / "src/added").chmod(0o755)
    (folder / "new").unlink()
    (folder / "link").unlink()
    (folder / "link").symlink_to("src/kept")
    (folder / "some.log").write_text("changed, ignored\n")
    os.rename(folder / "src/kept", os.fsencode(folder) + b"/src/\xff odd")
    (folder / "binary").write_bytes(b"a\0b")
    (folder / "hollow").mkdir()
    git_before = bytes_of(box.project / ".git")

    answer = box.call("fork", "--back", "../copy", "--json")
    written = box.call("fork", "--back", "../copy", "--patch", "../p")

    assert written.code == 0
    assert [one["path"] for one in answer.json()["omitted"]] == ["binary", "hollow"]
    assert box.call("fork", "--back", "../copy", "--patch", "../p").code == 14
    assert box.call("fork", "--back", "../copy").raw == (box.home / "p").read_bytes()
    assert bytes_of(box.project / ".git") == git_before
    git(box.project, "apply", str(box.home / "p"))
    (folder / "binary").unlink()
    (folder / "hollow").rmdir()
    assert contents(box.project) == contents(folder)


def test_a_fork_without_changes_gives_an_empty_patch(box: Box) -> None:
    forked(box, "v2", "../copy")

    answer = box.call("fork", "--back", "../copy")

    assert answer.code == 0
    assert answer.out == ""


def test_only_forks_of_this_workspace_come_home(box: Box) -> None:
    one = forked(box, "v1", "../one")
    two = forked(box, "v1", "../two", cwd=one)

    assert box.call("fork", "--back", str(two)).code == 2
    assert box.call("fork", "--back", str(two), cwd=one).code == 0
    assert box.call("fork", "--back", str(box.project)).code == 2


def test_a_branch_comes_home_by_a_command_that_is_only_said(repository: Box) -> None:
    box = repository
    folder = forked(box, "v1", "../copy", "--git")
    (folder / "tracked").write_text("done\n")
    git(folder, "commit", "-qam", "in the fork")
    before = bytes_of(box.project / ".git")

    said = box.call("fork", "--back", "../copy", "--branch", "trial")

    assert said.out == f"git fetch {folder} keepfast/v1:trial\n"
    assert bytes_of(box.project / ".git") == before
    git(box.project, *said.out.split()[1:])
    assert git(box.project, "log", "-1", "--format=%s", "trial") == "in the fork\n"
    assert box.call("fork", "--back", "../copy", "--branch", "t", "--json").json()["command"][:2] == ["git", "fetch"]
    plain = forked(box, "v1", "../plain")
    assert box.call("fork", "--back", str(plain), "--branch", "t").code == 4


def test_answers_have_the_keys_that_the_page_names(box: Box, other: Box) -> None:
    from tests.cli.test_docs import documented, keys_of

    os.mkfifo(box.project / "pipe")
    box.save()
    answers = {
        "fork": box.call("fork", "latest", "../copy", "--json"),
        "fork --back": box.call("fork", "--back", "../copy", "--json"),
        "export": box.call("export", "v1", "../x", "--json"),
        "import": other.call("import", str(box.home / "x"), "--json"),
    }

    for section, answer in answers.items():
        assert answer.code == 0, answer
        assert keys_of(answer.json(), ("checkpoint", "checkpoints", "from")) <= documented(section), section


@pytest.mark.parametrize("folder", ["{project}/bin", "/proc/self/cwd/bin", "//proc/self/cwd/bin", "{link}", "bin", ""])
def test_no_git_of_the_project_itself_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """A repository's client settings can put any folder in front of the search path."""
    project, link = tmp_path / "project", tmp_path / "link"
    (project / "bin").mkdir(parents=True)
    link.symlink_to(project / "bin")
    (project / "bin/git").write_text("#!/bin/sh\n")
    (project / "bin/git").chmod(0o755)
    monkeypatch.chdir(project)
    first = folder.format(project=project, link=link)

    git = GitPlumbing(f"{first}:{os.environ['PATH']}", os.fsencode(project))

    assert not os.path.realpath(git.program).startswith(str(project))
