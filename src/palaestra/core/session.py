"""A session is one episode being lived: it joins task, world, agent and models.

It counts the budget, builds every prompt from recorded tokens, and records each
model call and each step before the agent sees the result. With a journal, an
episode cut off by a crash is lived again from its record: the same calls return
the same replies, without a model, until the record ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import overload

from palaestra.core.agent import Agent
from palaestra.core.asking import (
    Question,
    ask,
    call_of,
    check_held,
    generation_of,
    prompt_tokens,
    too_long,
)
from palaestra.core.budget import Budget, Spending, Usage
from palaestra.core.ending import ended_by
from palaestra.core.environment import Action, Observation, Signals, Transition, World
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.errors import AgentFault, InputError
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.heartbeat import timeout
from palaestra.core.journal import Event, Journal, ReplayMismatch, SessionOver, derive_seed
from palaestra.core.message import Message
from palaestra.core.model import Generation, Listener, Model, Sampling
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.recording import Recording
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.core.trial import Trial

LONG = 20_000  # characters that take some hundredths of a second to tokenise


class Session:
    """One episode being lived. Agents use `generate`, `act`, `observation`, `over`."""

    def __init__(
        self,
        key: Key,
        task: Task,
        world: World,
        agent: Agent,
        models: Mapping[str, Model],
        *,
        budget: Budget = Budget(),
        sampling: Sampling = Sampling(),
        seed: int = 0,
        journal: Journal | None = None,
        past: Sequence[Event] = (),
    ) -> None:
        self.key, self.task, self.world, self.agent = key, task, world, agent
        self.models, self.budget, self.sampling = models, budget, sampling
        self.seed = derive_seed(seed, key)
        self._program = str(key)  # the name under which models know this episode
        self.graph = MessageGraph()
        self.steps: list[Step] = []
        self.observation: Observation | None = None
        self.outcome: Outcome | None = None
        self._recording = Recording(key, journal, past)
        self.begun = next((event for event in past if isinstance(event, Call)), None)
        """The first call of an interrupted episode that is lived again: what it was told then."""
        self._spending = Spending(budget)
        self._trying = False  # whether a trial has the world
        self._signals = Signals()
        self._asked = 0  # calls begun, so that calls at the same time have seeds of their own

    # ── what agents use ──────────────────────────────────────────────────────

    @property
    def instructions(self) -> str:
        """How the world explains itself and its actions."""
        return self.world.instructions

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools on offer now; empty where actions are words."""
        return self.world.tools

    @property
    def players(self) -> tuple[str, ...]:
        """Who acts in this world; one name where nobody else does."""
        return self.world.players

    @property
    def turn(self) -> str:
        """The player who acts next."""
        return self._signals.turn or self.world.players[0]

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def usage(self) -> Usage:
        return self._spending.usage

    @property
    def turns_left(self) -> int | None:
        """How many actions the budget still allows; None: any number."""
        return self._spending.turns_left

    @property
    def tries_left(self) -> int | None:
        """How many actions in trials the budget still allows; None: any number."""
        return self._spending.tries_left

    def trial(self) -> Trial:
        """Act in the world within `async with`, and find it as it was afterwards.

        Raises (on entering):
            CapabilityMissing: the world neither saves its state nor repeats itself.
            AgentFault: another trial is open.
            SessionOver: the episode has already ended.
        """
        return Trial(self, self._signals)

    def can_choose(self, role: str = "agent") -> bool:
        """Whether the model of that role can be held to `Sampling.choices`."""
        return self._model(role).chooses

    def can_constrain(self, role: str = "agent") -> bool:
        """Whether the model of that role can be held to `Sampling.grammar`."""
        return self._model(role).constrains

    @overload
    async def generate(
        self,
        messages: Sequence[Message],
        *,
        role: str = "agent",
        sampling: Sampling | None = None,
        listen: Listener | None = None,
    ) -> Generation: ...

    @overload
    async def generate(
        self,
        messages: Sequence[Message],
        *,
        role: str = "agent",
        sampling: Sampling | None = None,
        n: int,
    ) -> list[Generation]: ...

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        role: str = "agent",
        sampling: Sampling | None = None,
        listen: Listener | None = None,
        n: int | None = None,
    ) -> Generation | list[Generation]:
        """Ask the model of `role`, and record the call.

        A player, or a role of the agent, without a model of its own is played by that of "agent".
        `listen` is told the reply as it is sampled, where the model tells.

        With `n`, so many replies to the same prompt are sampled at once, each a call of its own
        with a seed of its own: the calls that asking `n` times would have made. Where a budget
        could end on the way, fewer are asked at once.

        Raises:
            InputError: there is no model for the role, or it cannot be held to the choices or the
                grammar.
            SessionOver: the episode has ended, or a budget just ran out.
        """
        self._check_open()
        model = self._model(role)
        sampling = sampling or self.sampling
        check_held(model, sampling)
        parent, known, asked = self.graph.place(messages, sampling.policy(model.name), role)
        new = tuple(messages[known:])
        delta, tokens = await self._rendered(model, parent, new)
        question = Question(model, role, parent, new, delta, asked, tokens, sampling, listen)
        if n is None:
            return (await self._answers(question, 1))[0]
        found: list[Generation] = []
        while len(found) < n:
            found += await self._answers(question, n - len(found))
        return found

    def prompt_length(self, messages: Sequence[Message], *, role: str = "agent") -> int:
        """How many tokens `generate` would send for these messages, to the token.

        Of a model that does not show its tokens, a quarter of the characters.
        """
        model = self._model(role)
        parent, known, _ = self.graph.place(messages, model.name, role)
        _, tokens = self._tokens(model, parent, tuple(messages[known:]))
        return _length(tokens, messages)

    async def counted(self, messages: Sequence[Message]) -> int:
        """The `prompt_length` for the agent's model; others are served while a long one is read."""
        model = self._model("agent")
        parent, known, _ = self.graph.place(messages, model.name, "agent")
        _, tokens = await self._rendered(model, parent, tuple(messages[known:]))
        return _length(tokens, messages)

    async def act(self, action: str | Action, *, by: Generation | None = None) -> Transition:
        """Act in the world, and record the step as what the reply `by` proposed.

        Credit goes by it: a step without `by` was proposed by no model.

        Raises:
            SessionOver: the episode has already ended.
            AgentFault: a trial is open, or `by` is no reply of this episode.
        """
        self._check_open()
        self._check_untried()
        call = None if by is None else self._call_of(by)
        action = Action(action) if isinstance(action, str) else action
        started = time.monotonic()
        transition, signals = await self.world.step(action)
        saved: Awaitable[None] | None = None
        step = self._recording.again(
            Step, lambda step: (step.action, step.transition) == (action, transition)
        )
        if step is None:
            step = Step(
                index=len(self.steps),
                call=call,
                action=action,
                transition=transition,
                before=self._signals,
                seconds=time.monotonic() - started,
                calls_made=len(self.graph.calls),
            )
            saved = self._recording.write(step)
        self.steps.append(step)
        self._signals = signals
        self._spending.act(transition.valid)
        self.outcome = self._judge(transition)
        if saved is not None:
            await saved
        return transition

    # ── the life of a session ────────────────────────────────────────────────

    async def live(self) -> Episode:
        """Reset the world, run the agent, and return the record; never raises for an episode.

        An outcome, once reached, stands, whatever the agent does afterwards.

        Raises:
            ReplayMismatch: the record of the interrupted episode does not fit, or goes on
                where the episode has now ended.
        """
        ended = await self._run()
        self.outcome = self.outcome or ended
        left = self._recording.left
        if left and self.outcome.scored:
            raise ReplayMismatch(f"{self.key}: {self.outcome}, but {left} more events are recorded")
        return self.episode()

    async def _run(self) -> Outcome:
        """How the episode ends, unless the world or a budget has ended it before."""
        clock: asyncio.Timeout | None = None
        try:
            async with timeout(self.budget.seconds) as clock:
                self._check_players()
                self.observation, self._signals = await self.world.reset(self.task)
                self._check_pictures(self.observation)
                await self.agent.run(self)
            return Outcome.failure()  # the agent gave up
        except Exception as error:
            return ended_by(error, time_up=clock is not None and clock.expired())

    def episode(self) -> Episode:
        """The record as it stands."""
        return Episode(
            key=self.key,
            task=self.task,
            agent=self.agent.name,
            observation=self.observation,
            calls=tuple(self.graph.calls),
            steps=tuple(self.steps),
            outcome=self.outcome or Outcome.failure(),
            usage=self.usage,
            progress=self._signals.progress,
        )

    # ── what trials use ──────────────────────────────────────────────────────

    def begin_trial(self) -> None:
        """Give the world to a trial until `end_trial`; raises like `trial`."""
        self._check_open()
        self._check_untried()
        self._trying = True

    def end_trial(self) -> None:
        """Take the world back, in the state in which it was given."""
        self._trying = False

    def count_tried(self) -> None:
        """One more action of a trial; raises SessionOver where it is one too many."""
        self._check_open()
        if self.tries_left == 0:
            self.outcome = Outcome.truncated(Limit.TRIED)
            self._check_open()
        self._spending.attempt()

    # ── details ──────────────────────────────────────────────────────────────

    def _check_untried(self) -> None:
        if self._trying:
            detail = "a trial has the world; leave it before you act, or begin another one"
            raise AgentFault("trial", detail)

    def _model(self, role: str) -> Model:
        if role not in self.models and role in (*self.world.players, *self.agent.roles):
            role = "agent"
        if role not in self.models:
            known = ", ".join(self.models)
            raise InputError(f"No model plays the role '{role}'; there are models for: {known}.")
        return self.models[role]

    def _check_players(self) -> None:
        if len(self.world.players) > 1 and not self.agent.several:
            raise InputError(
                f"'{self.task.environment}' has the players {', '.join(self.world.players)}, and "
                f"the agent '{self.agent.name}' plays one; use the agent 'players'."
            )

    def _check_pictures(self, observation: Observation) -> None:
        if observation.images and not self.agent.sees:
            raise InputError(
                f"'{self.task.environment}' shows pictures, and the agent '{self.agent.name}' does "
                "not tell them to its model; use the agent 'direct' or 'react'."
            )

    def _check_open(self) -> None:
        if self.outcome is None:
            limit = self._spending.limit
            self.outcome = Outcome.truncated(limit) if limit else None
        if self.outcome is not None:
            raise SessionOver(f"{self.key} is over: {self.outcome}")

    def _judge(self, transition: Transition) -> Outcome | None:
        if transition.terminated:
            return Outcome.success() if transition.success else Outcome.failure()
        if transition.truncated:
            return Outcome.truncated(Limit.ENVIRONMENT)
        often = self._spending.misunderstood
        if often is not None:
            detail = f"{often} actions in a row were not understood"
            return Outcome.error("unparsed", Owner.AGENT, detail)
        limit = self._spending.limit
        return Outcome.truncated(limit) if limit else None

    def _tokens(
        self, model: Model, parent: int | None, new: tuple[Message, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The new tokens of a prompt, and the whole prompt; see `prompt_tokens`."""
        return prompt_tokens(self.graph, model, parent, new, self.task.environment)

    async def _rendered(
        self, model: Model, parent: int | None, new: tuple[Message, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The same; a long text is tokenised in a thread, while other sessions go on."""
        if sum(len(message.content) for message in new) < LONG:
            return self._tokens(model, parent, new)
        found = await asyncio.to_thread(self._tokens, model, parent, new)
        self._check_open()
        return found

    async def _answers(self, question: Question, most: int) -> list[Generation]:
        """At least one answer, and at most so many; recorded in the order of their seeds."""
        self._check_open()
        try:
            recorded = self._recording.again(Call, question.asked_by)
        except ReplayMismatch as mismatch:
            # What the model found too long left no record; it finds so again.
            prompt = question.prompt(self._next_seed(), self._program, None)
            raise await too_long(question.model, prompt) or mismatch from None
        if recorded is not None:
            self._asked += 1
            self._add_call(recorded, question)
            return [generation_of(recorded)]

        left = self._spending.tokens_left(len(question.delta))
        if left == 0:
            self.outcome = Outcome.truncated(Limit.TOKENS)
            self._check_open()
        reading = None if question.tokens is None else len(question.delta)
        count = self._spending.at_once(most, reading, question.sampling.max_tokens)
        prompts = [question.prompt(self._next_seed(), self._program, left) for _ in range(count)]
        if count == 1:
            answer, saved = self._record(question, await ask(question.model, prompts[0]))
            if saved is not None:
                await saved
            return [answer]
        asking = [asyncio.ensure_future(ask(question.model, prompt)) for prompt in prompts]
        try:
            written = [self._record(question, await asked) for asked in asking]
        finally:
            for asked in asking:
                asked.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        for _, saved in written:
            if saved is not None:
                await saved
        return [answer for answer, _ in written]

    def _record(
        self, question: Question, answer: Generation
    ) -> tuple[Generation, Awaitable[None] | None]:
        """The answer with its number, and what to wait for until it is kept."""
        # of calls at the same time, in the order of the replies
        call = call_of(question, answer, len(self.graph.calls))
        saved = self._recording.write(call)
        self._add_call(call, question)
        return replace(answer, call=call.index), saved

    def _call_of(self, reply: Generation) -> int:
        """The number of the call that a reply is of."""
        calls, index = self.graph.calls, reply.call
        if index is None or index >= len(calls) or calls[index].reply.content != reply.text:
            detail = "it acts by a reply that `generate` of this episode did not give"
            raise AgentFault("reply", detail)
        return index

    def _next_seed(self) -> int:
        """The seed of the next call of this episode."""
        seed = derive_seed(self.seed, self._asked)
        self._asked += 1
        return seed

    def _add_call(self, call: Call, question: Question) -> None:
        self.graph.add(call, question.messages)
        self._spending.call(len(call.prompt) or call.computed_tokens, call.sampled)


def _length(tokens: tuple[int, ...] | None, messages: Sequence[Message]) -> int:
    """Of a prompt; a quarter of the characters where its tokens are not shown."""
    if tokens is None:
        return sum(len(message.content) for message in messages) // 4
    return len(tokens)
