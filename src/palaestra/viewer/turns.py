"""The turns of an episode as a page shows them: observation, replies, action and result.

A turn is one environment action with the model calls before it. A page holds a chunk of turns,
never a whole long episode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestra.core.environment import Observation, Transition
from palaestra.core.episode import Episode, Step, together
from palaestra.core.graph import Call
from palaestra.evaluation.running.shown_demonstrations import gesture_of_action
from palaestra.evaluation.statistics.costs import Prices, known_money
from palaestra.evaluation.statistics.player_results import forfeit_reason
from palaestra.runtime.visible_text import visible
from palaestra.store.database import Database
from palaestra.store.ranges import Span, events_between, position_after, turn_events
from palaestra.viewer.advantages import Credits
from palaestra.viewer.message_views import picture_urls
from palaestra.viewer.screens import has_screens
from palaestra.viewer.texts import Change, Text, changes, cut, line
from palaestra.viewer.tokens import Token, TokenTexts, numbers, tokens_of
from palaestra.viewer.world_views import WorldView, without_world, world_view

CHUNK = 100  # turns that a page or a fragment holds


@dataclass(frozen=True, slots=True)
class CallView:
    """One tool call of a reply."""

    text: str
    id: str  # empty if it has none


@dataclass(frozen=True, slots=True)
class Reply:
    """One model call with its reply."""

    index: int
    role: str
    policy: str
    versions: str  # of the weights: one, or the first and the last
    finish: str
    seconds: float
    money: float | None  # None if its model has no price, or a part of it is unknown
    read: int  # new tokens in its prompt
    computed: int
    sampled: int
    reasoning: Text  # the model's separate reasoning
    thought: Text  # the reply before the action; the whole reply if it contains no action
    action: str  # the part of the reply that became the action
    action_id: str  # of the tool call that became the action; else empty
    rest: Text
    calls: tuple[CallView, ...]  # its tool calls besides the action
    more: int  # prompt messages besides the shown observation
    branch: int | None  # the call whose conversation it continues, unless that is the previous one
    tokens: tuple[Token, ...]  # empty if not requested
    advantage: float | None


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn as a page shows it; the last one of an episode may have calls and no action."""

    number: int  # from 1
    player: str | None  # the acting player, if there are several
    together: bool  # it acted at the same time as the player of the turn before
    forfeit: str  # why that player forfeits here, with the returns that follow; else empty
    late: bool  # that player did not decide in time, and nothing was done in its turn
    seen: Text | None  # the observation
    pictures: tuple[str, ...]  # of the observation, as `data:` URLs
    changed: tuple[Change, ...] | None  # against the previous observation, if requested
    replies: tuple[Reply, ...]
    acted: bool
    action: str
    action_id: str  # of its tool call; empty if it is none, or has no id
    in_reply: bool  # whether one of the replies shows the action
    call: int | None  # the call of an earlier turn whose reply proposed the action
    valid: bool
    reward: float
    rewards: tuple[tuple[str, float], ...]  # of each player
    progress: float | None  # before the action
    state: str | None  # the key of the state before it
    seconds: float
    ended: str  # "", "terminated", "cut off", "solved", or "the end" of several players
    world: WorldView  # its clock after the action, and the rows that the action changed
    info: str
    after: Text | None  # the observation after the last action of the episode
    after_others: tuple[tuple[str, Text], ...]  # what the other players saw then
    pictures_after: tuple[str, ...]
    screen: bool  # whether its gesture can be shown on the screen (`screens.py`)

    @property
    def advantage(self) -> float | None:
        """The mean advantage of the replies that have one."""
        known = [reply.advantage for reply in self.replies if reply.advantage is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """The optional contents of turns."""

    tokens: bool = False
    changed: bool = False
    prices: Prices = field(default_factory=dict)  # of the models


def turns_between(
    database: Database,
    header: Episode,
    span: Span,
    start: int,
    stop: int,
    *,
    options: TurnOptions = TurnOptions(),
    credits: Credits | None = None,
    texts: TokenTexts | None = None,
) -> list[TurnView]:
    """Return the turns at positions `start` … `stop - 1` of an episode; read only those.

    Args:
        database: of the run.
        header: the episode; its calls and steps are not read.
        span: the positions of its events.
        start: the first position, from 0.
        stop: the position after the last one.
        options: the optional contents.
        credits: of the episode's group, if known.
        texts: maps tokens to text; None: to their numbers.
    """
    early = max(0, start - 1 - options.changed)  # a turn also shows what the one before led to
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
    builder = _TurnBuilder(
        header,
        steps,
        options,
        credits or Credits(),
        texts or numbers,
        last=span.steps - 1 if count == span.steps else None,
    )
    return [builder.turn(i, calls.get(i, []), lasts) for i in range(start, min(stop, count))]


def turn_of_call(database: Database, span: Span, call: int) -> int:
    """Return the position of the turn in which a call was made."""
    low, high = 0, span.steps
    while low < high:  # the first turn after whose step more than `call` calls were made
        middle = (low + high) // 2
        position = position_after(database, span, middle + 1)
        low, high = (low, middle) if position - (middle + 1) > call else (middle + 1, high)
    return low


def count_of_turns(database: Database, span: Span) -> int:
    """Return the number of turns; calls after the last action count as one more."""
    return span.steps + (position_after(database, span, span.steps) < len(span.ids))


def act_of(step: Step) -> str:
    """Return an action as text."""
    return str(step.action.call) if step.action.call is not None else step.action.text


# ── details ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _TurnBuilder:
    """Builds the views of turns from the events that were read."""

    header: Episode
    steps: dict[int, Step]
    options: TurnOptions
    credits: Credits
    texts: TokenTexts
    last: int | None  # position of the last action, if no later turn shows its observation

    def turn(self, index: int, calls: Sequence[Call], lasts: dict[int, int | None]) -> TurnView:
        step = self.steps.get(index)
        action = act_of(step) if step else ""
        seen = self._seen(index)
        replies = [self._reply(call, step, seen, lasts.get(call.index)) for call in calls]
        transition = step.transition if step else None
        before = self._seen(index - 1) if self.options.changed and index else None
        ends_by_forfeit = step is not None and step.forfeit is not None and _ended(step) != ""
        last = transition.observation if transition and index == self.last else None
        changed = None if before is None else tuple(changes(before, seen or ""))
        return TurnView(
            number=index + 1,
            player=line(step.before.turn, 80) if step and step.before.turn else None,
            together=step is not None and together(self.steps.get(index - 1), step),
            forfeit=_forfeit(step) if step else "",
            late=step is not None and step.late,
            seen=None if seen is None else cut(seen),
            pictures=_pictures(self._observed(index)),
            changed=changed,
            replies=tuple(replies),
            acted=step is not None and not ends_by_forfeit,
            action=line(action, 1000),
            action_id=line(step.action.call.id, 100) if step and step.action.call else "",
            in_reply=any(reply.action for reply in replies),
            call=None if step is None or step.call in {call.index for call in calls} else step.call,
            valid=transition.valid or ends_by_forfeit if transition else True,
            reward=transition.reward if transition else 0.0,
            rewards=tuple(transition.rewards.items()) if transition else (),
            progress=step.before.progress if step else None,
            state=line(step.before.state_key or "") or None if step else None,
            seconds=(step.seconds if step else 0.0) + sum(call.seconds for call in calls),
            ended=_ended(step),
            world=world_view(transition.info) if transition else WorldView(),
            info=line(_info(transition), 400) if transition else "",
            after=cut(last.text) if last else None,
            after_others=tuple((line(who, 80), cut(text)) for who, text in last.others.items())
            if last
            else (),
            pictures_after=_pictures(last),
            screen=step is not None and _on_a_screen(self.header.task.environment, step),
        )

    def _seen(self, index: int) -> str | None:
        observation = self._observed(index)
        return observation.text if observation else None

    def _observed(self, index: int) -> Observation | None:
        if index == 0:
            return self.header.observation
        step = self.steps.get(index - 1)
        return step.transition.observation if step else None

    def _reply(self, call: Call, step: Step | None, seen: str | None, last: int | None) -> Reply:
        text = call.reply.text
        words = act_of(step) if step is not None and step.call == call.index else ""
        at = text.rfind(words) if words.strip() else -1
        thought, action, rest = text, "", ""
        if at >= 0:
            thought, action, rest = text[:at], words, text[at + len(words) :]
        calls = list(call.reply.tool_calls)
        action_id = ""
        if words and not action and step is not None and step.action.call in calls:
            made = calls.pop(calls.index(step.action.call))
            action, action_id = words, made.id
        versions = call.token_versions or (call.version,)
        first, final = min(versions), max(versions)
        return Reply(
            index=call.index,
            role=call.role,
            policy=visible(call.policy),
            versions=str(first) if first == final else f"{first} to {final}",
            finish=str(call.finish),
            seconds=call.seconds,
            money=known_money([call], self.options.prices),
            read=len(call.prompt),
            computed=call.computed_tokens,
            sampled=len(call.completion),
            reasoning=cut(call.reply.reasoning),
            thought=cut(thought.strip("\n")),
            action=visible(action[:1000]),
            action_id=line(action_id, 100),
            rest=cut(rest.strip()),
            calls=tuple(CallView(line(str(made), 1000), line(made.id, 100)) for made in calls),
            more=sum(message.text != seen for message in call.messages),
            branch=call.parent if call.parent != last else None,
            tokens=self._tokens(call) if self.options.tokens else (),
            advantage=self.credits.mean(self.header.key, call.index),
        )

    def _tokens(self, call: Call) -> tuple[Token, ...]:
        advantages = self.credits.of_call(self.header.key, call.index)
        return tokens_of(call, self.texts(call.completion), advantages, self.credits.scale)


def _on_a_screen(environment: str, step: Step) -> bool:
    """Return whether a step is a gesture; only then its environment is looked up, and imported."""
    return gesture_of_action(environment, step.action) is not None and has_screens(environment)


def _pictures(observation: Observation | None) -> tuple[str, ...]:
    return picture_urls(observation.images) if observation else ()


def _info(transition: Transition) -> str:
    """Return the rest of the record; of a team's note only what the chart of messages lacks."""
    info = without_world(transition.info)
    team = info.pop("team", {})
    info |= {key: team[key] for key in ("facts", "within") if key in team}
    return json.dumps(info, default=str) if info else ""


def _ended(step: Step | None) -> str:
    if step is None or not (step.transition.terminated or step.transition.truncated):
        return ""
    if step.before.turn is not None and step.transition.terminated:
        return "the end"
    if step.transition.success:
        return "solved"
    return "terminated" if step.transition.terminated else "cut off"


def _forfeit(step: Step) -> str:
    """Return why a player forfeits in a step, and the returns that follow; empty if it does not."""
    if step.forfeit is None:
        return ""
    returns = (f"{player} {value:+.3g}" for player, value in step.forfeit.returns.items())
    return line(f"{forfeit_reason(step.forfeit.outcome)}; returns {', '.join(returns)}", 400)


def _last_calls(
    database: Database, span: Span, early: int, calls: dict[int, list[Call]]
) -> dict[int, int | None]:
    """Return, for each call, the latest read one before it with the same role and policy."""
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
