"""One player's session: the API of a session for a single player, for one of several players.

The record of the whole episode has the calls of one player after those of another, in the order in
which the environment takes their moves. Calls of a player whose move is not due yet are recorded
when it is; their seeds are the player's own, so that they do not depend on who was faster.

The agent has a reply before it is stored. Both a reply and the step that it led to are, mostly in
one commit, before anybody sees what came of it, and before the player's next model call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.core.budget import ran
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Event, Key, Step, derive_seed
from palaestra.core.errors import CapabilityMissing, ReplayMismatch
from palaestra.core.graph import Call, renumbered
from palaestra.core.mail import Mail, inbox
from palaestra.core.model import Generation, Model
from palaestra.core.model_calls import Question
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.session import Session
from palaestra.core.trial import Trial

if TYPE_CHECKING:
    from palaestra.core.game import Game

LATE = "You were too late: nothing was done in your turn."


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
        self._unsaved: list[Awaitable[None]] = []  # of calls added there, until they are stored
        self.may_think, self.may_act = asyncio.Event(), asyncio.Event()
        self._models_of: dict[str, Model] = {}  # by role, as found
        self.received = 0.0  # rewards since the last turn
        self._thought = 0.0  # seconds in which this player decided, before the present decision
        self._since: float | None = None  # when the present decision began; None: none is due
        self._solo = True  # whether nobody else acts in the round of its present turn
        self._signals = Signals(turn=player)  # of each of its own steps
        self.missed = False  # whether a turn has passed that the agent still thinks about
        self.passed = asyncio.Event()  # cleared while a late player waits to pass
        self.passed.set()
        limits, own = whole.environment.stakes.limits.get(player), whole.player_budget
        own = self.limits = own if limits is None else own.within(limits)
        self._timed = (own.seconds, own.turn_seconds) != (None, None)
        invalid = own.invalid_actions
        invalid = whole.budget.invalid_actions if invalid is None else invalid
        super().__init__(
            whole.key,
            whole.task,
            whole.environment,
            whole.agent,
            whole.models,
            # seconds are counted here: the clock of a session never stops
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
    def inbox(self) -> list[Mail]:
        """The messages of other players that this one was shown, in order."""
        return inbox(self._game_of.whole.steps, self.name)

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

    def append(self, key: Key, event: Event) -> None:
        """Record a call of this player, if its move is due; else that is done when it is due.

        Calls for a move that is never due are not recorded: how many there are depends on who was
        faster.
        """
        assert isinstance(event, Call)
        whole = self._game_of.whole.state
        if whole.outcome is not None or not self.may_act.is_set():
            return
        if not whole.recording.left or self._game_of.ended_by_clock(self) is None:
            self._add_calls()
            self._add_call(event)

    async def flush(self, before: int | None = None) -> None:
        """Record all calls of this player so far.

        Args:
            before: in a replay, only those that the record has before this position.
        """
        self._add_calls(None if before is None else self._made_before(before))
        await self.stored()

    async def stored(self) -> None:
        while self._unsaved:
            await self._unsaved.pop(0)

    def caught_up(self, step: Step) -> bool:
        """Return whether this player has made its recorded calls before a step again."""
        return len(self._calls.graph.calls) >= self._made_before(step.calls_before)

    @property
    def deciding(self) -> bool:
        """Whether it is this player's turn, and it has not acted."""
        return self._since is not None

    def seconds_left(self) -> float | None:
        """Return the time that is left to this player while it decides; None: any amount."""
        if self.limits.seconds is None or self._since is None:
            return None
        return self.limits.seconds - self._thought - (ran() - self._since)

    def turn_seconds_left(self) -> float | None:
        """Return the time that is left in this turn while the player decides; None: any amount."""
        if self.limits.turn_seconds is None or self._since is None:
            return None
        return self.limits.turn_seconds - (ran() - self._since)

    def decided(self) -> None:
        """Stop the clock of this turn."""
        if self._since is not None:
            self._thought, self._since = self._thought + self._now() - self._since, None

    def count_pass(self) -> None:
        """Count a turn in which the player was late."""
        self._spending.act(valid=True)

    def wake(self, observation: Observation, *, alone: bool) -> None:
        """Begin a turn of this player, who sees this; `alone`: nobody else acts in the round."""
        self.state.observation, self._since, self._solo = observation, self._now(), alone
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
        if role in ("agent", *self.agent.roles) or self.agent.any_role:
            return self.models.get(self.name) or super()._model("agent")
        return super()._model(role)

    def _check_open(self) -> None:
        whole, own = self._game_of.whole.state, self.state
        limited = whole.spending.limited
        if whole.outcome is own.outcome is None and not limited and not own.spending.limited:
            return
        if whole.outcome is None and self._solo and limited:
            whole.check_limits()
        if whole.outcome is not None:
            self._game_of.update(None)
        super()._check_open()

    def _tokens_left(self, reading: int) -> int | None:
        game = self._game_of.whole
        if not self._spending.limited and not game.state.spending.limited:
            return None
        own = super()._tokens_left(reading)
        whole = game._tokens_left(reading) if self._solo else None
        return own if whole is None else whole if own is None else min(own, whole)

    def _now(self) -> float:
        """Return the clock's seconds, or 0 where no time is limited: a look at it costs a lock."""
        return ran() if self._timed else 0.0

    async def _answers(self, question: Question, most: int) -> list[Generation]:
        if self._unsaved:
            await self.stored()
        if question.model.reads_environment:  # which must be in the state of this player's move
            await self.may_act.wait()
        return await super()._answers(question, most)

    async def _act(self, action: Action, by: Generation | None) -> Transition:
        self._check_open()
        call = None if by is None else self._calls.index_of(by)
        if self.missed:
            return await self._too_late(action, call)
        self.decided()
        if not self.may_act.is_set():
            await self.may_act.wait()
            self._check_open()
        if self._game_of.whole.state.recording.left and await self._game_of.was_late(self):
            self._check_open()
            return await self._too_late(action, call)
        self._add_calls()
        taken = await self._game_of.move(self, action, None if call is None else self._global[call])
        if self._unsaved:
            await self.stored()
        whole = self._game_of.whole.state
        if whole.outcome is None:
            self._spending.act(taken.valid)
            invalid = self._spending.too_many_invalid
            if invalid is not None:
                detail = f"{invalid} actions in a row were not understood"
                self.outcome = Outcome.error("unparsed", Owner.AGENT, detail)
            self._check_open()
        await self.may_think.wait()
        return self._received(taken, action, call)

    async def _too_late(self, action: Action, call: int | None) -> Transition:
        """Return the player's present turn for an action that came after its own turn."""
        await self.passed.wait()
        await self.may_think.wait()
        self.missed = False
        return self._received(Transition(Observation(""), valid=False), action, call, f"{LATE}\n")

    def _received(
        self, taken: Transition, action: Action, call: int | None, note: str = ""
    ) -> Transition:
        """Return what a player gets for an action at its next turn, and note it as its step."""
        own, over = self.state, self._game_of.whole.state.outcome
        steps = own.steps
        seen = own.observation
        assert seen is not None
        received = Transition(
            replace(seen, text=f"{note}{seen.text}") if note else seen,
            self.received,
            terminated=over is not None and over.limit is None,
            truncated=over is not None and over.limit is not None,
            success=own.outcome is not None and own.outcome.solved,
            valid=taken.valid,
            info=taken.info,
        )
        self.received = 0.0
        steps.append(Step(len(steps), call, action, received, self._signals))
        return received

    def _made_before(self, position: int) -> int:
        """Return how many recorded calls of this player come before a position in the record."""
        return sum(index < position for index in self._recorded)

    def _add_calls(self, most: int | None = None) -> None:
        """Add calls that are not yet in the whole record, up to a number."""
        for call in self._calls.graph.calls[len(self._global) : most]:
            self._add_call(call)

    def _add_call(self, call: Call) -> None:
        whole, number = self._game_of.whole.state, len(self._global)
        parent = None if call.parent is None else self._global[call.parent]
        added = renumbered(call, len(whole.calls.graph.calls), parent)
        self._global.append(added.index)
        if number >= len(self._recorded):
            saved = whole.recording.write(added)
            if saved is not None:
                self._unsaved.append(saved)
        elif self._recorded[number] != added.index:
            raise ReplayMismatch(f"{self.key}: call {added.index} happens, another was recorded")
        whole.calls.add(added)


def _numbered(calls: list[Call]) -> list[Call]:
    """Return the calls of one player with their positions among themselves."""
    positions = {call.index: at for at, call in enumerate(calls)}
    return [
        renumbered(call, at, None if call.parent is None else positions[call.parent])
        for at, call in enumerate(calls)
    ]
