"""Several players of one episode, each with an agent of its own, and one record of all of them.

Each player has a session of its own (`PlayerSession`), so any agent plays for any player unchanged.
Agents whose players act at the same time think at the same time; the record does not depend on who
was faster.

A player whose agent gives up, crashes, is not understood too often or exceeds its own budget
forfeits, with the return that the environment states (`Stakes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.episode import Forfeit, Step, player_of
from palaestra.core.errors import InputError, SessionOver
from palaestra.core.graph import Call
from palaestra.core.outcome import Limit, Outcome, ended_by
from palaestra.core.player_session import PlayerSession
from palaestra.core.session import Session
from palaestra.core.team_budgets import TeamBudgets

if TYPE_CHECKING:
    from palaestra.core.agent import Agent

POLL = 0.1  # seconds between looks at the clock of a player whose time is limited


class Game:
    """The players of a session."""

    def __init__(self, whole: Session) -> None:
        """Seat the players of a session; each has its calls of an interrupted attempt."""
        self.whole = whole
        whole.state.limits_invalid = False  # a matter of each player
        past: dict[str, list[Call]] = {player: [] for player in whole.players}
        for call in whole.state.recording.without_calls():
            past.setdefault(player_of(call.role), []).append(call)
        self._seats = {
            player: PlayerSession(self, player, past[player]) for player in whole.players
        }
        self._acting: tuple[str, ...] = ()
        self._budgets = TeamBudgets(whole.environment.stakes)
        self._left_over = sum(len(calls) for name, calls in past.items() if name not in self._seats)

    @property
    def left(self) -> int:
        """The number of calls of an interrupted attempt that were not made again."""
        return self._left_over + sum(seat.state.recording.left for seat in self._seats.values())

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
        transition = await self.whole.state.take(self.whole.environment, action, call)
        self.update(seat)
        return transition

    async def was_late(self, seat: PlayerSession) -> bool:
        """Let a player pass or forfeit who did so in the interrupted attempt, as its time was up.

        Returns:
            whether it did.
        """
        step = self.ended_by_clock(seat)
        if step is None:
            return False
        if step.late:
            await self._pass(seat)
        else:
            seat.outcome = Outcome.truncated(Limit.SECONDS)
        return True

    def update(self, mover: PlayerSession | None) -> None:
        """Begin and end the turns of players after a step of `mover`, or after the reset.

        A player who acts in the same round as before goes on with what it saw.
        """
        seen, state = self._seen(), self.whole.state
        if mover is not None and state.steps:
            for player, reward in state.steps[-1].transition.rewards.items():
                self._seats[player].received += reward
        if state.outcome is not None:
            self._finish(seen)
            return
        before, self._acting = self._acting, (self.whole.turn, *state.signals.together)
        self._budgets.count(state.steps, state.calls.graph.calls)
        if mover is not None:
            mover.pause()
        for name in _beginning(before, self._acting, None if mover is None else mover.name):
            seat = self._seats[name]
            spent = self._budgets.reached(name)
            if spent is not None and seat.outcome is None:
                seat.outcome = Outcome.truncated(spent)
            seat.wake(_seen_by(seat, seen), alone=len(self._acting) == 1)
        self._seats[self._acting[0]].may_act.set()

    # ── details ──────────────────────────────────────────────────────────────

    def _seen(self) -> Observation:
        state = self.whole.state
        if state.steps:
            return state.steps[-1].transition.observation
        assert state.observation is not None
        return state.observation

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
            if not await self._in_time(seat, running):
                why = Outcome.truncated(Limit.SECONDS)
            elif running.done():
                running.result()
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
        """Wait for an agent; return false once its player forfeits, as its time is up.

        An agent that is late does not keep the episode from ending.
        """
        limits, stakes = seat.limits, self.whole.environment.stakes
        may_pass = limits.late == "pass" and stakes.idle_of(seat.name) is not None
        limited = limits.seconds is not None or limits.turn_seconds is not None
        while not running.done():
            if self.whole.outcome is not None and seat.missed and not seat.state.recording.left:
                return True
            own, turn = seat.seconds_left(), seat.turn_seconds_left()
            if self.whole.state.recording.left:  # then the record has whose time was up
                own = turn = None
                recorded = self.ended_by_clock(seat) if limited and seat.deciding else None
                if recorded is not None and seat.caught_up(recorded):
                    own, turn = (None, 0.0) if recorded.late else (0.0, None)
            if own is not None and own <= 0:
                return False
            if turn is not None and turn <= 0:
                if not may_pass:
                    return False
                await self._pass(seat)
                continue
            wait = min(left for left in (own, turn, POLL) if left is not None)
            await asyncio.wait({running}, timeout=wait if limited else None)
        return True

    def ended_by_clock(self, seat: PlayerSession) -> Step | None:
        """Return the step of the interrupted attempt that ended this turn of a player for its time.

        None if the turn ended otherwise, has no step there, or is not due.
        """
        step = self.whole.state.recording.next_step()
        if step is None or not seat.may_act.is_set():
            return None
        forfeits = step.forfeit is not None and step.forfeit.outcome.limit is Limit.SECONDS
        return step if step.late or forfeits else None

    async def _pass(self, seat: PlayerSession) -> None:
        """Do nothing in the turn of a player that is late; its agent thinks on."""
        idle = self.whole.environment.stakes.idle_of(seat.name)
        assert idle is not None
        seat.missed = True
        seat.decided()
        seat.passed.clear()
        try:
            await seat.may_act.wait()
            if self.whole.outcome is not None:
                return
            recorded = self.ended_by_clock(seat)
            await seat.flush(None if recorded is None else recorded.calls_before)
            await self.whole.state.take(self.whole.environment, Action(idle), None, late=True)
            seat.count_pass()
            self.update(seat)
        finally:
            seat.passed.set()

    async def _forfeit(self, seat: PlayerSession, why: Outcome) -> None:
        """End the part of a player; the others play on if the environment has an idle action."""
        environment = self.whole.environment
        seat.outcome, stakes = why, environment.stakes
        await seat.may_act.wait()
        recorded = self.ended_by_clock(seat)
        while recorded is not None and recorded.late:  # it was late before it forfeited
            await self._pass(seat)
            await seat.may_act.wait()
            recorded = self.ended_by_clock(seat)
        if self.whole.outcome is not None:
            return
        await seat.flush(None if recorded is None else recorded.calls_before)
        idle = stakes.idle_of(seat.name)
        if idle is None:
            so_far = dict.fromkeys(self.whole.players, 0.0) | self.whole.episode().results
            await self._end(Forfeit(seat.name, why, stakes.after_forfeit(seat.name, so_far)))
            return
        forfeit: Forfeit | None = Forfeit(seat.name, why, {seat.name: stakes.forfeit})
        while self.whole.outcome is None:
            await self.whole.state.take(environment, Action(idle), None, forfeit)
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
        state = self.whole.state
        saved = state.record(
            Step(
                index=len(state.steps),
                call=None,
                action=Action(""),
                transition=ending,
                before=state.signals,
                calls_made=len(state.calls.graph.calls),
                forfeit=forfeit,
            )
        )
        self.update(None)
        if saved is not None:
            await saved


def _beginning(before: Sequence[str], after: Sequence[str], mover: str | None) -> Sequence[str]:
    """Return the players whose turns begin after a move, of those that act before and after it.

    Most moves of a round with many players begin none, which costs no look at each player.
    """
    if after == before[1:]:
        return ()
    if after == before and mover == before[0]:  # it acts again, after a message, say
        return before[:1]
    known = set(before)
    return [player for player in after if player not in known or player == mover]


def _seen_by(seat: PlayerSession, seen: Observation) -> Observation:
    """Return what a player sees, of an observation that several players see."""
    if seat.name in seen.others:
        return Observation(seen.others[seat.name])
    return replace(seen, others={}) if seen.others else seen
