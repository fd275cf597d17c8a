"""Several replies to a program's question, and which reply proposed its action."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palaestra.core.budget import Budget
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer
from tests.core.test_samples import Seeded
from tests.gateway.visits import Visit, visit

START: Any = [{"role": "user", "content": "start"}]
ACT: Any = {
    "type": "function",
    "function": {
        "name": "act",
        "parameters": {"type": "object", "properties": {"action": {"type": "string"}}},
    },
}


def in_turn(*replies: str) -> ScriptedModel:
    """Returns its replies in order, for any prompt."""
    left = iter(replies)
    return ScriptedModel(lambda messages: next(left), renderer=renderer())


def asking(*actions: str) -> str:
    """Return a reply that calls the environment's tool for each action."""
    call = '<tool_call>\n{{"name": "act", "arguments": {{"action": "{}"}}}}\n</tool_call>'
    return "\n".join(call.format(action) for action in actions)


async def act(visited: Visit, action: str) -> None:
    answer = await visited.rpc("tools/call", name="act", arguments={"action": action})
    assert "result" in answer.json(), answer.text


def test_of_several_choices_the_one_that_is_done_is_credited() -> None:
    async def run() -> None:
        async with visit(in_turn("west", "east", "north", "south")) as visited:
            answer = await visited.chat(START, n=3)
            assert [c["message"]["content"] for c in answer.json()["choices"]] == [
                "west",
                "east",
                "north",
            ]
            await act(visited, "east")
            answer = await visited.post("/world/step", {"action": "west"})
            assert answer.status_code == 200
            assert [step.call for step in visited.session.steps] == [1, 0]

    asyncio.run(run())


def test_a_call_is_credited_to_the_reply_that_made_it_not_to_the_latest_one() -> None:
    async def run() -> None:
        replies = (asking("west", "east"), asking("east"), "No, that is unwise.")
        async with visit(in_turn(*replies)) as visited:
            for _ in replies[:2]:
                await visited.chat(START, tools=[ACT])
            await visited.chat([{"role": "user", "content": "Is that wise?"}])
            for action in ("west", "east", "east"):  # the same call of two replies, once for each
                await act(visited, action)
            assert [step.call for step in visited.session.steps] == [0, 1, 0]

    asyncio.run(run())


def test_what_a_program_makes_of_a_reply_is_credited_to_the_latest_one() -> None:
    async def run() -> None:
        async with visit(in_turn("Go east, say I.", "Or west.")) as visited:
            await act(visited, "up")  # before it has asked anything
            await visited.chat(START)
            await act(visited, "east")
            await visited.chat(START)
            await act(visited, "west")
            assert [step.call for step in visited.session.steps] == [None, 0, 1]

    asyncio.run(run())


@pytest.mark.parametrize("amount", [3, 10, 17])
def test_several_choices_are_sampled_at_once_and_keep_to_the_budget(amount: int) -> None:
    async def run(budget: Budget) -> tuple[Seeded, int]:
        model = Seeded()
        async with visit(model, budget=budget) as visited:
            await visited.chat(START, n=4)
            episode = await visited.end()
            calls = [call.reply.text for call in episode.calls]
            if budget.tokens is None:
                assert len(calls) == 4
            return model, episode.usage.sampled_tokens

    _, sampled = asyncio.run(run(Budget(tokens=amount)))
    assert 0 < sampled <= amount
    free, _ = asyncio.run(run(Budget()))
    assert free.most_at_once > 1
