"""The registration desk: processes register to reply for members of a team, and are asked by turns.

A process registers for a role, asks for its next question, and replies. A question holds the whole
conversation of its member, so any process of the role can reply to it. A process that is silent for
`SILENT` heartbeats is gone, and its question is put to another one. A question that no process of
its role can take ends the member's part: the member forfeits, and the others go on.

A place in a team that forms at run time takes one process, by whose capability hosts find it. Who
names no role, and fits no member's instructions, gets a free place.

Nothing that processes do is awaited without an end, and no request costs more than its own size.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from palaestra.core.budget import ran
from palaestra.core.episode import player_of
from palaestra.core.errors import AgentFault
from palaestra.gateway.gateway import equal_tokens
from palaestra.gateway.http_errors import HTTPError

SILENT = 3  # heartbeats without a request after which a process is gone
HANDED = 3  # processes that may fail to reply to a question before its member forfeits
REPLY = 600.0  # seconds that a process may take for one reply, with heartbeats
MOST = 1_000  # processes at once
REMEMBERED = 10_000  # processes that are gone whose tokens still get status 404, not 401
RATE, BURST = 200.0, 400.0  # requests per second of one process, and how many at once

Describe = Callable[[Mapping[str, Any]], None]
"""Receives what happens to processes, as JSON can hold it."""


@dataclass(eq=False, slots=True)
class Question:
    """What a member is asked, and what becomes of it."""

    number: int
    role: str  # that the processes register for
    content: Mapping[str, Any]  # what a process receives
    reply: asyncio.Future[str]
    waits: float  # when it began to wait for a process to be there
    handed: int = 0  # to how many processes it was given

    def __lt__(self, other: Question) -> bool:
        return self.number < other.number


@dataclass(eq=False, slots=True)
class Process:
    """A registered process."""

    id: str
    token: str
    role: str
    capability: str  # in its own words
    seen: float  # when its last request came, by the desk's clock
    last_request: float  # the same by `ran`
    question: Question | None = None
    given: float = 0.0  # when it got its question
    poll: asyncio.Timeout | None = None  # of its request that waits for a question
    allowance: float = BURST

    def end_poll(self) -> None:
        """Let the request that waits for a question end without one."""
        poll, self.poll = self.poll, None
        if poll is not None and not poll.expired():
            poll.reschedule(asyncio.get_running_loop().time())


@dataclass(slots=True)
class Desk:
    """All processes and open questions of a run."""

    roles: Mapping[str, str]
    """What each role that processes may register for is told to do."""
    nearest: Callable[[str, Sequence[str]], int | None]
    """Returns the index of the text that fits a capability best; None: none does."""
    heartbeat: float  # seconds in which a process shows that it is alive
    patience: float  # seconds that a question waits for a process to be there
    tell: Describe
    places: Collection[str] = ()  # roles that anybody may take, one process each
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # to register
    address: str = ""  # under which processes reach it
    over: bool = False
    _processes: dict[str, Process] = field(default_factory=dict)
    _gone: dict[str, str] = field(default_factory=dict)  # tokens, by id
    _open: dict[str, set[Question]] = field(default_factory=dict)  # not given to a process, by role
    _queues: dict[str, asyncio.PriorityQueue[Question]] = field(default_factory=dict)
    _asked: int = 0
    _clock: float = 0.0  # seconds in which requests could be received
    _looked: float = field(default_factory=lambda: ran())

    def __post_init__(self) -> None:
        for role in self.roles:
            self._open[role], self._queues[role] = set(), asyncio.PriorityQueue()

    # ── for processes ────────────────────────────────────────────────────────

    def check_token(self, token: str) -> None:
        """Raise HTTPError (401) unless this is the token to register with."""
        if not equal_tokens(self.token, token):
            raise HTTPError(401, "The registration token is missing or wrong; the run prints it.")

    def register(self, role: str | None, capability: str) -> Process:
        """Register a process for a role, or for the one whose instructions fit its capability best.

        Raises:
            HTTPError: the role is unknown or no role fits (422), or it is a place that is taken
                (409) or needs a capability (422), the processes are too many (429), or the run is
                over (410).
        """
        self._check_open()
        taken = {process.role for process in self._processes.values()}
        if role is None:
            role = self._fitting(capability) or next(
                (place for place in self.places if place not in taken), None
            )
            if role is None:
                raise HTTPError(422, f"No role fits the capability; name one of {self._known}.")
        if role not in self.roles:
            raise HTTPError(422, f"There is no role '{role}'; name one of {self._known}.")
        if role in self.places and not capability.strip():
            raise HTTPError(422, f"'{role}' is found by its capability; say what you can do.")
        if role in self.places and role in taken:
            raise HTTPError(409, f"The place '{role}' is taken; name another role, or none.")
        if len(self._processes) >= MOST:
            raise HTTPError(429, f"{MOST:,} processes are registered; wait until one leaves.")
        id, token = secrets.token_hex(8), secrets.token_urlsafe(24)
        process = Process(id, token, role, capability.strip(), self._clock, ran())
        self._processes[process.id] = process
        self.tell({"process": process.id, "registered": role, "capability": capability})
        return process

    def process(self, id: str, token: str) -> Process:
        """Return a process that sent a request, which shows that it is alive.

        Raises:
            HTTPError: the token is wrong (401), the process was silent for too long and has to
                register again (404), it floods (429), or the run is over (410).
        """
        process = self._processes.get(id)
        if process is None or not equal_tokens(process.token, token):
            if id in self._gone and equal_tokens(self._gone[id], token):
                raise HTTPError(404, "This process was taken for gone; register again.")
            raise HTTPError(401, "The process's token is missing or wrong.")
        self._check_open()
        now = ran()
        process.allowance = min(BURST, process.allowance + RATE * (now - process.last_request))
        process.seen, process.last_request = self._clock, now
        if process.allowance < 1:
            raise HTTPError(429, f"More than {RATE:g} requests came in a second; send fewer.")
        process.allowance -= 1
        return process

    async def next(self, process: Process) -> Question | None:
        """Return the process's next question, once there is one; None after a heartbeat without.

        A question that has no reply yet is returned again. Of several requests at once, only the
        last one waits.
        """
        if process.question is not None and not process.question.reply.done():
            return process.question
        process.question, queue = None, self._queues[process.role]
        process.end_poll()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.heartbeat) as poll:
                process.poll = poll
                try:
                    while (question := await queue.get()).reply.done():
                        pass
                finally:
                    if process.poll is poll:
                        process.poll = None
            if not self._free(process):  # another request of it was faster, or it has left
                queue.put_nowait(question)
                return process.question
            self._open[process.role].discard(question)
            process.question, process.given = question, self._clock
            question.handed += 1
            return question
        self._check_open()
        return None

    def reply(self, process: Process, number: int, text: str) -> None:
        """Take a reply; raises HTTPError (409) if it is not the process's question any more."""
        question = process.question
        if question is None or question.number != number or question.reply.done():
            raise HTTPError(409, f"Question {number} is not this process's; ask for the next one.")
        process.question = None
        question.reply.set_result(text)

    def leave(self, process: Process, why: str = "it left") -> None:
        """Take a process off; its question is put to another one."""
        del self._processes[process.id]
        process.end_poll()
        self._gone[process.id] = process.token
        while len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]
        self.tell({"process": process.id, "gone": process.role, "because": why})
        question, process.question = process.question, None
        if question is None or question.reply.done():
            return
        if question.handed >= HANDED:
            detail = f"{HANDED} processes got the question and did not reply; the last: {why}"
            question.reply.set_exception(AgentFault("crash", detail))
            return
        question.waits = self._clock
        self._wait(question)

    # ── for the run ──────────────────────────────────────────────────────────

    def capability_of(self, role: str) -> str | None:
        """Return what a process that is there for a role can do; None: nobody is there."""
        served = self._served(role)
        there = [one.capability for one in self._processes.values() if one.role == served]
        return next((capability for capability in there if capability), None)

    async def ask(self, role: str, content: Mapping[str, Any]) -> str:
        """Return the reply of a process of a role.

        Raises:
            AgentFault: no process was there for `patience` seconds, or `HANDED` of them failed.
        """
        served = self._served(role)
        number, self._asked = self._asked, self._asked + 1
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asked = {"question": number, **content}
        question = Question(number, served, asked, reply, self._clock)
        self._wait(question)
        try:
            return await reply
        finally:
            reply.cancel()
            self._open[served].discard(question)

    async def watch(self) -> None:
        """Take off silent processes, and end questions that no process can take, for ever."""
        while True:
            await asyncio.sleep(self.heartbeat / 4)
            self.look()

    def look(self) -> None:
        """Take off processes that are silent now, and end questions that waited for too long.

        If this process was too busy to look for long, it could receive no request meanwhile: of the
        time since the last look at most half a heartbeat counts.
        """
        before, self._looked = self._looked, ran()
        self._clock += min(self._looked - before, self.heartbeat / 2)
        now = self._clock
        for process in list(self._processes.values()):
            if now - process.seen > SILENT * self.heartbeat:
                self.leave(process, f"no heartbeat for {now - process.seen:.1f} seconds")
            elif process.question is not None and now - process.given > REPLY:
                self.leave(process, f"no reply for {now - process.given:.0f} seconds")
        there = {process.role for process in self._processes.values()}
        for role, questions in self._open.items():
            for question in list(questions):
                if role in there:
                    question.waits = now
                elif now - question.waits > self.patience and not question.reply.done():
                    detail = f"no process was registered for '{role}' in {self.patience:g} seconds"
                    question.reply.set_exception(AgentFault("absent", detail))

    def close(self) -> None:
        """End all waiting requests; those to come are told that the run is over."""
        self.over = True
        for process in self._processes.values():
            process.end_poll()

    # ── details ──────────────────────────────────────────────────────────────

    def _served(self, role: str) -> str:
        """Return the role whose processes reply for a role of the record."""
        player = player_of(role)
        return player if player in self.roles else "agent"

    def _fitting(self, capability: str) -> str | None:
        """Return the member whose instructions fit a capability best; None if none does."""
        known = [role for role in self.roles if role not in self.places]
        found = self.nearest(capability, [f"{name} {self.roles[name]}" for name in known])
        return None if found is None else known[found]

    def _wait(self, question: Question) -> None:
        """Let a question wait for a process, before those that were asked later."""
        self._open[question.role].add(question)
        self._queues[question.role].put_nowait(question)

    def _free(self, process: Process) -> bool:
        """Return whether a process is there and has no question."""
        return process.question is None and process.id in self._processes

    def _check_open(self) -> None:
        if self.over:
            raise HTTPError(410, "The run is over; nothing more is asked.")

    @property
    def _known(self) -> str:
        return ", ".join(self.roles)
