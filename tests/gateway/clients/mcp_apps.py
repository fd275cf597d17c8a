import asyncio
import json
import os
import sys

import mcp


async def main() -> None:
    url = os.environ["PALAESTRA_MCP_URL"] + "?token=" + os.environ["PALAESTRA_TOKEN"]
    async with mcp.Client(url) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        with open(sys.argv[1]) as file:
            calls = json.load(file)
        for name, arguments in calls:
            assert name in tools
            result = await client.call_tool(name, arguments)
            assert not result.is_error
        assert (result.meta or {})["palaestra/over"]


asyncio.run(main())
