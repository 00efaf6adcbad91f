"""An environment of its own with keepfast installed by pip from a wheel of this tree: it can be upgraded and removed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import keepfast

VERSION = "0.1.0"
PACKAGE = Path(keepfast.__file__).parent
METADATA = f"Metadata-Version: 2.1\nName: keepfast\nVersion: {VERSION}\n"
KIND = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SCRIPTS = "[console_scripts]\nkeepfast = keepfast.entry:main\n"


class Environment:
    """A virtual environment whose packages are those of the tests, except that keepfast is a copy."""

    def __init__(self, base: Path) -> None:
        self.folder, self.wheel = base / "venv", base / f"keepfast-{VERSION}-py3-none-any.whl"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        self.python = self.folder / "bin/python"
        self._link_packages()
        self._make_wheel()

    def pip(self, *words: str) -> None:
        """The pip of the tests, for this environment; it asks nobody for anything."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self) -> None:
        self.pip("install", "--no-deps", "--no-index", "--force-reinstall", str(self.wheel))

    def uninstall(self) -> None:
        self.pip("uninstall", "--yes", "keepfast")

    def _link_packages(self) -> None:
        """Hooks look into the folder of their own Python alone."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if "keepfast" not in path.name and path.suffix != ".pth":
                (site / path.name).symlink_to(path)

    def _make_wheel(self) -> None:
        about = f"keepfast-{VERSION}.dist-info"
        texts = {"METADATA": METADATA, "WHEEL": KIND, "entry_points.txt": SCRIPTS}
        files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
        names = [f"keepfast/{path.relative_to(PACKAGE)}" for path in files]
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            for path, name in zip(files, names, strict=True):
                wheel.write(path, name)
            for name, text in texts.items():
                wheel.writestr(f"{about}/{name}", text)
            listed = [*names, *(f"{about}/{name}" for name in texts), f"{about}/RECORD"]
            wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in listed))
