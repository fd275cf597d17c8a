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
        before, self._acting = self._acting, (self.whole.turn, *self.whole.state.signals.together)
        if mover is not None:
            mover.pause()
        for name in _beginning(before, self._acting, None if mover is None else mover.name):
            seat = self._seats[name]
            seat.wake(_seen_by(seat, seen), alone=len(self._acting) == 1)
        self._seats[self._acting[0]].may_act.set()

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
        environment = self.whole.environment
        seat.outcome, stakes = why, environment.stakes
        await seat.may_act.wait()
        if self.whole.outcome is not None:
            return
        await seat.flush()
        if stakes.idle is None:
            await self._end(Forfeit(seat.name, why, self._shared_out(seat.name)))
            return
        forfeit: Forfeit | None = Forfeit(seat.name, why, {seat.name: stakes.forfeit})
        while self.whole.outcome is None:
            await self.whole.state.take(environment, Action(stakes.idle), None, forfeit)
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
