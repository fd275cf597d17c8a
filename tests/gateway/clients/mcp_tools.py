import asyncio
import os

import mcp


async def main() -> None:
    url = os.environ["PALAESTRA_MCP_URL"] + "?token=" + os.environ["PALAESTRA_TOKEN"]
    async with mcp.Client(url) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["act", "look"]
        over = False
        while not over:
            result = await client.call_tool("act", {"action": "up"})
            over = (result.meta or {})["palaestra/over"]


asyncio.run(main())
