"""Which paths a command names: exactly, by a pattern, as removed with all below, or as the place where files are put."""

from __future__ import annotations

import pytest

from keepfast.shell.named_paths import NamedPaths

CWD = "/home/me/project"


def named(command: str) -> NamedPaths:
    return NamedPaths(command, CWD)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("sed -i s/a/b/ src/one.py", "src/one.py"),
        ("cat > 'two words.txt'", "two words.txt"),
        ("cd src && echo x > one.py", "src/one.py"),
        ("touch ./src/../one.py", "one.py"),
        ("touch src/*.py", "src/one.py"),
        ("make --output=one.py", "one.py"),
        ("dd if=/dev/zero of=disk.img", "disk.img"),
        (f"touch {CWD}/one.py", "one.py"),
        ("FOO=1 sudo touch one.py", "one.py"),
        ("a; b | tee one.py", "one.py"),
    ],
)
def test_a_command_names(command: str, path: str) -> None:
    assert named(command).means(f"{CWD}/{path}")


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("make all", "one.py"),
        ("touch *.py", "src/one.py"),
        ("touch src", "src/one.py"),
        ("find . -name '*.py' -exec touch {} +", "src/one.py"),
        ("touch $FILE", "one.py"),
    ],
)
def test_a_command_does_not_name(command: str, path: str) -> None:
    assert not named(command).means(f"{CWD}/{path}")


@pytest.mark.parametrize(
    "command", ["rm -rf src", "git rm -r src", "rm -r s*", "sudo rm -rf ./src/", "mv src old", "git mv src old"]
)
def test_what_is_removed_goes_with_all_below_it(command: str) -> None:
    assert named(command).removes(f"{CWD}/src/deep/one.py")
    assert not named(command).removes(f"{CWD}/other/one.py")


@pytest.mark.parametrize(
    ("command", "path"),
    [("mv a.txt b.txt", "b.txt"), ("cp a.txt folder", "folder/a.txt"), ("install -m 644 a.txt b.txt", "b.txt")],
)
def test_where_files_are_put(command: str, path: str) -> None:
    assert named(command).places(f"{CWD}/{path}")


@pytest.mark.parametrize(
    ("command", "edits", "extracts"),
    [
        ("grep -rl x | xargs sed -i s/a/b/", True, False),
        ("find . -exec perl -pi -e s/a/b/ {} +", True, False),
        ("git reset --hard", True, False),
        ("git reset one.py", False, False),
        ("sed -n 1p one.py", False, False),
        ("tar xzf a.tgz", False, True),
        ("tar -C out -xf a.tar", False, True),
        ("tar czf a.tgz src", False, False),
        ("unzip -o a.zip", False, True),
    ],
)
def test_commands_that_choose_files_themselves(command: str, edits: bool, extracts: bool) -> None:
    assert (named(command).edits_in_place, named(command).extracts) == (edits, extracts)


@pytest.mark.parametrize("command", ["", "'", "$(", "<<E", "((", "\x00", "cd", "git", "x" * 70_000, "a" + "|" * 5000])
def test_any_text_is_read(command: str) -> None:
    named(command)
