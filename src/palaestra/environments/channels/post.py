"""The state of all channels and boards in one episode: what waits for whom, and what is written.

A message is shown to each recipient once, at the beginning of its next turn after the message has
arrived. Which messages are lost, and a random order, follow from the task's seed alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from palaestra.core.tool import fits
from palaestra.environments.channels.channel_file import Channel, Channels


class Refused(ValueError):
    """The reason why a message or a value was not taken, as a sentence for its author."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that waits for one recipient."""

    number: int  # of the message in the episode
    channel: str
    sender: str
    recipient: str
    others: int  # recipients beside this one
    text: str
    due: int  # the number of moves after which it arrives

    def shown(self) -> str:
        """Return the message as its recipient sees it."""
        among = f" (and {self.others} more)" if self.others else ""
        return f"[{self.channel}] {self.sender} to you{among}: {self.text}"


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands on a board under a key."""

    version: int  # 1 for the first value under the key
    writer: str
    value: str


class Post:
    """All channels and boards of one episode."""

    def __init__(self, declared: Channels, players: Sequence[str], seed: int) -> None:
        """Begin with nothing sent or written."""
        self.declared, self.players, self.seed = declared, players, seed
        self.sent = 0  # messages so far
        self.waiting: dict[str, list[Letter]] = {player: [] for player in players}  # by recipient
        self.boards: dict[str, dict[str, Entry]] = {name: {} for name in declared.boards}

    def send(
        self, sender: str, to: str, text: str, now: int, channel: str | None = None
    ) -> tuple[int, list[str]]:
        """Send a message; return its number and its recipients, those included whom it won't reach.

        Args:
            sender: a player.
            to: a player, several separated by commas, or `all`: all other readers.
            text: the message.
            now: the number of moves so far.
            channel: its name; None: the first one that this player may write to.

        Raises:
            Refused: there is no such channel or reader, the player may not write there, the
                message does not fit, or a reader's mail is full.
        """
        name = self.channel_of(sender, channel)
        declared = self.declared.channels[name]
        to_all = to.strip() == "all"
        wanted = self._readers(name, sender) if to_all else [one.strip() for one in to.split(",")]
        for one in wanted:
            if one == sender or one not in self.waiting or not declared.may_read(one):
                known = ", ".join(self._readers(name, sender)) or "nobody"
                raise Refused(f"'{one}' does not read '{name}'; its readers are {known}.")
        _check_text(text, declared)
        for one in wanted:
            waits = sum(letter.channel == name for letter in self.waiting[one])
            if waits >= declared.capacity:
                raise Refused(f"'{name}' is full for {one}: {waits} messages wait; send it later.")
        number, self.sent = self.sent, self.sent + 1
        for one in dict.fromkeys(wanted):
            if random.Random(f"loss {self.seed} {number} {one}").random() >= declared.loss:
                due = now + declared.delay
                others = len(set(wanted)) - 1
                self.waiting[one].append(Letter(number, name, sender, one, others, text, due))
        return number, wanted

    def take(self, player: str, now: int) -> list[Letter]:
        """Return the messages that have arrived for a player, once, in the order to show them."""
        waiting = self.waiting[player]
        if not waiting:
            return []
        arrived = [letter for letter in waiting if letter.due <= now]
        self.waiting[player] = [letter for letter in waiting if letter.due > now]
        found: list[Letter] = []
        for name, declared in self.declared.channels.items():
            own = [letter for letter in arrived if letter.channel == name]
            if declared.order == "random":
                random.Random(f"order {self.seed} {player} {now}").shuffle(own)
            found += own
        return found

    def read(self, player: str, board: str, key: str | None = None) -> str:
        """Return a board's values, or that of a key, with their versions; raises Refused."""
        entries = self._board(player, board, "read")
        if key is not None and key not in entries:
            raise Refused(f"Nothing stands on '{board}' under '{key}'.")
        shown = entries if key is None else {key: entries[key]}
        lines = [f"{k} (version {e.version}, {e.writer}): {e.value}" for k, e in shown.items()]
        return "\n".join(lines) or f"'{board}' is empty."

    def write(self, player: str, board: str, key: str, value: str, version: int | None) -> int:
        """Write a value under a key; return its version.

        Args:
            player: who writes.
            board: its name.
            key: any text.
            value: any text.
            version: the version that it replaces, 0 for a new key; None: whatever stands there.

        Raises:
            Refused: the player may not write there, or another version stands there.
        """
        entries = self._board(player, board, "write to")
        most = self.declared.boards[board].length
        if len(value) > most:
            raise Refused(f"The value has {len(value)} characters; '{board}' takes {most}.")
        now = entries.get(key)
        standing = 0 if now is None else now.version
        if version is not None and version != standing:
            by = "nothing stands there" if now is None else f"{now.writer} wrote version {standing}"
            raise Refused(f"'{key}' on '{board}' is not at version {version}: {by}; read it first.")
        entries[key] = Entry(standing + 1, player, value)
        return standing + 1

    def saved(self) -> Any:
        """Return the state as JSON can hold it; equal states give equal values."""
        boards = {n: {k: asdict(e) for k, e in b.items()} for n, b in self.boards.items()}
        waiting = [letter for own in self.waiting.values() for letter in own]
        waiting.sort(key=lambda letter: letter.number)
        return [self.sent, [asdict(letter) for letter in waiting], boards]

    def restore(self, saved: Any) -> None:
        """Take back what `saved` returned."""
        self.sent, waiting, boards = saved
        self.waiting = {player: [] for player in self.players}
        for letter in waiting:
            self.waiting[letter["recipient"]].append(Letter(**letter))
        self.boards = {n: {k: Entry(**e) for k, e in b.items()} for n, b in boards.items()}

    def channel_of(self, sender: str, name: str | None = None) -> str:
        """Return the channel that a player writes to, the first of its own without a name."""
        own = [n for n, c in self.declared.channels.items() if c.may_write(sender)]
        if name is None and own:
            return own[0]
        if name is None or name not in own:
            known = ", ".join(own) or "none"
            raise Refused(f"You may not write to '{name}'; your channels: {known}.")
        return name

    def _readers(self, channel: str, sender: str) -> list[str]:
        """Return who reads a channel, besides a sender."""
        may_read = self.declared.channels[channel].may_read
        return [player for player in self.players if player != sender and may_read(player)]

    def _board(self, player: str, name: str, verb: str) -> dict[str, Entry]:
        def mine(board: str) -> bool:
            declared = self.declared.boards[board]
            return declared.may_read(player) if verb == "read" else declared.may_write(player)

        if name not in self.boards or not mine(name):
            known = ", ".join(board for board in self.boards if mine(board)) or "none"
            raise Refused(f"You may not {verb} '{name}'; your boards: {known}.")
        return self.boards[name]


def _check_text(text: str, channel: Channel) -> None:
    """Raise Refused for a message that a channel does not take."""
    if not text.strip():
        raise Refused("The message is empty.")
    if len(text) > channel.length:
        raise Refused(f"The message has {len(text)} characters; {channel.length} are allowed.")
    if channel.content is None:
        return
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if value is None or not fits(value, channel.content):
        raise Refused(f"The message must be JSON of this schema: {json.dumps(channel.content)}")
