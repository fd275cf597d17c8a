"""Agents that are external programs: started for each episode, or connecting from elsewhere.

Such a program acts only through the gateway, so it is evaluated and trained by the same code as an
agent in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault, InputError, MissingPackage
from palaestra.core.message import ToolCall
from palaestra.core.model import Prompt
from palaestra.core.session import Session
from palaestra.core.tool import ACT
from palaestra.gateway import hermes_tags
from palaestra.gateway.mcp_endpoint import look
from palaestra.gateway.program_process import Program, parsed
from palaestra.gateway.sandboxed_program import SandboxedProgram, SandboxOptions, check_sandbox
from palaestra.gateway.session_endpoint import SessionEndpoint
from palaestra.models.renderers.tool_text import written

if TYPE_CHECKING:
    from palaestra.gateway.gateway import Gateway

GRACE = 5.0  # seconds for a program to exit after its episode has ended
CLOSING = 2.0  # seconds in which an external program may send requests after the end
LONGEST = 100_000  # characters of a task in a program's environment
MODEL = "palaestra"  # the model's name for programs; any other name is accepted too


class GatewayAgent(Agent):
    """A program that reaches its session through the gateway."""

    sees = True  # MCP and plain JSON carry images
    any_role = True  # the name of the model that it asks for tells

    def __init__(self, gateway: Gateway) -> None:
        """Connect through that gateway."""
        self._gateway = gateway

    async def run(self, session: Session) -> None:
        async with self._gateway.opened(session) as (endpoint, address):
            try:
                await self.serve(endpoint, address)
            except AgentFault:
                endpoint.conclude()  # an earlier fault takes precedence over the program's crash
                raise
        endpoint.conclude()

    @abstractmethod
    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        """Let the program act until the program or the episode has ended."""

    def demonstrate(self, prompt: Prompt, actions: Sequence[Action]) -> str:
        """Return the next action: a call if the program offers a tool for it, else text."""
        first = prompt.messages[0] if prompt.messages else None
        text = first.text if first is not None and first.role == "system" else ""
        tools = {tool.name for tool in prompt.tools or hermes_tags.offered(text)}
        call = actions[0].call or ToolCall(ACT.name, {"action": actions[0].text})
        name = _named(call.name, tools)
        if name is None:
            return self.phrase(actions[0])
        return written(ToolCall(name, call.arguments))


class CommandAgent(GatewayAgent):
    """A command that is started for each episode, such as `python my_agent.py`.

    Environment variables give it access to the model and the environment: OPENAI_BASE_URL,
    OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, PALAESTRA_MCP_URL, PALAESTRA_WORLD_URL,
    PALAESTRA_APPS_URL, PALAESTRA_TOKEN, PALAESTRA_MODEL and PALAESTRA_TASK (instructions and first
    observation).
    """

    name = "command"

    def __init__(
        self,
        *,
        line: str,
        seconds: Annotated[float, Field(gt=0)] = 600.0,
        sandbox: str | None = None,
        mounts: str = "",
        limits: str = "",
        rewards: bool = True,
    ) -> None:
        """Run the command `line`; it is killed after `seconds`, which is the agent's error.

        Without a `sandbox` it is a plain process with the user's rights. In one, it can only reach
        the gateway, and sees its own files and the `mounts`, separated by `:`; `limits` overrides
        default limits, such as `memory=1000000000,processes=9`. Without `rewards` it does not see
        rewards and outcomes. In the name of an agent, `&` and `%` are escaped as `%26` and `%25`,
        as `name_of` does.
        """
        super().__init__(_gateway(rewards=rewards))
        self._argv, self._seconds = parsed(unquote(line)), seconds
        self._sandbox: SandboxOptions | None = None
        if sandbox is not None:
            self._sandbox = SandboxOptions(sandbox, _split(mounts, os.pathsep), _split(limits, ","))
            check_sandbox(self._sandbox, self._argv)
        elif mounts or limits:
            raise InputError("Mounts and limits need a sandbox; name the agent's sandbox as well.")

    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        code: int | None = None
        async with self._program(variables(endpoint, address)) as program:
            ended = asyncio.ensure_future(program.ended())
            over = asyncio.ensure_future(endpoint.ended.wait())
            try:
                await asyncio.wait(
                    {ended, over}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if over.done():
                    await asyncio.wait({ended}, timeout=GRACE)
                code = ended.result() if ended.done() else None
            finally:
                ended.cancel()
                over.cancel()
        if endpoint.ended.is_set() or endpoint.session.over:
            return
        if code is None:
            raise AgentFault("hang", f"the program did not end in {self._seconds:g} seconds")
        if code != 0:
            raise AgentFault("crash", f"exit code {code}: {program.output_tail}")

    def _program(self, given: Mapping[str, str]) -> Program | SandboxedProgram:
        if self._sandbox is None:
            return Program(self._argv, given)
        return SandboxedProgram(self._argv, given, self._sandbox, self._seconds)


class OutsideAgent(GatewayAgent):
    """Any program that connects to the printed addresses, one JSON line for each session."""

    name = "outside"

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: Annotated[int, Field(ge=0, le=65535)] = 0,
        public: str = "",
        rewards: bool = True,
    ) -> None:
        """Listen at that address; port 0 is any free port.

        If `public` is given, it is printed as the address, for use with a proxy. A program's
        temperature is used. Without `rewards` it does not see rewards and outcomes.
        """
        address = unquote(public) or None
        if address is not None and not urlsplit(address).netloc:
            raise InputError(
                f"'{address}' is not an address; write https://HOST or http://HOST:PORT."
            )
        super().__init__(_gateway(host, port, temperature=True, rewards=rewards, public=address))

    async def serve(self, endpoint: SessionEndpoint, address: str) -> None:
        session = endpoint.session
        about = {"session": endpoint.id, "episode": str(session.key), "task": session.task.id}
        given = {name.lower(): value for name, value in variables(endpoint, address).items()}
        print(json.dumps({**about, **given}), flush=True)
        await endpoint.ended.wait()
        if (
            endpoint.session.over and endpoint.session.graph.calls
        ):  # a tool loop sends one more request
            await asyncio.sleep(CLOSING)


def variables(endpoint: SessionEndpoint, address: str) -> dict[str, str]:
    """Return a program's environment variables: its session's addresses and its task."""
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": endpoint.token,
        "ANTHROPIC_BASE_URL": f"{address}/anthropic",
        "ANTHROPIC_API_KEY": endpoint.token,
        "PALAESTRA_MCP_URL": f"{address}/mcp",
        "PALAESTRA_WORLD_URL": f"{address}/world",
        "PALAESTRA_APPS_URL": f"{address}/apps",
        "PALAESTRA_TOKEN": endpoint.token,
        "PALAESTRA_MODEL": MODEL,
        "PALAESTRA_TASK": look(endpoint.session)[:LONGEST],
    }


def name_of(
    command: str,
    sandbox: str | None = None,
    mounts: Sequence[str] = (),
    limits: Sequence[str] = (),
    *,
    rewards: bool = True,
) -> str:
    """Return the agent name of a command, with a sandbox if one is given."""
    options = {
        "line": command,
        "sandbox": sandbox or "",
        "mounts": os.pathsep.join(mounts),
        "limits": ",".join(limits),
        "rewards": "" if rewards else "false",
    }
    written = [
        f"{name}={quote(value, safe=_UNESCAPED)}" for name, value in options.items() if value
    ]
    return f"{CommandAgent.name}?{'&'.join(written)}"


_UNESCAPED = "".join(chr(c) for c in range(32, 127) if chr(c) not in "%&")


def _split(text: str, between: str) -> tuple[str, ...]:
    return tuple(part for part in unquote(text).split(between) if part)


def _named(name: str, tools: Collection[str]) -> str | None:
    """Return the tool of that name; frameworks may prefix the server's name."""
    if name in tools:
        return name
    return next((full for full in tools if full.endswith(f"_{name}")), None)


def _gateway(host: str = "127.0.0.1", port: int = 0, **options: Any) -> Gateway:
    """Create a gateway; raises MissingPackage if its packages are not installed."""
    try:
        from palaestra.gateway.gateway import Gateway
    except ImportError as error:
        raise MissingPackage(
            f"The gateway needs the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[serving]'."
        ) from error
    return Gateway(host, port, **options)
