"""The endpoint of one session for an external program, from its start to the end of its episode.

The session records everything that passes through it, exactly as for an agent in this process. A
started request is recorded even if the program disconnects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import (
    ContextTooLong,
    InputError,
    PalaestraError,
    RequestRefused,
    SessionOver,
)
from palaestra.core.model import Finish, Generation, Listener, Renderer
from palaestra.core.session import Session
from palaestra.gateway.http_errors import HTTPError, episode_over
from palaestra.gateway.openai_responses import IssuedResponses
from palaestra.gateway.program_requests import Answer, Question, public_name, without_address
from palaestra.gateway.reply_history import ReplyHistory
from palaestra.gateway.tool_results import matched
from palaestra.gateway.translation import Translation

T = TypeVar("T")

MAX_CLOSING_REPLIES = 32  # replies after the end of an episode
CLOSING_TEXT = "The episode is over."  # of these replies: some frameworks reject an empty reply
MAX_CONCURRENT = 64  # model requests that one session may have in progress


class Client(Protocol):
    """The client that waits for an answer."""

    @property
    def retries(self) -> bool:
        """Return whether it declares this request a retry."""

    async def disconnected(self) -> bool:
        """Return whether it disconnected without an answer."""


@dataclass(slots=True)
class _PendingQuestion:
    """A question of a session, and the task that answers it."""

    question: Question
    client: Client | None
    task: asyncio.Task[Answer] | None = None  # None: not started


class SessionEndpoint:
    """The operations of a program on one session."""

    def __init__(
        self,
        id: str,
        token: str,
        session: Session,
        *,
        temperature: bool = False,
        rewards: bool = True,
    ) -> None:
        """Open an endpoint.

        Args:
            id: in its address.
            token: its access token.
            session: the episode.
            temperature: whether the program's temperature is used, or else the session's.
            rewards: whether the program sees rewards and the outcome.
        """
        self.id, self.token, self.session, self.rewards = id, token, session, rewards
        self.ended = asyncio.Event()  # set when no more requests are accepted
        self.replies = ReplyHistory(session.graph)
        self._temperature = temperature
        self._translations: dict[str, Translation] = {}  # by role
        self.issued = IssuedResponses()
        self._numbers = count()
        self._closing_replies_left = MAX_CLOSING_REPLIES
        self._failure: PalaestraError | None = None
        self._context: ContextTooLong | None = None
        self._acting = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._recent: deque[_PendingQuestion] = deque(maxlen=2 * MAX_CONCURRENT)

    @property
    def model(self) -> str:
        """Return the name of the model that programs use."""
        return public_name(self.session.model_of().name)

    @property
    def renderer(self) -> Renderer | None:
        """Return the model's renderer; None if the model exposes no tokens."""
        return self.translation().renderer

    @property
    def native(self) -> bool:
        """Return whether the model takes tools, calls and results natively, not as text."""
        return self.translation().native

    def translation(self, role: str = "agent") -> Translation:
        """Return the translation for a role."""
        if role not in self._translations:
            self._translations[role] = Translation(
                self.session, self.replies, temperature=self._temperature, role=role
            )
        return self._translations[role]

    # ── for programs ─────────────────────────────────────────────────────────

    async def numbered(self, question: Question, client: Client | None = None) -> Question:
        """Assign a number to a question and put its tool results in order; see `matched`.

        If the client retries a question that it left without an answer, return the earlier
        question, so that its answer is recorded once.
        """
        question = replace(question, messages=tuple(matched(question.messages)))
        for one in reversed(self._recent) if client is not None and client.retries else ():
            same = replace(one.question, number=0) == question
            if same and one.client is not client and one.client and await one.client.disconnected():
                one.client = client
                return one.question
        question = replace(question, number=next(self._numbers))
        self._recent.append(_PendingQuestion(question, client))
        return question

    async def ask(self, question: Question, listen: Listener | None = None) -> Answer:
        """Ask the model; `listen` receives its reply during sampling, where supported.

        Once the episode is over nothing is asked or recorded: the answer has no tokens, no calls,
        and the text `CLOSING_TEXT`. Tool loops ask once more after the call that ended the episode,
        and would crash on an error.

        Raises:
            HTTPError: the model rejects the conversation; or the episode is over and has had
                `MAX_CLOSING_REPLIES` such answers, or was ended by an error.
        """
        asked = self._pending(question)
        if asked is not None and asked.task is not None:
            return await self._wait(asked.task)
        if self.session.over or self.ended.is_set():
            return self._closing(question)
        if len(self._tasks) >= MAX_CONCURRENT:
            raise HTTPError(429, f"There are {MAX_CONCURRENT} requests in progress; wait for one.")
        task = self._start(self._ask(question, listen))
        if asked is not None:
            asked.task = task
        return await self._wait(task)

    async def ask_several(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer questions that differ only in their numbers, in one batch; raises like `ask`."""
        known = [self._pending(question) for question in questions]
        new = [one for one in known if one is not None and one.task is None]
        free = MAX_CONCURRENT - len(self._tasks)
        if 1 < len(new) <= free and not self.session.over and not self.ended.is_set():
            together = asyncio.ensure_future(self._ask_together([one.question for one in new]))
            for index, one in enumerate(new):
                one.task = self._start(_at(index, together))
        found = await asyncio.gather(*map(self.ask, questions), return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in found if isinstance(answer, Answer)]

    async def length(self, question: Question) -> int:
        """Return the number of prompt tokens of a question; raises like `ask`."""
        question = replace(question, messages=tuple(matched(question.messages)))
        translation = self.translation(question.role)
        prompt, tools = translation.built(question), translation.offered(question)
        counted = self.session.counted(prompt.messages, tools=tools, role=question.role)
        return await self._run(counted)

    async def act(self, action: Action, call_id: str | None = None) -> Transition:
        """Act in the environment, after the actions in progress; raises like `ask`.

        `call_id` is the id of the model's tool call that the program executes, if it gives one.
        """
        return await self._run(self._act(action, call_id))

    def give_up(self) -> None:
        """End the episode in its current state."""
        self._check()
        self.ended.set()

    # ── for its owner ────────────────────────────────────────────────────────

    async def close(self) -> None:
        """Cancel the requests in progress; the program gets no further answer."""
        self.ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def conclude(self) -> None:
        """Raise the error that ended the episode, if there is one.

        A conversation too long for the model counts only if the program did not recover from it.
        """
        if self._failure is not None:
            raise self._failure
        if self._context is not None and not self.session.over:
            raise self._context

    # ── details ──────────────────────────────────────────────────────────────

    def _pending(self, question: Question) -> _PendingQuestion | None:
        """Return the pending entry of a numbered question."""
        return next((a for a in self._recent if a.question.number == question.number), None)

    def _check(self) -> None:
        if self.session.over or self.ended.is_set():
            raise episode_over(self._outcome)

    @property
    def _outcome(self) -> object:
        return self.session.outcome or "it was given up"

    def _without_addresses(self, reason: object) -> str:
        """Return a message for programs, without the address of the model's server."""
        return without_address(str(reason), (model.name for model in self.session.models.values()))

    async def _ask(self, question: Question, listen: Listener | None) -> Answer:
        translation = self.translation(question.role)
        prompt, sampling = translation.prepared(question)
        try:
            reply = await self.session.generate(
                prompt.messages,
                tools=translation.offered(question),
                role=question.role,
                sampling=sampling,
                listen=listen,
            )
            await self.session.stored()
        except SessionOver:
            self.ended.set()
            return self._closing(question)
        self._context = None
        return translation.answer(question, reply, prompt.lost)

    async def _ask_together(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask questions that differ only in their numbers in one batch."""
        role = questions[0].role
        translation = self.translation(role)
        prompt, sampling = translation.prepared(questions[0])
        tools = translation.offered(questions[0])
        try:
            replies = await self.session.generate(
                prompt.messages, tools=tools, role=role, sampling=sampling, n=len(questions)
            )
            await self.session.stored()
        except SessionOver:
            self.ended.set()
            return [self._closing(question) for question in questions]
        self._context = None
        pairs = zip(questions, replies, strict=True)
        return [translation.answer(question, reply, prompt.lost) for question, reply in pairs]

    def _closing(self, question: Question) -> Answer:
        """Return an answer after the end of the episode; see `ask`."""
        if self._failure is not None or not self._closing_replies_left:
            raise episode_over(self._without_addresses(self._failure or self._outcome))
        self._closing_replies_left -= 1
        nothing = Generation("", (), (), Finish.STOP, self.model, version=0)
        text = CLOSING_TEXT if question.form is None else "{}"
        return Answer(None, question.number, None, nothing, text)

    async def _act(self, action: Action, call_id: str | None) -> Transition:
        async with self._acting:
            self._check()
            transition = await self.session.act(action, by=self.replies.proposer(action, call_id))
        if self.session.over:
            self.ended.set()
        return transition

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which continues if the program disconnects."""
        return await self._wait(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work`, unless the episode is over."""
        try:
            self._check()
        except HTTPError:
            work.close()
            raise
        task = asyncio.ensure_future(self._translating_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieve_exception)
        return task

    async def _wait(self, task: asyncio.Task[T]) -> T:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self.ended.is_set():
                raise episode_over(self._outcome) from None
            raise

    async def _translating_errors(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`; translate its errors for programs."""
        try:
            return await work
        except SessionOver:
            self.ended.set()
            raise episode_over(self.session.outcome) from None
        except ContextTooLong as error:
            self._context = error
            raise HTTPError(
                400, self._without_addresses(error), "context_length_exceeded"
            ) from None
        except (RequestRefused, InputError) as error:  # such as an order of roles that is invalid
            raise HTTPError(400, self._without_addresses(error), "invalid") from None
        except PalaestraError as error:
            self._failure = self._failure or error
            self.ended.set()
            raise episode_over(self._without_addresses(error)) from None


async def _at(index: int, task: asyncio.Task[list[Answer]]) -> Answer:
    """Return one answer of a batch; cancelling it cancels the batch."""
    return (await task)[index]


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task, which may have no other reader."""
    if not task.cancelled():
        task.exception()
