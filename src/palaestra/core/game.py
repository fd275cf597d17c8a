"""Several players of one episode, each with an agent of its own, and one record of all of them.

Each player has a session (`PlayerSession`) with the API of a session for a single player: so any
agent plays for any player, unchanged. Agents whose players act at the same time think at the same
time. The record does not depend on who was faster: it has the calls and the step of one player
after those of another, in the order in which the environment takes their moves, and the seeds of a
player's calls are its own. Calls of a player whose move is not due yet are recorded when it is.

A player whose agent gives up, crashes, is not understood too often or exceeds its own budget
forfeits, with the return that the environment states (`Stakes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.core.budget import ran
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Event, Forfeit, Key, Step, derive_seed, player_of
from palaestra.core.errors import CapabilityMissing, InputError, ReplayMismatch, SessionOver
from palaestra.core.graph import Call
from palaestra.core.model import Generation, Model
from palaestra.core.model_calls import Question
from palaestra.core.outcome import Limit, Outcome, Owner, ended_by
from palaestra.core.session import Session
from palaestra.core.trial import Trial

if TYPE_CHECKING:
    from palaestra.core.agent import Agent

POLL = 0.1  # seconds between looks at the clock of a player whose time is limited


class PlayerSession(Session):
    """One player's part of an episode: `observation`, `generate` and `act` are that player's.

    `act` returns at the player's next turn, with what the player sees then and with all rewards
    that it got since its last turn. A role is recorded under the player's name: "white" for the
    agent itself, "white/planner" for its planner. Its model is the one of that name, else that of
    the player, else that of "agent".
    """

    def __init__(self, game: Game, player: str, past: list[Call]) -> None:
        """Prepare the part of a player, with its calls of an interrupted attempt."""
        whole = game.whole
        self.name, self._game_of = player, game
        self._recorded = [call.index for call in past]  # their positions in the whole record
        self._global: list[int] = []  # positions in the whole record of the calls added there
        self.may_think, self.may_act = asyncio.Event(), asyncio.Event()
        self._models_of: dict[str, Model] = {}  # by role, as found
        self.received = 0.0  # rewards since the last turn
        self._thought = 0.0  # seconds in which this player decided, before the present decision
        self._since: float | None = None  # when the present decision began; None: none is due
        self._solo = True  # whether nobody else acts in the round of its present turn
        own, invalid = whole.player_budget, whole.player_budget.invalid_actions
        self._seconds = own.seconds  # counted here: the clock of a session never stops
        invalid = whole.budget.invalid_actions if invalid is None else invalid
        super().__init__(
            whole.key,
            whole.task,
            whole.environment,
            whole.agent,
            whole.models,
            budget=replace(own, seconds=None, invalid_actions=invalid),
            sampling=whole.sampling,
            seed=derive_seed(whole.seed, player),
            journal=self,
            past=_numbered(past),
        )

    @property
    def instructions(self) -> str:
        return f"{self.environment.instructions}\nYou are {self.name}."

    @property
    def players(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def turn(self) -> str:
        return self.name

    @property
    def turns_left(self) -> int | None:
        own, whole = super().turns_left, self._game_of.whole.turns_left
        return own if whole is None else whole if own is None else min(own, whole)

    def trial(self) -> Trial:
        """Raise CapabilityMissing: undoing one player's actions would undo those of others."""
        raise CapabilityMissing(
            f"The agent of {self.name} tries actions, and several players share the environment; "
            "choose an agent that does not search."
        )

    def append(self, key: Key, event: Event) -> Awaitable[None] | None:
        """Record a call of this player, if its move is due; else that is done when it is due."""
        assert isinstance(event, Call)
        if not self.may_act.is_set():
            return None
        before, saved = self._add_calls(), self._add_call(event)
        if not before:
            return saved
        return asyncio.ensure_future(_all(before if saved is None else [*before, saved]))

    async def flush(self) -> None:
        """Record all calls of this player so far."""
        for saved in self._add_calls():
            await saved

    def seconds_left(self) -> float | None:
        """Return the time that is left to this player while it decides; None: any amount."""
        if self._seconds is None or self._since is None:
            return None
        return self._seconds - self._thought - (ran() - self._since)

    def wake(self, observation: Observation, *, alone: bool) -> None:
        """Begin a turn of this player, who sees this; `alone`: nobody else acts in the round."""
        self.observation, self._since, self._solo = observation, ran(), alone
        self.may_think.set()

    def pause(self) -> None:
        """End the turn of this player."""
        self.may_think.clear()
        self.may_act.clear()

    # ── how it differs from a session for a single player ────────────────────

    def _recorded_role(self, role: str) -> str:
        return self.name if role == "agent" else f"{self.name}/{role}"

    def _model(self, role: str) -> Model:
        if role not in self._models_of:
            self._models_of[role] = self._found(role).for_agent(self.agent)
        return self._models_of[role]

    def _found(self, role: str) -> Model:
        recorded = self._recorded_role(role)
        if recorded in self.models:
            return self.models[recorded]
        if role in ("agent", *self.agent.roles):
            return self.models.get(self.name) or super()._model("agent")
        return super()._model(role)

    def _check_open(self) -> None:
        whole = self._game_of.whole
        if whole.outcome is None and self._solo:
            whole.check_limits()
        if whole.outcome is not None:
            self._game_of.update(None)
        super()._check_open()

    def _tokens_left(self, reading: int) -> int | None:
        own = super()._tokens_left(reading)
        whole = self._game_of.whole._tokens_left(reading) if self._solo else None
        return own if whole is None else whole if own is None else min(own, whole)

    async def _answers(self, question: Question, most: int) -> list[Generation]:
        if question.model.reads_environment:  # which must be in the state of this player's move
            await self.may_act.wait()
        return await super()._answers(question, most)

    async def _act(self, action: Action, by: Generation | None) -> Transition:
        self._check_open()
        call = None if by is None else self._calls.index_of(by)
        if self._since is not None:
            self._thought, self._since = self._thought + ran() - self._since, None
        await self.may_act.wait()
        self._check_open()
        await self.flush()
        taken = await self._game_of.move(self, action, None if call is None else self._global[call])
        if self._game_of.whole.outcome is None:
            self._spending.act(taken.valid)
            invalid = self._spending.too_many_invalid
            if invalid is not None:
                detail = f"{invalid} actions in a row were not understood"
                self.outcome = Outcome.error("unparsed", Owner.AGENT, detail)
            self._check_open()
        await self.may_think.wait()
        assert self.observation is not None
        whole = self._game_of.whole
        received = replace(
            taken,
            observation=self.observation,
            reward=self.received,
            terminated=whole.outcome is not None and whole.outcome.limit is None,
            truncated=whole.outcome is not None and whole.outcome.limit is not None,
            success=self.outcome is not None and self.outcome.solved,
            rewards={},
        )
        self.received = 0.0
        self.steps.append(Step(len(self.steps), call, action, received, Signals(turn=self.name)))
        return received

    def _add_calls(self) -> list[Awaitable[None]]:
        """Add the calls that are not yet in the whole record; return what to await."""
        calls = self._calls.graph.calls[len(self._global) :]
        return [saved for call in calls if (saved := self._add_call(call)) is not None]

    def _add_call(self, call: Call) -> Awaitable[None] | None:
        whole, number = self._game_of.whole, len(self._global)
        parent = None if call.parent is None else self._global[call.parent]
        added = replace(call, index=len(whole.graph.calls), parent=parent)
        self._global.append(added.index)
        saved = None
        if number >= len(self._recorded):
            saved = whole.write(added)
        elif self._recorded[number] != added.index:
            raise ReplayMismatch(f"{self.key}: call {added.index} happens, another was recorded")
        whole.add_call(added)
        return saved


class Game:
    """The players of a session."""

    def __init__(self, whole: Session) -> None:
        """Seat the players of a session; each has its calls of an interrupted attempt."""
        self.whole = whole
        past: dict[str, list[Call]] = {player: [] for player in whole.players}
        for call in whole.take_past_calls():
            past.setdefault(player_of(call.role), []).append(call)
        self._seats = {
            player: PlayerSession(self, player, past[player]) for player in whole.players
        }
        self._acting: tuple[str, ...] = ()
        self._left_over = sum(len(calls) for name, calls in past.items() if name not in self._seats)

    @property
    def left(self) -> int:
        """The number of calls of an interrupted attempt that were not made again."""
        return self._left_over + sum(seat._recording.left for seat in self._seats.values())

    def player(self, name: str) -> PlayerSession:
        """Return the session of a player; raises InputError for a name that does not play."""
        if name not in self._seats:
            raise InputError(
                f"'{name}' does not play '{self.whole.task.environment}'; "
                f"its players are {', '.join(self._seats)}."
            )
        if not self._acting and self.whole.observation is not None:
            self.update(None)
        return self._seats[name]

    async def play(self, agents: Mapping[str, Agent]) -> None:
        """Run an agent for each player, until the episode is over.

        Raises:
            InputError: a player has no agent, or an agent has no player.
            EnvironmentFault, InfrastructureFault: as soon as it is raised in one of them.
        """
        for name in agents:
            self.player(name)
        for name, seat in self._seats.items():
            if name not in agents:
                raise InputError(f"The player {name} has no agent; give one for each player.")
            seat.agent = agents[name]
        tasks = [asyncio.ensure_future(self._run(seat)) for seat in self._seats.values()]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def move(self, seat: PlayerSession, action: Action, call: int | None) -> Transition:
        """Take a player's move, which is due."""
        transition = await self.whole.take(action, call)
        self.update(seat)
        return transition

    def update(self, mover: PlayerSession | None) -> None:
        """Begin and end the turns of players after a step of `mover`, or after the reset.

        A player who acts in the same round as before goes on with what it saw.
        """
        seen = self._seen()
        if mover is not None and self.whole.steps:
            for player, reward in self.whole.steps[-1].transition.rewards.items():
                self._seats[player].received += reward
        if self.whole.outcome is not None:
            self._finish(seen)
            return
        before, self._acting = self._acting, self.whole.acting
        if mover is not None:
            mover.pause()
        for seat in self._seats.values():
            if seat.name in self._acting and (seat.name not in before or seat is mover):
                seat.wake(_seen_by(seat, seen), alone=len(self._acting) == 1)
        for seat in self._seats.values():
            if seat.name == self._acting[0]:
                seat.may_act.set()

    # ── details ──────────────────────────────────────────────────────────────

    def _seen(self) -> Observation:
        if self.whole.steps:
            return self.whole.steps[-1].transition.observation
        assert self.whole.observation is not None
        return self.whole.observation

    def _finish(self, seen: Observation) -> None:
        """Tell all players that the episode is over."""
        assert self.whole.outcome is not None
        results = self.whole.episode().players
        self._acting = ()
        for seat in self._seats.values():
            if seat.outcome is None:
                found = results.get(seat.name)
                seat.outcome = self.whole.outcome if found is None else found.outcome
                seat.wake(_seen_by(seat, seen), alone=True)
            seat.may_think.set()
            seat.may_act.set()

    async def _run(self, seat: PlayerSession) -> None:
        """Run the agent of a player to the end of the episode, or to its forfeit."""
        await seat.may_think.wait()
        if self.whole.outcome is not None:
            return
        why = Outcome.failure()  # the agent gave up
        running = asyncio.ensure_future(seat.agent.run(seat))
        try:
            if await self._in_time(seat, running):
                running.result()
            else:
                why = Outcome.truncated(Limit.SECONDS)
        except SessionOver:
            pass
        except Exception as error:
            why = ended_by(error, time_up=False)
            if not why.scored:
                raise
        finally:
            running.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await running
        if self.whole.outcome is None:
            await self._forfeit(seat, seat.outcome or why)

    async def _in_time(self, seat: PlayerSession, running: asyncio.Future[None]) -> bool:
        """Wait for an agent; return false once its player has used up its seconds."""
        limited = seat.seconds_left() is not None
        while not running.done():
            left = seat.seconds_left()
            if left is not None and left <= 0:
                return False
            wait = POLL if left is None else min(left, POLL)
            await asyncio.wait({running}, timeout=wait if limited else None)
        return True

    async def _forfeit(self, seat: PlayerSession, why: Outcome) -> None:
        """End the part of a player; the others play on if the environment has an idle action."""
        seat.outcome, stakes = why, self.whole.environment.stakes
        await seat.may_act.wait()
        if self.whole.outcome is not None:
            return
        await seat.flush()
        if stakes.idle is None:
            await self._end(Forfeit(seat.name, why, self._shared_out(seat.name)))
            return
        forfeit: Forfeit | None = Forfeit(seat.name, why, {seat.name: stakes.forfeit})
        while self.whole.outcome is None:
            await self.whole.take(Action(stakes.idle), None, forfeit)
            forfeit = None
            self.update(seat)
            await seat.may_act.wait()

    async def _end(self, forfeit: Forfeit) -> None:
        """End the episode by a forfeit."""
        first = self.whole.players[0]
        success = forfeit.player != first and forfeit.returns[first] > 0
        text = f"The game is over: {forfeit.player} forfeits ({forfeit.outcome})."
        ending = Transition(
            Observation(text), terminated=True, success=success, valid=False, rewards={}
        )
        saved = self.whole.record(
            Step(
                index=len(self.whole.steps),
                call=None,
                action=Action(""),
                transition=ending,
                before=self.whole.signals,
                calls_made=len(self.whole.graph.calls),
                forfeit=forfeit,
            )
        )
        self.update(None)
        if saved is not None:
            await saved

    def _shared_out(self, loser: str) -> dict[str, float]:
        """Return the returns of an episode that a forfeit ends; see `Stakes.idle`."""
        stakes, players = self.whole.environment.stakes, self.whole.players
        lost = stakes.forfeit
        if stakes.returns == "common":
            return dict.fromkeys(players, lost)
        left = self.whole.episode().results
        if stakes.returns == "zero-sum":
            left = dict.fromkeys(players, -lost / (len(players) - 1))
        return {player: left.get(player, 0.0) for player in players} | {loser: lost}


async def _all(waiting: list[Awaitable[None]]) -> None:
    for one in waiting:
        await one


def _seen_by(seat: PlayerSession, seen: Observation) -> Observation:
    """Return what a player sees, of an observation that several players see."""
    if seat.name in seen.others:
        return Observation(seen.others[seat.name])
    return replace(seen, others={}) if seen.others else seen


def _numbered(calls: list[Call]) -> list[Call]:
    """Return the calls of one player with their positions among themselves."""
    positions = {call.index: at for at, call in enumerate(calls)}
    return [
        replace(call, index=at, parent=None if call.parent is None else positions[call.parent])
        for at, call in enumerate(calls)
    ]
