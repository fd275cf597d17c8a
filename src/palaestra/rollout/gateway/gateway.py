"""The gateway: one address at which the open sessions of this process can be reached.

It listens while there are sessions, and no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from palaestra.core.session import Session
from palaestra.rollout.gateway.app import BEAT, application
from palaestra.rollout.gateway.body import LIMITS, Limits
from palaestra.rollout.gateway.door import Door
from palaestra.rollout.gateway.listener import Listener
from palaestra.rollout.gateway.refusal import Refusal, over

REMEMBERED = 10_000  # ended sessions that are told to have ended


class Gateway:
    """Opens sessions to programs."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        temperature: bool = False,
        rewards: bool = True,
        public: str | None = None,
        limits: Limits = LIMITS,
        beat: float = BEAT,
    ) -> None:
        """At that address; port 0 is any free one.

        Args:
            host: a name or address of this machine.
            port: where to listen.
            temperature: whether that which a program asks for is taken.
            rewards: whether programs are told what their actions earned.
            public: what programs are told to be its address, where something stands before it.
            limits: what a request may take.
            beat: seconds between signs of life in a stream.
        """
        self.app = application(self, limits, beat)
        self._host, self._port = host, port
        self._temperature, self._rewards = temperature, rewards
        self._public = None if public is None else public.rstrip("/")
        self._doors: dict[str, Door] = {}
        self._ended: dict[str, _Ended] = {}
        self._listener: Listener | None = None
        self._closing: asyncio.Task[None] | None = None
        self._guests = 0

    @contextlib.asynccontextmanager
    async def opened(self, session: Session) -> AsyncIterator[tuple[Door, str]]:
        """A door to a session, and the address at which it is found; closed afterwards."""
        door = Door(
            secrets.token_hex(8),
            secrets.token_urlsafe(24),
            session,
            temperature=self._temperature,
            rewards=self._rewards,
        )
        self._guests += 1
        try:
            address = await self._address()
            self._doors[door.id] = door
            yield door, f"{self._public or address}/sessions/{door.id}"
        finally:
            self._guests -= 1
            await door.close()
            self._forget(door)
            if not self._guests:
                await self._close()

    def door(self, id: str, token: str) -> Door:
        """The door of that id.

        Raises:
            Refusal: the token opens nothing (401), another one (403), or one that is no more (410);
                or there is no such door (404).
        """
        door = self._doors.get(id)
        if door is not None and same(door.token, token):
            return door
        ended = self._ended.get(id)
        if ended is not None and same(ended.token, token):
            raise over(ended.outcome)
        tokens = [one.token for one in self._doors.values()]
        tokens += [one.token for one in self._ended.values()]
        if not any(same(one, token) for one in tokens):
            raise Refusal(401, "The session's token is missing or wrong.")
        if door is None and ended is None:
            raise Refusal(404, f"There is no session '{id}'.")
        raise Refusal(403, "This token is of another session.")

    # ── details ──────────────────────────────────────────────────────────────

    def _forget(self, door: Door) -> None:
        if self._doors.pop(door.id, None) is not None:
            outcome = str(door.session.outcome or "it was given up")
            self._ended[door.id] = _Ended(door.token, outcome)
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    async def _address(self) -> str:
        while self._closing is not None:
            await asyncio.wait({self._closing})
        if self._listener is None:
            self._listener = Listener(self.app, self._host, self._port)
        listener = self._listener
        await listener.up()
        return listener.address

    async def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._closing = asyncio.ensure_future(listener.down())
        self._closing.add_done_callback(self._closed)
        await asyncio.shield(self._closing)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """What is remembered of a session: the record itself is the store's."""

    token: str
    outcome: str


def same(token: str, shown: str) -> bool:
    """Whether a token is the one; takes as long for any other."""
    return hmac.compare_digest(token.encode(), shown.encode("utf-8", "replace"))
