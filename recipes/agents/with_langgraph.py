"""A graph of LangGraph: its prebuilt ReAct agent, with the tools of an MCP server.

Needs: pip install langgraph langchain-openai langchain-mcp-adapters
"""

import asyncio
import os

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

SYSTEM = "You act in a world by calling its tools, one after the other, until the task is done."


async def main() -> None:
    server = {
        "transport": "streamable_http",
        "url": os.environ["PALAESTRA_MCP_URL"],
        "headers": {"Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}"},
    }
    tools = await MultiServerMCPClient({"world": server}).get_tools()
    model = ChatOpenAI(model=os.environ["PALAESTRA_MODEL"])  # reads OPENAI_BASE_URL and _API_KEY
    agent = create_react_agent(model, tools, prompt=SYSTEM)
    task = {"messages": [("user", os.environ["PALAESTRA_TASK"])]}
    await agent.ainvoke(task, {"recursion_limit": 25})


asyncio.run(main())
