"""The knob `team`: the members of a team are the players of an environment for one player.

Each reply of a member is an action of that player: a message, a proposal, a vote or, once the team
has decided, an action of the environment. The `info` of its step says which under `team`
(`TeamNote`). So everything that holds for several players holds for
members: any agent, records, resuming, forfeits, training by role. All members share the rewards.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Required, TypedDict

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Stakes,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Task
from palaestra.core.team_words import DID, PASS, acted, skilled
from palaestra.environments.base import hashed, refused
from palaestra.environments.teams.protocol import protocol_of
from palaestra.environments.teams.team_file import Team, load
from palaestra.environments.teams.votes import plain
from palaestra.environments.wrappers.wrapper import Wrapper

NOTHING = "The team decided on nothing."
ALONE = frozenset({Capability.ADMISSIBLE, Capability.PICTURE})
"""Capabilities that do not hold with a team, since they are about one player's next action."""


class TeamNote(TypedDict, total=False):
    """What the record says of a member's reply besides its text."""

    does: Required[str]  # see `Protocol.kind`
    said: list[list[Any]]
    """Lines that others may now read: number and speaker. Where that is a team in a member's place,
    which has no reply of its own, also the line."""

    heard: dict[str, list[int]]  # by player whose turn begins, the numbers of lines shown to it
    did: str  # the action on which the team has decided
    facts: dict[str, Any]  # of the turn that this decided, see `Protocol.facts`


class InTeam(Wrapper):
    """An environment in which a team acts."""

    def __init__(self, inner: Environment, value: str) -> None:
        """`value` is a template or a file (see `team_file.load`)."""
        super().__init__(inner, value)
        self._team: Team = load(value)
        self._protocol = protocol_of(self._team, 0)
        self._news: list[tuple[str, str]] = []  # all lines so far: by whom ("" is nobody), text
        self._read = dict.fromkeys(self._team.players, 0)  # how many of them each has been shown
        self._digest = ""  # of the news, so that a state key takes no longer the more was said
        self._shown: dict[str, str] = {}  # what each saw at the beginning of its turn
        self._hears: dict[tuple[str, str], bool] = {}  # reader and speaker, as `Team.sees`
        self._over = False

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        if len(spec.players) > 1:
            raise InputError(
                f"team={value} needs an environment for one player, and '{spec.id}' has "
                f"{len(spec.players)}; leave the knob out."
            )
        team = load(value)
        return replace(
            spec,
            players=tuple(team.players),
            stakes=Stakes("common", forfeit=0.0, idle=PASS),
            capabilities=spec.capabilities - ALONE,
            typical_turns=spec.typical_turns * protocol_of(team, 0).most_replies(),
            free_text=True,
        )

    def reset(self, task: Task) -> Observation:
        first = super().reset(task)
        self._protocol, self._over = protocol_of(self._team, task.seed), False
        self._read = dict.fromkeys(self._team.players, 0)
        self._news, self._shown, self._digest = [], {}, ""
        self._protocol.begin(first.text, self._watched_state())
        self._tell(("", first.text))
        self._begin(self.acting())
        return Observation(self._shown[self.acting()[0]], first.images)

    def acting(self) -> Sequence[str]:
        return () if self._over else self._protocol.next()

    def observe(self, player: str) -> Observation:
        return Observation(self._shown.get(player, "It is not your turn."))

    def step(self, action: Action) -> Transition:
        if self._over:
            return refused("It is over.")
        player, *_ = before = self.acting()
        text = action.text if action.call is None else str(action.call)
        reason = self._protocol.refusal(text, player)
        if reason is not None:
            return refused(reason)
        note = TeamNote(does=self._protocol.kind(player, text))
        decision = self._protocol.take(player, text)
        if said := self._protocol.said():
            note["said"] = self._numbered(said)
            self._tell(*said)
        if decision is None:
            return self._went_on(before, note)
        if facts := self._protocol.facts():
            note["facts"] = facts
        if decision == PASS:
            return self._ended(Transition(Observation(NOTHING), terminated=True), before, note)
        note["did"] = decision
        action = action if decision == text else Action(decision)
        return self._acted(action, before, note)

    def state_key(self) -> str:
        return hashed(self.inner.state_key(), self._protocol.key(), self._digest, self._read)

    def memory(self) -> Any:
        saved = self._protocol.saved()
        told = [self._news, self._digest, self._read, self._shown]
        return [self._protocol.seed, saved, told, self._over]

    def remember(self, memory: Any) -> None:
        seed, saved, told, self._over = memory
        news, self._digest, self._read, self._shown = told
        self._news = [(who, text) for who, text in news]
        self._protocol = protocol_of(self._team, seed)
        self._protocol.restore(saved)

    def oracle(self) -> list[Action]:
        """Return the replies of members that know the right actions, from here on.

        Empty where what was said before leads the team to another action.
        """
        plan = [action.text for action in self.inner.oracle()] if not self._over else []
        if self._protocol.watches and Capability.SNAPSHOT in self.inner.spec.capabilities:
            return self._tried(plan)
        protocol, replies = protocol_of(self._team, self._protocol.seed), list[Action]()
        protocol.restore(self._protocol.saved())
        while plan:
            reply = protocol.ideal(plan[0])
            replies.append(Action(reply))
            decision = protocol.take(protocol.next()[0], reply)
            if decision is None:
                continue
            if plain(decision) != plain(plan.pop(0)):
                return []
            protocol.begin_turn(f"after {decision} and {len(plan)} more")
        return replies

    def _tried(self, plan: list[str]) -> list[Action]:
        """Return the same where it depends on observations: all is done, and then undone."""
        before, replies = self.snapshot(), list[Action]()
        while plan and not self._over:
            replies.append(Action(self._protocol.ideal(plan[0])))
            told = len(self._news)
            self.step(replies[-1])
            done = [plain(text) for speaker, text in self._news[told:] if not speaker]
            if done and done[-1].startswith(plain(f"{DID}{plan[0]}")):
                plan.pop(0)
            elif done or self._over:
                replies = []
                break
        self.restore(before)
        return replies

    def admissible(self) -> Sequence[str]:
        """Raise CapabilityMissing: a reply to the team may be anything."""
        self._undeclared(Capability.ADMISSIBLE)

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a reply to what the acting member is asked for."""
        return Action(self._protocol.sample(rng, lambda: sample_action(self.inner, rng).text))

    # ── details ──────────────────────────────────────────────────────────────

    def _tell(self, *lines: tuple[str, str]) -> None:
        """Add lines to the news."""
        self._news += lines
        if lines:
            self._digest = hashed(self._digest, lines)

    def _numbered(self, said: Sequence[tuple[str, str]]) -> list[list[Any]]:
        """Return number and speaker of new lines, as `TeamNote.said` has them."""
        numbered = enumerate(said, len(self._news))
        players = self._team.players
        return [[n, who] if who in players else [n, who, line] for n, (who, line) in numbered]

    def _acted(self, action: Action, before: Sequence[str], note: TeamNote) -> Transition:
        """Act in the environment as the team has decided, and begin its next turn.

        The member's reply was valid even if the environment refuses the action.
        """
        transition = self.inner.step(action)
        if transition.valid:
            self.turn += 1
        refusal = "" if transition.valid else "That was no valid action. "
        self._tell(("", acted(note["did"], f"{refusal}{transition.observation.text}")))
        if transition.terminated or transition.truncated:
            return self._ended(transition, before, note)
        self._protocol.begin_turn(transition.observation.text, self._watched_state())
        went_on = self._went_on(before, note)
        inner = transition.info if transition.valid else {**transition.info, "refused": True}
        return replace(
            went_on,
            reward=transition.reward,
            rewards=dict.fromkeys(self._team.players, transition.reward),
            info={**inner, **went_on.info},
        )

    def _watched_state(self) -> str | None:
        """Return the key of the environment's state; None where nobody watches it."""
        known = self._protocol.watches and Capability.STATE_KEY in self.inner.spec.capabilities
        return self.inner.state_key() if known else None

    def _went_on(self, before: Sequence[str], note: TeamNote) -> Transition:
        after = self.acting()
        waited = set(before[1:])
        heard = self._begin([player for player in after if player not in waited])
        if heard:
            note["heard"] = heard
        return Transition(self.observe(after[0]), info={"team": note})

    def _ended(self, transition: Transition, before: Sequence[str], note: TeamNote) -> Transition:
        self._over = True
        members = self._team.players
        self._shown = dict.fromkeys(members, transition.observation.text)
        rewards = dict.fromkeys(members, transition.reward)
        return replace(
            transition,
            rewards=rewards,
            observation=self.observe(before[0]),
            info={**transition.info, "team": note},
        )

    def _begin(self, members: Sequence[str]) -> dict[str, list[int]]:
        """Begin the turns of members, who see what is new to them and what they are asked for.

        Returns:
            the numbers of the lines of others that each of them is shown, where there are any.
        """
        heard: dict[str, list[int]] = {}
        for member in members:
            lines = [] if member in self._shown else [self._briefing(member)]
            first = self._read[member]
            for number, (speaker, text) in enumerate(self._news[first:], first):
                hears = self._hears.get((member, speaker))
                if hears is None:
                    hears = not speaker or (speaker != member and self._team.sees(member, speaker))
                    self._hears[member, speaker] = hears
                if hears:
                    lines.append(text)
                    if speaker:
                        heard.setdefault(member, []).append(number)
            self._read[member] = len(self._news)
            self._shown[member] = "\n".join([*lines, self._protocol.asked(member)])
        return heard

    def _briefing(self, member: str) -> str:
        return _briefing(self._team, member, member)


def _briefing(team: Team, player: str, name: str) -> str:
    """Return what a player is told of its team, and of those around it; it is called `name`."""
    member, _, within = player.partition(".")
    told, skills = team.members[member].instructions, team.members[member].skills
    others = [m for m in team.there(1, ()) if m != member]
    if within:
        inner = _briefing(team.inner[member], within, name)
        return (
            f"{inner} Your team is {member} among {', '.join(others)}.{f' {told}' if told else ''}"
        )
    told = " ".join(text for text in (told, skilled(skills) if skills else "") if text)
    return f"You are {name}, in a team with {', '.join(others)}.{f' {told}' if told else ''}"
