"""Mistakes of a model that plays the user of τ², counted by a program (docs/results/judges.md).

    python scripts/user_simulators.py --model qwen2.5-coder-1.5b --domain retail --to FILE

The agent is a script that makes the task's reference actions whatever the user says: it asks for
the user's name, wish and further wishes, acts, asks for each reference action on the user's phone,
and says goodbye. A user who follows the scenario therefore solves every task, and every failure is
the user's. `--model scripted` is the family's scripted user, the control. FILE receives the
conversations, one JSON object a line. Needs requirements/tau2.txt.

Counted, per conversation: whether the user ended it before the goodbye, or not after it; the share
of the scenario's identifiers (words with digits, e-mail addresses) that the user stated; invented
identifiers, which neither the scenario nor the agent had; messages in the words of an agent; and,
in telecom, the share of the requested phone actions that the user's next call made exactly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action
from palaestra.core.message import Message, ToolCall, system, user
from palaestra.core.model import Model, Prompt, Sampling
from palaestra.core.task import Split, Task
from palaestra.core.tool import NotACall, parse_call
from palaestra.environments.families.tau2.desk import Desk
from palaestra.environments.families.tau2.domain import AGENT, USER, tools
from palaestra.environments.families.tau2.environment import Tau2
from palaestra.environments.families.tau2.scoring import reference
from palaestra.environments.families.tau2.user import ScriptedUser, Utterance
from palaestra.evaluation.statistics.intervals import Interval, mean_interval, wilson
from palaestra.models.registry import load_model

ASKS = (
    "Thank you for calling. Please tell me who you are.",
    "What do you want, exactly?",
    "Is there anything that I should know before I begin?",
)
GOODBYE = "That is done. Is there anything else?"
FAREWELLS = 3  # goodbyes that a user may leave without an end
REPLIES = 4  # of a user in one turn, of which the last must be a message
IDENTIFIER = re.compile(r"[\w.+-]+@[\w-]+\.\w+|\w*\d[\w-]*\w")
AS_AGENT = re.compile(
    r"how (can|may) i (help|assist)|(assist|help) you\b|thank you for (calling|contacting)"
    r"|\byour (order|account|request|refund|return|exchange|reservation|phone)\b",
    re.IGNORECASE,
)


@dataclass
class Conversation:
    """One conversation and the mistakes in it."""

    task: str
    solved: bool = False
    early: bool = False  # the user ended it before the goodbye
    ended: bool = False  # by the user
    facts: list[str] = field(default_factory=list)  # identifiers of the scenario
    stated: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    messages: int = 0
    as_agent: int = 0
    refused: int = 0  # replies of the user that were neither a message nor a valid call
    asked: int = 0  # for actions on the phone
    done: int = 0
    record: list[tuple[str, str]] = field(default_factory=list)


class ModelUser:
    """A user played by a model, which sees what the family's other player sees."""

    def __init__(self, model: Model, instructions: str, seed: int, sampling: Sampling) -> None:
        self._model, self._seed, self._sampling = model, seed, sampling
        self._messages: list[Message] = [system(f"{instructions}\nYou are {USER}.")]

    async def reply(self, seen: str) -> Action:
        self._messages.append(user(seen))
        assert self._model.renderer is not None
        tokens = tuple(self._model.renderer.start(self._messages))
        seed = self._seed * 1000 + len(self._messages)
        prompt = Prompt(self._messages, tokens, self._sampling, seed)
        found = await self._model.generate(prompt)
        self._messages.append(found.message)
        return Action(found.text.strip())


class Scripted:
    """The family's scripted user on the same interface."""

    def __init__(self, desk: Desk) -> None:
        self._user = ScriptedUser(desk.task.user_scenario.instructions, tools(desk.domain, USER))
        self._talk: list[Utterance] = []

    async def reply(self, seen: str) -> Action:
        if self._talk and self._talk[-1].who == USER and self._talk[-1].call is not None:
            self._talk[-1] = Utterance(USER, seen, self._talk[-1].call)
        elif self._talk:
            self._talk.append(Utterance(AGENT, seen))
        reply = self._user.reply(self._talk)
        call = reply if isinstance(reply, ToolCall) else None
        self._talk.append(Utterance(USER, str(reply), call))
        return Action(str(reply), call)


def agent_script(desk: Desk) -> list[tuple[str, ToolCall | None]]:
    """Return what the agent does until its goodbye: messages with the call asked for, and calls."""
    script: list[tuple[str, ToolCall | None]] = [(question, None) for question in ASKS]
    for step in reference(desk):
        call = ToolCall(step.name, dict(step.arguments))
        mine = step.requestor == "assistant"
        script.append(("", call) if mine else (f"Please use {call}.", call))
    told = desk.criteria.communicate_info or []
    transferred = any(step.name == "transfer_to_human_agents" for step in reference(desk))
    end = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON." if transferred else GOODBYE
    return [*script, (" ".join([*(f"{info}." for info in told), end]), None)]


class Talk:
    """One conversation of a user with the scripted agent, and the count of its mistakes."""

    def __init__(self, domain: str, task: Task) -> None:
        id = str(task.parameters["task"])
        self.desk, self.world, self.task = Desk(domain, id), Tau2(f"{domain}:users"), task
        self.seen = self.world.reset(task).text
        scenario = self.seen.partition("<scenario>")[2]
        self.found = Conversation(id, facts=sorted(set(identifiers(scenario))))
        self._known = scenario  # and what the agent and the phone said
        self._script = agent_script(self.desk)
        self._goodbyes = 0

    async def hold(self, player: ModelUser | Scripted) -> Conversation:
        """Talk until the user ends the conversation, or does not in time."""
        wanted: ToolCall | None = None
        while not self.found.ended and self._goodbyes <= FAREWELLS:
            if self.world.turn_of() == USER:
                await self._user_turn(player, wanted)
            else:
                wanted = await self._agent_turn()
        self.found.early = self.found.ended and bool(self._script)
        self.world.close()
        return self.found

    async def _user_turn(self, player: ModelUser | Scripted, wanted: ToolCall | None) -> None:
        """Let the user reply until they say something; count what they say and call."""
        for number in range(REPLIES):
            action = await player.reply(self.seen)
            valid = await self._step(USER, action)
            if not valid:
                self.found.refused += 1
            elif self.found.ended or self.world.turn_of() == AGENT:
                return self._count(action.text)
            else:
                self.found.record.append(("phone", self.seen))
                self._known += self.seen
            if wanted is not None and number == 0:
                self.found.done += valid and call_of(action, self.desk.domain) == wanted
        await self._step(USER, Action("…"))  # the turn passes on

    async def _agent_turn(self) -> ToolCall | None:
        """Take the next step of the script; return the call that it asks the user for."""
        self._goodbyes += len(self._script) <= 1
        text, call = self._script.pop(0) if self._script else (GOODBYE, None)
        await self._step(AGENT, Action(text) if text else Action(str(call), call))
        if not text:
            return None
        self.seen, self._known = text, self._known + text
        self.found.asked += call is not None
        return call

    async def _step(self, who: str, action: Action) -> bool:
        step = await asyncio.to_thread(self.world.step, action)
        self.found.record.append((who, action.text))
        self.found.ended, self.found.solved = step.terminated, bool(step.success)
        self.seen = step.observation.text
        return step.valid

    def _count(self, text: str) -> None:
        found = self.found
        found.messages += 1
        found.as_agent += AS_AGENT.search(text) is not None
        said, known = identifiers(text), identifiers(self._known)
        found.stated = sorted({*found.stated, *(fact for fact in found.facts if fact in said)})
        found.invented += [one for one in said if one not in known]


def call_of(action: Action, domain: str) -> ToolCall | None:
    """Return the call of a user's phone in an action; None if there is none."""
    try:
        return action.call or parse_call(action.text, tools(domain, USER))
    except NotACall:
        return None


def identifiers(text: str) -> list[str]:
    """Return the e-mail addresses, and the words with three digits or more, of a text."""
    found = [one.lower() for one in IDENTIFIER.findall(text)]
    return [one for one in found if "@" in one or len(re.findall(r"\d", one)) > 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="scripted")
    parser.add_argument("--domain", choices=("airline", "retail", "telecom"), default="retail")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--to", type=Path)
    options = parser.parse_args()
    found = asyncio.run(conversations(options))
    if options.to:
        options.to.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found))
    print(row(options, found))
    return 0


async def conversations(options: argparse.Namespace) -> list[Conversation]:
    """Hold the conversations of the first test tasks."""
    tasks = Tau2.tasks(f"tau2/{options.domain}:users")
    count = min(options.tasks, tasks.count(Split.TEST) or 0)
    model: Model | None = None
    if options.model != "scripted":
        model = load_model(
            options.model, DirectAgent(), slots=options.concurrency + 2, context=options.context,
            progress=lambda text: print(text, file=sys.stderr),
        )  # fmt: skip
    places = asyncio.Semaphore(options.concurrency)
    sampling = Sampling(options.temperature, options.max_tokens)

    async def one(number: int) -> Conversation:
        async with places:
            talk = Talk(options.domain, tasks.task(Split.TEST, number))
            if model is None:
                return await talk.hold(Scripted(talk.desk))
            player = ModelUser(model, talk.world.instructions, options.seed + number, sampling)
            with model.participant():
                return await talk.hold(player)

    try:
        return await asyncio.gather(*map(one, range(count)))
    finally:
        if model is not None:
            await model.close()


def row(options: argparse.Namespace, found: Sequence[Conversation]) -> str:
    """Return a row of the table, in Markdown: shares of conversations with 95 % intervals."""
    of = len(found)
    facts = [len(one.stated) / len(one.facts) for one in found if one.facts]
    asked = [one.done / one.asked for one in found if one.asked]
    cells = [
        f"{options.model}, {options.domain}",
        str(of),
        *(
            rate(wilson(sum(counts), of))
            for counts in (
                [one.solved for one in found],
                [one.early for one in found],
                [not one.ended for one in found],
                [bool(one.invented) for one in found],
                [bool(one.as_agent) for one in found],
                [bool(one.refused) for one in found],
            )
        ),
        *(rate(mean_interval(values)) if values else "–" for values in (facts, asked)),
    ]
    return "| " + " | ".join(cells) + " |"


def rate(of: Interval) -> str:
    """Return an interval in percent."""
    return f"{100 * of.mean:.0f} [{100 * of.low:.0f}, {100 * of.high:.0f}]"


if __name__ == "__main__":
    sys.exit(main())
