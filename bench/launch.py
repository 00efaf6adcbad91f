"""Start one command, wait for it, and print what it used: a small parent, so that its own memory hides nothing.

The kernel counts the memory of the parent at the moment of the start into the child's peak. The bench holds lists of
100,000 paths; this script holds nothing. Run as `python -I -S -B launch.py OUTPUT COMMAND…`.
"""

import os
import sys
from time import perf_counter


def main() -> None:
    output, command = sys.argv[1], sys.argv[2:]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    begun = perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    _, status, usage = os.wait4(child, 0)
    wall = perf_counter() - begun
    code = os.waitstatus_to_exitcode(status)
    print(code, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


main()
