"""Communicators: ranks on one machine, in threads or processes, that exchange messages over TCP on the loopback.

The process that creates a ``Root`` collects the ranks' ports and sends the list to every rank. Every pair of ranks then
opens a connection, over which each proves to the other that it knows the root's secret. A message states the function
that sent it and its length, so that ranks detect calls that do not match. Any failure ends the communicator: it closes
its connections, which tells the other ranks.
"""

from __future__ import annotations

import hmac
import json
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from aclnn.core.status import AclnnError, HcclResult
from aclnn.runtime import devices
from aclnn.runtime.devices import Device
from aclnn.runtime.graphs import capturing
from aclnn.runtime.streams import Stream, hold
from aclnn.support.env import integer
from aclnn.support.process import PerProcess

_LOOPBACK = "127.0.0.1"
_MAGIC = b"aclnn root\0"
_ROOT = struct.Struct("<11sxH32s")
_SECRET_BYTES = 32
_HEADER = struct.Struct("<64sQ")
_LENGTH = struct.Struct("<I")
_LONGEST_NOTE = 1 << 20
# One system call moves at most this much, so that other connections get their turn.
_PIECE_BYTES = 1 << 20

# Other programs may be slow to start; a root to which no rank ever connects must still end.
_TIMEOUTS_WITHOUT_RANKS = 10

#: Function name in point-to-point messages: sends and receives, single or batched.
POINT_TO_POINT = "HcclSend/HcclRecv"

#: A peer rank and the bytes to send to it or receive from it.
Message = tuple[int, memoryview]

_live: PerProcess[dict[int, Communicator]] = PerProcess(dict)


def connect_timeout_s() -> int:
    """Return HCCL_CONNECT_TIMEOUT: seconds within which all ranks must connect."""
    return integer("HCCL_CONNECT_TIMEOUT", 120, most=7200)


def execution_timeout_s() -> int | None:
    """Return HCCL_EXEC_TIMEOUT: seconds after which a silent rank counts as lost; None (no limit) for 0."""
    return integer("HCCL_EXEC_TIMEOUT", 1836, least=0, most=2147483647) or None


class Root:
    """Meeting point of a communicator's ranks: an address and a secret, packed in ``info``."""

    def __init__(self) -> None:
        self._listener = _listener()
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        self.info = _ROOT.pack(_MAGIC, self._listener.getsockname()[1], self._secret)
        threading.Thread(target=self._serve, name="aclnn root", daemon=True).start()

    def _serve(self) -> None:
        ranks: dict[int, tuple[socket.socket, int]] = {}
        size, deadline = 0, time.monotonic() + _TIMEOUTS_WITHOUT_RANKS * connect_timeout_s()
        note: dict[str, Any] = {}
        with self._listener as listener, suppress(OSError):
            while not note and (not size or len(ranks) < size):
                try:
                    link = _accept(listener, deadline, self._secret)
                except TimeoutError:
                    missing = ", ".join(str(rank) for rank in range(size) if rank not in ranks)
                    note = {"error": f"expected {size} ranks within {connect_timeout_s()} s, missing {missing}"}
                    break
                if link is None:
                    continue
                try:
                    rank, count, port = _noted(link)
                except (OSError, ValueError):
                    link.close()
                    continue
                if not size:
                    size, deadline = count, time.monotonic() + connect_timeout_s()
                if rank in ranks or count != size or not 0 <= rank < size:
                    note = {"error": f"expected each rank below {size} once, got rank {rank} of {count}"}
                    _note(link, note)
                else:
                    ranks[rank] = link, port
            for link, _ in ranks.values():
                with suppress(OSError):
                    _note(link, note or {"ports": [ranks[rank][1] for rank in range(size)]})
                link.close()


def _listener() -> socket.socket:
    return socket.create_server((_LOOPBACK, 0), backlog=1024)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1e-3)


def _accept(listener: socket.socket, deadline: float, secret: bytes) -> socket.socket | None:
    """Accept a connection; return None if the peer does not know the secret."""
    listener.settimeout(_left(deadline))
    link, _ = listener.accept()
    try:
        link.settimeout(10)
        challenge = secrets.token_bytes(_SECRET_BYTES)
        link.sendall(challenge)
        answer = _read(link, 2 * _SECRET_BYTES)
        if not hmac.compare_digest(answer[:_SECRET_BYTES], hmac.digest(secret, challenge, "sha256")):
            raise ValueError("another secret")
        link.sendall(hmac.digest(secret, answer[_SECRET_BYTES:], "sha256"))
    except (OSError, ValueError):
        link.close()
        return None
    return link


def _connect(port: int, deadline: float, secret: bytes) -> socket.socket:
    """Connect, with mutual proof that both ends know the secret."""
    link = socket.create_connection((_LOOPBACK, port), timeout=_left(deadline))
    challenge = _read(link, _SECRET_BYTES)
    own = secrets.token_bytes(_SECRET_BYTES)
    link.sendall(hmac.digest(secret, challenge, "sha256") + own)
    if not hmac.compare_digest(_read(link, _SECRET_BYTES), hmac.digest(secret, own, "sha256")):
        link.close()
        raise ConnectionError("it does not know the root's secret")
    return link


def _read(link: socket.socket, nbytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < nbytes:
        part = link.recv(nbytes - len(parts))
        if not part:
            raise ConnectionError("the connection was closed")
        parts += part
    return bytes(parts)


def _note(link: socket.socket, note: object) -> None:
    text = json.dumps(note).encode()
    link.sendall(_LENGTH.pack(len(text)) + text)


def _noted(link: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_read(link, _LENGTH.size))
    if length > _LONGEST_NOTE:
        raise ValueError("longer than any note")
    return json.loads(_read(link, length))


class Communicator:
    """Connections of one rank to the others, and the order of the rank's operations."""

    def __init__(
        self, size: int, rank: int, name: str, links: dict[int, socket.socket], device: Device | None = None
    ) -> None:
        self.size, self.rank, self.name, self.device = size, rank, name, device
        self.failure: AclnnError | None = None
        """The error that ended the communicator."""
        self._links = links
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._last = threading.Event()
        self._last.set()
        for link in links.values():
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _live.current[id(self)] = self

    @classmethod
    def join(cls, size: int, info: bytes, rank: int, name: str = "", device: Device | None = None) -> Communicator:
        """Wait until all ranks have connected; ``device`` is this rank's device.

        Raises:
            AclnnError: HCCL_E_PARA, not a root's information; HCCL_E_TIMEOUT or HCCL_E_TCP_CONNECT, a rank is missing.
        """
        magic, port, secret = _ROOT.unpack(info[: _ROOT.size])
        if magic != _MAGIC:
            raise AclnnError(HcclResult.HCCL_E_PARA, "rootInfo: expected what HcclGetRootInfo wrote, got other bytes")
        timeout = connect_timeout_s()
        # Later than the root's own deadline: its answer names the missing ranks.
        deadline = time.monotonic() + timeout + 10
        links: dict[int, socket.socket] = {}
        try:
            with _listener() as listener:
                with _connect(port, deadline, secret) as root:
                    _note(root, [rank, size, listener.getsockname()[1]])
                    root.settimeout(_left(deadline))
                    reply = _noted(root)
                if "error" in reply:
                    code = HcclResult.HCCL_E_TIMEOUT if "missing" in reply["error"] else HcclResult.HCCL_E_PARA
                    raise AclnnError(code, f"rank {rank}: {reply['error']}")
                for peer in range(rank):
                    links[peer] = _connect(reply["ports"][peer], deadline, secret)
                    _note(links[peer], rank)
                while len(links) < size - 1:
                    link = _accept(listener, deadline, secret)
                    if link is not None:
                        links[_noted(link)] = link
        except (OSError, ValueError) as error:
            for link in links.values():
                link.close()
            code = HcclResult.HCCL_E_TIMEOUT if isinstance(error, TimeoutError) else HcclResult.HCCL_E_TCP_CONNECT
            missing = [peer for peer in range(size) if peer != rank and peer not in links]
            text = f"rank {rank}: expected to reach ranks {missing} within {timeout} s: {error or type(error).__name__}"
            raise AclnnError(code, text) from error
        return cls(size, rank, name or f"aclnn_{secret[:8].hex()}", links, device)

    def enqueue(self, stream: Stream, function: str, work: Callable[[], None]) -> None:
        """Queue work on a stream, after earlier work for this communicator on any stream.

        Captured work takes its turn at each execution of the graph, without a fixed place in this order.

        Raises:
            AclnnError: the error that ended the communicator.
        """
        with self._lock:
            if self.failure is not None:
                raise self.failure
            if capturing(stream):
                stream.enqueue(lambda: self._do(function, work))
                return
            before, done = self._last, threading.Event()

            def task() -> None:
                try:
                    hold(before.wait)
                    self._do(function, work)
                finally:
                    done.set()

            stream.enqueue(task, dropped=lambda _: done.set())
            self._last = done

    def _do(self, function: str, work: Callable[[], None]) -> None:
        try:
            with self._turn:
                if self.failure is not None:
                    raise self.failure
                work()
        except AclnnError as error:
            self.end(error)
            raise AclnnError(error.code, f"{function}: {error.message}") from None
        except BaseException as error:
            self.end(AclnnError(HcclResult.HCCL_E_INTERNAL, f"{type(error).__name__}: {error}"))
            raise

    def end(self, failure: AclnnError) -> None:
        """Close the connections and make later operations fail with this error."""
        _live.current.pop(id(self), None)
        self.failure = self.failure or failure
        for link in self._links.values():
            # Closing alone does not wake a thread that waits for the file descriptor.
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def exchange(self, function: str, sends: Iterable[Message], receives: Iterable[Message]) -> None:
        """Send and receive all messages concurrently; messages between the same two ranks keep their order.

        Raises:
            AclnnError: a rank is gone, has been silent for too long, or called another function.
        """
        own_sends = []
        outgoing: dict[int, list[memoryview]] = {}
        for peer, data in sends:
            if peer == self.rank:
                own_sends.append(data)
            else:
                header = memoryview(_HEADER.pack(function.encode(), data.nbytes))
                outgoing.setdefault(peer, []).extend(filter(len, (header, data)))
        expected: dict[int, list[memoryview]] = {}
        for peer, data in receives:
            if peer == self.rank:
                _copy(data, own_sends.pop(0) if own_sends else None, function)
            else:
                expected.setdefault(peer, []).append(data)
        if own_sends:
            _copy(None, own_sends[0], function)
        steps: dict[tuple[int, int], Iterator[None]] = {}
        for peer, parts in outgoing.items():
            steps[peer, selectors.EVENT_WRITE] = self._send(peer, parts)
        for peer, parts in expected.items():
            steps[peer, selectors.EVENT_READ] = self._receive(peer, function, parts)
        self._run(steps)

    def _run(self, steps: dict[tuple[int, int], Iterator[None]]) -> None:
        """Advance each direction of each connection whenever it is ready, until all are complete."""
        timeout = execution_timeout_s()
        events: dict[int, int] = {}
        for peer, event in steps:
            events[peer] = events.get(peer, 0) | event
        with selectors.DefaultSelector() as selector:
            try:
                for peer, wanted in events.items():
                    selector.register(self._links[peer], wanted, peer)
                while selector.get_map():
                    ready = selector.select(timeout)
                    if not ready:
                        waited = ", ".join(str(key.data) for key in selector.get_map().values())
                        raise AclnnError(
                            HcclResult.HCCL_E_TIMEOUT,
                            f"rank {self.rank}: expected ranks {waited} to take part within {timeout} s "
                            "(HCCL_EXEC_TIMEOUT), got nothing",
                        )
                    for key, mask in ready:
                        peer, left = key.data, key.events
                        for event in (selectors.EVENT_WRITE, selectors.EVENT_READ):
                            if mask & event and next(steps[peer, event], self) is self:
                                left &= ~event
                        if not left:
                            selector.unregister(key.fileobj)
                        elif left != key.events:
                            selector.modify(key.fileobj, left, peer)
            except (OSError, ValueError, KeyError) as error:
                raise self.failure or AclnnError(HcclResult.HCCL_E_TCP_TRANSFER, f"rank {self.rank}: {error}") from None

    def _send(self, peer: int, parts: Sequence[memoryview]) -> Iterator[None]:
        for part in parts:
            at = 0
            while at < len(part):
                try:
                    at += self._links[peer].send(part[at : at + _PIECE_BYTES])
                except BlockingIOError:
                    yield
                except OSError as error:
                    raise self._lost(peer, error) from None

    def _receive(self, peer: int, function: str, parts: Sequence[memoryview]) -> Iterator[None]:
        for part in parts:
            header = memoryview(bytearray(_HEADER.size))
            yield from self._fill(peer, header)
            name, nbytes = _HEADER.unpack(header)
            theirs = name.rstrip(b"\0").decode()
            if (theirs, nbytes) != (function, len(part)):
                raise AclnnError(
                    HcclResult.HCCL_E_PARA,
                    f"rank {self.rank}: expected {len(part)} bytes of {function} from rank {peer}, "
                    f"got {nbytes} of {theirs}",
                )
            yield from self._fill(peer, part)

    def _fill(self, peer: int, part: memoryview) -> Iterator[None]:
        at = 0
        while at < len(part):
            try:
                got = self._links[peer].recv_into(part[at : at + _PIECE_BYTES])
            except BlockingIOError:
                yield
                continue
            except OSError as error:
                raise self._lost(peer, error) from None
            if not got:
                raise self._lost(peer, "the connection was closed")
            at += got

    def _lost(self, peer: int, why: object) -> AclnnError:
        return self.failure or AclnnError(
            HcclResult.HCCL_E_REMOTE, f"rank {self.rank}: expected rank {peer} to take part, got: {why}"
        )


def named(group: str) -> list[Communicator]:
    """Return the live communicators of that name whose device is the calling thread's current one.

    Raises:
        AclnnError: 107002, the thread has no current device.
    """
    device = devices.current().device
    return [each for each in [*_live.current.values()] if each.name == group and each.device is device]


def _copy(target: memoryview | None, source: memoryview | None, function: str) -> None:
    """Copy a rank's message to itself."""
    if target is None or source is None or len(target) != len(source):
        sizes = [None if part is None else len(part) for part in (target, source)]
        raise AclnnError(
            HcclResult.HCCL_E_PARA, f"{function}: expected as many bytes to the own rank as from it, got {sizes}"
        )
    if target:
        target[:] = source
