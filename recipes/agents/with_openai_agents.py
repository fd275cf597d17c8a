"""An agent of the OpenAI Agents SDK, by the responses API, with the tools of an MCP server.

Needs: pip install openai-agents
"""

import asyncio
import os

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp

SYSTEM = "You act in a world by calling its tools, one after the other, until the task is done."


async def main() -> None:
    set_tracing_disabled(True)
    server = {
        "url": os.environ["PALAESTRA_MCP_URL"],
        "headers": {"Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}"},
    }
    async with MCPServerStreamableHttp(params=server) as world:
        agent = Agent(
            name="player",
            instructions=SYSTEM,
            model=os.environ["PALAESTRA_MODEL"],
            mcp_servers=[world],
        )
        await Runner.run(agent, os.environ["PALAESTRA_TASK"], max_turns=12)


asyncio.run(main())
