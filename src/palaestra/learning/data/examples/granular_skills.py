"""Granular skills of function calling: seven kinds of examples from recorded tool calls.

Source: Granite-20B-FunctionCalling (Abdelaziz et al. 2024), which learns seven small tasks, of
which function calling is made, from many data sets in one JSON form. Here all seven come from
recorded episodes; questions are worded by us, as theirs are not verified.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, RecipeError
from palaestra.core.graph import Call
from palaestra.core.message import Message, ToolCall, assistant, user
from palaestra.core.model import Renderer
from palaestra.core.tool import Tool
from palaestra.learning.data.examples.conversations import last_reply_example
from palaestra.learning.data.examples.example import (
    Example,
    Score,
    ScoreName,
    reads_progress,
    scoring,
    usable,
)
from palaestra.learning.data.examples.replies import replies
from palaestra.learning.data.examples.tool_calls import calls_of, check_called
from palaestra.learning.methods.component import Kind, Need, Options, Status, component


class Skill(StrEnum):
    """What an example asks for."""

    NESTED = "nested"  # all calls of a request, one of which takes what another returned
    CHAINING = "chaining"  # all calls of a request, at least two
    PARALLEL = "parallel"  # the calls of one reply, at least two
    NAMES = "names"  # the names of the functions that a request needs
    PARAMETERS = "parameters"  # the arguments of one call, whose function is given
    NEXT = "next"  # the name of the next function, after at least one call
    RESPONSE = "response"  # the reply in words, once the calls are made


QUESTIONS: Mapping[Skill, str] = {
    Skill.NESTED: "Write all calls that this request needs, as JSON; write $1 for what the first "
    "call returns, $2 for the second, and so on.",
    Skill.CHAINING: "Write all calls that this request needs, in order, as JSON.",
    Skill.PARALLEL: "Write the calls to make now, as JSON.",
    Skill.NAMES: "Name the functions that this request needs, in order, as JSON.",
    Skill.PARAMETERS: "Write the arguments of the next call, of {name}, as JSON.",
    Skill.NEXT: "Name the function to call next.",
}
"""What is asked; a response follows its recorded prompt as it stands."""


def _check_ratio(options: Options) -> None:
    for name, parts in (options["ratio"] or {}).items():
        if name not in list(Skill):
            raise RecipeError(
                f"ratio names the skill '{name}', which does not exist; skills: {', '.join(Skill)}."
            )
        if type(parts) is not int or parts < 1:
            raise RecipeError(f"ratio.{name} = {parts!r} must be a whole number of at least 1.")


@component(
    Kind.EXAMPLES,
    "granular-skills",
    source="Abdelaziz et al. 2024 (Granite-20B-FunctionCalling)",
    status=Status.EXPERIMENTAL,
    when={Need.PROGRESS: reads_progress},
    check=_check_ratio,
)
def granular_skills(
    episodes: Sequence[Episode],
    policy: str,
    renderer: Renderer,
    tools: Sequence[Tool],
    *,
    ratio: Mapping[str, int] | None = None,
    least: float = 1.0,
    seed: int = 0,
    score: Score | ScoreName = "success",
) -> list[Example]:
    """Ask, of successful tool calls, for names, arguments, the next call, all of them, and more.

    A request is what is asked before a run of calls, up to the next reply in words. Its questions
    stand after the recorded prompt, in which the functions are listed.

    Args:
        episodes: of an environment with tools; those without a valid result are left out.
        policy: whose calls are learned.
        renderer: of the policy that learns; rows hold tokens that no model sampled.
        tools: of the environment.
        ratio: parts of each skill, e.g. {names = 1, next = 2}: others are left out, and rows are
            left out at random until the parts are exact. None: all rows of all skills.
        least: lowest score of an episode whose calls are learned.
        seed: of what is left out.
        score: success, reward, progress, or a function of the episode.

    Raises:
        InputError: there are episodes, and no tool was called in them; or there are fewer examples
            of a skill than its parts.
    """
    score = scoring(score)
    tried = usable(episodes, policy)
    check_called(tried, policy, tools)
    found: dict[Skill, list[Example]] = {skill: [] for skill in Skill}
    for episode in tried:
        if score(episode) < least:
            continue
        for request in _requests(episode, policy, tools):
            for skill, conversation in _asked(request):
                found[skill].append(last_reply_example(conversation, renderer, episode.key))
    if ratio is not None and any(found.values()):
        found = in_ratio(found, {Skill(name): parts for name, parts in ratio.items()}, seed)
    return [example for skill in Skill for example in found.get(skill, [])]


def in_ratio(
    found: Mapping[Skill, Sequence[Example]], ratio: Mapping[Skill, int], seed: int
) -> dict[Skill, list[Example]]:
    """Return as many examples as possible in exactly that ratio, each skill's in their order.

    Raises:
        InputError: there are fewer examples of a skill than its parts.
    """
    for skill, parts in ratio.items():
        if len(found[skill]) < parts:
            raise InputError(
                f"ratio.{skill} = {parts} is more than the {len(found[skill])} examples of that "
                "skill in what was recorded; lower it, leave it out, or record more episodes."
            )
    unit = min(len(found[skill]) // parts for skill, parts in ratio.items())
    kept: dict[Skill, list[Example]] = {}
    for skill, parts in ratio.items():
        every = range(len(found[skill]))
        chosen = random.Random(f"{seed}/{skill}").sample(every, unit * parts)
        kept[skill] = [found[skill][index] for index in sorted(chosen)]
    return kept


# ── requests in a record ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Made:
    """One call that was made."""

    call: ToolCall
    result: str
    prompt: tuple[Message, ...]  # before the reply that made it
    reply: int  # its index in the episode


@dataclass(slots=True)
class _Request:
    """A run of calls, and the reply in words after it, if there is one."""

    made: list[_Made] = field(default_factory=list)
    prompt: tuple[Message, ...] = ()  # before that reply
    response: str = ""


def _requests(episode: Episode, policy: str, tools: Sequence[Tool]) -> Iterator[_Request]:
    graph, request = episode.graph, _Request()
    for reply in replies(episode, policy):
        if not reply.steps:
            continue  # a thought
        prompt = tuple(graph.conversation(reply.call.index))[:-1]
        found = calls_of(reply, tools)
        for call, step in found:
            result = step.transition.observation.text
            request.made.append(_Made(call, result, prompt, reply.call.index))
        if not found and _in_words(reply.call) and all(s.transition.valid for s in reply.steps):
            request.prompt, request.response = prompt, reply.call.reply.text
            if request.made:
                yield request
            request = _Request()
    if request.made:
        yield request


def _in_words(call: Call) -> bool:
    return not call.reply.tool_calls and bool(call.reply.text.strip())


# ── what is asked of a request ───────────────────────────────────────────────


def _asked(request: _Request) -> Iterator[tuple[Skill, list[Message]]]:
    """Yield the conversations that each skill learns of a request."""
    made = request.made
    first = made[0].prompt
    calls = [one.call for one in made]
    nested = _nested(made)
    if nested is not None:
        yield Skill.NESTED, _question(first, QUESTIONS[Skill.NESTED], _json(nested))
    if len(calls) > 1:
        answer = _json([_form(call) for call in calls])
        yield Skill.CHAINING, _question(first, QUESTIONS[Skill.CHAINING], answer)
    for reply in dict.fromkeys(one.reply for one in made):
        together = [one for one in made if one.reply == reply]
        if len(together) > 1:
            answer = _json([_form(one.call) for one in together])
            yield (
                Skill.PARALLEL,
                _question(together[0].prompt, QUESTIONS[Skill.PARALLEL], answer),
            )
    names = list(dict.fromkeys(call.name for call in calls))
    yield Skill.NAMES, _question(first, QUESTIONS[Skill.NAMES], _json(names))
    for one in made:
        question = QUESTIONS[Skill.PARAMETERS].format(name=one.call.name)
        answer = _json(dict(one.call.arguments))
        yield Skill.PARAMETERS, _question(one.prompt, question, answer)
    for one in made[1:]:
        if one.reply != made[0].reply:
            yield Skill.NEXT, _question(one.prompt, QUESTIONS[Skill.NEXT], one.call.name)
    if request.response:
        yield Skill.RESPONSE, [*request.prompt, assistant(request.response)]


def _question(prompt: Sequence[Message], question: str, answer: str) -> list[Message]:
    *before, last = prompt
    if last.role == "user":
        return [*before, user(f"{last.text}\n\n{question}"), assistant(answer)]
    return [*prompt, user(question), assistant(answer)]


def _nested(made: Sequence[_Made]) -> list[dict[str, Any]] | None:
    """Return the calls with references to earlier results; None if no argument is one.

    An argument refers to a result if it stands there as a word and was not known before.
    """
    known = "\n".join(message.text for message in made[0].prompt)
    found, nested = [], False
    for number, one in enumerate(made):
        form = _form(one.call)
        for name, value in one.call.arguments.items():
            if not isinstance(value, str | int | float) or _names(known, value):
                continue
            source = next((k for k in range(number) if _names(made[k].result, value)), None)
            if source is not None and made[source].reply != one.reply:
                form["arguments"][name] = f"${source + 1}"
                nested = True
        found.append(form)
    return found if nested else None


def _names(text: str, value: object) -> bool:
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) is not None


def _form(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
