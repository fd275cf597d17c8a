"""Laws of every registered agent, for any replies of its model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palaestra.agents.registry import AGENTS, make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Environment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import assistant
from palaestra.core.model import Generation, Model, Prompt, Sampling
from palaestra.core.outcome import Limit, Owner, Status
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.environments import registry
from palaestra.environments.authoring import tool
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import given_generation
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.environments.test_authoring import Counter

HERE = Path(__file__).parent
NEEDED = {  # options without which there is none
    "beliefs": "beliefs?partner=robot2",
    "examples": f"examples?rows={HERE}/one_row.jsonl",
    "procedure": f"procedure?file={HERE}/free.toml",
    "recon": f"recon?library={HERE}/no_functions.jsonl",
}
NAMES = [
    NEEDED.get(name, name)
    for name, target in sorted(AGENTS.items())
    if target.startswith("palaestra.agents.")
    and ".team_tools." not in target  # they act in no environment
    # foreign programs have tests of their own
]
WORDS_ONLY = {
    "ltl": "it holds replies to listed actions, which calls with arguments are not",
    "mcts": "it searches among listed actions, which calls with arguments are not",
}
SILENT = {"mcts"}  # a search by playouts asks no model without other players
BUDGET = Budget(turns=5, invalid_actions=3, seconds=30.0)
PATIENCE = 600  # calls of a model: an agent that asks more often for five actions asks for ever
TEXTS = ["probe/memory-4", "go left or right", "Action: one word\nReached: yes", "1. left"]
RENDERER = ChatMLRenderer(learn_vocabulary(TEXTS * 3, 320), "tiny")
NETWORK = tiny_network(
    RENDERER.tokenizer.get_vocab_size(), layers=1, width=32, heads=4, context=4096, seed=0
)
POLICY = ResidentModel("policy", NETWORK, RENDERER, context=4096)

WORDS = [
    "", " ", "left", "right", "up", "What?", "add(by=1)", "Action: left", "Action:", "1. left",
    "2) right", "- left", "Step 3: up", "Reached: yes", "Reached: no", "Replan", "Atomic",
    "[act] x", "[think] y", "Branch: z", "Prune: 0", "Prune: 99999", "Note: it is so", "yes", "no",
    "No problem", "Thought: hm", "Score: 7", "<tool_call>", "</tool_call>", '{"name": 3}',
    '{"name": "add", "arguments": {"by": 1}}', "```python", "print(1)", "```", "<|im_end|>", "7",
    "-1", "1e9", "\x00", "{", "[[", "%s {x} $y", "left " * 400,
]  # fmt: skip
REPLY = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=5).map("\n".join)


class Counting(Counter):
    """A world of tools, of which one more comes with each call."""

    @tool
    def again(self) -> str:
        """Say so."""
        self.tools = self.tools[:-1] or self.tools
        return "again"


class Babbling(Model):
    """Repeats the given replies in turn, and records its prompts and replies."""

    name = "babbling"

    def __init__(self, replies: Sequence[str]) -> None:
        self.renderer = RENDERER
        self.replies = replies
        self.asked: list[tuple[int, ...]] = []
        self.output: list[Generation] = []

    async def generate(self, prompt: Prompt) -> Generation:
        if len(self.asked) >= PATIENCE:
            raise InfrastructureFault("patience", "it is asked for ever")
        assert prompt.tokens is not None
        self.asked.append(prompt.tokens)
        self.output.append(
            given_generation(self.replies[len(self.output) % len(self.replies)], prompt, self)
        )
        return self.output[-1]


def run_episode(
    name: str, model: Model, environment: Environment, tasks: TaskSet, room: int = 300
) -> Episode:
    world, agent = LocalEnvironment(environment), make_agent(name)
    models = {"agent": model.for_environment(world)}
    task = tasks.task(Split.TEST, 0)
    sampling = Sampling(max_tokens=room)
    session = Session(Key("laws", 0), task, world, agent, models, budget=BUDGET, sampling=sampling)
    return asyncio.run(session.run())


def worlds() -> list[tuple[Environment, TaskSet]]:
    probe = registry.make("probe/memory-4")
    return [(probe, type(probe).tasks("probe/memory-4")), (Counting(), TaskSet("counting"))]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=3, deadline=None)
@given(replies=st.lists(REPLY, min_size=1, max_size=6), which=st.sampled_from([0, 1]))
def test_any_replies_give_an_episode_with_an_outcome(
    name: str, replies: list[str], which: int
) -> None:
    environment, tasks = worlds()[which]
    assume(name not in SILENT or not environment.tools)
    model = Babbling(replies)
    episode = run_episode(name, model, environment, tasks)
    outcome = episode.outcome
    assert outcome.limit is not Limit.SECONDS
    if outcome.status is Status.ERROR:
        assert outcome.owner is Owner.AGENT and outcome.kind != "crash", outcome.detail
    # each call is one node, with the prompt that was sent and the tokens that were sampled
    graph = episode.graph
    assert [call.completion for call in graph.calls] == [output.tokens for output in model.output]
    sent = [(*_before(episode, call.parent), *call.prompt) for call in graph.calls]
    assert sent == model.asked
    nodes = {call.index for branch in graph.branches() for call in branch}
    assert nodes == set(range(len(model.output)))


def _before(episode: Episode, parent: int | None) -> list[int]:
    return [] if parent is None else episode.graph.tokens(parent)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", [0, 1])
def test_an_expert_solves_a_small_world_by_every_agent(name: str, which: int) -> None:
    environment, tasks = worlds()[which]
    if name in WORDS_ONLY and environment.tools:
        pytest.skip(WORDS_ONLY[name])
    episode = run_episode(name, ExpertModel(make_agent(name), RENDERER), environment, tasks)
    assert episode.outcome.solved, episode.outcome


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_transformer_lives_an_episode_by_every_agent(name: str) -> None:
    """Check that there is one log-probability per sampled token."""
    episode = run_episode(name, POLICY, *worlds()[0], room=4)
    outcome = episode.outcome
    assert outcome.status is not Status.ERROR or outcome.owner is Owner.AGENT, outcome.detail
    assert outcome.kind != "crash" and (episode.calls or name in SILENT), outcome.detail
    assert all(len(call.logprobs) == len(call.completion) > 0 for call in episode.calls)


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_says_what_it_is_and_which_roles_it_asks(name: str) -> None:
    agent = make_agent(name)
    assert name.partition("?")[0] == agent.name
    first = (type(agent).__doc__ or "").partition("\n")[0]
    assert first.endswith(".") and len(first) <= 100
    assert "agent" not in agent.roles
    assert agent.answer([assistant("")], [Action("left")]).strip()
