"""A session is one running episode: it joins task, environment, agent and models.

It counts the budget, builds every prompt from recorded tokens, and records each
model call and each step before the agent sees the result. With a journal, an
episode that a crash interrupted is replayed from its record: the same calls return
the same replies, without a model, until the record ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, overload

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget, Usage, timeout
from palaestra.core.environment import Action, AsyncEnvironment, Observation, Transition
from palaestra.core.episode import (
    Episode,
    Event,
    Journal,
    Key,
    Step,
    derive_seed,
)
from palaestra.core.episode_state import EpisodeState
from palaestra.core.errors import AgentFault, InputError, ReplayMismatch
from palaestra.core.graph import Call, MessageGraph
from palaestra.core.message import Message, ToolCall
from palaestra.core.model import Generation, Listener, Model, Sampling
from palaestra.core.model_calls import Question
from palaestra.core.outcome import Limit, Outcome, ended_by
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.core.trial import Trial

if TYPE_CHECKING:
    from palaestra.core.game import Game
    from palaestra.core.mail import Mail

SingleAction = str | Action | ToolCall


class Session:
    """One running episode. Agents use `generate`, `act`, `observation`, `over`."""

    def __init__(
        self,
        key: Key,
        task: Task,
        environment: AsyncEnvironment,
        agent: Agent,
        models: Mapping[str, Model],
        *,
        budget: Budget = Budget(),
        sampling: Sampling = Sampling(),
        seed: int = 0,
        journal: Journal | None = None,
        past: Sequence[Event] = (),
        probes: bool = False,
        player_budget: Budget = Budget(),
    ) -> None:
        """Join them.

        Args:
            key: the rollout.
            task: what to do.
            environment: where.
            agent: the program.
            models: by role.
            budget: the limits of the episode.
            sampling: how replies are sampled.
            seed: of the run.
            journal: takes the events as they happen.
            past: the events of an interrupted attempt, which are replayed first.
            probes: at each call, measure the probability of the environment's known answer.
            player_budget: the limits of each of several players (see `player`).
        """
        self.key, self.task, self.environment, self.agent = key, task, environment, agent
        self.models, self.budget, self.sampling = models, budget, sampling
        self.seed = derive_seed(seed, key)
        self.state = EpisodeState(key, task, budget, self.seed, journal, past)
        self.first_recorded_call = next((event for event in past if isinstance(event, Call)), None)
        """The first call of an interrupted episode, with its prompt; None if there is none."""
        self._calls, self._spending = self.state.calls, self.state.spending
        self._trying = False  # whether a trial is using the environment
        self._probes = probes
        self._answer: Action | None = None  # the known one, of a session with probes
        self.player_budget = player_budget
        self._game: Game | None = None

    # ── what agents use ──────────────────────────────────────────────────────

    @property
    def instructions(self) -> str:
        """The environment's instructions: its rules and its actions."""
        return self.environment.instructions

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools available now; empty where actions are text."""
        return self.environment.tools

    @property
    def players(self) -> tuple[str, ...]:
        """The players of this environment; one name if there is a single player."""
        return self.environment.players

    @property
    def turn(self) -> str:
        """The player that acts next."""
        return self.state.signals.turn or self.environment.players[0]

    @property
    def observation(self) -> Observation | None:
        """What the agent saw first, one of several players in its present turn; None: nothing."""
        return self.state.observation

    @property
    def steps(self) -> list[Step]:
        """The steps so far."""
        return self.state.steps

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended; None: it goes on."""
        return self.state.outcome

    @outcome.setter
    def outcome(self, outcome: Outcome | None) -> None:
        self.state.outcome = outcome

    @property
    def graph(self) -> MessageGraph:
        """The model calls so far."""
        return self._calls.graph

    @property
    def over(self) -> bool:
        return self.state.outcome is not None

    @property
    def usage(self) -> Usage:
        return self._spending.usage

    @property
    def turns_left(self) -> int | None:
        """The number of actions that the budget still allows; None: any number."""
        return self._spending.turns_left

    @property
    def tries_left(self) -> int | None:
        """The number of actions in trials that the budget still allows; None: any number."""
        return self._spending.tries_left

    @property
    def inbox(self) -> list[Mail]:
        """The messages that one of several players was shown, in order; else empty."""
        return []

    def player(self, name: str) -> Session:
        """Return a session for one of several players, in which any agent plays for that player.

        It has the observations, the turns, the conversations and the limits of that player; see
        `PlayerSession`. `play` runs an agent for each player.

        Raises:
            InputError: there is no such player.
        """
        return self.game.player(name)

    async def play(self, agents: Mapping[str, Agent]) -> None:
        """Run an agent for each player, until the episode is over; see `Game.play`."""
        await self.game.play(agents)

    @property
    def game(self) -> Game:
        """The players of this session."""
        if self._game is None:
            from palaestra.core.game import Game  # its player sessions are sessions

            self._game = Game(self)
        return self._game

    def trial(self) -> Trial:
        """Return a trial: actions within its `async with` are undone at its end.

        Raises (on entering):
            CapabilityMissing: the environment has no snapshots and is not deterministic.
            AgentFault: another trial is open.
            SessionOver: the episode has already ended.
        """
        return Trial(self, self.state.signals)

    def model_of(self, role: str = "agent") -> Model:
        """Return the model of a role; raises InputError if it has none."""
        return self._model(role)

    def can_choose(self, role: str = "agent") -> bool:
        """Return whether the model of that role supports `Sampling.choices`."""
        return self._model(role).chooses

    def can_call_tools(self, role: str = "agent") -> bool:
        """Return whether the model of that role takes tools natively and replies with calls."""
        return self._model(role).native_tools

    def can_constrain(self, role: str = "agent") -> bool:
        """Return whether the model of that role supports `Sampling.grammar`."""
        return self._model(role).constrains

    @overload
    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        role: str = "agent",
        sampling: Sampling | None = None,
        listen: Listener | None = None,
    ) -> Generation: ...

    @overload
    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        role: str = "agent",
        sampling: Sampling | None = None,
        n: int,
    ) -> list[Generation]: ...

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        role: str = "agent",
        sampling: Sampling | None = None,
        listen: Listener | None = None,
        n: int | None = None,
    ) -> Generation | list[Generation]:
        """Sample a reply of the model of `role`, and record the call.

        A player, or a role of the agent, without a model of its own uses the model of "agent".
        `listen` receives the reply during sampling, if the model supports it. The reply may call
        `tools`; another set of tools starts a new root in the message graph.

        With `n`, sample `n` replies to the same prompt in one batch. Each is a call with its own
        seed: the same calls as `n` single requests. Where a budget could run out in between, the
        batches are smaller.

        Raises:
            InputError: the role has no model, or its model does not support the choices, the
                grammar or the tools.
            SessionOver: the episode has ended, or a budget just ran out.
        """
        found = await self._replies(messages, tuple(tools), role, sampling, listen, n)
        return found[0] if n is None else found

    async def generate_within(
        self,
        conversation: str,
        messages: Sequence[Message],
        *,
        role: str,
        tools: Sequence[Tool] = (),
        sampling: Sampling | None = None,
    ) -> Generation:
        """Sample a reply of `role` to a prompt in the conversation of another role, and record it.

        The prompt continues what that role's model replied, token for token, as if that model were
        asked. It goes on from its own replies: those of `role` are read as messages.

        Raises:
            InputError, SessionOver: as `generate`.
        """
        self._check_open()
        model, own = self._model(role), sampling or self.sampling
        policy = own.policy(self._model(conversation).name)
        within = policy, self._recorded_role(conversation)
        sampling, role = model.limited(own), self._recorded_role(role)
        question = await self._calls.question(
            model, role, messages, sampling, None, tuple(tools), within
        )
        return (await self._answers(question, 1))[0]

    async def stored(self) -> None:
        """Wait until all replies so far are stored: one of several players has them before."""

    def prompt_length(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), role: str = "agent"
    ) -> int:
        """Return how many tokens `generate` would send for these messages, exactly.

        For a model that does not expose tokens, return a quarter of the characters.
        """
        known = self._recorded_role(role)
        return self._calls.length(self._model(role), known, messages, tuple(tools))

    async def counted(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), role: str = "agent"
    ) -> int:
        """Return `prompt_length` without blocking other sessions."""
        known = self._recorded_role(role)
        return await self._calls.counted(self._model(role), known, messages, tuple(tools))

    @overload
    async def act(self, action: SingleAction, *, by: Generation | None = None) -> Transition: ...

    @overload
    async def act(
        self, action: Sequence[ToolCall], *, by: Generation | None = None
    ) -> list[Transition]: ...

    async def act(
        self,
        action: SingleAction | Sequence[ToolCall],
        *,
        by: Generation | None = None,
    ) -> Transition | list[Transition]:
        """Act in the environment, and record the step as proposed by the reply `by`.

        Credit assignment uses `by`: a step without it was proposed by no model. Several calls
        become several steps, in order, up to the one that ends the episode.

        Raises:
            SessionOver: the episode has already ended.
            AgentFault: a trial is open, `by` is not a reply of this episode, or there is no call.
        """
        if isinstance(action, SingleAction):
            return await self._act(Action.of(action), by)
        if not action:
            raise AgentFault("action", "it acts by no call at all; pass at least one")
        done: list[Transition] = []
        for call in action:
            done.append(await self._act(Action.of(call), by))
            if self.over:
                break
        return done

    # ── running the episode ──────────────────────────────────────────────────

    async def run(self) -> Episode:
        """Reset the environment, run the agent, and return the record.

        Errors within the episode become its outcome. Once reached, an outcome is final, whatever
        the agent does afterwards.

        Raises:
            ReplayMismatch: the record of the interrupted episode differs from its replay, or
                continues after the replay has ended.
        """
        ended = await self._run_agent()
        self.outcome = self.outcome or ended
        left = self.state.recording.left + (0 if self._game is None else self._game.left)
        if left and self.outcome.scored:
            raise ReplayMismatch(f"{self.key}: {self.outcome}, but {left} more events are recorded")
        return self.episode()

    async def _run_agent(self) -> Outcome:
        """Return the outcome, unless the environment or a budget has set one before."""
        clock: asyncio.Timeout | None = None
        try:
            async with timeout(self.budget.seconds) as clock:
                self._check_players()
                first, self.state.signals = await self.environment.reset(self.task)
                self.state.observation = first
                self._check_pictures(first)
                if self._probes:
                    self._answer = await self.environment.answer()
                await self.agent.run(self)
            return Outcome.failure()  # the agent gave up
        except Exception as error:
            return ended_by(error, time_up=clock is not None and clock.expired())

    def episode(self) -> Episode:
        """Return the record so far."""
        return self.state.episode(self.agent.name)

    # ── what trials use ──────────────────────────────────────────────────────

    def begin_trial(self) -> None:
        """Give the environment to a trial until `end_trial`; raises like `trial`."""
        self._check_open()
        self._check_untried()
        self._trying = True

    def end_trial(self) -> None:
        """Take the environment back, in the state at the start of the trial."""
        self._trying = False

    def count_tried(self) -> None:
        """Count an action of a trial; raises SessionOver beyond the budget."""
        self._check_open()
        if self.tries_left == 0:
            self.outcome = Outcome.truncated(Limit.TRIED)
            self._check_open()
        self._spending.attempt()

    # ── details ──────────────────────────────────────────────────────────────

    async def _act(self, action: Action, by: Generation | None) -> Transition:
        """Take one step; see `act`."""
        self._check_open()
        self._check_untried()
        call = None if by is None else self._calls.index_of(by)
        return await self.state.take(self.environment, action, call)

    async def _replies(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        role: str,
        sampling: Sampling | None,
        listen: Listener | None,
        n: int | None,
    ) -> list[Generation]:
        """Return the replies that `generate` asks for; without `n` one."""
        self._check_open()
        model = self._model(role)
        sampling = model.limited(sampling or self.sampling)
        role = self._recorded_role(role)
        question = await self._calls.question(model, role, messages, sampling, listen, tools)
        if self._answer is not None and model.scores_answers:
            right = self.agent.demonstrate(question.prompt(0, "", None), [self._answer])
            question = question._replace(answer=right)
        if n is None:
            return await self._answers(question, 1)
        found: list[Generation] = []
        while len(found) < n:
            found += await self._answers(question, n - len(found))
        return found

    def _recorded_role(self, role: str) -> str:
        """Return the role as the record names it."""
        return role

    def _check_untried(self) -> None:
        if self._trying:
            detail = "a trial is open; leave it before you act or begin another one"
            raise AgentFault("trial", detail)

    def _model(self, role: str) -> Model:
        own = (*self.environment.players, *self.agent.roles)
        if role not in self.models and (role in own or self.agent.any_role):
            role = "agent"
        if role not in self.models:
            known = ", ".join(self.models)
            raise InputError(f"The role '{role}' has no model; there are models for: {known}.")
        return self.models[role]

    def _check_players(self) -> None:
        players = self.environment.players
        if len(players) > 1 and not self.agent.several:
            raise InputError(
                f"'{self.task.environment}' has the players {', '.join(players)}, and "
                f"the agent '{self.agent.name}' plays one; use the agent 'players'."
            )

    def _check_pictures(self, observation: Observation) -> None:
        if observation.images and not self.agent.sees:
            raise InputError(
                f"'{self.task.environment}' shows images, and the agent '{self.agent.name}' does "
                "not pass them to its model; use the agent 'direct' or 'react'."
            )

    def _check_open(self) -> None:
        state = self.state
        if state.outcome is not None or state.spending.limited:
            state.check_open()

    def _tokens_left(self, reading: int) -> int | None:
        """Return how many tokens may be sampled after `reading` more are read; None: any number."""
        return self._spending.tokens_left(reading) if self._spending.limited else None

    async def _answers(self, question: Question, most: int) -> list[Generation]:
        """Return 1 to `most` replies, recorded or new; raises SessionOver without tokens left."""
        self._check_open()
        recorded = await self._calls.replayed(question)
        if recorded is not None:
            return [recorded]
        left = self._tokens_left(len(question.delta))
        if left == 0:
            self.outcome = Outcome.truncated(Limit.TOKENS)
            self._check_open()
        return await self._calls.sample(question, most, left)
