"""The agent's seat in a verifiers rollout: a harness for chat and tool calls.

It runs in this process instead of as a program, with the loop of verifiers' own `null` harness: ask
the model, call the tools that it names, and end at a reply without tool calls.
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from openai.types.chat import ChatCompletion
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.compaction import bound_tool_message
from verifiers.v1.harnesses.utils.core import gate_tool_call
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

SEAT = "palaestra_seat"  # verifiers finds a harness by the name of a top-level module

__all__ = ["Seat"]


class SeatConfig(vf.HarnessConfig):  # type: ignore[misc]
    """The settings that every harness has."""

    id: str = SEAT


class Seat(vf.Harness[SeatConfig]):  # type: ignore[misc]
    """A harness with chat and tools, run in this process."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    SUPPORTS_TOOL_INTERCEPTION = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace[Any, Any, Any],
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        tool_interception_url: str | None = None,
    ) -> vf.ProgramResult:
        """Chat until a reply calls no tool or the rollout is stopped."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
            spec = {
                name: {"url": url, "timeout": self.config.tool_timeout}
                for name, url in mcp_urls.items()
            }
            tools, dispatch, servers = await connect_mcp({"mcpServers": spec}, stack)
            while True:
                body = {"model": ctx.model, "messages": messages}
                answer = await client.post(
                    f"{endpoint}/chat/completions",
                    headers={"Authorization": f"Bearer {secret}"},
                    json={**body, "tools": tools} if tools else body,
                )
                if answer.status_code != 200:  # stopped or failed; the trace has the reason
                    return vf.ProgramResult(1, "", answer.text)
                message = ChatCompletion.model_validate(answer.json()).choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return vf.ProgramResult(0, "", "")
                for call in message.tool_calls:
                    if tool_interception_url:
                        verdict = await gate_tool_call(client, tool_interception_url, secret, call)
                        if verdict["action"] == "deny":
                            messages.append(bound_tool_message(verdict["message"]))
                            continue
                    assert call.type == "function"  # we send no other
                    name = call.function.name
                    given = json.loads(call.function.arguments)
                    output = {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "content": await call_mcp(servers, dispatch, name, given),
                        "name": name,
                    }
                    messages.append(bound_tool_message(output))


sys.modules[SEAT] = sys.modules[__name__]
