"""An agent of pydantic-ai, by Anthropic's API, with the tools of an MCP server.

Needs: pip install 'pydantic-ai-slim[anthropic,mcp]'
"""

import os

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.anthropic import AnthropicModel

SYSTEM = "You act in a world by calling its tools, one after the other, until the task is done."

world = MCPToolset(
    os.environ["PALAESTRA_MCP_URL"],
    headers={"Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}"},
)
model = AnthropicModel(os.environ["PALAESTRA_MODEL"])  # reads ANTHROPIC_BASE_URL and _API_KEY
agent = Agent(model, instructions=SYSTEM, toolsets=[world])
agent.run_sync(os.environ["PALAESTRA_TASK"])
