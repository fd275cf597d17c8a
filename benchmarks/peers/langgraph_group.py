"""LangGraph: agents that hand over to one another in turn, with a scripted chat model (in memory).

Each agent is a node over `MessagesState` that asks its model with all messages so far, and names
the next agent by a `Command`: the network of agents in LangGraph's documentation.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

SAYS = "I looked to the left, and there is nothing."


def group(members: int, messages: int) -> Any:
    """Return a graph of members that send so many messages."""
    builder = StateGraph(MessagesState)
    for number in range(members):
        model, after = FakeListChatModel(responses=[SAYS]), f"m{(number + 1) % members}"

        async def speak(
            state: MessagesState, model: FakeListChatModel = model, after: str = after
        ) -> Command[str]:
            reply = await model.ainvoke(state["messages"])
            over = len(state["messages"]) == messages  # the task counts as one
            return Command(goto=END if over else after, update={"messages": [reply]})

        builder.add_node(f"m{number}", speak, destinations=(after, END))
    builder.add_edge(START, "m0")
    return builder.compile()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Let `members` send `messages`; the seconds of processor time that this took."""
    members, messages = request["members"], request["messages"]
    task = {"messages": [{"role": "user", "content": "Go on."}]}
    started = time.process_time()
    graph = group(members, messages)
    ended = asyncio.run(graph.ainvoke(task, {"recursion_limit": messages + 5}))
    seconds = time.process_time() - started
    assert len(ended["messages"]) == messages + 1, len(ended["messages"])
    return {"seconds": seconds}
