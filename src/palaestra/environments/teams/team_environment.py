"""The knob `team`: members of a team are the players of an environment, in place of one of its own.

Each reply of a member is an action of that player: a message, a proposal, a vote or, once the team
has decided, an action of the environment. The `info` of its step says which under `team`
(`TeamNote`). So everything that holds for several players holds for
members: any agent, records, resuming, forfeits, training by role. Members share the rewards of the
player in whose place they act.

In an environment of one player members have their own names. In a game they are called
`white.first` for the member `first` of white's team, and what is said in a team stays there.
Teams whose players act at the same time decide at the same time, in rounds: in each, all members
whose turn it is in their teams reply, unseen by the other teams. A decision reaches the environment
at the end of its round, and other players act once their move can be taken.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Stakes,
    Transition,
)
from palaestra.core.episode import derive_seed
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.rare_capabilities import acting_in, observed_by, sample_action
from palaestra.core.task import Task
from palaestra.core.team_words import PASS
from palaestra.environments.base import hashed, refused
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.team_knob import names_of, teams_in
from palaestra.environments.teams.team_state import TeamNote, TeamState, text_of
from palaestra.environments.teams.votes import plain
from palaestra.environments.wrappers.wrapper import Wrapper

OVER = "It is over."
WAIT = "It is not your turn."
NOTHING = "The team decided on nothing."
NO_MOVE = Transition(Observation(""))
ALONE = frozenset({Capability.ADMISSIBLE, Capability.PICTURE, Capability.ELEMENTS})
"""Capabilities that do not hold with a team, since they are about one player's next action."""


class InTeam(Wrapper):
    """An environment in which a team acts, or a game with teams in place of some players."""

    def __init__(self, inner: Environment, value: str) -> None:
        """`value` is a template or a file, in a game by player (see `teams_in`)."""
        self._described = teams_in(inner.spec, value)
        super().__init__(inner, value, _spec_with(inner.spec, self._described))
        self._alone = len(inner.spec.players) == 1
        self._names = {p: names_of(inner.spec, p, team) for p, team in self._described.items()}
        self._members = {
            name: (player, member)
            for player, names in self._names.items()
            for member, name in names.items()
        }
        self._round: list[str] = []  # players that have not replied in this round, in order
        self._returns: dict[str, float] = {}  # so far
        self._final: dict[str, str] = {}  # what each player sees at the end; empty before
        self._begin_episode(0)

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        return _spec_with(spec, teams_in(spec, value))

    def reset(self, task: Task) -> Observation:
        first = super().reset(task)
        self._begin_episode(task.seed)
        self._begin_round({acting_in(self.inner)[0]: first})
        seen = self.observe(self._round[0])
        return replace(seen, images=first.images) if self._alone else seen

    def acting(self) -> Sequence[str]:
        return () if self._final else tuple(self._round)

    def observe(self, player: str) -> Observation:
        if self._final:
            return Observation(self._final[player])
        if player not in self._members:
            return observed_by(self.inner, player)
        team, member = self._member(player)
        return Observation(team.shown.get(member, WAIT))

    def step(self, action: Action) -> Transition:
        if self._final:
            return refused(OVER)
        player, done = self._round[0], _Done()
        if player in self._members:
            team, member = self._member(player)
            reason = team.protocol.refusal(text_of(action), member)
            if reason is not None:
                return refused(reason)
            done.note = team.take(member, action)
        else:
            transition = self.inner.step(action)
            if not transition.valid:
                return transition
            self._took(player, transition, done)
        self._round = self._round[1:]
        if not self._round or player not in self._members:
            self._deliver(done)
        if done.over:
            self._end(done)
        elif not self._round and (heard := self._begin_round(done.seen)):
            done.note["heard"] = heard
        return self._result(player, done)

    def state_key(self) -> str:
        teams = [team.key() for team in self._teams.values()]
        return hashed(self.inner.state_key(), teams, self._round, self._returns, self._final)

    def memory(self) -> Any:
        teams = {player: team.saved() for player, team in self._teams.items()}
        return [teams, self._round, self._returns, self._final]

    def remember(self, memory: Any) -> None:
        self._begin_episode(self.seed)
        teams, self._round, self._returns, self._final = memory
        for player, team in self._teams.items():
            team.restore(teams[player])

    def oracle(self) -> list[Action]:
        """Return the replies of members that know the right actions, from here on.

        Empty where what was said before leads the team to another action.
        """
        if not self._alone:
            self._undeclared(Capability.ORACLE)
        plan = [action.text for action in self.inner.oracle()] if not self._final else []
        (team,) = self._teams.values()
        if team.protocol.watches and Capability.SNAPSHOT in self.inner.spec.capabilities:
            return self._tried(plan)
        protocol, replies = protocol_of(team.team, team.protocol.seed), list[Action]()
        protocol.restore(team.protocol.saved())
        members = [*self._round]
        while plan:
            member = members.pop(0)
            reply = protocol.ideal(plan[0], member)
            replies.append(Action(reply))
            decision = protocol.take(member, reply)
            if decision is not None:
                if plain(decision) != plain(plan.pop(0)):
                    return []
                protocol.begin_turn(f"after {decision} and {len(plan)} more")
            members = members or protocol.next()
        return replies

    def _tried(self, plan: list[str]) -> list[Action]:
        """Return the same where it depends on observations: all is done, and then undone."""
        before, replies = self.snapshot(), list[Action]()
        while plan and not self._final:
            team, member = self._member(self._round[0])
            replies.append(Action(team.protocol.ideal(plan[0], member)))
            did = self.step(replies[-1]).info.get("team", {}).get("did")
            if did is not None and plain(did) == plain(plan[0]):
                plan.pop(0)
            elif did is not None or self._final:
                replies = []
                break
        self.restore(before)
        return replies

    def admissible(self) -> Sequence[str]:
        """Raise CapabilityMissing: a reply to the team may be anything."""
        self._undeclared(Capability.ADMISSIBLE)

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a reply to what the acting member is asked for, or another player's action."""
        player = self._round[0]
        if player not in self._members:
            return sample_action(self.inner, rng)
        team, member = self._member(player)
        text = team.protocol.sample(rng, lambda: sample_action(self.inner, rng).text, member)
        return Action(text)

    # ── details ──────────────────────────────────────────────────────────────

    def _begin_episode(self, seed: int) -> None:
        described = self._described
        self._teams = {
            player: TeamState(team, seed)
            if self._alone
            else TeamState(team, derive_seed(seed, player), player, place=place, of=len(described))
            for place, (player, team) in enumerate(described.items())
        }
        self._round, self._final = [], {}
        self._returns = dict.fromkeys(self.spec.players, 0.0)

    def _member(self, player: str) -> tuple[TeamState, str]:
        """Return the team of a member, and its name there."""
        acts_for, member = self._members[player]
        return self._teams[acts_for], member

    def _playing(self, player: str) -> tuple[str, ...]:
        """Return who acts for a player of the environment: members of its team, or itself."""
        return self.spec.stakes.teams.get(player, (player,))

    def _watched_state(self, team: TeamState) -> str | None:
        """Return the key of the environment's state; None where the team does not watch it."""
        known = team.protocol.watches and Capability.STATE_KEY in self.inner.spec.capabilities
        return self.inner.state_key() if known else None

    def _begin_round(self, seen: Mapping[str, Observation]) -> dict[str, list[int]]:
        """Begin a round of all that can reply now.

        Args:
            seen: what players of the environment see now; others are asked for.

        Returns:
            the numbers of lines that members are shown, by member; see `TeamState.begin`.
        """
        heard: dict[str, list[int]] = {}
        waits = False  # whether the next players move only after a team has decided
        for player in acting_in(self.inner):
            team = self._teams.get(player)
            if team is None:
                self._round += [] if waits else [player]
            elif team.decision is None and not team.forfeited:
                waits = True
                if not team.deciding:
                    team.begin_turn(self._view(player, seen), self._watched_state(team))
                members = team.protocol.next()
                heard |= team.begin(members)
                self._round += [self._names[player][member] for member in members]
        return heard

    def _view(self, player: str, seen: Mapping[str, Observation]) -> str:
        return (seen[player] if player in seen else observed_by(self.inner, player)).text

    def _deliver(self, done: _Done) -> None:
        """Let the environment take the decisions whose turn it is, in its order.

        That is at the end of a round, and for teams that have forfeited after any player's move.
        """
        while not done.over:
            player = acting_in(self.inner)[0]
            team = self._teams.get(player)
            if team is None or (team.decision is None and not team.forfeited):
                return
            if team.decision is not None and plain(text_of(team.decision)) == PASS:
                self._forfeit(player, team, done)
                continue
            idle = Action(self.inner.spec.stakes.idle or "")
            transition = self.inner.step(team.decision or idle)
            if team.decision is None and not transition.valid:
                raise EnvironmentFault("step", f"the idle action '{idle.text}' is no move")
            if transition.valid:
                if team.decision is not None:
                    team.acted()
                self._took(player, transition, done)
            else:
                team.refused(transition.observation.text, self._watched_state(team))
                done.info |= {**transition.info, "refused": True}

    def _took(self, player: str, transition: Transition, done: _Done) -> None:
        """Note what came of a move that the environment has taken."""
        self.turn += 1
        done.ending = transition
        done.info |= transition.info
        sees = player if done.over else acting_in(self.inner)[0]
        done.seen = {sees: transition.observation}
        for one, reward in (transition.rewards or {player: transition.reward}).items():
            if one not in self._teams or not self._teams[one].forfeited:
                self._reward(dict.fromkeys(self._playing(one), reward), done)

    def _reward(self, rewards: Mapping[str, float], done: _Done) -> None:
        for player, reward in rewards.items():
            done.rewards[player] = done.rewards.get(player, 0.0) + reward
            self._returns[player] += reward

    def _forfeit(self, player: str, team: TeamState, done: _Done) -> None:
        """Let a team that decided on nothing forfeit for its player; see `Stakes.idle`."""
        team.forfeited, team.decision = True, None
        members, stakes = self._playing(player), self.spec.stakes
        others = [p for p in self.inner.spec.players if p not in self._teams]
        others += [p for p, one in self._teams.items() if not one.forfeited]
        if stakes.idle is not None and others:  # who play on
            final = {**self._returns, **dict.fromkeys(members, stakes.forfeit)}
        else:
            done.ending = Transition(Observation(NOTHING), terminated=True)
            done.seen = dict.fromkeys(self.inner.spec.players, done.ending.observation)
            if self._alone:
                return
            final = stakes.after_forfeit(members[0], self._returns)
        self._reward({p: final[p] - self._returns[p] for p in final}, done)

    def _end(self, done: _Done) -> None:
        views = {player: self._view(player, done.seen) for player in self.inner.spec.players}
        self._final = {name: text for p, text in views.items() for name in self._playing(p)}

    def _result(self, player: str, done: _Done) -> Transition:
        """Return what the step of a player led to."""
        rewards = dict.fromkeys(self.spec.players, 0.0) | done.rewards if done.rewards else {}
        reader = player if self._final else self._round[0]
        seen = None if reader in self._members else done.seen.get(reader)
        if done.note:
            done.info["team"] = done.note
        return Transition(
            seen or self.observe(reader),
            reward=rewards.get(player, 0.0),
            terminated=done.ending.terminated,
            truncated=done.ending.truncated,
            success=done.ending.success,
            info=done.info,
            rewards=rewards,
        )


def _spec_with(spec: Spec, teams: Mapping[str, Team]) -> Spec:
    """Return the facts about an environment in which teams act, by player of it.

    Raises:
        InputError: sampled tokens take time in it.
    """
    if spec.token_time:  # what members sample before they decide would take no time
        raise InputError(
            f"In '{spec.id}' sampled tokens take time, which is for a single agent; leave out "
            "the team, or choose an environment without it, such as apps/timed."
        )
    names = {p: tuple(names_of(spec, p, team).values()) for p, team in teams.items()}
    alone = len(spec.players) == 1
    stakes = Stakes("common", forfeit=0.0) if alone else spec.stakes
    lost = ALONE if alone else {*ALONE, Capability.ORACLE}  # whose plan names no players
    replies = max(protocol_of(team, 0).most_replies() for team in teams.values())
    return replace(
        spec,
        players=tuple(name for p in spec.players for name in names.get(p, (p,))),
        stakes=replace(
            stakes,
            teams=names,
            limits=_limits(spec, teams),
            team_limits={p: team.limits for p, team in teams.items() if team.limits != Budget()},
        ),
        capabilities=spec.capabilities - lost,
        typical_turns=spec.typical_turns * replies,
        free_text=True,
    )


def _limits(spec: Spec, teams: Mapping[str, Team]) -> dict[str, Budget]:
    """Return the limits of members that have some, as players."""
    found = {
        names_of(spec, player, team)[member]: one.limits
        for player, team in teams.items()
        for member, one in team.players.items()
    }
    return {name: limits for name, limits in found.items() if limits != Budget()}


@dataclass(slots=True)
class _Done:
    """What came of one step."""

    ending: Transition = NO_MOVE  # the last one of the environment
    seen: dict[str, Observation] = field(default_factory=dict)  # then, by player
    rewards: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    note: TeamNote = field(default_factory=TeamNote)

    @property
    def over(self) -> bool:
        return self.ending.terminated or self.ending.truncated
