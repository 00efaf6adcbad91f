"""The resident's loop: receive requests from several clients at once, handle one after another, end when it is time."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from keepfast.model.errors import Declined
from keepfast.resident import address, protocol
from keepfast.resident.address import MAX_SOCKET_PATH, SOCKET, HeldLock, folder_of
from keepfast.resident.peer import Stranger, check_folder, check_peer
from keepfast.resident.protocol import Answer, BadRequest, Request

IDLE_SECONDS, REST_SECONDS, CHECK_SECONDS, REQUEST_SECONDS, SEND_SECONDS = 1800.0, 5.0, 10.0, 2.0, 2.0
"""When an idle resident ends, and when it lets go of what it has open; how often it checks that it is still wanted; how long
a request and an answer may take."""
MAX_CONNECTIONS, BACKLOG = 256, 256
READ_BYTES = 1 << 18
PRIVATE_FOLDERS = "/tmp/keepfast-"
"""Where folders for sockets begin whose path in the data folder would be too long."""
HOOK = "hook"
"""The verb of all requests but those that ask about the resident itself."""


Handler = Callable[[Request], Answer]
"""Answers a request, or raises `Declined`."""


@dataclass
class Connection:
    """A client whose request is not complete yet."""

    socket: socket.socket
    began: float
    data: bytearray = field(default_factory=bytearray)
    folder: int = -1
    """Descriptor of the client's current folder."""

    def close(self) -> None:
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1
        self.socket.close()


class Counters:
    """What the resident has done since it started; `daemon status` shows it."""

    def __init__(self) -> None:
        self.answered = self.failed = self.refused = 0
        self.declined: dict[str, int] = {}
        """Requests left to a process of their own, by reason."""


class Server:
    """Listens beside the lock that it holds. `is_current` says whether the installation is still the one that started us."""

    def __init__(
        self,
        lock: HeldLock,
        handle: Handler,
        rest: Callable[[], None],
        is_current: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        """`rest` is called once when there was no request for a while."""
        self.lock, self.handle, self.rest, self.is_current, self.log = lock, handle, rest, is_current, log
        self._is_resting = True
        self.counters = Counters()
        self.last_request = monotonic()
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._complete: deque[tuple[Connection, Request]] = deque()
        self._stopping = ""
        self._private_folder = ""
        self._listener, self.path = self._listen()

    def _listen(self) -> tuple[socket.socket, str]:
        path = folder_of(self.lock.data) + SOCKET
        _remove_leftover(address.read(self.lock.data))
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            self._private_folder = tempfile.mkdtemp(
                prefix=os.path.basename(PRIVATE_FOLDERS), dir=os.path.dirname(PRIVATE_FOLDERS)
            )
            path = self._private_folder + SOCKET
        _remove(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        return listener, path

    def run(self) -> str:
        """Serve until there is a reason to end; return it."""
        wake, waking = socket.socketpair()
        for end in (wake, waking):
            end.setblocking(False)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop("it was told to"))
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(wake, selectors.EVENT_READ)
        self.lock.publish(self.path)
        try:
            while not self._stopping:
                events = self._selector.select(0 if self._complete else self._seconds_to_wait())
                for key, _ in events:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is wake:
                        _drain(wake)
                    else:
                        self._receive(self._connections[key.fd])
                self._answer_next()
                self._drop_slow()
                _reap()
                if not self._is_resting and monotonic() - self.last_request >= REST_SECONDS:
                    self._is_resting = True
                    self.rest()
                self._stopping = self._stopping or self._reason_to_end()
        finally:
            # Nobody finds us from here on: who has sent a request already is answered.
            self.lock.release()
            _remove(self.path)
            self._listener.close()
        while self._complete:
            self._answer_next()
        for connection in list(self._connections.values()):
            self._drop(connection)
        if self._private_folder:
            os.rmdir(self._private_folder)
        return self._stopping

    def stop(self, reason: str) -> None:
        self._stopping = self._stopping or reason

    def _seconds_to_wait(self) -> float:
        if not self._connections:
            return CHECK_SECONDS if self._is_resting else REST_SECONDS
        oldest = min(connection.began for connection in self._connections.values())
        return max(0.0, min(CHECK_SECONDS, oldest + REQUEST_SECONDS - monotonic()))

    def _reason_to_end(self) -> str:
        if self._complete or self._connections:
            return ""
        if monotonic() - self.last_request > IDLE_SECONDS:
            return "no request for half an hour"
        if not self.lock.is_in_place() or not os.path.exists(self.path):
            return "its folder is gone"
        return "" if self.is_current() else "keepfast was changed or removed"

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # no more descriptors: clients help themselves
                self.log(f"A connection was not accepted: {error.strerror}.")
                return
            connected.setblocking(False)
            connection = Connection(connected, monotonic())
            if len(self._connections) >= MAX_CONNECTIONS:
                self._refuse(connection, "too many connections")
                continue
            try:
                check_peer(connected)
            except (Stranger, OSError) as error:
                self._refuse(connection, str(error))
                continue
            self._connections[connected.fileno()] = connection
            self._selector.register(connected, selectors.EVENT_READ)
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        """Read what has arrived; queue the request once it is complete."""
        try:
            while True:
                part, descriptors, _, _ = socket.recv_fds(connection.socket, READ_BYTES, 1)
                for descriptor in descriptors:
                    if connection.folder >= 0:
                        os.close(connection.folder)
                    connection.folder = descriptor
                if not part:
                    self._drop(connection)
                    return
                connection.data += part
                if self._is_complete(connection):
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(connection)

    def _is_complete(self, connection: Connection) -> bool:
        data, start = connection.data, protocol.HEADER.size
        if len(data) < start:
            return False
        try:
            head, payload = protocol.sizes(bytes(data[:start]))
            if len(data) < start + head + payload:
                return False
            if len(data) > start + head + payload:
                raise BadRequest("trailing data")
            request = protocol.decode_request(bytes(data[start : start + head]), bytes(data[start + head :]))
        except BadRequest as error:
            self.log(f"A request was not understood: {error}.")
            self._drop(connection)
            return True
        connection.data.clear()
        self._forget(connection)
        if self._send(connection, protocol.RECEIVED):
            self._complete.append((connection, request))
        else:
            connection.close()
        return True

    def _answer_next(self) -> None:
        if not self._complete:
            return
        connection, request = self._complete.popleft()
        is_question = request.words[0] != HOOK
        if not is_question:
            self.last_request, self._is_resting = monotonic(), False
        try:
            try:
                if not self.is_current():
                    raise Declined("keepfast was changed or removed")
                if connection.folder < 0:
                    raise Declined("no descriptor of the current folder")
                check_folder(connection.folder, request.cwd)
                answer = self.handle(request)
            except (Declined, Stranger) as reason:
                self.counters.declined[str(reason)] = self.counters.declined.get(str(reason), 0) + 1
                self._send(connection, protocol.encode_refusal(str(reason)))
            except Exception as error:
                # The hook meets the same error by itself, and reports it.
                self.counters.failed += 1
                self.log(f"A request failed: {type(error).__name__}: {error}")
                self._send(connection, protocol.encode_refusal("it failed"))
            else:
                self.counters.answered += not is_question
                self._send(connection, protocol.encode_answer(answer))
        finally:
            connection.close()

    def _send(self, connection: Connection, data: bytes) -> bool:
        """Send all of it; False if the client has gone, or does not read."""
        try:
            sent = connection.socket.send(data)
            if sent < len(data):
                connection.socket.settimeout(SEND_SECONDS)
                connection.socket.sendall(data[sent:])
        except OSError:
            return False
        return True

    def _refuse(self, connection: Connection, reason: str) -> None:
        self.counters.refused += 1
        self._send(connection, protocol.encode_refusal(reason))
        connection.close()

    def _drop_slow(self) -> None:
        end = monotonic() - REQUEST_SECONDS
        for connection in [one for one in self._connections.values() if one.began < end]:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        """Receive nothing more from a connection."""
        number = connection.socket.fileno()
        if self._connections.pop(number, None) is not None:
            self._selector.unregister(connection.socket)


def _remove_leftover(former: address.Address | None) -> None:
    """Remove the private folder of a resident that was killed."""
    folder = os.path.dirname(former.socket) if former is not None else ""
    if folder.startswith(PRIVATE_FOLDERS):
        try:
            os.unlink(folder + SOCKET)
            os.rmdir(folder)
        except OSError:
            pass  # gone, or somebody else's


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _drain(source: socket.socket) -> None:
    try:
        while source.recv(READ_BYTES):
            pass
    except (BlockingIOError, InterruptedError):
        pass


def _reap() -> None:
    """Let go of processes that were started and have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
