"""τ²-bench: a service agent, a user with their own goals, and a database that both can change.

Ids: `tau2/airline`, `tau2/retail`, `tau2/telecom` with a built-in scripted user (`user.py`),
and `tau2/airline:users` … with two players, "agent" and "user", where any model can be the user.

Source: Yao et al. 2024, Barres et al. 2025, in the package inspect-evals 0.26.0 (MIT, as is the
benchmark): its tasks (airline 50, retail 114, telecom 114; the published training and test
splits), policies, tools, user guidelines, scorers, and its limit of 100 rounds. Faithful: the
effects and outputs of the tools, and the scoring. Ours: the scripted user, the text form of a call,
and the handling of errors and bill ids in `desk.py`.

A turn is a tool call or a message, never both. Tool calls do not count as rounds. Each may change
the database and the phone. A message of one side passes the turn to the other. The conversation
ends with the user's end token or after the agent's hundredth message; then the benchmark's verdict
is the reward, 1 or 0, for both players. There is no progress measure: most wrong calls cannot be
undone, and a distance to the right database is not defined.

With two players, each player's first observation states their role: the user gets the published
guidelines and the scenario, the agent the policy. Neither sees the other's, nor the other's calls.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from palaestra.core.environment import Action, Observation, Spec, Stakes, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import Multiplayer, Sampling
from palaestra.core.task import ListedTasks, Task, TaskSet
from palaestra.core.tool import NotACall, Tool, checked, parse_call, random_call
from palaestra.environments.base import Replayed, hashed, refused
from palaestra.environments.families.tau2 import domain as published
from palaestra.environments.families.tau2.desk import Desk
from palaestra.environments.families.tau2.domain import AGENT, DOMAINS, USER
from palaestra.environments.families.tau2.scoring import Transcript, reference, solved
from palaestra.environments.families.tau2.user import (
    ENDS,
    STOP,
    TRANSFERRED,
    ScriptedUser,
    User,
    Utterance,
)
from palaestra.environments.shared.seats import NOT_YOUR_TURN

WRITTEN_CALL = r"<tool_call>|(```\w*\s*)?(\{|[a-z_]+\()"  # how a call in text begins
LARGEST, DEEPEST = 10**12, 20  # limits of numbers, and of nested lists, in arguments
USERS = "users"  # suffix of a domain's name: the user is a player
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
RANDOM_MESSAGES = {
    AGENT: (ASK, DONE, "How can I help you?", "Is there anything else?", TRANSFERRED),
    USER: ("Yes.", "No.", "I need help.", STOP),
}


class Tau2(
    Replayed,
    Multiplayer,
    Sampling,
    id="tau2",
    capabilities={"state_key", "snapshot", "oracle"},
    free_text=True,
):
    """A conversation at a service desk."""

    OVER = "The conversation is over."
    package = version("inspect-evals")

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._domain, _, form = name.partition(":")
        self._alone = form != USERS
        # With two players, the tools of both; each may call only its own.
        self.tools = tuple(tool for who in self.spec.players for tool in self._tools(who))
        self._desk: Desk | None = None

    @classmethod
    def names(cls) -> list[str]:
        return [*DOMAINS, *(f"{domain}:{USERS}" for domain in DOMAINS)]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        spec = super().spec_of(name)
        players = (AGENT, USER) if name.endswith(f":{USERS}") else (AGENT,)
        stakes = Stakes("common", forfeit=0.0)
        return replace(
            spec, players=players, stakes=stakes, tools=True, typical_turns=40 * len(players)
        )

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

    def _begin(self, task: Task) -> Observation:
        """Begin with the user's first message; if the user is a player, with their briefing.

        Raises:
            InputError: the task is not one of this domain, or the data is of another release.
        """
        domain, id = task.parameters.get("domain"), task.parameters.get("task")
        if domain != self._domain or not isinstance(id, str):
            raise InputError(
                f"The task '{task.id}' of '{task.environment}' is not one of the τ² domain "
                f"'{self._domain}'; take tasks of that environment."
            )
        self._desk = Desk(self._domain, id)
        self._transcript = Transcript(self._desk)
        self._talk: list[Utterance] = []  # the user's view
        self._script = ScriptedUser(self._desk.task.user_scenario.instructions, self._tools(USER))
        self._turn, self._rounds = USER, 0
        self._calls: list[tuple[str, ToolCall]] = []
        self._success = False
        if self._alone:
            self._seen = Observation(self._user_turn())
            return self._seen
        guide, start = (message.text for message in self._desk.opening)
        self._seen = Observation(f"{guide}{_listing(self._tools(USER))}{start}")
        return self._seen

    def _act(self, action: Action) -> Transition:
        who = self._who()
        try:
            move = parse_action(action, self._tools(who))
        except NotACall as problem:
            return refused(str(problem))
        if isinstance(move, ToolCall):
            return self._transition(self._call(who, move))
        first = not self._rounds and who == USER
        self._say(who, move)
        if self._alone and not self._over:
            move = self._user_turn()
        elif first and not self._over:
            move = f"{self._briefing()}\n{move}"
        return self._transition(move)

    def close(self) -> None:
        self._desk = None

    def acting(self) -> tuple[str, ...]:
        return () if self._over else (self._who(),)

    def observe(self, player: str) -> Observation:
        """Return what came last from the other side or a tool; at the end, the last message."""
        self._running()
        if self._over or player == self._who():
            return self._seen
        return Observation(NOT_YOUR_TURN)

    def state_key(self) -> str:
        """Hash the databases and the parts of the conversation that affect user or verdict."""
        desk, transcript = self._running(), self._transcript
        return hashed(
            (self.spec.name, desk.task.id, desk.digest(), self._turn, self._rounds, self._over),
            (self._script.unstated(self._talk) if self._alone else ()),
            (transcript.missing_information(), transcript.missing_actions(), self._success),
        )

    def oracle(self) -> list[Action]:
        """Return a plan that hears the user out, makes the reference actions, and reports them.

        Plans are tried out in a copy: first with the rest of the reference from where this
        conversation left it, then from each of its actions. With two players, the scripted user
        acts for the user.
        """
        desk = self._running()
        if self._over:
            return []
        wanted = reference(desk)
        for begin in dict.fromkeys((self._followed(), *range(len(wanted) + 1))):
            other = type(self)(self.spec.name)
            other.restore(self.snapshot())
            plan = other._perform(wanted[begin:])
            if other._success:
                return plan
        return []

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a tool call or a common message; in telecom also a request to the user."""
        who = self._who()
        tools = self._tools(who)
        if tools and rng.random() < 0.7:
            call = random_call(tools, rng)
            return Action(str(call), call)
        theirs = self._tools(USER) if who == AGENT else ()
        if theirs and rng.random() < 0.7:
            return Action(f"Please use {random_call(theirs, rng)}.")
        return Action(rng.choice(RANDOM_MESSAGES[who]))

    # ── details ──────────────────────────────────────────────────────────────

    def _who(self) -> str:
        """Return whose turn it is."""
        return AGENT if self._alone else self._turn

    def _tools(self, who: str) -> tuple[Tool, ...]:
        return published.tools(self._domain, who)

    def _briefing(self) -> str:
        """Return the agent's instructions: how to reply, the tools, and the published policy."""
        tools = self._tools(AGENT)
        rules = AGENT_RULES.format(example=EXAMPLES[self._domain])
        return f"{rules}{_listing(tools)}{DOMAINS[self._domain].policy()}"

    def _call(self, who: str, call: ToolCall) -> str:
        output = self._running().call(who, call)
        self._calls.append((who, call))
        self._transcript.call(who, call, output)
        if who == USER:
            self._talk.append(Utterance(USER, output, call))
        return output

    def _say(self, who: str, text: str) -> None:
        """Pass the turn to the other side with a message, or end the conversation."""
        self._transcript.say(who, text)
        self._talk.append(Utterance(who, text))
        self._turn = USER if who == AGENT else AGENT
        self._rounds += who == AGENT
        ended = self._rounds == ROUNDS if who == AGENT else any(end in text for end in ENDS)
        if ended:
            self._over = True
            self._success = solved(self._running(), self._transcript)

    def _user_turn(self) -> str:
        """Make the scripted user's calls; return the message that follows them."""
        user: User = self._script
        while isinstance(reply := user.reply(self._talk), ToolCall):
            self._call(USER, reply)
        self._say(USER, reply)
        return reply

    def _perform(self, wanted: Any) -> list[Action]:
        """Play an expert agent, and with two players a scripted user, until the end."""
        left, plan = list(wanted), list[Action]()
        while not self._over:
            if self._who() == USER:
                reply = self._script.reply(self._talk)
                action = Action(str(reply), reply if isinstance(reply, ToolCall) else None)
            elif self._script.unstated(self._talk):
                action = Action(ASK)
            elif left:
                step = left.pop(0)
                call = ToolCall(step.name, dict(step.arguments))
                mine = step.requestor == "assistant"
                action = Action(str(call), call) if mine else Action(f"Please use {call}.")
            else:
                action = Action(self._farewell(wanted))
            plan.append(action)
            if not self.step(action).valid:
                break
        return plan

    def _farewell(self, wanted: Any) -> str:
        """Return the final message, with missing information and a transfer if required."""
        missing = self._transcript.missing_information()
        answers = f"To answer your questions: {'; '.join(missing)}. " if missing else ""
        transfer = any(step.name == "transfer_to_human_agents" for step in wanted)
        return answers + (TRANSFERRED if transfer else DONE)

    def _followed(self) -> int:
        """Return the number of reference actions made so far, from the first on and in order."""
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

    def _transition(self, text: str) -> Transition:
        reward, self._seen = float(self._success), Observation(text)
        return Transition(
            self._seen,
            reward=reward,
            terminated=self._over,
            success=self._success,
            rewards={} if self._alone else dict.fromkeys(self.spec.players, reward),
        )

    def _running(self) -> Desk:
        if self._desk is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no task yet; call reset with a task first."
            )
        return self._desk


def parse_action(action: Action, tools: tuple[Tool, ...]) -> ToolCall | str:
    """Parse an action into a tool call, if it has one or is written as one, else a message.

    Text is a call if it begins with a call or has the tags of one; a call that is mentioned within
    a message does not count.

    Raises:
        NotACall: it is a call that does not fit the tools, or it is empty.
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
    """Return whether a value stays serialisable after any arithmetic of the tools."""
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
