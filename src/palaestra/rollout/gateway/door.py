"""A door: one session as a foreign program sees it, from its opening to the end of its episode.

All that passes through it is recorded by the session, exactly as for an agent in this process. What
was begun is recorded even if the program no longer waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import ContextTooLong, InputError, PalaestraError, RequestRefused
from palaestra.core.journal import SessionOver
from palaestra.core.message import Message, ToolCall
from palaestra.core.model import Finish, Generation, Listener, Renderer, Sampling
from palaestra.core.session import Session
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.conversation import (
    Answer,
    Called,
    Question,
    Transcript,
    public,
    without_address,
)
from palaestra.rollout.gateway.refusal import Refusal, over
from palaestra.rollout.gateway.responses import Issued
from palaestra.rollout.gateway.results import matched

T = TypeVar("T")

COLDEST = 1e-4  # a temperature below it is greedy
CLOSING = 32  # answers after the end of an episode
LAST_WORDS = "The episode is over."  # of these answers: some frameworks take no reply without words
AT_ONCE = 64  # requests to the model that one session may have under way


class Asker(Protocol):
    """Who waits for an answer."""

    @property
    def again(self) -> bool:
        """Whether it says that it has asked before and had no answer."""

    async def left(self) -> bool:
        """Whether it went away without one."""


@dataclass(slots=True)
class _Asked:
    """A question of a session, and what becomes of it."""

    question: Question
    asker: Asker | None
    answering: asyncio.Task[Answer] | None = None  # None: it was refused before it was begun


class Door:
    """What is answered to one program."""

    def __init__(
        self,
        id: str,
        token: str,
        session: Session,
        *,
        temperature: bool = False,
        rewards: bool = True,
    ) -> None:
        """A door to that session.

        Args:
            id: in its address.
            token: what opens it.
            session: the episode.
            temperature: whether the one that the program asks for is taken; else the session's.
            rewards: whether the program is told what its actions earned, and how it ended.
        """
        self.id, self.token, self.session, self.rewards = id, token, session, rewards
        self.ended = asyncio.Event()  # nothing more will happen here
        self.transcript = Transcript(session.graph)
        self.issued = Issued()
        self._numbers = count()
        self._temperature = temperature
        self._closings = CLOSING
        self._failure: PalaestraError | None = None
        self._context: ContextTooLong | None = None
        self._acting = asyncio.Lock()
        self._asking: set[asyncio.Task[Any]] = set()
        self._recent: deque[_Asked] = deque(maxlen=2 * AT_ONCE)

    @property
    def model(self) -> str:
        """The name of the model that programs ask."""
        return public(self.session.models["agent"].name)

    @property
    def renderer(self) -> Renderer | None:
        """What turns its tokens into words; None where it shows none."""
        return self.session.models["agent"].renderer

    # ── what programs do ─────────────────────────────────────────────────────

    async def numbered(self, question: Question, asker: Asker | None = None) -> Question:
        """The question as the next one of this session, its results in order; see `matched`.

        Where the asker has asked it before and left without an answer, it is the question of then,
        so that its answer is recorded once.
        """
        question = replace(question, messages=tuple(matched(question.messages)))
        for one in reversed(self._recent) if asker is not None and asker.again else ():
            same = replace(one.question, number=0) == question
            if same and one.asker is not asker and one.asker and await one.asker.left():
                one.asker = asker
                return one.question
        question = replace(question, number=next(self._numbers))
        self._recent.append(_Asked(question, asker))
        return question

    async def ask(self, question: Question, listen: Listener | None = None) -> Answer:
        """Ask the model; `listen` is told its reply as it is sampled, where the model tells.

        Once the episode is over nothing is asked or recorded: the answer has no tokens, no calls,
        and `LAST_WORDS`. Tool loops ask once more after the call that ended it, and would crash.

        Raises:
            Refusal: the model takes no such conversation; or the episode is over and has had
                `CLOSING` such answers, or was ended by a fault.
        """
        asked = self._remembered(question)
        if asked is not None and asked.answering is not None:
            return await self._waited(asked.answering)
        if self.session.over or self.ended.is_set():
            return self._closing(question)
        if len(self._asking) >= AT_ONCE:
            raise Refusal(429, f"There are {AT_ONCE} requests under way; wait for one.")
        answering = self._begun(self._ask(question, listen))
        if asked is not None:
            asked.answering = answering
        return await self._waited(answering)

    async def ask_several(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers to questions that differ in their numbers alone; raises like `ask`."""
        known = [self._remembered(question) for question in questions]
        new = [one for one in known if one is not None and one.answering is None]
        free = AT_ONCE - len(self._asking)
        if 1 < len(new) <= free and not self.session.over and not self.ended.is_set():
            together = asyncio.ensure_future(self._ask_together([one.question for one in new]))
            for place, one in enumerate(new):
                one.answering = self._begun(_at(place, together))
        found = await asyncio.gather(*map(self.ask, questions), return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in found if isinstance(answer, Answer)]

    async def length(self, question: Question) -> int:
        """How many tokens the question would send; raises like `ask`."""
        question = replace(question, messages=tuple(matched(question.messages)))
        told = None if self._grammar(question) else question.form
        return await self._done(self.session.counted(self.transcript.messages(question, told)))

    async def act(self, action: Action) -> Transition:
        """Act in the world, after whatever is being done there already; raises like `ask`."""
        return await self._done(self._act(action))

    def give_up(self) -> None:
        """End the episode as it stands."""
        self._check()
        self.ended.set()

    # ── what its keeper does ─────────────────────────────────────────────────

    async def close(self) -> None:
        """Stop what is under way; the program gets no further answer."""
        self.ended.set()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def conclude(self) -> None:
        """Raise what ended the episode from within, if anything has.

        A conversation too long for the model ends it only where the program made nothing of it.
        """
        if self._failure is not None:
            raise self._failure
        if self._context is not None and not self.session.over:
            raise self._context

    # ── details ──────────────────────────────────────────────────────────────

    def _remembered(self, question: Question) -> _Asked | None:
        """What is remembered of a question that was numbered."""
        return next((a for a in self._recent if a.question.number == question.number), None)

    def _check(self) -> None:
        if self.session.over or self.ended.is_set():
            raise over(self._outcome)

    @property
    def _outcome(self) -> object:
        return self.session.outcome or "it was given up"

    def _shown(self, reason: object) -> str:
        """A reason as the program is told it: where the model is served is none of its business."""
        return without_address(str(reason), (model.name for model in self.session.models.values()))

    async def _ask(self, question: Question, listen: Listener | None) -> Answer:
        prompt, sampling = self._asked(question)
        try:
            reply = await self.session.generate(prompt, sampling=sampling, listen=listen)
        except SessionOver:
            self.ended.set()
            return self._closing(question)
        return self._answer(question, reply)

    async def _ask_together(self, questions: Sequence[Question]) -> list[Answer]:
        """The same for questions that differ in their numbers alone."""
        prompt, sampling = self._asked(questions[0])
        try:
            replies = await self.session.generate(prompt, sampling=sampling, n=len(questions))
        except SessionOver:
            self.ended.set()
            return [self._closing(question) for question in questions]
        return [self._answer(*pair) for pair in zip(questions, replies, strict=True)]

    def _asked(self, question: Question) -> tuple[list[Message], Sampling]:
        """What the session is asked."""
        grammar = self._grammar(question)
        prompt = self.transcript.messages(question, None if grammar else question.form)
        if self.renderer is not None and any(message.images for message in prompt):
            raise Refusal(400, "This model reads words only: leave out the pictures.", "invalid")
        return prompt, self._sampling(question, grammar)

    def _closing(self, question: Question) -> Answer:
        """The answer after the end; see `ask`."""
        if self._failure is not None or not self._closings:
            raise over(self._shown(self._failure or self._outcome))
        self._closings -= 1
        nothing = Generation("", (), (), Finish.STOP, self.model, version=0)
        words = LAST_WORDS if question.form is None else "{}"
        return Answer(None, question.number, None, nothing, words, ())

    async def _act(self, action: Action) -> Transition:
        async with self._acting:
            self._check()
            transition = await self.session.act(action, by=self.transcript.proposer(action))
        if self.session.over:
            self.ended.set()
        return transition

    async def _done(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to; it goes on where nobody waits any more."""
        return await self._waited(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin `work`, unless the episode is over."""
        try:
            self._check()
        except Refusal:
            work.close()
            raise
        task = asyncio.ensure_future(self._told(work))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        task.add_done_callback(_seen)
        return task

    async def _waited(self, task: asyncio.Task[T]) -> T:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self.ended.is_set():
                raise over(self._outcome) from None
            raise

    async def _told(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to, or what a program is told of why it does not."""
        try:
            return await work
        except SessionOver:
            self.ended.set()
            raise over(self.session.outcome) from None
        except ContextTooLong as error:
            self._context = error
            raise Refusal(400, self._shown(error), "context_length_exceeded") from None
        except (
            RequestRefused,
            InputError,
        ) as error:  # such as roles in an order that a template does not take
            raise Refusal(400, self._shown(error), "invalid") from None
        except PalaestraError as error:
            self._failure = self._failure or error
            self.ended.set()
            raise over(self._shown(error)) from None

    def _grammar(self, question: Question) -> str | None:
        """What the reply is held to; None: there is no form, or the model has to be told of it."""
        if question.form is None or not self.session.can_constrain():
            return None
        return question.form.grammar(question.tools if question.calls else ())

    def _sampling(self, question: Question, grammar: str | None) -> Sampling:
        ours = self.session.sampling
        asked = question.max_tokens
        temperature = question.temperature if self._temperature else None
        return replace(
            ours,
            max_tokens=ours.max_tokens if asked is None else min(asked, ours.max_tokens),
            grammar=grammar,
            stop=(*ours.stop, *(stop for stop in question.stop if stop not in ours.stop)),
            temperature=ours.temperature if temperature is None else _sound(temperature),
        )

    def _answer(self, question: Question, generation: Generation) -> Answer:
        """What a program is given for a reply; remembered."""
        self._context = None
        text, index = generation.text, generation.call
        assert index is not None  # the session numbers what it gives
        cuts = {text.index(stop): stop for stop in question.stop if stop in text}
        words = text[: min(cuts)] if cuts else text
        calls: list[ToolCall] = []
        if question.calls:
            words, calls = hermes.parsed(words)
        answer = Answer(
            index=index,
            number=question.number,
            parent=self.session.graph.calls[index].parent,
            generation=generation,
            content=words,
            calls=tuple(
                Called(f"call_{question.number}_{n}", c.name, c.arguments)
                for n, c in enumerate(calls)
            ),
            stopped=cuts[min(cuts)] if cuts else None,
            known=self._known(generation),
            ignored=(*question.ignored, *self._unmet(question)),
        )
        self.transcript.add(answer)
        return answer

    def _unmet(self, question: Question) -> Iterator[str]:
        """The fields of a question that this session does not honour, or not in full."""
        ours = self.session.sampling
        if (question.max_tokens or 0) > ours.max_tokens:
            yield question.limit
        if question.temperature not in (None, ours.temperature) and not self._temperature:
            yield "temperature"
        if question.form is not None and not self.session.can_constrain():
            yield question.form.field
        if question.logprobs is not None and self.renderer is None:
            yield question.logprobs

    def _known(self, generation: Generation) -> tuple[tuple[str, float], ...]:
        if self.renderer is None:
            return ()
        pieces = self.renderer.pieces(generation.tokens)
        return tuple(zip(pieces, generation.logprobs, strict=False))


async def _at(place: int, answering: asyncio.Task[list[Answer]]) -> Answer:
    """One of several answers; whoever cancels it cancels them all."""
    return (await answering)[place]


def _sound(temperature: float) -> float:
    """The temperature, or 0 (greedy) for one so low that logits divided by it overflow."""
    return temperature if temperature >= COLDEST else 0.0


def _seen(task: asyncio.Task[Any]) -> None:
    """Nobody may wait any more for how it failed."""
    if not task.cancelled():
        task.exception()
