"""Links: messages between two learner ranks, with beats that tell a busy rank from a lost one.

A rank that is killed closes its socket, which the other end reads at once. A rank that is frozen,
or whose machine is gone, closes nothing, but its beats stop. Only time in which this process ran
itself counts against another (see `ran`), and a rank that computes for long keeps beating.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import socket
import struct
import threading
from typing import Any

from palaestra.core.budget import ran
from palaestra.core.errors import RankLost

BEAT = 1.0  # seconds between beats
LONGEST = 1800.0  # seconds for one reply, from a rank that beats
STEP = 0.5  # seconds between two looks at how long a rank has been silent
CHUNK = 1 << 20  # bytes read at once

_LENGTH = struct.Struct("!Q")


class Failed:
    """The message of a rank whose work failed, with its last words."""

    def __init__(self, words: str) -> None:
        self.words = words


class Link:
    """A connection to one other rank."""

    def __init__(self, connection: socket.socket, rank: int, host: str, patience: float) -> None:
        """Take over a connected socket.

        Args:
            connection: to the other rank.
            rank: of the other.
            host: of the other, and its process; for messages.
            patience: seconds of silence after which the other rank is lost.
        """
        self.rank, self.host, self.patience = rank, host, patience
        self.doing = "starting"  # what the other was asked for last
        self._socket = connection
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # the other's reader always reads, unless its process does not run
        whole, part = divmod(patience, 1)
        limit = struct.pack("ll", int(whole), int(part * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._sending = threading.Lock()
        self._arrived: queue.Queue[Any] = queue.Queue()
        self._ahead: list[Any] = []  # taken out of the queue, but not received yet
        self._lost: RankLost | None = None  # for good
        self._heard = ran()
        self._reader = threading.Thread(target=self._read, name=f"rank {rank}", daemon=True)
        self._reader.start()

    def send(self, message: object) -> None:
        """Send a message; raise RankLost if the other rank does not take it."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self.check()  # half a message may have been sent
        try:
            with self._sending:
                self._socket.sendall(_LENGTH.pack(len(content)) + content)
        except OSError as error:
            self.check()  # its last words, if it had any
            raise self.lost(f"takes no message ({error})") from error

    def beat(self) -> None:
        """Send a sign of life, unless a message is under way."""
        if self._sending.acquire(blocking=False):
            try:
                self._socket.sendall(_LENGTH.pack(0))
            except OSError:
                return  # the next message fails
            finally:
                self._sending.release()

    def arrived(self, seconds: float) -> bool:
        """Wait at most so long for a message; return whether one has arrived.

        Raises:
            RankLost: the other rank failed, or is lost.
        """
        if self._lost is not None:
            raise self._lost
        if not self._ahead:
            try:
                self._ahead.append(self._arrived.get(seconds > 0, seconds))
            except queue.Empty:
                if ran() - self._heard > self.patience:
                    raise self.lost(f"has been silent for {self.patience:g} seconds") from None
                return False
        message = self._ahead[0]
        if isinstance(message, Failed):
            raise self.lost(f"failed: {message.words}")
        if isinstance(message, OSError):
            raise self.lost(f"ended, or its connection broke ({message})")
        return True

    def receive(self, longest: float | None = LONGEST) -> Any:
        """Return the next message.

        Args:
            longest: seconds that the other may take, if it beats; None: any time.

        Raises:
            RankLost: the other rank failed, is lost, or took longer.
        """
        started = ran()
        while not self.arrived(STEP):
            if longest is not None and ran() - started > longest:
                raise self.lost(f"has not replied for {longest:g} seconds")
        return self._ahead.pop(0)

    def check(self) -> None:
        """Raise RankLost if the other rank is known to have failed, or to be lost."""
        self.arrived(0)

    def lost(self, how: str) -> RankLost:
        """Return the error that says how the other rank was lost, now and from now on."""
        self._lost = RankLost(self.rank, self.host, f"{how}; it was {self.doing}")
        return self._lost

    def close(self) -> None:
        """Close the connection; the other end reads that at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join(timeout=self.patience)

    def _read(self) -> None:
        """Put all messages into the queue, and the error that ends them."""
        try:
            while True:
                (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
                if length:
                    self._arrived.put(pickle.loads(self._exactly(length)))
        except OSError as error:
            self._arrived.put(error)
        except Exception as error:  # what was sent cannot be read here
            self._arrived.put(Failed(f"its message cannot be read: {error}"))

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        rest = memoryview(found)
        while rest:
            got = self._socket.recv_into(rest, min(len(rest), CHUNK))
            if not got:
                raise ConnectionResetError("it was closed")
            self._heard = ran()
            rest = rest[got:]
        return found
