"""The knob `messages`: players of an environment send each other messages, and share boards.

Sending is an action that makes no move in the environment, so it is a step of the record, with the
channel, the recipients and the size in its `info`; the step at which a message was shown has its
number there. A message is part of what its recipient observes at the beginning of its next turn:
agents need nothing to read it, and to send one they write `send_message(to='bob', text='…')`, as
text, as a tool call, or over MCP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestra.core.environment import Action, Environment, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import acting_in, observed_by
from palaestra.core.task import Task
from palaestra.core.tool import ACT, NotACall, Tool, checked, parse_call
from palaestra.environments.base import hashed, refused
from palaestra.environments.channels.channel_file import declared
from palaestra.environments.channels.post import Post, Refused
from palaestra.environments.wrappers.wrapper import Wrapper

TEXT = {"type": "string"}
SEND = Tool(
    "send_message",
    "Send a message to a player, to several (a, b) or to all; it makes no move.",
    {
        "type": "object",
        "properties": {"to": TEXT, "text": TEXT, "channel": TEXT},
        "required": ["to", "text"],
    },
)
READ = Tool(
    "read_board",
    "Read all that stands on a board, or what stands under a key; it makes no move.",
    {"type": "object", "properties": {"board": TEXT, "key": TEXT}, "required": ["board"]},
)
WRITE = Tool(
    "write_board",
    "Write a value on a board under a key, in place of that version; it makes no move.",
    {
        "type": "object",
        "properties": {"board": TEXT, "key": TEXT, "value": TEXT, "version": {"type": "integer"}},
        "required": ["board", "key", "value"],
    },
)


class Messages(Wrapper):
    """An environment whose players can talk."""

    def __init__(self, inner: Environment, value: str) -> None:
        """`value` is `all`, or a file that declares channels and boards (see `channel_file.py`)."""
        super().__init__(inner, value)
        self._channels = declared(value, inner.spec.players)
        self._own = (SEND,) * bool(self._channels.channels)
        self._own += (READ, WRITE) * bool(self._channels.boards)
        self._post = Post(self._channels, inner.spec.players, 0)
        self._shown: dict[str, str] = {}  # by player, the messages at the beginning of its turn
        self._used = 0  # actions of these tools in the present turn

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        if len(spec.players) < 2:
            raise InputError(
                f"messages={value} needs several players, and '{spec.id}' has one; leave it out."
            )
        declared(value, spec.players)
        return replace(spec, tools=True, typical_turns=2 * spec.typical_turns)

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return (*(self.inner.tools or (ACT,)), *self._own)

    @property
    def instructions(self) -> str:
        names = [*self._channels.channels], [*self._channels.boards]
        about = [f"channels: {', '.join(names[0])}"] if names[0] else []
        about += [f"boards: {', '.join(names[1])}"] if names[1] else []
        calls = "\n".join(tool.signature for tool in self._own)
        return (
            f"{self.inner.instructions}\nBesides, you can talk ({'; '.join(about)}), up to "
            f"{self._channels.per_turn} times a turn, by one of these calls as your whole reply:\n"
            f"{calls}"
        )

    def reset(self, task: Task) -> Observation:
        self._post = Post(self._channels, self.spec.players, task.seed)
        self._shown, self._used = {}, 0
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        acting = acting_in(self.inner)
        call = self._talk(action)
        if call is not None and acting:
            return self._act_on(acting[0], call)
        own = action.call
        if own is not None and own.name == ACT.name and not self.inner.tools:
            action = Action(str(own.arguments.get("action", "")))
        transition = self.inner.step(action)
        if not transition.valid:
            return transition
        self.turn, self._used = self.turn + 1, 0
        over = transition.terminated or transition.truncated
        return self._delivered(transition, acting, self.spec.players if over else None)

    def observe(self, player: str) -> Observation:
        seen = observed_by(self.inner, player)
        return replace(seen, text=self._with_mail(player, seen.text))

    def state_key(self) -> str:
        return hashed(self.inner.state_key(), self._post.saved(), self._shown, self._used)

    def memory(self) -> Any:
        return [self._post.seed, self._post.saved(), self._shown, self._used]

    def remember(self, memory: Any) -> None:
        seed, saved, self._shown, self._used = memory
        self._post = Post(self._channels, self.spec.players, seed)
        self._post.restore(saved)

    def _talk(self, action: Action) -> ToolCall | None:
        """Return the call of one of these tools in an action; None: it is something else."""
        names = {tool.name for tool in self._own}
        if action.call is not None:
            return action.call if action.call.name in names else None
        if not action.text.lstrip().startswith(tuple(names)):
            return None
        try:
            return parse_call(action.text, self._own)
        except NotACall:
            return ToolCall(action.text.lstrip().partition("(")[0], {})

    def _act_on(self, player: str, call: ToolCall) -> Transition:
        """Carry out a call of a player whose turn it is."""
        if self._used >= self._channels.per_turn:
            return refused(f"You have talked {self._used} times in this turn; make a move now.")
        try:
            given = checked(call, self._own).arguments
            text, info = self._done(player, call.name, given)
        except (NotACall, Refused) as reason:
            return refused(str(reason))
        self._used += 1
        return Transition(Observation(text), info=info)

    def _done(self, player: str, name: str, given: Any) -> tuple[str, dict[str, Any]]:
        """Return the answer to a call, and what the record says of it."""
        if name == READ.name:
            text = self._post.read(player, given["board"], given.get("key"))
            return text, {"board": given["board"]}
        if name == WRITE.name:
            key, value = given["key"], given["value"]
            version = self._post.write(player, given["board"], key, value, given.get("version"))
            info = {"board": given["board"], "key": key, "version": version, "bytes": _size(value)}
            return f"Version {version} of '{key}' is yours.", info
        number, to = self._post.send(
            player, given["to"], given["text"], self.turn, given.get("channel")
        )
        channel = given.get("channel") or self._post.channel_of(player)
        info = {"message": number, "channel": channel, "to": to, "bytes": _size(given["text"])}
        return f"Sent to {', '.join(to)}.", info

    def _delivered(
        self, transition: Transition, before: Sequence[str], over: Sequence[str] | None
    ) -> Transition:
        """Show their messages to the players whose turns begin now, or to all at the end."""
        after = acting_in(self.inner) if over is None else over
        begin: Sequence[str] = ()
        if over is not None:
            begin = over
        elif after != tuple(before[1:]):  # else a round goes on
            waited = set(before[1:])
            begin = [player for player in after if player not in waited]
        numbers: dict[str, list[int]] = {}
        for player in begin:
            letters = self._post.take(player, self.turn)
            self._shown[player] = "\n".join(letter.shown() for letter in letters)
            if letters:
                numbers[player] = [letter.number for letter in letters]
        sees = before[0] if over is not None else after[0]
        seen = transition.observation
        seen = replace(seen, text=self._with_mail(sees, seen.text))
        info = {**transition.info, "shown": numbers} if numbers else transition.info
        return replace(transition, observation=seen, info=info)

    def _with_mail(self, player: str, text: str) -> str:
        mail = self._shown.get(player, "")
        return f"{mail}\n{text}" if mail else text


def _size(text: str) -> int:
    return len(text.encode())
