"""Agents that are programs outside palaestra: started for each episode, or come from elsewhere.

Whatever such a program does, it does through the gateway; so it is evaluated and trained as an
agent in this process is, by the same code.
"""

from __future__ import annotations

import asyncio
import json
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault, InputError, MissingPackage
from palaestra.core.message import Message, ToolCall
from palaestra.core.session import Session
from palaestra.core.tool import ACT, Tool
from palaestra.rollout.gateway import hermes
from palaestra.rollout.gateway.door import Door
from palaestra.rollout.gateway.mcp_tools import look
from palaestra.rollout.gateway.program import Program, parsed
from palaestra.rollout.gateway.walled import WalledProgram, Walls, check

if TYPE_CHECKING:
    from palaestra.rollout.gateway.gateway import Gateway

GRACE = 5.0  # seconds that a program has to end after its episode has
CLOSING = 2.0  # seconds in which a program from elsewhere may still ask after the end
LONGEST = 100_000  # characters of a task in a program's environment
MODEL = "palaestra"  # what programs may call the model; any other name is taken too


class GatewayAgent(Agent):
    """A program that reaches its session through the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        """Reached through that gateway."""
        self._gateway = gateway

    async def run(self, session: Session) -> None:
        async with self._gateway.opened(session) as (door, address):
            try:
                await self.serve(door, address)
            except AgentFault:
                door.conclude()  # a program that crashed over it is not to blame
                raise
        door.conclude()

    @abstractmethod
    async def serve(self, door: Door, address: str) -> None:
        """Let the program act, until it or the episode has ended."""

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """The next action: as a call where the program told of tools that do it, else in words."""
        told = messages[0].content if messages and messages[0].role == "system" else ""
        tools = {tool.name: tool for tool in hermes.heard(told)}
        call = actions[0].call or ToolCall(ACT.name, {"action": actions[0].text})
        name = _named(call.name, tools)
        if name is None:
            return self.phrase(actions[0])
        return hermes.written(ToolCall(name, call.arguments))


class CommandAgent(GatewayAgent):
    """A command that is started for each episode, such as `python my_agent.py`.

    Where the model and the world are is told in its environment: OPENAI_BASE_URL, OPENAI_API_KEY,
    ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, PALAESTRA_MCP_URL, PALAESTRA_WORLD_URL, PALAESTRA_TOKEN,
    PALAESTRA_MODEL and PALAESTRA_TASK (how the world explains itself, and the first observation).
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
    ) -> None:
        """With `line`, the command; it is ended after so many `seconds`, as its own fault.

        Without a `sandbox` it is a plain process with the rights of whoever starts it. In one, it
        reaches the gateway only, and sees its own files and the `mounts`, which have `:` between
        them; of its `limits`, the given ones are changed, such as `memory=1000000000,processes=9`.
        `&` and `%` are written `%26` and `%25` in the name of an agent, as `name_of` does.
        """
        super().__init__(_gateway())
        self._words, self._seconds = parsed(unquote(line)), seconds
        self._walls: Walls | None = None
        if sandbox is not None:
            self._walls = Walls(sandbox, _split(mounts, os.pathsep), _split(limits, ","))
            check(self._walls, self._words)
        elif mounts or limits:
            raise InputError("Mounts and limits are a sandbox's: name the agent's sandbox as well.")

    async def serve(self, door: Door, address: str) -> None:
        code: int | None = None
        async with self._program(variables(door, address)) as program:
            ended = asyncio.ensure_future(program.ended())
            over = asyncio.ensure_future(door.ended.wait())
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
        if door.ended.is_set() or door.session.over:
            return
        if code is None:
            raise AgentFault("hang", f"the program did not end in {self._seconds:g} seconds")
        if code != 0:
            raise AgentFault("crash", f"exit code {code}: {program.last_words}")

    def _program(self, told: Mapping[str, str]) -> Program | WalledProgram:
        if self._walls is None:
            return Program(self._words, told)
        return WalledProgram(self._words, told, self._walls, self._seconds)


class OutsideAgent(GatewayAgent):
    """Any program that comes to the addresses that are printed, one JSON line for each session."""

    name = "outside"

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: Annotated[int, Field(ge=0, le=65535)] = 0,
    ) -> None:
        """Reached at that address; port 0 is any free one.

        The temperature that a program asks for is taken.
        """
        super().__init__(_gateway(host, port, temperature=True))

    async def serve(self, door: Door, address: str) -> None:
        session = door.session
        about = {"session": door.id, "episode": str(session.key), "task": session.task.id}
        told = {name.lower(): value for name, value in variables(door, address).items()}
        print(json.dumps({**about, **told}), flush=True)
        await door.ended.wait()
        if door.session.over and door.session.graph.calls:  # a tool loop asks once more
            await asyncio.sleep(CLOSING)


def variables(door: Door, address: str) -> dict[str, str]:
    """What a program is told of its session."""
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": door.token,
        "ANTHROPIC_BASE_URL": f"{address}/anthropic",
        "ANTHROPIC_API_KEY": door.token,
        "PALAESTRA_MCP_URL": f"{address}/mcp",
        "PALAESTRA_WORLD_URL": f"{address}/world",
        "PALAESTRA_TOKEN": door.token,
        "PALAESTRA_MODEL": MODEL,
        "PALAESTRA_TASK": look(door.session)[:LONGEST],
    }


def name_of(
    command: str,
    sandbox: str | None = None,
    mounts: Sequence[str] = (),
    limits: Sequence[str] = (),
) -> str:
    """The agent's name that stands for a command, in a sandbox where one is named."""
    options = {
        "line": command,
        "sandbox": sandbox or "",
        "mounts": os.pathsep.join(mounts),
        "limits": ",".join(limits),
    }
    told = [f"{name}={quote(value, safe=_PLAIN)}" for name, value in options.items() if value]
    return f"{CommandAgent.name}?{'&'.join(told)}"


_PLAIN = "".join(chr(c) for c in range(32, 127) if chr(c) not in "%&")


def _split(text: str, between: str) -> tuple[str, ...]:
    return tuple(part for part in unquote(text).split(between) if part)


def _named(name: str, tools: dict[str, Tool]) -> str | None:
    """The tool of that name; frameworks may put the server's before it."""
    if name in tools:
        return name
    return next((full for full in tools if full.endswith(f"_{name}")), None)


def _gateway(host: str = "127.0.0.1", port: int = 0, *, temperature: bool = False) -> Gateway:
    """A gateway there; raises MissingPackage without what it is made of."""
    try:
        from palaestra.rollout.gateway.gateway import Gateway
    except ImportError as error:
        raise MissingPackage(
            f"The gateway needs the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[serving]'."
        ) from error
    return Gateway(host, port, temperature=temperature)
