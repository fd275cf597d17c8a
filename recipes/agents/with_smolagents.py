"""An agent of smolagents: its tool-calling loop, with the tools of an MCP server.

Needs: pip install 'smolagents[openai,mcp]' 'mcp<2' websockets
"""

import os

from smolagents import MCPClient, OpenAIModel, ToolCallingAgent

SYSTEM = "You act in a world by calling its tools, one after the other, until the task is done."

model = OpenAIModel(
    model_id=os.environ["PALAESTRA_MODEL"],
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
server = {
    "url": os.environ["PALAESTRA_MCP_URL"],
    "transport": "streamable-http",
    "headers": {"Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}"},
}
with MCPClient(server, structured_output=False) as tools:
    agent = ToolCallingAgent(tools=tools, model=model, max_steps=12)
    agent.prompt_templates["system_prompt"] = SYSTEM  # its own takes some 1,500 tokens
    agent.run(os.environ["PALAESTRA_TASK"])
