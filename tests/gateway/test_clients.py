"""Foreign clients, each as it is, live episodes whose every token is what it is in process.

Their scripts are in `clients`, and read nothing but what any program is told. What is installed by
`scripts/check_clients.sh` is driven, the rest skipped; the script selects clients by the ids of the
test.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode
from palaestra.core.message import Message, ToolCall
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.core.session import Session
from palaestra.gateway import hermes_tags
from palaestra.gateway.program_agents import CommandAgent
from palaestra.models.renderers.tool_text import written
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import KEY, TASK, Stairs, renderer

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "clients"
INSTALLED = ROOT / ".peers" / "clients"
SAMPLING = Sampling(1.0, 400)


@dataclass(frozen=True)
class Client:
    """A script, and the packages that it needs."""

    script: str
    place: str  # its environment in `INSTALLED`; of Node's clients all have one
    package: str

    @property
    def command(self) -> list[str]:
        """How it is run; skips the test where the client is not installed."""
        own = INSTALLED / self.place
        if self.script.endswith(".mjs"):
            if not (own / "node_modules" / self.package).is_dir() or not shutil.which("node"):
                pytest.skip(f"{self.package} is not installed: scripts/check_clients.sh node")
            for script in SCRIPTS.glob("*.mjs"):  # Node looks for packages where the script is
                shutil.copy(script, own)
            return ["node", str(own / self.script)]
        python = own / "bin" / "python"
        found = str(python) if python.exists() else sys.executable
        tried = subprocess.run(
            [found, "-c", f"from importlib.util import find_spec as f; f('{self.package}').loader"],
            stderr=subprocess.DEVNULL,
        )
        if tried.returncode:
            pytest.skip(f"{self.package} is not installed: scripts/check_clients.sh {self.place}")
        return [found, str(SCRIPTS / self.script)]


CLIENTS = [
    Client("openai_chat.py", "openai", "openai"),
    Client("openai_responses.py", "openai", "openai"),
    Client("openai_completions.py", "openai", "openai"),
    Client("anthropic_messages.py", "anthropic", "anthropic"),
    Client("mcp_tools.py", "mcp", "mcp"),
    Client("litellm_chat.py", "litellm", "litellm"),
    Client("langchain_chat.py", "langchain", "langchain_openai"),
    Client("pydantic_ai_chat.py", "pydantic_ai", "pydantic_ai"),
    Client("pydantic_ai_responses.py", "pydantic_ai", "pydantic_ai"),
    Client("openai_agents.py", "openai_agents", "agents"),
    Client("smolagents_tools.py", "smolagents", "smolagents"),
    Client("instructor_chat.py", "instructor", "instructor"),
    Client("dspy_predict.py", "dspy", "dspy"),
    Client("llama_index_chat.py", "llama_index", "llama_index"),
    Client("autogen_agent.py", "autogen", "autogen_agentchat"),
    Client("agno_agent.py", "agno", "agno"),
    Client("strands_agent.py", "strands", "strands"),
    Client("semantic_kernel_agent.py", "semantic_kernel", "semantic_kernel"),
    Client("google_adk_agent.py", "google_adk", "google.adk"),
    Client("openai_node.mjs", "node", "openai"),
    Client("anthropic_node.mjs", "node", "@anthropic-ai/sdk"),
    Client("ai_sdk.mjs", "node", "@ai-sdk/openai"),
    Client("ai_sdk_anthropic.mjs", "node", "@ai-sdk/anthropic"),
    Client("openai_agents_node.mjs", "node", "@openai/agents"),
    Client("langchain_node.mjs", "node", "@langchain/openai"),
    Client("codex.mjs", "node", "@openai/codex"),  # with tools of namespaces, and hosted ones
]


TEAMS = [
    Client("autogen_team.py", "autogen", "autogen_agentchat"),
    Client("autogen_magentic_one.py", "autogen", "autogen_agentchat"),
    Client("openai_agents_team.py", "openai_agents", "agents"),
    Client("camel_workforce.py", "camel", "camel"),
    Client("langgraph_supervisor_team.py", "langgraph", "langgraph_supervisor"),
]
"""Frameworks whose agents name their roles in the names of their models."""


LEDGER = {
    "is_request_satisfied": {"reason": "", "answer": False},
    "is_in_loop": {"reason": "", "answer": False},
    "is_progress_being_made": {"reason": "", "answer": True},
    "next_speaker": {"reason": "", "answer": "worker"},
    "instruction_or_question": {"reason": "", "answer": "Go on."},
}


class Climbing(ScriptedModel):
    """Goes up, in the prompt's format; its log-probabilities depend on its seed."""

    def __init__(self) -> None:
        super().__init__(_up, renderer=renderer(), name="climbing")

    async def generate(self, prompt: Prompt) -> Generation:
        found = await super().generate(prompt)
        rng = random.Random(prompt.seed)
        return replace(found, logprobs=tuple(-rng.random() for _ in found.tokens))


def _up(messages: Sequence[Message]) -> str:
    shown = "\n".join(message.text for message in messages if message.role == "system")
    for tool in hermes_tags.offered(shown):
        if "action" in tool.parameters.get("properties", {}):
            return f"Going up.\n{written(ToolCall(tool.name, {'action': 'up'}))}"
        if tool.name.startswith("transfer_to_"):  # of a LangGraph supervisor
            return written(ToolCall(tool.name, {}))
    asked = messages[-1].text
    if "<tasks>" in asked:  # CAMEL's task planner
        return "<tasks><task>Go up until it is over.</task></tasks>"
    if "assignee_id" in asked:  # CAMEL's coordinator
        tasks, workers = (
            re.findall(r"Task ID: (\S+)", asked),
            re.findall(r"^<(\S+?)>:", asked, re.M),
        )
        jobs = [{"task_id": one, "assignee_id": workers[0], "dependencies": []} for one in tasks]
        return json.dumps({"assignments": jobs})
    if "is_request_satisfied" in asked:  # Magentic-One's inner ledger
        return json.dumps(LEDGER)
    if "[[ ## action ## ]]" in shown:  # how dspy has it written
        return "[[ ## action ## ]]\nup\n\n[[ ## completed ## ]]"
    return "up"


class InProcess(Agent):
    """Repeats the actions of a recorded episode without a gateway."""

    name = "command"
    any_role = True

    def __init__(self, episode: Episode) -> None:
        self.episode = episode

    async def run(self, session: Session) -> None:
        steps = list(self.episode.steps)
        for call in (None, *self.episode.calls):
            reply = None
            if call is not None:
                reply = await session.generate(list(self._prompt(call.index)), role=call.role)
            while steps and steps[0].call == (None if call is None else call.index):
                await session.act(steps.pop(0).action, by=reply)

    def _prompt(self, index: int) -> Iterator[Message]:
        call = self.episode.calls[index]
        if call.parent is not None:
            yield from self._prompt(call.parent)
            yield self.episode.calls[call.parent].reply
        yield from call.messages


def roll_out(agent: Agent) -> Episode:
    models = {"agent": Climbing()}
    budget = Budget(tokens=8000)
    session = Session(KEY, TASK, Stairs(), agent, models, budget=budget, sampling=SAMPLING)
    return asyncio.run(session.run())


def essence(episode: Episode) -> Any:
    calls = [replace(call, seconds=0.0) for call in episode.calls]
    steps = [(step.index, step.call, step.action, step.transition) for step in episode.steps]
    return calls, steps, episode.outcome


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client.place}-{client.script}")
def test_a_foreign_client_leaves_the_record_of_the_same_episode_in_process(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    line = " ".join(client.command)
    through = roll_out(CommandAgent(line=line, seconds=120.0))
    assert through.outcome.solved, through.outcome.detail
    assert len(through.steps) == 3
    assert len(through.calls) >= (0 if client.place == "mcp" else 3)
    assert all(call.completion and call.logprobs for call in through.calls)
    assert essence(through) == essence(roll_out(InProcess(through)))


@pytest.mark.slow
@pytest.mark.parametrize("client", TEAMS, ids=lambda client: f"{client.place}-{client.script}")
def test_the_roles_of_a_foreign_team_are_recorded_and_its_answers_are_those_of_a_direct_run(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    through = roll_out(CommandAgent(line=" ".join(client.command), seconds=120.0))
    assert through.outcome.solved, through.outcome.detail
    assert {call.role for call in through.calls} == {"planner", "worker"}
    for step in through.steps:
        assert step.call is not None and through.calls[step.call].role == "worker"
    assert all(call.completion and call.logprobs for call in through.calls)
    assert essence(through) == essence(roll_out(InProcess(through)))
