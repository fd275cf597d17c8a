"""However a program edits its history, its calls are the same graph nodes as in process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.message import assistant, system, text_message
from palaestra.core.session import Session
from palaestra.gateway.app import application
from palaestra.gateway.session_endpoint import SessionEndpoint
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Acting, Stairs, renderer
from tests.gateway.visits import SAMPLING, visit

CALL = '<tool_call>\n{"name": "act", "arguments": {"action": "up"}}\n</tool_call>'
REPLIES = [" up ", "up\n", "a  b", f"Going.\n{CALL}", f"{CALL}\n{CALL}", f" {CALL} then", ""]
TOOL = {"type": "function", "function": {"name": "act", "parameters": {"type": "object"}}}

moves = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "edit", "system", "back", "fork"]),
        st.sampled_from(["x", "y", "go on"]),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=8,
)


class Alone:
    """One endpoint, for any id and token."""

    def __init__(self, endpoint: SessionEndpoint) -> None:
        self._endpoint = endpoint

    def endpoint(self, id: str, token: str) -> SessionEndpoint:
        return self._endpoint


def model() -> ScriptedModel:
    """Its reply depends on the whole prompt."""

    def act(messages: Any) -> str:
        return REPLIES[sum(len(m.text) for m in messages) % len(REPLIES)]

    return ScriptedModel(act, renderer=renderer())


def played(plan: list[tuple[str, str, int]]) -> list[list[int | tuple[str, str]]]:
    """Prompts as lists of messages; a number stands for the reply to that prompt."""
    prompts: list[list[int | tuple[str, str]]] = [[("system", "s"), ("user", "start")]]
    for move, words, number in plan:
        last = list(prompts[-1])
        match move:
            case "append":
                last += [len(prompts) - 1, ("user", words)]
            case "edit":
                last[1] = ("user", words + str(number))
            case "system":
                last[0] = ("system", words)
            case "back":
                last = last[:2]
            case "fork":
                last = [*prompts[number % len(prompts)], ("user", words)]
        prompts.append(last)
    return prompts


@settings(max_examples=15)
@given(moves)
def test_a_conversation_through_the_gateway_is_the_graph_of_the_same_one_in_process(
    plan: list[tuple[str, str, int]],
) -> None:
    prompts = played(plan)

    async def through() -> list[Any]:
        given: list[Any] = []
        session = Session(KEY, TASK, Stairs(), Acting(), {"agent": model()}, sampling=SAMPLING)
        transport = httpx.ASGITransport(application(Alone(SessionEndpoint("id", "token", session))))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://x/sessions/id"
        ) as client:
            for prompt in prompts:
                shown = [
                    given[m] if isinstance(m, int) else {"role": m[0], "content": m[1]}
                    for m in prompt
                ]
                body = {"model": "m", "messages": shown, "tools": [TOOL]}
                answer = await client.post("/v1/chat/completions", json=body)
                given.append(answer.raise_for_status().json()["choices"][0]["message"])
        return session.graph.calls

    async def direct(systems: list[str]) -> list[Any]:
        session = Session(KEY, TASK, Stairs(), Acting(), {"agent": model()}, sampling=SAMPLING)
        texts: list[str] = []
        for prompt, shown in zip(prompts, systems, strict=True):
            messages = [
                assistant(texts[m]) if isinstance(m, int) else text_message(m[0], m[1])  # type: ignore[arg-type]
                for m in prompt
            ]
            messages[0] = system(shown)
            texts.append((await session.generate(messages)).text)
        return session.graph.calls

    ours = asyncio.run(through())
    heads = [_root(ours, call).messages[0].text for call in ours]
    theirs = asyncio.run(direct(heads))
    essence = [(c.parent, c.messages, c.prompt, c.reply, c.completion, c.logprobs) for c in ours]
    assert essence == [
        (c.parent, c.messages, c.prompt, c.reply, c.completion, c.logprobs) for c in theirs
    ]


def _root(calls: list[Any], call: Any) -> Any:
    while call.parent is not None:
        call = calls[call.parent]
    return call


def test_an_append_only_history_continues_and_an_edited_one_begins_a_branch() -> None:
    async def run() -> None:
        async with visit(ScriptedModel([f" Well. {CALL} \n"] * 4, renderer=renderer())) as visited:
            talk: list[Any] = [{"role": "user", "content": "start"}]
            first = (await visited.chat(talk, tools=[TOOL])).json()
            assert first["palaestra"]["branch"] == "begins"
            message = first["choices"][0]["message"]
            called = message["tool_calls"][0]
            called["function"]["arguments"] = '{ "action" :"up"}'  # as another JSON library writes
            talk += [message, {"role": "tool", "tool_call_id": called["id"], "content": "seen"}]
            second = (await visited.chat(talk, tools=[TOOL])).json()
            assert second["palaestra"] | {"call": 1, "parent": 0} == second["palaestra"]
            talk[0] = {"role": "user", "content": "compacted"}
            third = (await visited.chat(talk, tools=[TOOL])).json()
            assert third["palaestra"]["branch"] == "begins"
            graph = visited.session.graph
            reply = graph.calls[0]
            assert graph.tokens(1)[: len(reply.prompt + reply.completion)] == [
                *reply.prompt,
                *reply.completion,
            ]
            assert graph.calls[1].messages == (
                text_message("tool", "<tool_response>\nseen\n</tool_response>"),
            )
            assert len(list(graph.branches())) == 2

    asyncio.run(run())


def test_an_interrupted_session_resumes_after_the_same_requests() -> None:
    async def run() -> None:
        start = [{"role": "user", "content": "start"}]
        async with visit(ScriptedModel(["up"], renderer=renderer())) as visited:
            first = (await visited.chat(start)).json()
            await visited.post("/world/step", {"action": "up"})
            past = [*visited.session.graph.calls, *visited.session.steps]
        silent = ScriptedModel([], renderer=renderer())  # has no reply of its own
        async with visit(silent, past=past) as again:
            assert (await again.chat(start)).json()["choices"] == first["choices"]
            step = (await again.post("/world/step", {"action": "up"})).json()
            assert step["observation"] == "You are on step 1 of 3."

    asyncio.run(run())
