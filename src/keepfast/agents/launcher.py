"""The launcher: a small shell script that a client's settings name, so that hooks do no harm once keepfast is uninstalled."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

NAME = "launch"
UNAIDED = "unaided"
"""The word that makes the launcher run a hook itself rather than ask the resident; its client says it, too."""
LOG, FAILING = ".log", ".failing"
"""Files next to the launcher: the output of the last failed start, and the time since which no start has succeeded."""
PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin"
"""Where the launcher finds system commands; the last folder is for NixOS."""
MAX_FAILING_MINUTES = 5
"""An upgrade takes less. If hooks still do not start then, they are broken, and a new session is warned."""

UNSAFE_PYTHON_VARIABLES = (
    "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONUSERBASE", "GCONV_PATH", "LOCPATH",
)  # fmt: skip
"""Variables that make Python, or the C library, load other code; most of them take effect even with `-I` and `-E`."""
FORGET = f"unset {' '.join(UNSAFE_PYTHON_VARIABLES)}"
"""The shell line before every Python process of ours that a client starts; plugin/bin/keepfast has it, too."""

_SCRIPT = """\
#!/bin/sh
{{ trap exit\\ 0 0; }}
# Starts the hooks and the status line of keepfast. Clients' settings name this file alone; `keepfast install` writes it.
# The exit code of a hook is 0, or 1 with one line. It is never 2, which would block the agent.
# A repository's own client settings can set any variable here: folders are those of whoever installed us, and what this
# file itself needs is not looked up in a search path of theirs.
# The trap above is for a file that was cut short: a shell ends with 2 where it misses the end of a block. It stands in a
# block itself, so that half of that line ends with 2 as well, which the command in the settings turns into 0.
python={python}
launch={launch}
client=${{launch%/hook/launch.py}}/resident/keepfast-hook
home={home}
config={config}
data={data}
log={log}
failing={failing}
code='' said='' old='' own=${{PATH-{path}}}
PATH={path}
{forget}
if [ "$1" = hook ] && [ -n "$home" ] && [ -x "$client" ]; then
  # The resident answers in a millisecond. If it does not, the client starts this file again, with one word more.
  PATH=$own
  exec "$client" "$0" "$launch" "$home" "$config" "$data" "$@"
fi
[ "$1" = unaided ] && shift
if [ ! -x "$python" ] || [ ! -f "$launch" ]; then
  # Not installed any more. A payload is read all the same: the client takes a closed pipe for an error. A status line of
  # the user's own is still shown.
  [ "$1" = run ] && {{
    echo 'keepfast: It is not installed any more.' >&2
    trap - 0
    exit 1
  }}
  [ "$1" = statusline ] && [ $# = 3 ] && PATH=$own && exec /bin/sh -c "$3"
  # Once it is installed again, `status` and `doctor` tell that a hook of this time saved nothing.
  [ "$1" = statusline ] || {{ printf 'keepfast was not installed, so nothing was saved\\n' >"$log"; }} 2>/dev/null
  exec cat >/dev/null
fi
if [ "$1" = run ]; then
  # Any command of keepfast, for a client that starts it by itself: the plugin, and its server.
  shift
  [ -z "$home" ] || export HOME="$home" XDG_CONFIG_HOME="$config" XDG_DATA_HOME="$data"
  PATH=$own
  exec "$python" -E -P -m keepfast ${{home:+--folders "$home" "$config" "$data"}} "$@"
fi
if [ "$1" = detach ]; then
  shift
  # macOS has no setsid: there it is done like all others.
  setsid -f env PATH="$own" "$0" "$@" >/dev/null 2>&1 && exit 0
fi
if [ "$1" = statusline ]; then
  PATH=$own
  exec "$python" -I -S -B "$launch" ${{home:+--folders "$home" "$config" "$data"}} "$@"
fi
# A failed redirection of a block does not end the shell; that of `exec` or `:` would, with exit code 2.
{{
  said=$(PATH=$own "$python" -I -S -B "$launch" ${{home:+--folders "$home" "$config" "$data"}} "$@" 2>&1 >&3 3>&-)
  code=$?
}} 3>&1 2>/dev/null # what the shell itself has to say, of a killed child, is for nobody
case "$code:$said" in
0:* | 1:keepfast:* | 1:usage:*)
  [ -z "$said" ] || printf '%s\\n' "$said" >&2
  [ ! -e "$failing" ] || rm -f "$failing"
  trap - 0
  exit "$code"
  ;;
esac
# It did not start, or was cut off. In the middle of an upgrade, when files of ours are missing, that is over in a moment.
{{
  [ -e "$failing" ] || true >"$failing"
  printf 'exit code %s\\n%s\\n' "$code" "$said" >"$log"
  old=$(find "$failing" -mmin +{minutes})
  cat >/dev/null
}} 2>/dev/null
case " $* " in
*' --part 1 '*)
  [ -z "$old" ] && exit 0
  echo 'keepfast: The hook does not start, so nothing is saved. Run `keepfast doctor`.' >&2
  trap - 0
  exit 1
  ;;
esac
exit 0
"""
_END = "\nexit 0\n"
_NAMED = re.compile(r"^(python|launch|home|config|data)=(.*)$", re.M)
_PLACE = re.compile(r"^test -[xr] (.+?) \|\| exec ", re.S)


def script(python: str, launch: str, path: str, folders: Sequence[str] = ()) -> str:
    """Return the text of the launcher that will lie at `path` and run `launch` by that Python, for a user with these folders.

    They are home, configuration and data; without them hooks go by the passwd entry.
    """
    home, config, data = folders or ("", "", "")
    return _SCRIPT.format(
        python=shlex.quote(python),
        launch=shlex.quote(launch),
        home=shlex.quote(home),
        config=shlex.quote(config),
        data=shlex.quote(data),
        path=PATH,
        forget=FORGET,
        log=shlex.quote(path + LOG),
        failing=shlex.quote(path + FAILING),
        minutes=MAX_FAILING_MINUTES,
    )


def is_whole(text: str) -> bool:
    """Return whether this is a launcher of ours, from its first line to its last."""
    return text.startswith("#!/bin/sh\n") and all(named(text)) and text.endswith(_END)


def is_current(text: str, path: str) -> bool:
    """Return whether this is what we would write for the same Python, program and folders."""
    return text == script(*named(text), path, folders(text) or ())


def named(text: str) -> tuple[str, str]:
    """Return the Python and the program that a launcher runs; empty texts if this is no launcher."""
    values = _values(text)
    return values.get("python", ""), values.get("launch", "")


def folders(text: str) -> tuple[str, str, str] | None:
    """Return home, configuration and data that a launcher hands to hooks; None for one that an earlier version has written."""
    values = _values(text)
    home, config, data = [values.get(name, "") for name in ("home", "config", "data")]
    return (home, config, data) if home and config and data else None


def _values(text: str) -> dict[str, str]:
    try:
        return {name: " ".join(shlex.split(value)) for name, value in _NAMED.findall(text)}
    except ValueError:
        return {}  # no launcher, or one that somebody has edited


def clean(words: Sequence[str]) -> str:
    """Return the shell command that starts a program of ours without the variables that would lead Python to other code."""
    return f"{FORGET}; exec {shlex.join(words)}"


def hook(path: str, *words: str, shell: str = "") -> str:
    """Return the command of a hook that runs the launcher at `path`, and does nothing where there is none.

    A launcher that is not executable is run by `shell`. Any other end of it than 0 and 1, as of one that was cut short, is 0.
    """
    place = shlex.quote(path)
    run = f"{shell} {place}" if shell else place
    return f"test -{'r' if shell else 'x'} {place} || exec cat >/dev/null; {run} {shlex.join(words)} || test $? -ne 1"


def status_line(path: str, own: str = "") -> str:
    """Return the command of a status line: ours, and the user's own behind it, which stays where there is no launcher."""
    place = shlex.quote(path)
    if not own:
        return f"test -x {place} || exec cat >/dev/null; exec {place} statusline"
    return f"test -x {place} || exec sh -c {shlex.quote(own)}; exec {place} statusline --then {shlex.quote(own)}"


def place_of(command: str) -> str:
    """Return the launcher that a command runs; empty if it starts Python by itself."""
    match = _PLACE.match(command)
    return "".join(shlex.split(match[1])) if match else ""
