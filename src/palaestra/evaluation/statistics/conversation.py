"""What several players of an episode said, to whom, who was shown it, and what each of them did.

Read from the record alone: messages of the knob `messages`, and the replies of a team's members
(`Transition.info`). A line counts as shown to a reader at the step that ended with the reader's
turn, in whose observation it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from palaestra.core.episode import Episode, Step, player_of
from palaestra.core.mail import SEND
from palaestra.core.message import ToolCall
from palaestra.core.team_words import proposal, proposed
from palaestra.core.tool import NotACall, parse_call
from palaestra.environments.channels.talking import READ, WRITE

SPEECH = ("message", "talk", "propose", "plan")
"""What counts as speech: words for other players, shown to them or not."""

DONE = {
    "message": "sent messages",
    "talk": "talked",
    "propose": "proposed",
    "moderate": "named a speaker",
    "bid": "bid to speak",
    "vote": "voted",
    "rate": "rated",
    "forward": "forwarded the task",
    "split": "split the task",
    "find": "searched for members",
    "assign": "assigned a task",
    "start": "started a task",
    "wait": "waited for results",
    "act": "acted",
    "write": "wrote on a board",
    "read": "read a board",
    "call": "called a function",
    "plan": "planned",
    "ledger": "kept the ledger",
    "supervise": "let the team go on",
    "spawn": "brought in a member",
    "halt": "halted the team",
    "pass": "passed",
    "invalid": "not understood",
    "forfeit": "forfeited",
}
"""What a player may do in a step, in the words of a table."""


@dataclass(frozen=True, slots=True)
class Move:
    """What one player did in one step."""

    step: int
    player: str
    does: str  # a key of DONE
    text: str  # its action
    acted: str | None  # the action that the environment took after it; None: it took none
    within: Mapping[str, str] = field(default_factory=dict)
    """What teams in members' places decided with it, by member."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one player said to others."""

    step: int  # of the player who said it
    speaker: str
    does: str  # a key of SPEECH
    text: str
    channel: str = ""  # of a message
    bytes: int = 0  # of a message
    to: tuple[str, ...] = ()  # to whom a message was sent
    team: str = ""  # the team in a member's place whose decision the line is; its speaker ended it
    shown: Mapping[str, int] = field(default_factory=dict)
    """The players that were shown it, each with the step that ended with it."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages on one channel, or values on one board."""

    messages: int = 0
    bytes: int = 0
    tokens: int = 0  # sampled for them; those of a reply with several count for its first one

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum of both."""
        return Traffic(
            self.messages + other.messages, self.bytes + other.bytes, self.tokens + other.tokens
        )


@dataclass(frozen=True, slots=True)
class MemberStatistics:
    """What one of several players did and spent in one episode."""

    calls: int  # of models
    read: int  # tokens of their prompts that are no part of an earlier one
    sampled: int  # tokens that its models sampled
    words: int  # that it said
    share: float | None  # of all words that were said; None: nothing was
    does: Mapping[str, int]  # how often it did what, by the keys of DONE
    sent: Mapping[str, Traffic]  # by channel or board, in the order of the first message
    heard: int  # lines of others that it was shown


@dataclass(frozen=True, slots=True)
class Conversation:
    """The moves and the lines of an episode with several players."""

    players: tuple[str, ...]  # empty for a single player
    moves: tuple[Move, ...]  # one for each step
    lines: tuple[Line, ...]
    members: Mapping[str, MemberStatistics]

    def edges(self, start: int = 0, stop: int | None = None) -> dict[tuple[str, str], int]:
        """Return how many lines of a speaker a reader was shown, of those said in some steps.

        Args:
            start: the first step.
            stop: the step after the last one; None: the end.

        Returns:
            the number by speaker and reader; only pairs with a line.
        """
        found: Counter[tuple[str, str]] = Counter()
        for line in self.lines:
            if start <= line.step and (stop is None or line.step < stop):
                found.update((line.speaker, reader) for reader in line.shown)
        return dict(found)

    @property
    def channels(self) -> dict[str, Traffic]:
        """The messages of each channel, and the values written on each board."""
        return total_traffic(one.sent for one in self.members.values())

    @property
    def counts(self) -> Conversation:
        """What its members did, without the moves and lines themselves."""
        return replace(self, moves=(), lines=())


def conversation(episode: Episode) -> Conversation:
    """Return the conversation of an episode, finished or not; empty for a single player."""
    players = _players(episode)
    read = _Reader(episode)
    for step in episode.steps if players else ():
        read.read(step)
    lines = tuple(sorted(read.lines, key=lambda line: line.step))
    words = dict.fromkeys(players, 0)
    for line in lines:
        if not line.team:  # what was said in that team is counted already
            words[line.speaker] += len(line.text.split())
    members = {player: _member(player, words, episode, read, lines) for player in players}
    return Conversation(players, tuple(read.moves), lines, members)


@dataclass(frozen=True, slots=True)
class Talk:
    """What was said in several episodes."""

    episodes: int  # in which anything was said or written
    shares: Mapping[str, float]  # mean share of speech, by player, where anything was said
    channels: Mapping[str, Traffic]  # sums, by channel or board


def talk_of(conversations: Iterable[Conversation]) -> Talk | None:
    """Return the mean shares of speech and the messages of all; None if nothing was said."""
    episodes, shares, channels = 0, dict[str, list[float]](), list[Mapping[str, Traffic]]()
    for one in conversations:
        known = {p: m.share for p, m in one.members.items() if m.share is not None}
        channels.append(one.channels)
        episodes += bool(known or channels[-1])
        for player, share in known.items():
            shares.setdefault(player, []).append(share)
    if not episodes:
        return None
    means = {player: sum(of) / len(of) for player, of in shares.items()}
    return Talk(episodes, means, total_traffic(channels))


def talk_json(found: Talk | None) -> dict[str, Any]:
    """Return the key `talk` of a JSON object; empty if nothing was said."""
    return {} if found is None else {"talk": asdict(found)}


def total_traffic(parts: Iterable[Mapping[str, Traffic]]) -> dict[str, Traffic]:
    """Return the sum of the traffic of several parts, by channel."""
    found: dict[str, Traffic] = {}
    for part in parts:
        for channel, traffic in part.items():
            found[channel] = found.get(channel, Traffic()) + traffic
    return found


MEMBER_HEADS = ["player", "calls", "read", "sampled", "words", "share", "heard", "did", "sent"]
"""The columns of `member_rows`; read and sampled are tokens, words and share are of what it said,
and heard are lines of others that it was shown."""


def member_rows(found: Conversation) -> list[list[str]]:
    """Return one row of text per player, under MEMBER_HEADS."""
    return [
        [
            player,
            *(f"{number:,}" for number in (one.calls, one.read, one.sampled, one.words)),
            "" if one.share is None else f"{100 * one.share:.0f} %",
            f"{one.heard:,}",
            ", ".join(f"{DONE[does]} {count}" for does, count in one.does.items()),
            ", ".join(traffic_text(name, of) for name, of in one.sent.items()),
        ]
        for player, one in found.members.items()
    ]


def talk_rows(document: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return name and text of what `talk_json` wrote under `talk`; empty for None."""
    if document is None:
        return []
    shares = ", ".join(f"{p} {100 * share:.0f} %" for p, share in document["shares"].items())
    traffic = ", ".join(traffic_text(n, Traffic(**of)) for n, of in document["channels"].items())
    rows = [("mean share of speech", shares), ("messages by channel", traffic)]
    return [(name, text) for name, text in rows if text]


def traffic_text(channel: str, traffic: Traffic) -> str:
    """Return the traffic of a channel as text: "orders 3 (81 bytes)"."""
    tokens = f", {traffic.tokens:,} tokens" if traffic.tokens else ""
    return f"{channel} {traffic.messages:,} ({traffic.bytes:,} bytes{tokens})"


# ── details ──────────────────────────────────────────────────────────────────


def _players(episode: Episode) -> tuple[str, ...]:
    """Return all players that the record names; an unfinished one may not name all in its head."""
    found = dict.fromkeys(episode.results)
    for step in episode.steps if found else ():
        info = step.transition.info
        found.update(dict.fromkeys(step.before.together))
        found.update(dict.fromkeys(step.transition.observation.others))
        found.update(dict.fromkeys(info.get("to", ()) if "message" in info else ()))
    return tuple(found)


class _Reader:
    """Reads steps in order; `moves`, `lines` and `sent` are what was done and said so far."""

    def __init__(self, episode: Episode) -> None:
        self.moves: list[Move] = []
        self.lines: list[Line] = []
        self.sent: dict[str, dict[str, Traffic]] = {}  # by player and channel
        self._messages: dict[int, Line] = {}  # by number
        self._said: dict[int, Line] = {}  # lines of a team, by number
        self._proposals: dict[str, list[Line]] = {}  # of the present turn of each team
        self._latest: dict[str, Move] = {}  # by player
        self._sampled = {call.index: call.sampled for call in episode.calls}  # not yet counted
        first = episode.observation
        self._seen = "" if first is None else first.text  # by the player that acts next
        self._out: set[str] = set()  # players that have forfeited

    def read(self, step: Step) -> None:
        """Read the next step."""
        player, info = step.before.turn or "", step.transition.info
        note = _team_note(info)
        call = _message_call(step)
        does = _does(step, call, note, out=player in self._out)
        text = _text(step)
        acted = note.get("did") if "does" in note else text if does == "act" else None
        team = note.get("player", "")
        move = self._latest[player] = Move(step.index, player, does, text, acted, _within(note))
        self.moves.append(move)
        if step.forfeit is not None:
            self._out.add(player)
        if call is not None and does == "message":
            words, to = str(call.arguments["text"]), tuple(info["to"])
            line = Line(step.index, player, does, words, info["channel"], info["bytes"], to)
            self._messages[info["message"]] = line
            self.lines.append(line)
            self._count(player, line.channel, line.bytes, step)
        elif does == "write":
            self._count(player, info["board"], info["bytes"], step)
        elif does == "act" and "does" in note:
            self._decide(move, team)
        for said in note.get("said", ()):
            self._say(move, team, *said)
        _show(step, info.get("shown"), self._messages)
        _show(step, note.get("heard"), self._said)
        if "did" in note:
            self._proposals.pop(team, None)
        self._seen = step.transition.observation.text

    def _count(self, player: str, channel: str, size: int, step: Step) -> None:
        of = self.sent.setdefault(player, {})
        tokens = 0 if step.call is None else self._sampled.pop(step.call, 0)
        of[channel] = of.get(channel, Traffic()) + Traffic(1, size, tokens)

    def _say(
        self, move: Move, team: str, number: int, speaker: str, line: str | None = None
    ) -> None:
        """Add a line of a team; only a team in a member's place has its `line` in the record."""
        if line is None:
            reply = self._latest.get(speaker, move)
            does = reply.does if reply.does in SPEECH else "talk"
            said = Line(reply.step, speaker, does, reply.text)
        else:
            found = proposed(line)
            does, text = ("propose", found[1]) if found else ("talk", line.partition(": ")[2])
            said = Line(move.step, move.player, does, text, team=speaker)
        self._said[number] = said
        self.lines.append(said)
        if does == "propose":
            self._proposals.setdefault(team, []).append(said)

    def _decide(self, move: Move, team: str) -> None:
        """Note which proposals a player was shown only with the question to decide."""
        latest = {line.team or line.speaker: line for line in self._proposals.get(team, ())}
        for name, line in latest.items():
            stood = proposal(name.rpartition(".")[2], line.text) in self._seen
            if stood and line.speaker != move.player and move.player not in line.shown:
                _shown(line)[move.player] = max(line.step, move.step - 1)


def _team_note(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a team's environment recorded of a reply; empty for any other environment."""
    note = info.get("team")
    return note if isinstance(note, Mapping) and note.keys() & {"does", "heard"} else {}


def _within(note: Mapping[str, Any]) -> dict[str, str]:
    """Return what teams in members' places decided with a reply, by member."""
    return {place: one["did"] for place, one in note.get("within", {}).items()}


def _show(step: Step, read: Any, lines: Mapping[int, Line]) -> None:
    """Note the readers to whom the record says that lines were shown after a step."""
    for reader, numbers in read.items() if lines and isinstance(read, Mapping) else ():
        for number in numbers:
            _shown(lines[number])[reader] = step.index


def _shown(line: Line) -> dict[str, int]:
    """Return the readers of a line that is being read, to add to them."""
    assert isinstance(line.shown, dict)
    return line.shown


def _does(step: Step, call: ToolCall | None, note: Mapping[str, Any], *, out: bool) -> str:
    info = step.transition.info
    if step.forfeit is not None:
        return "forfeit"
    if not step.transition.valid:
        return "invalid"
    if out or step.late:  # the environment goes on with its idle action
        return "pass"
    if "does" in note:
        return str(note["does"])
    if call is not None and call.name == SEND.name and "message" in info:
        return "message"
    if call is not None and call.name == WRITE.name and "version" in info:
        return "write"
    if call is not None and call.name == READ.name and "board" in info:
        return "read"
    return "call" if "function" in info else "act"


def _message_call(step: Step) -> ToolCall | None:
    """Return the call of a tool of the knob `messages` in an action; None: it is something else."""
    tools = (SEND, READ, WRITE)
    call, text = step.action.call, step.action.text.lstrip()
    if call is None and text.startswith(tuple(tool.name for tool in tools)):
        try:
            return parse_call(text, tools)
        except NotACall:
            return None
    return call


def _text(step: Step) -> str:
    return step.action.text if step.action.call is None else str(step.action.call)


def _member(
    player: str, words: Mapping[str, int], episode: Episode, read: _Reader, lines: Sequence[Line]
) -> MemberStatistics:
    calls = [call for call in episode.calls if player_of(call.role) == player]
    total = sum(words.values())
    return MemberStatistics(
        calls=len(calls),
        read=sum(len(call.prompt) for call in calls),
        sampled=sum(call.sampled for call in calls),
        words=words[player],
        share=words[player] / total if total else None,
        does=Counter(move.does for move in read.moves if move.player == player),
        sent=read.sent.get(player, {}),
        heard=sum(player in line.shown for line in lines),
    )
