"""Grammars: a reply is a text of the grammar, and its recorded probabilities are exact."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
import torch

pytest.importorskip("llguidance", reason="pip install 'palaestra[serving]'")

from palaestra.agents.direct import DirectAgent
from palaestra.core.agent import Agent
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, user
from palaestra.core.model import CONSTRAINED, Finish, Generation, Prompt, Sampling
from palaestra.core.session import Session
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.loop.batch import trajectories
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.registry import load_model
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer, run_episode
from tests.models.plain import distributions

NETWORK = tiny_network(320, layers=1, width=32, heads=2, context=512, seed=3)  # of 286 tokens
PROMPT = renderer().start((user("go up"),))
SHAPING = Shaping(most_turns=6)
WORDS = ["up", "fall", "up up", 'say "é"']
SCHEMA = {
    "type": "object",
    "properties": {
        "where": {"enum": WORDS},
        "often": {"type": "integer", "minimum": 0, "maximum": 99},
        "sure": {"type": "boolean"},
    },
    "required": ["where", "sure"],
    "additionalProperties": False,
}


def resident(**options: Any) -> ResidentModel:
    return ResidentModel("policy", NETWORK, renderer(), context=512, **options)


def of(schema: Any) -> str:
    return f"start: %json {json.dumps(schema)}"


def asked(model: ResidentModel, grammar: str, *seeds: int, **more: Any) -> list[Generation]:
    sampling = Sampling(**{"temperature": 1.0, "max_tokens": 300, "grammar": grammar, **more})

    async def together() -> list[Generation]:
        prompts = [Prompt((user("go up"),), tuple(PROMPT), sampling, seed) for seed in seeds]
        return await asyncio.gather(*(model.generate(prompt) for prompt in prompts))

    return asyncio.run(together())


def test_replies_are_json_of_the_schema_and_end() -> None:
    replies = asked(resident(), of(SCHEMA), *range(40))
    for reply in replies:
        jsonschema.validate(json.loads(reply.text), SCHEMA)
        assert reply.finish is Finish.STOP and reply.tokens[-1] in renderer().end_tokens
        assert reply.policy == f"policy{CONSTRAINED}"
    assert len({json.loads(reply.text)["where"] for reply in replies}) == len(WORDS)


def test_logprobs_are_those_under_the_mask() -> None:
    texts, spelt = ['"up"', '"up up"', '"fall"'], renderer()
    (reply,) = asked(resident(), of({"enum": ["up", "up up", "fall"]}), 5, temperature=0.7)
    assert reply.text in texts
    rows = distributions(NETWORK, PROMPT, list(reply.tokens), temperature=0.7)
    chunks = [spelt.text([token]) for token in range(286)]
    for place, (row, token) in enumerate(zip(rows, reply.tokens, strict=True)):
        output = spelt.text(reply.tokens[:place])
        goes_on = [
            number
            for number, chunk in enumerate(chunks)
            if chunk and any(text.startswith(output + chunk) for text in texts)
        ]
        allowed = [*goes_on, *(spelt.end_tokens if output in texts else ())]
        wanted = float(row[token] - torch.logsumexp(row[allowed], 0))
        assert reply.logprobs[place] == pytest.approx(wanted, abs=1e-4)


def test_a_reply_does_not_depend_on_its_neighbours_and_free_ones_stay_free() -> None:
    model, free = resident(), Sampling(1.0, 8)

    async def beside(count: int) -> Generation:
        held = Sampling(1.0, 30, grammar=of(SCHEMA))
        prompts = [Prompt((user("?"),), tuple(PROMPT), free, 3)]
        prompts += [Prompt((user("?"),), tuple(PROMPT), held, n) for n in range(count)]
        return (await asyncio.gather(*(model.generate(prompt) for prompt in prompts)))[0]

    alone, among = asyncio.run(beside(0)), asyncio.run(beside(5))
    assert alone.tokens == among.tokens and alone.policy == "policy"
    (one,) = asked(resident(), of(SCHEMA), 7)
    assert one.tokens == asked(resident(), of(SCHEMA), *range(10))[7].tokens


def test_a_limit_of_tokens_or_a_stop_string_cuts_a_reply() -> None:
    (cut,) = asked(resident(), of(SCHEMA), 0, max_tokens=3)
    assert cut.finish is Finish.LENGTH and len(cut.tokens) == 3
    (stopped,) = asked(resident(), of(SCHEMA), 0, stop=('"sure"',))
    assert stopped.finish is Finish.STOP and stopped.text.endswith('"sure"')


@pytest.mark.parametrize(
    "grammar",
    [
        "start: nothing",
        of({"type": "objekt"}),
        of({"$ref": "http://x/y"}),
        of({"not": {}}),
        "",
        "(",
    ],
)
def test_what_is_no_grammar_is_refused(grammar: str) -> None:
    with pytest.raises(InputError, match="grammar of the reply is invalid"):
        asked(resident(), grammar, 0)


class Held(Agent):
    """An agent that generates several replies, with or without the schema."""

    name = "held"

    def __init__(self, *held: bool) -> None:
        self.held = held

    async def run(self, session: Session) -> None:
        talk = [user("go up")]
        for held in self.held:
            sampling = Sampling(1.0, 40, grammar=of(SCHEMA) if held else None)
            reply = await session.generate(talk, sampling=sampling)
            talk += [assistant(reply.text), user("go on")]
        await session.act("up")


def policies(episodes: Sequence[Any]) -> list[str]:
    return [call.policy for episode in episodes for call in episode.calls]


def test_only_free_replies_are_learned_from() -> None:
    episode = run_episode(Held(True, False), resident())
    assert policies([episode]) == [f"policy{CONSTRAINED}", "policy"]
    (found,) = trajectories([episode], SHAPING, "policy")
    assert [turn.call for turn in found.turns] == [1]
    with pytest.raises(InputError, match="a grammar"):
        trajectories([run_episode(Held(True), resident())], SHAPING, "policy")


def test_a_model_that_cannot_be_held_is_not_asked() -> None:
    with pytest.raises(InputError, match="cannot be held to a grammar"):
        run_episode(Held(True), ScriptedModel(["up"], renderer=renderer()))
    with pytest.raises(InputError, match="leave one out"):
        Sampling(choices=("a",), grammar=of(SCHEMA))


@pytest.mark.slow
def test_a_real_vocabulary_is_held_too() -> None:
    model = load_model("smollm2-135m", DirectAgent(), slots=1, context=512, progress=print)
    assert isinstance(model, ResidentModel)
    tokens = tuple(model.renderer.start((user("Where is the treasure? Reply in JSON."),)))
    held = Sampling(1.0, 200, grammar=of(SCHEMA))
    reply = asyncio.run(model.generate(Prompt((), tokens, held, 1)))
    jsonschema.validate(json.loads(reply.text), SCHEMA)
