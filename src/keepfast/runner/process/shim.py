"""The shim: the program around an agent, which outlives the supervisor, owns everything the agent starts, and reports its end.

Run as `python -I -S -B launch_shim.py FOLDER` with the job as JSON on standard input; the protocol is in docs/unattended.md.
It imports only the standard library and modules that do the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
from time import monotonic, sleep
from typing import Any, NoReturn

from keepfast.runner.process.cgroups import freeze_group, in_group, make_group, remove_group
from keepfast.runner.process.filter import OutputWriter
from keepfast.runner.process.run_folder import sync_folder, write_file
from keepfast.runner.process.tree import below, boot_id, prctl, send, start_time

RESERVE = b" " * 4095 + b"\n"
"""Space for the exit report, allocated in advance: the disk may be full when the agent ends."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SECOND_LOOK = 1.0
AFTER_TERM = 2.0
"""Seconds that remaining processes have to end after SIGTERM."""


class Shim:
    """One agent process and everything below it, from start to exit report."""

    def __init__(self, folder: str, job: dict[str, Any], lock: int) -> None:
        self.folder, self.job, self.lock = folder, job, lock
        self.grace = float(job.get("grace", 10.0))
        self.log_most = int(job.get("log_most", 1 << 30))
        self.pid = 0
        self.status: int | None = None
        self.wish_number = 0
        self.reason = ""
        self.frozen = False
        self.kill_at: float | None = None
        self.group: str | None = None
        self.wakeup = -1
        self.prompt = self.input = ""
        self.began_at = monotonic()

    def run(self) -> int:
        self._signals()
        out, err = self._spawn()
        if out < 0:
            return 0
        streams = {
            out: OutputWriter(self.folder + "/out.log", self.job.get("secrets", []), self.log_most),
            err: OutputWriter(self.folder + "/err.log", self.job.get("secrets", []), self.log_most),
        }
        self._grant()
        while self.status is None:
            ready, _, _ = select.select([*streams, self.wakeup], [], [], self._timeout())
            self._read([fd for fd in ready if fd != self.wakeup], streams)
            if self.wakeup in ready:
                _drain(self.wakeup)
            self._reap()
            self._grant()
            if self.kill_at is not None and monotonic() >= self.kill_at:
                self.kill_at = None
                self._kill()
        self._sweep(streams)
        for stream in streams.values():
            stream.close()
        self._report()
        return 0

    # Starting

    def _signals(self) -> None:
        reading, self.wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.wakeup = reading
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _nothing)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, frame: self._stop("the shim was terminated"))

    def _spawn(self) -> tuple[int, int]:
        """Start the agent; return the reading ends of its output, or -1 twice if it could not be started."""
        self.group = make_group(self.job["run"]) if self.job.get("freezer", "auto") == "auto" else None
        self.prompt = _in_memory(self.job, "prompt")
        self.input = _in_memory(self.job, "input") if "input" in self.job else self.prompt
        out, out_w = os.pipe2(os.O_CLOEXEC)
        err, err_w = os.pipe2(os.O_CLOEXEC)
        failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            self._become(out_w, err_w, failure_write)
        for fd in (out_w, err_w, failure_write):
            os.close(fd)
        with open(failure_read, "rb") as file:
            why = file.read().decode("utf-8", "replace")
        if why:
            os.waitpid(self.pid, 0)
            write_file(self.folder + "/agent.json", {"error": why})
            self.status, self.reason = -1, why
            self._report()
            return -1, -1
        start = start_time(self.pid)
        write_file(self.folder + "/agent.json", {"pid": self.pid, "start": start, "group": self.group})
        for fd in (out, err):
            os.set_blocking(fd, False)
        return out, err

    def _become(self, out: int, err: int, failure_write: int) -> NoReturn:
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if self.group is not None:
                with open(self.group + "/cgroup.procs", "wb", buffering=0) as file:
                    file.write(b"0")
            input_path = self.input or self.job.get("stdin") or os.devnull
            os.dup2(os.open(input_path, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.chdir(self.job["cwd"])
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.umask(int(self.job.get("umask", 0o022)))
            command = [word.replace("{prompt_file}", input_path) for word in self.job["command"]]
            name = self.job.get("prompt_variable")
            more = {name: self.prompt} if name and self.prompt else {}
            os.execvpe(command[0], command, {**self.job["environment"], **more})
        except OSError as error:
            where = (
                error.filename if error.filename in (self.job["cwd"], self.job.get("stdin")) else self.job["command"][0]
            )
            os.write(failure_write, f"{where}: {error.strerror}".encode())
        finally:
            os._exit(127)

    # While it runs

    def _timeout(self) -> float:
        if self.kill_at is None:
            return SECOND_LOOK
        return min(SECOND_LOOK, max(self.kill_at - monotonic(), 0.01))

    def _read(self, ready: list[int], streams: dict[int, OutputWriter]) -> None:
        for fd in ready:
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            if part:
                streams[fd].write(part)
            else:
                streams.pop(fd).close()
                os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status = status

    def _grant(self) -> None:
        """Carry out the newest wish of the supervisor, once."""
        try:
            with open(self.folder + "/wish", "rb") as file:
                wish = json.loads(file.read())
            number, what = int(wish["number"]), str(wish["do"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if number <= self.wish_number:
            return
        self.wish_number = number
        if what == "freeze":
            count, stopped = self.freeze()
        elif what == "thaw":
            count, stopped = self.thaw(), True
        elif what == "stop":
            self._stop(str(wish.get("reason", "stopped")))
            count, stopped = len(below(os.getpid())), False
        else:
            self.reason = str(wish.get("reason", "killed"))
            self._kill()
            count, stopped = 0, False
        write_file(
            self.folder + "/state",
            {
                "wish": number,
                "done": what,
                "frozen": self.frozen,
                "all": stopped,
                "processes": count,
                "group": self.group,
            },
            durable=False,
        )

    def _stop(self, reason: str) -> None:
        self.reason = self.reason or reason
        if self.frozen:
            self.thaw()
        # The agent first: it may still record how its tools ended.
        send(self.pid, signal.SIGTERM)
        for pid in below(os.getpid()):
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)
        self.kill_at = self.kill_at or monotonic() + self.grace

    def _kill(self) -> None:
        for _ in range(100):
            living = [pid for pid, letter in below(os.getpid()).items() if letter != "Z"]
            if not living:
                return
            for pid in living:
                send(pid, signal.SIGKILL)
            if self.group is not None and self.frozen:
                self.thaw()
            self._reap()
            sleep(0.01)

    def freeze(self) -> tuple[int, bool]:
        """Freeze everything below us; return how many processes there are, and whether all of them are stopped."""
        self.frozen = True
        if self.group is not None and freeze_group(self.group, True):
            tree = below(os.getpid())
            outside = [pid for pid in tree if not in_group(pid, self.group)]
            if not outside:
                return len(tree), True
        for _ in range(200):
            tree = below(os.getpid())
            running = [pid for pid, letter in tree.items() if letter not in "TtZX" and not in_group(pid, self.group)]
            if not running:
                return len(tree), True
            for pid in running:
                send(pid, signal.SIGSTOP)
        return len(tree), False

    def thaw(self) -> int:
        self.frozen = False
        if self.group is not None:
            freeze_group(self.group, False)
        tree = below(os.getpid())
        for pid in tree:
            send(pid, signal.SIGCONT)
        return len(tree)

    # When it has ended

    def _sweep(self, streams: dict[int, OutputWriter]) -> None:
        """End the processes that the agent left behind, and read what is still in the pipes."""
        end, killing = monotonic() + AFTER_TERM, False
        for pid in below(os.getpid()):
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)
        while True:
            self._read(select.select(list(streams), [], [], 0.02)[0] if streams else [], streams)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            if monotonic() > end or killing:
                killing = True
                for pid in below(os.getpid()):
                    send(pid, signal.SIGKILL)
        for _ in range(1000):
            ready = select.select(list(streams), [], [], 0)[0] if streams else []
            if not ready:
                break
            self._read(ready, streams)

    def _report(self) -> None:
        assert self.status is not None
        code = -1 if self.status == -1 else os.waitstatus_to_exitcode(self.status)
        report = {
            "run": self.job["run"],
            "exit": code if code >= 0 else None,
            "signal": -code if code < 0 and not self.reason.startswith(self.job["command"][0]) else None,
            "reason": self.reason,
            "started": self.status != -1,
            "seconds": round(monotonic() - self.began_at, 3),
        }
        if self.group is not None:
            remove_group(self.group)
        path = self.folder + "/exit.json"
        text = json.dumps(report).encode()
        for _ in range(60):
            try:
                fd = os.open(path + ".new", os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    os.pwrite(fd, text.ljust(len(RESERVE) - 1)[: len(RESERVE)] + b"\n", 0)
                    os.fsync(fd)
                finally:
                    os.close(fd)
                os.rename(path + ".new", path)
                sync_folder(self.folder)
                return
            except OSError:
                sleep(1.0)


def _in_memory(job: dict[str, Any], name: str) -> str:
    """Put a prompt, which may have secrets, into a file in memory, never on disk; return its path, empty if there is none."""
    if name not in job:
        return ""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(job[name].encode("utf-8", "replace"))
    return f"/proc/{os.getpid()}/fd/{fd}"


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except BlockingIOError:
        pass


def _nothing(number: int, frame: object) -> None:
    pass


def _answer(word: str) -> None:
    try:
        os.write(1, word.encode() + b"\n")
    except OSError:
        pass  # the supervisor has gone; the next one reads the folder


def _leave_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def main(folder: str) -> int:
    """Read the job, take the lock, run the agent; return when everything has ended."""
    # A wish may come as soon as our lock has our process id, and its signal would end a process that is not ready for it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    job = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)
    try:
        os.setsid()
    except PermissionError:
        pass  # we were started as a session leader
    lock = os.open(folder + "/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(40):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            sleep(0.05)  # a process that checks whether we live holds it for an instant
    else:
        _answer("running")
        return 0
    if os.fstat(lock).st_size:
        _answer("begun")  # an agent is started only once; the supervisor finds out how it ended
        return 0
    facts = {"run": job["run"], "pid": os.getpid(), "boot": boot_id(), "started": start_time(os.getpid())}
    reserve = os.open(folder + "/exit.json.new", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(reserve, RESERVE)
    os.close(reserve)
    os.pwrite(lock, json.dumps(facts).encode(), 0)
    os.fsync(lock)
    sync_folder(folder)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    _answer("started")
    _leave_streams()
    return Shim(folder, job, lock).run()
