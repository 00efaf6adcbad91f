"""`make demo`: the whole main job in a temporary folder, on the embedded defaults, the way a person would do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import demo_client

BOLD, DIM, RESET = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "")
KEEPFAST = [sys.executable, "-m", "keepfast"]


class Demo:
    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder / "home"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "TERM": os.environ.get("TERM", "dumb"),
            "COLUMNS": "100",
        }
        (folder / "home").mkdir()

    def say(self, text: str) -> None:
        print(f"\n{BOLD}# {text}{RESET}", flush=True)

    def run(self, *arguments: str) -> None:
        """Show a command as a person would type it, run it, and stop the demo if it fails."""
        shown = " ".join(f"'{word}'" if " " in word else word for word in arguments)
        print(f"{DIM}${RESET} keepfast {shown}", flush=True)
        colour = ["--color", "always"] if sys.stdout.isatty() else []
        subprocess.run([*KEEPFAST, *colour, *arguments], cwd=self.project, env=self.environment, check=True)

    def write(self, name: str, content: str | bytes, mode: int = 0o644) -> None:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)


def make_project(demo: Demo) -> None:
    demo.write(".gitignore", ".env\nnode_modules/\n")
    demo.write(".env", "API_KEY=made-up\n", 0o600)
    demo.write("README.md", "# Shop\n\nSells kelp.\n")
    demo.write(
        "src/cart.py", "def total(prices):\n    return sum(prices)\n\n\ndef count(items):\n    return len(items)\n"
    )
    demo.write("src/pay.py", "def pay(amount):\n    print('paid', amount)\n")
    demo.write("run.sh", "#!/bin/sh\npython3 -m src.pay\n", 0o755)
    demo.write("assets/photo.bin", bytes(range(256)) * 20_000)
    demo.write("node_modules/left-pad/index.js", "module.exports = x => x\n")
    (demo.project / "uploads").mkdir()
    (demo.project / "latest").symlink_to("src/cart.py")


def damage(demo: Demo) -> None:
    """Damage the project as a misbehaving agent would."""
    cart = demo.project / "src/cart.py"
    cart.write_text(cart.read_text().replace("sum(prices)", "sum(prices) * 1.19  # tax, I think"))
    (demo.project / "src/pay.py").unlink()
    (demo.project / ".env").unlink()
    (demo.project / "uploads").rmdir()
    (demo.project / "run.sh").chmod(0o644)
    photo = demo.project / "assets/photo.bin"
    content = photo.read_bytes()
    photo.write_bytes(content[:1_000_000] + os.urandom(4096) + content[1_000_000:])
    demo.write("src/helpers_final_v2.py", "# TODO\n")


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return every captured path with mode and content, for comparison."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] in (".keepfast", "node_modules"):
            continue
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[name] = (path.lstat().st_mode, content)
    return found


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="keepfast-demo-"))
    try:
        demo = Demo(folder)
        make_project(demo)
        demo.say("A project: sources, a secret that git ignores, a script, a binary, an empty folder.")
        demo.run("init")
        demo.run("save", "-m", "before the agent")
        before = picture(demo.project)

        demo.say("An agent works on it, badly: edits, deletions, an ignored file, a mode, the binary.")
        damage(demo)
        demo.run("status")
        demo.run("save", "-m", "after the agent", "--tag", "oops")
        damaged = picture(demo.project)

        demo.say("Every state can be looked at.")
        demo.run("list")
        demo.run("diff", "v1", "v2", "--stat")
        demo.run("diff", "v1", "v2", "--", "src/cart.py")
        demo.run("cat", "v1", ".env")
        demo.run("search", "agent")

        demo.say("Everything comes back, exactly; and that can be undone.")
        demo.run("restore", "v1", "-y")
        assert picture(demo.project) == before, "the project did not come back exactly"
        demo.run("undo", "-y")
        assert picture(demo.project) == damaged, "the undo did not bring back the state before"

        demo.say("Or only one file.")
        demo.run("restore", "v1", "-y", "--", "src/cart.py")
        assert (demo.project / "src/cart.py").read_bytes() == before["src/cart.py"][1]
        assert not (demo.project / ".env").exists()

        demo.say("Trust is shown, not claimed.")
        demo.run("verify")
        demo_client.show(folder / "client", demo.say)
        print(f"\n{BOLD}Done.{RESET} The project came back byte for byte, mode for mode; nothing was left behind here.")
    finally:
        shutil.rmtree(folder)


main()
