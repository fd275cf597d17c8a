"""Exploration: a model tries the apps by their documentation, and tasks are made of what happened.

Each beginning of what it did that ends with a change is a task: the calls are its reference, and
its words are written afterwards, to fit what happened (Learn-by-interact, Su et al. 2025: backward
construction). Ours: the verdict is derived from the calls, so a task passes the same gate as any
other: the calls are made again in an untouched world, and with any changing call left out they must
not solve it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestra.core.model import Model
from palaestra.core.tool import NotACall, Tool, parse_call
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Call, Goal
from palaestra.environments.families.apps.surfaces import tool_of
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.synthesised.lines import happened
from palaestra.synthesis.asking import ask

EXPLORER = (
    "You explore what a person's apps can do, by calling their tools. Reply with one call and "
    "nothing else, such as shelter_list_cats(), or with DONE."
)
DONE = "DONE"
SHOWN = 400  # characters of a result that the explorer reads


async def explored(
    model: Model, world: World, calls: int, rng: random.Random
) -> tuple[list[Call], Counter[str]]:
    """Let a model call tools of a world; return what was answered, and why the rest was not.

    Args:
        model: the explorer; each call is a question of its own, with all that happened before.
        world: it changes with the calls.
        calls: at most so many.
        rng: draws the seeds of the model's replies.
    """
    tools = {tool.name: (tool, api) for tool, api in _tools(world)}
    listed = "\n".join(tool.signature for tool, _ in tools.values())
    made: list[Call] = []
    refused: Counter[str] = Counter()
    history = ""
    for _ in range(calls):
        question = f"Tools:\n{listed}\n\nSo far:\n{history or 'nothing'}\n\nYour next call:"
        reply = (await ask(model, EXPLORER, question, rng.getrandbits(32))).strip()
        if reply == DONE:
            break
        try:
            call = parse_call(reply, [tool for tool, _ in tools.values()])
        except NotACall as error:
            refused["exploration: no call of a tool"] += 1
            history += f"{reply[:SHOWN]}\n  {error}\n"
            continue
        api = tools[call.name][1]
        answer = world.call(api, call.arguments, MAIN)
        history += f"{call}\n  {str(answer)[:SHOWN]}\n"
        if answer.ok:
            made.append(Call(api, dict(call.arguments)))
        else:
            refused["exploration: a service refuses"] += 1
    return made, refused


def beginnings(
    calls: Sequence[Call], world: World, rng: random.Random
) -> Iterator[tuple[Composition | None, str]]:
    """Yield the task of each beginning that ends with a change, or None and why it is rejected.

    Args:
        calls: what was done, in its order.
        world: in which nothing has happened.
        rng: for the gate.
    """
    atom = happened(world.suite)
    for at, made in enumerate(calls):
        if made.api not in atom.changing:
            continue
        done = calls[: at + 1]
        said = ", then ".join(_plainly(call) for call in done if call.api in atom.changing)
        slots = {"calls": [[call.api, dict(call.arguments)] for call in done], "said": said}
        task = Composition((Goal(atom, slots),))
        reason = rejection(world, task, rng)
        yield (None, reason.partition(":")[0]) if reason else (task, "")


def _tools(world: World) -> Iterator[tuple[Tool, str]]:
    for name, api in world.suite.apis.items():
        if api.name != "login" and api.app != "supervisor":
            yield tool_of(api), name


def _plainly(call: Call) -> str:
    """Return a call in words: what it does, and the values that are no ids."""
    values = [f"{name.replace('_', ' ')} {value!r}" for name, value in _said(call.arguments)]
    app, _, name = call.api.partition(".")
    what = f"{name.replace('_', ' ')} in {app.replace('_', ' ')}"
    return f"{what} with {', '.join(values)}" if values else what


def _said(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in arguments.items() if not name.endswith("_id"))
