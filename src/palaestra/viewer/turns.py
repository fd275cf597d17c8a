"""The turns of an episode as a page shows them: seen, thought, done, and what came of it.

A turn is one action in the world with the model calls before it. Pages hold a stretch of turns,
never a whole long episode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.core.environment import Observation
from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call
from palaestra.core.visible import visible
from palaestra.evaluation.costs import Prices, known_money
from palaestra.store.database import Database
from palaestra.store.ranges import Span, events_between, position_after, turn_events
from palaestra.viewer.credit import Credits
from palaestra.viewer.texts import Change, Text, changes, cut, line
from palaestra.viewer.tokens import Pieces, Token, numbers, tokens_of

PNG = re.compile("iVBORw0KGgo[A-Za-z0-9+/]+=*")  # its first bytes, and then base64
CHUNK = 100  # turns that a page or a fragment holds


@dataclass(frozen=True, slots=True)
class Said:
    """One model call."""

    index: int
    role: str
    policy: str
    versions: str  # of the weights: one, or the first and the last
    finish: str
    seconds: float
    money: float | None  # None where its model has no price, or not all of it is known
    read: int  # tokens that are new in its prompt
    computed: int
    sampled: int
    thought: Text  # of the reply, what stands before the action; all where no action is in it
    action: str  # the part of the reply that became the action
    rest: Text
    more: int  # messages that it read besides what the turn shows
    branch: int | None  # the call whose conversation it continues, unless that is the one before
    tokens: tuple[Token, ...]  # empty where they are not asked for
    advantage: float | None


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn; the last one of an episode may have calls and no action."""

    number: int  # from 1
    player: str | None  # who acts, where there are several
    seen: Text | None
    picture: str  # of what was seen, as a PNG in base64; empty without one
    changed: tuple[Change, ...] | None  # against what was seen a turn before, if asked for
    said: tuple[Said, ...]
    acted: bool
    action: str
    in_reply: bool  # whether a reply above shows the action
    valid: bool
    reward: float
    rewards: tuple[tuple[str, float], ...]  # of each player
    progress: float | None  # before the action
    state: str | None  # the key of the state before it
    seconds: float
    ended: str  # "", "terminated", "cut off" or "solved"
    info: str
    after: Text | None  # what was seen after the last action; nowhere else is it shown
    picture_after: str

    @property
    def advantage(self) -> float | None:
        """The mean over the replies that have one."""
        known = [said.advantage for said in self.said if said.advantage is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Look:
    """What of the turns is to be shown."""

    tokens: bool = False
    changed: bool = False
    prices: Prices = field(default_factory=dict)  # of the models that were asked


def turns_between(
    database: Database,
    header: Episode,
    span: Span,
    start: int,
    stop: int,
    *,
    look: Look = Look(),
    credits: Credits | None = None,
    pieces: Pieces | None = None,
) -> list[TurnView]:
    """The turns at positions `start` … `stop - 1` of an episode; reads only them.

    Args:
        database: of the run.
        header: the episode; its calls and steps are not read.
        span: where its events lie.
        start: the first position, from 0.
        stop: the position after the last one.
        look: what is to be shown.
        credits: of the episode's group, where they are known.
        pieces: how tokens read; None: by their numbers.
    """
    early = max(0, start - 1 - look.changed)
    events = turn_events(database, span, early, stop)
    steps = {event.index: event for event in events if isinstance(event, Step)}
    calls: dict[int, list[Call]] = {}
    turn = early
    for event in events:
        if isinstance(event, Call):
            calls.setdefault(turn, []).append(event)
        else:
            turn = event.index + 1
    lasts = _last_calls(database, span, early, calls)
    count = count_of_turns(database, span)
    maker = _Maker(
        header,
        steps,
        look,
        credits or Credits(),
        pieces or numbers,
        last=span.steps - 1 if count == span.steps else None,
    )
    return [maker.turn(i, calls.get(i, []), lasts) for i in range(start, min(stop, count))]


def turn_of_call(database: Database, span: Span, call: int) -> int:
    """The position of the turn in which a call was made."""
    low, high = 0, span.steps
    while low < high:  # the first turn after whose step more than `call` calls were made
        middle = (low + high) // 2
        place = position_after(database, span, middle + 1)
        low, high = (low, middle) if place - (middle + 1) > call else (middle + 1, high)
    return low


def count_of_turns(database: Database, span: Span) -> int:
    """How many turns there are; calls after the last action are one more."""
    return span.steps + (position_after(database, span, span.steps) < len(span.ids))


def act_of(step: Step) -> str:
    """An action in words."""
    return str(step.action.call) if step.action.call is not None else step.action.text


# ── details ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Maker:
    header: Episode
    steps: dict[int, Step]
    look: Look
    credits: Credits
    pieces: Pieces
    last: int | None  # position of the last action, where no turn follows that shows what it led to

    def turn(self, index: int, calls: Sequence[Call], lasts: dict[int, int | None]) -> TurnView:
        step = self.steps.get(index)
        action = act_of(step) if step else ""
        seen = self._seen(index)
        said = [self._said(call, step, seen, lasts.get(call.index)) for call in calls]
        happened = step.transition if step else None
        before = self._seen(index - 1) if self.look.changed and index else None
        changed = None if before is None else tuple(changes(before, seen or ""))
        return TurnView(
            number=index + 1,
            player=step.before.turn if step else None,
            seen=None if seen is None else cut(seen),
            picture=_picture(self._observed(index)),
            changed=changed,
            said=tuple(said),
            acted=step is not None,
            action=line(action, 1000),
            in_reply=any(s.action for s in said),
            valid=happened.valid if happened else True,
            reward=happened.reward if happened else 0.0,
            rewards=tuple(happened.rewards.items()) if happened else (),
            progress=step.before.progress if step else None,
            state=line(step.before.state_key or "") or None if step else None,
            seconds=(step.seconds if step else 0.0) + sum(call.seconds for call in calls),
            ended=_ended(step),
            info=line(json.dumps(dict(happened.info), default=str), 400)
            if happened and happened.info
            else "",
            after=cut(happened.observation.text) if happened and index == self.last else None,
            picture_after=_picture(
                happened.observation if happened and index == self.last else None
            ),
        )

    def _seen(self, index: int) -> str | None:
        observation = self._observed(index)
        return observation.text if observation else None

    def _observed(self, index: int) -> Observation | None:
        if index == 0:
            return self.header.observation
        step = self.steps.get(index - 1)
        return step.transition.observation if step else None

    def _said(self, call: Call, step: Step | None, seen: str | None, last: int | None) -> Said:
        text = call.reply.content
        words = act_of(step) if step is not None and step.call == call.index else ""
        at = text.rfind(words) if words.strip() else -1
        thought, action, rest = text, "", ""
        if at >= 0:
            thought, action, rest = text[:at], words, text[at + len(words) :]
        versions = call.token_versions or (call.version,)
        first, final = min(versions), max(versions)
        return Said(
            index=call.index,
            role=call.role,
            policy=visible(call.policy),
            versions=str(first) if first == final else f"{first} to {final}",
            finish=str(call.finish),
            seconds=call.seconds,
            money=known_money([call], self.look.prices),
            read=len(call.prompt),
            computed=call.computed_tokens,
            sampled=len(call.completion),
            thought=cut(thought.strip("\n")),
            action=visible(action[:1000]),
            rest=cut(rest.strip()),
            more=sum(message.content != seen for message in call.messages),
            branch=call.parent if call.parent != last else None,
            tokens=self._tokens(call) if self.look.tokens else (),
            advantage=self.credits.mean(self.header.key, call.index),
        )

    def _tokens(self, call: Call) -> tuple[Token, ...]:
        advantages = self.credits.of_call(self.header.key, call.index)
        return tokens_of(call, self.pieces(call.completion), advantages, self.credits.scale)


def _picture(observation: Observation | None) -> str:
    """The picture, if it is one: a record may hold anything."""
    image = observation.image if observation else ""
    return image if PNG.fullmatch(image) else ""


def _ended(step: Step | None) -> str:
    if step is None or not (step.transition.terminated or step.transition.truncated):
        return ""
    if step.transition.success:
        return "solved"
    return "terminated" if step.transition.terminated else "cut off"


def _last_calls(
    database: Database, span: Span, early: int, calls: dict[int, list[Call]]
) -> dict[int, int | None]:
    """Of each call, the latest one before it of the same role and policy, as far as is read."""
    latest: dict[tuple[str, str], int] = {}
    found: dict[int, int | None] = {}
    position = position_after(database, span, early)
    for event in events_between(database, span, max(0, position - 20), position):
        if isinstance(event, Call):
            latest[event.policy, event.role] = event.index
    for call in (call for of in calls.values() for call in of):
        found[call.index] = latest.get((call.policy, call.role))
        latest[call.policy, call.role] = call.index
    return found
