"""τ²-bench: a service agent, a user with their own wishes, and a database that both can change.

Ids: `tau2/airline`, `tau2/retail`, `tau2/telecom` with a scripted user inside (`tau2_user.py`),
and `tau2/airline:users` … with two players, "agent" and "user", where any model can be the user.

Source: Yao et al. 2024, Barres et al. 2025, in the package inspect-evals 0.26.0 (MIT, as is the
benchmark): its tasks (airline 50, retail 114, telecom 114; the published training and test
splits), policies, tools, user guidelines, scorers, and its limit of 100 rounds. Faithful: what the
tools do and say, what is scored and how. Ours: the scripted user, how a call is written in words,
and what is said in `tau2_desk.py` about errors and bill ids.

A turn is a tool call or a message, never both. Tool calls take no round; the database and the
phone change with each. A message of the agent gives the floor to the user and the other way
round. The conversation ends with the user's token or after the agent's hundredth message; then the
benchmark's verdict is the reward, 1 or 0, for both players. There is no measure of progress: most
wrong calls cannot be mended, and how close a database is to the right one is not defined.

With two players, the first thing that each sees says who they are: the user gets the published
guidelines and the scenario, the agent the policy. Neither sees the other's, nor the other's calls.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked, parse_call, random_call
from palaestra.environments.apps import tau2_domain as published
from palaestra.environments.apps.tau2_desk import Desk
from palaestra.environments.apps.tau2_domain import AGENT, DOMAINS, USER
from palaestra.environments.apps.tau2_scoring import Transcript, reference, solved
from palaestra.environments.apps.tau2_user import ENDS, STOP, TRANSFERRED, Said, ScriptedUser, User
from palaestra.environments.snapshots import opened, sealed

WRITTEN_CALL = r"<tool_call>|(```\w*\s*)?(\{|[a-z_]+\()"  # the beginning of one
LARGEST, DEEPEST = 10**12, 20  # numbers, and lists within lists, in arguments
USERS = "users"  # after a domain's name: the user is a player
ROUNDS = 100  # messages of the agent; the package's limit
AGENT_RULES = (
    "You are a customer service agent. Help the user, and always follow the policy below. Reply "
    "with one message to the user, or with one tool call such as {example}; never with both."
)
EXAMPLES = {
    "airline": "get_user_details(user_id='mia_li_3668')",
    "retail": "find_user_id_by_email(email='mia@example.com')",
    "telecom": "get_customer_by_phone(phone_number='555-123-0000')",
}
BOTH = (
    "A user and a customer service agent talk, and may act on the same data. The first thing that "
    "you see says which of them you are, what your rules are, and which tools you have. Reply with "
    "one message to the other, or with one tool call; never with both."
)
ASK, DONE = "Could you tell me more?", "That is done. Thank you for calling."
RANDOM_WORDS = {
    AGENT: (ASK, DONE, "How can I help you?", "Is there anything else?", TRANSFERRED),
    USER: ("Yes.", "No.", "I need help.", STOP),
}


class Tau2(Environment):
    """A conversation at a service desk."""

    capabilities = frozenset({Capability.STATE_KEY, Capability.SNAPSHOT, Capability.ORACLE})
    free_text = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._domain, _, form = name.partition(":")
        self._alone = form != USERS
        self.players = self.players_of(name)
        # Those of both sides, where both play; each may call its own.
        self.tools = tuple(tool for who in self.players for tool in self._tools(who))
        self._task: Task | None = None
        self._desk: Desk | None = None

    @classmethod
    def names(cls) -> list[str]:
        return [*DOMAINS, *(f"{domain}:{USERS}" for domain in DOMAINS)]

    @classmethod
    def players_of(cls, name: str) -> tuple[str, ...]:
        return (AGENT, USER) if name.endswith(f":{USERS}") else (AGENT,)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        domain = environment.rpartition("/")[2].partition(":")[0]
        rows = {
            split: [{"domain": domain, "task": id} for id in ids]
            for split, ids in published.splits(domain).items()
        }
        return ListedTasks(environment, rows=rows)

    @property
    def instructions(self) -> str:
        return self._briefing() if self._alone else BOTH

    @property
    def typical_turns(self) -> int:
        return 40 * len(self.players)

    def reset(self, task: Task) -> Observation:
        """Begin with the user's first words, or where the user is a player, with their briefing.

        Raises:
            InputError: the task is not one of this domain, or the data are another release's.
        """
        domain, id = task.parameters.get("domain"), task.parameters.get("task")
        if domain != self._domain or not isinstance(id, str):
            raise InputError(
                f"The task '{task.id}' of '{task.environment}' is not one of the τ² domain "
                f"'{self._domain}'; take tasks of that environment."
            )
        self._desk = Desk(self._domain, id)
        self._task = task
        self._transcript = Transcript(self._desk)
        self._talk: list[Said] = []  # as the user sees it
        self._script = ScriptedUser(self._desk.task.user_scenario.instructions, self._tools(USER))
        self._turn, self._rounds = USER, 0
        self._done: list[Action] = []  # what was understood
        self._calls: list[tuple[str, ToolCall]] = []
        self._over = self._success = False
        if self._alone:
            return Observation(self._answered())
        guide, start = (message.text for message in self._desk.opening)
        return Observation(f"{guide}{_listing(self._tools(USER))}{start}")

    def step(self, action: Action) -> Transition:
        self._running()
        if self._over:
            return self._transition("The conversation is over.", valid=False)
        who = self.turn_of()
        try:
            said = understood(action, self._tools(who))
        except NotACall as problem:
            return self._transition(str(problem), valid=False)
        self._done.append(action)
        if isinstance(said, ToolCall):
            return self._transition(self._act(who, said))
        first = not self._rounds and who == USER
        self._say(who, said)
        if self._alone and not self._over:
            said = self._answered()
        elif first and not self._over:
            said = f"{self._briefing()}\n{said}"
        return self._transition(said)

    def close(self) -> None:
        self._desk = None

    def turn_of(self) -> str:
        return AGENT if self._alone else self._turn

    def state_key(self) -> str:
        """The databases, and what of the conversation still matters to the user and the verdict."""
        desk, transcript = self._running(), self._transcript
        state = (
            (self.name, desk.task.id, desk.digest(), self._turn, self._rounds, self._over),
            (self._script.untold(self._talk) if self._alone else ()),
            (transcript.untold(), transcript.undone(), self._success),
        )
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The task and what was said and done: the world throws no dice."""
        self._running()
        assert self._task is not None
        saved = {"task": asdict(self._task), "actions": [asdict(done) for done in self._done]}
        return sealed(f"tau2/{self.name}", _version(), json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Say and do everything again; raises InputError if the snapshot is another world's."""
        saved: dict[str, Any] = json.loads(opened(snapshot, f"tau2/{self.name}", _version()))
        task = saved["task"]
        self.reset(Task(**{**task, "split": Split(task["split"])}))
        for action in saved["actions"]:
            call = ToolCall(**action["call"]) if action["call"] else None
            self.step(Action(action["text"], call))

    def oracle(self) -> list[Action]:
        """The way of an agent who hears the user out, does what the reference does, and says it.

        Tried out on another world: first going on with the reference where this conversation left
        it, then from each of its actions. With two players, the script speaks for the user.
        """
        desk = self._running()
        if self._over:
            return []
        wanted = reference(desk)
        for begin in dict.fromkeys((self._followed(), *range(len(wanted) + 1))):
            other = type(self)(self.name)
            other.restore(self.snapshot())
            way = other._perform(wanted[begin:])
            if other._success:
                return way
        return []

    def sample_action(self, dice: random.Random) -> Action:
        """A tool call, or one of a few things to say; in telecom also a thing to ask for."""
        who = self.turn_of()
        tools = self._tools(who)
        if tools and dice.random() < 0.7:
            call = random_call(tools, dice)
            return Action(str(call), call)
        theirs = self._tools(USER) if who == AGENT else ()
        if theirs and dice.random() < 0.7:
            return Action(f"Please use {random_call(theirs, dice)}.")
        return Action(dice.choice(RANDOM_WORDS[who]))

    # ── details ──────────────────────────────────────────────────────────────

    def _tools(self, who: str) -> tuple[Tool, ...]:
        return published.tools(self._domain, who)

    def _briefing(self) -> str:
        """What the agent must know: how to reply, the tools, and the policy as published."""
        tools = self._tools(AGENT)
        rules = AGENT_RULES.format(example=EXAMPLES[self._domain])
        return f"{rules}{_listing(tools)}{DOMAINS[self._domain].policy()}"

    def _act(self, who: str, call: ToolCall) -> str:
        said = self._running().call(who, call)
        self._calls.append((who, call))
        self._transcript.call(who, call, said)
        if who == USER:
            self._talk.append(Said(USER, said, call))
        return said

    def _say(self, who: str, text: str) -> None:
        """Give the floor to the other side, or end."""
        self._transcript.say(who, text)
        self._talk.append(Said(who, text))
        self._turn = USER if who == AGENT else AGENT
        self._rounds += who == AGENT
        ended = self._rounds == ROUNDS if who == AGENT else any(end in text for end in ENDS)
        if ended:
            self._over = True
            self._success = solved(self._running(), self._transcript)

    def _answered(self) -> str:
        """What the scripted user says, after what they do."""
        user: User = self._script
        while isinstance(said := user.reply(self._talk), ToolCall):
            self._act(USER, said)
        self._say(USER, said)
        return said

    def _perform(self, wanted: Any) -> list[Action]:
        """What an expert, and where the user is a player, a scripted user does until the end."""
        left, way = list(wanted), list[Action]()
        while not self._over:
            if self.turn_of() == USER:
                said = self._script.reply(self._talk)
                action = Action(str(said), said if isinstance(said, ToolCall) else None)
            elif self._script.untold(self._talk):
                action = Action(ASK)
            elif left:
                step = left.pop(0)
                call = ToolCall(step.name, dict(step.arguments))
                mine = step.requestor == "assistant"
                action = Action(str(call), call) if mine else Action(f"Please use {call}.")
            else:
                action = Action(self._farewell(wanted))
            way.append(action)
            if not self.step(action).valid:
                break
        return way

    def _farewell(self, wanted: Any) -> str:
        """The last words: what the user must still be told, and a transfer where one is due."""
        untold = self._transcript.untold()
        told = f"To answer your questions: {'; '.join(untold)}. " if untold else ""
        transfer = any(step.name == "transfer_to_human_agents" for step in wanted)
        return told + (TRANSFERRED if transfer else DONE)

    def _followed(self) -> int:
        """How many of the reference actions were made, from the first on and in their order."""
        wanted, made = reference(self._running()), 0
        for who, call in self._calls:
            step = wanted[made] if made < len(wanted) else None
            if step is not None and (who, call.name, dict(call.arguments)) == (
                AGENT if step.requestor == "assistant" else USER,
                step.name,
                step.arguments,
            ):
                made += 1
        return made

    def _transition(self, text: str, valid: bool = True) -> Transition:
        reward = float(self._success and valid)
        return Transition(
            Observation(text),
            reward=reward,
            terminated=self._over,
            success=self._success,
            valid=valid,
            rewards={} if self._alone else dict.fromkeys(self.players, reward),
        )

    def _running(self) -> Desk:
        if self._desk is None:
            raise InputError("This service desk has no task yet; call reset with a task first.")
        return self._desk


def understood(action: Action, tools: tuple[Tool, ...]) -> ToolCall | str:
    """What an action is: a call if it has one or is written as one, else a message.

    Words are a call where they begin with one, or have the tags of one; a call that is mentioned
    within a message is none.

    Raises:
        NotACall: it is a call and does not fit the tools, or it is nothing at all.
    """
    text = action.text.strip()
    if action.call is not None or (tools and re.match(WRITTEN_CALL, text)):
        call = checked(action.call, tools) if action.call else parse_call(text, tools)
        if not _sane(call.arguments):
            raise NotACall(f"The arguments of {call.name} are too large, too deep, or no text.")
        return call
    if not text or not _sane(text):
        raise NotACall("Say something, or call a tool.")
    return text


def _sane(value: Any, depth: int = 0) -> bool:
    """Whether a value can be written down again after any arithmetic that tools do with it."""
    if isinstance(value, str):
        return value.isascii() or not re.search("[\ud800-\udfff]", value)
    if isinstance(value, (int, float)):
        return abs(value) <= LARGEST
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return depth < DEEPEST and all(_sane(part, depth + 1) for part in value)
    return value is None


def _listing(tools: tuple[Tool, ...]) -> str:
    if not tools:
        return "\n"
    return "\n\nTools:\n" + "\n".join(f"- {tool.signature}" for tool in tools) + "\n\n"


def _version() -> str:
    return version("inspect-evals")
