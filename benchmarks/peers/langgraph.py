"""LangGraph: a graph of two nodes, model and tool, over the conversation (in memory).

The conversation is joined with `operator.add`, which is faster than `MessagesState`.
"""

from __future__ import annotations

import asyncio
import operator
import time
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph


class Conversation(TypedDict):
    messages: Annotated[list[Any], operator.add]


async def call_model(state: Conversation) -> dict[str, Any]:
    call = {"name": "tick", "args": {}, "id": str(len(state["messages"]))}
    return {"messages": [AIMessage(content="", tool_calls=[call])]}


async def call_tool(state: Conversation) -> dict[str, Any]:
    (call,) = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage(content="ok", tool_call_id=call["id"])]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` graphs of `turns` turns; the seconds that this took."""
    sessions, turns = request["sessions"], request["turns"]

    def go_on(state: Conversation) -> str:
        return END if len(state["messages"]) > 2 * turns else "model"

    builder = StateGraph(Conversation)
    builder.add_node("model", call_model)
    builder.add_node("tool", call_tool)
    builder.add_edge(START, "model")
    builder.add_edge("model", "tool")
    builder.add_conditional_edges("tool", go_on, ["model", END])
    graph = builder.compile()

    async def live() -> int:
        question = {"messages": [HumanMessage("Go on.")]}
        ended = await graph.ainvoke(question, {"recursion_limit": 2 * turns + 5})
        return len(ended["messages"])

    async def all_sessions() -> list[int]:
        return await asyncio.gather(*(live() for _ in range(sessions)))

    started = time.perf_counter()
    lived = asyncio.run(all_sessions())
    seconds = time.perf_counter() - started
    assert lived == [2 * turns + 1] * sessions
    return {"seconds": seconds}
