"""Thought limits: reasoning ends after some tokens, and what ended it is never trained."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.errors import InputError
from palaestra.core.message import assistant, user
from palaestra.core.model import Finish, Generation, Prompt, Sampling
from palaestra.core.model_calls import check_held
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.thought_limit import ThoughtLimit
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.remote.remote_names import parse_remote
from palaestra.models.renderers.chat_template import TemplateRenderer
from palaestra.training.policy_building import build_policy, export, save_tokenizer
from palaestra.training.recipe import load
from tests.models.renderers.templating import source, tiny

MESSAGES = [user("left or right?")]


@cache
def model(name: str) -> ResidentModel:
    """Return a model with random weights."""
    network = tiny_network(340, layers=1, width=32, heads=2, context=512, seed=3)
    return ResidentModel("policy", network, tiny(name), slots=4, context=512)


def reply(name: str, thought: str = "", *, seed: int = 5, **sampling: object) -> Generation:
    """Sample a reply to a prompt after which `thought` is already written."""
    render = tiny(name)
    tokens = [*render.start(MESSAGES), *(render._encode(thought) if thought else ())]
    prompt = Prompt(MESSAGES, tuple(tokens), Sampling(**sampling), seed)  # type: ignore[arg-type]
    return asyncio.run(model(name).generate(prompt))


@pytest.mark.parametrize("limit", [1, 7])
@pytest.mark.parametrize("name", ["qwen3", "minimax"])
def test_a_thought_ends_after_so_many_tokens_with_the_familys_own_marker(
    name: str, limit: int
) -> None:
    opened = "" if name == "minimax" else "<think>"
    found = reply(name, opened, max_tokens=60, reasoning_tokens=limit)
    closing = tiny(name).thought_end
    assert found.forced == tuple(range(limit, limit + len(closing)))
    assert [found.tokens[place] for place in found.forced] == closing
    assert found.reasoning == tiny(name).text(found.tokens[:limit]).strip()
    assert "</think>" not in found.text
    assert {found.logprobs[place] for place in found.forced} == {0.0}
    assert {found.entropies[place] for place in found.forced} == {0.0}
    assert all(
        found.logprobs[place] < 0 for place in range(len(found.tokens)) if place not in found.forced
    )


def test_what_is_sampled_before_the_limit_is_what_is_sampled_without_one() -> None:
    free = reply("minimax", max_tokens=40)
    limited = reply("minimax", max_tokens=40, reasoning_tokens=9)
    assert not free.forced and free.tokens[:9] == limited.tokens[:9]
    assert free.logprobs[:9] == limited.logprobs[:9]


def test_what_follows_the_marker_is_sampled_after_it() -> None:
    """The tokens after the marker are those of a reply to the prompt with thought and marker."""
    limited = reply("minimax", max_tokens=30, temperature=0.0, reasoning_tokens=4)
    before = limited.tokens[: limited.forced[-1] + 1]
    tokens = (*tiny("minimax").start(MESSAGES), *before)
    rest = asyncio.run(
        model("minimax").generate(Prompt(MESSAGES, tokens, Sampling(0.0, 30 - len(before)), 5))
    )
    assert limited.tokens[len(before) :] == rest.tokens
    assert limited.logprobs[len(before) :] == pytest.approx(rest.logprobs, abs=1e-5)


def test_all_thoughts_of_a_reply_in_channels_count_together() -> None:
    render = tiny("gpt_oss")
    limit = ThoughtLimit(4, render, render.start(MESSAGES), "policy")
    first = render._encode("<|channel|>analysis<|message|>abc<|end|>")
    again = render._encode("<|start|>assistant<|channel|>analysis<|message|>defgh")
    assert not any(limit.after(token) for token in first)
    given = [list(limit.after(token)) for token in again]
    assert given.index(render.thought_end) < len(given) - 1  # before the second thought is whole
    assert render.text(render.thought_end) == "<|end|>"


def test_a_reply_that_ends_within_the_marker_is_cut_instead() -> None:
    closing = tiny("minimax").thought_end
    found = reply("minimax", max_tokens=4 + len(closing), reasoning_tokens=4)
    assert not found.forced and found.finish is Finish.LENGTH and not found.text


def test_stop_strings_see_the_marker() -> None:
    found = reply("minimax", max_tokens=40, reasoning_tokens=3, stop=("</think>",))
    assert found.finish is Finish.STOP and len(found.tokens) == found.forced[-1] + 1


def test_replies_that_are_held_to_choices_contain_no_thought() -> None:
    found = reply("minimax", reasoning_tokens=1, choices=("left", "right"))
    assert tiny("minimax").text(found.tokens) in ("left", "right") and not found.forced


def test_a_model_without_reasoning_refuses_a_limit() -> None:
    with pytest.raises(InputError, match=r"reasoning_tokens=5 is not supported by the model"):
        reply("qwen2_5", reasoning_tokens=5)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="`reasoning_tokens` is 0; pass at least 1"):
        Sampling(reasoning_tokens=0)


def test_the_replies_of_a_family_are_written_with_the_marker() -> None:
    written = tiny("minimax").text(tiny("minimax").reply(assistant("a", reasoning="b")))
    assert tiny("minimax").text(tiny("minimax").thought_end) in written


def test_a_model_behind_a_server_refuses_a_limit() -> None:
    with pytest.raises(
        InputError, match=r"reasoning_tokens=5 is not supported by the model 'openai"
    ):
        check_held(parse_remote("openai:m@http://localhost:1/v1"), Sampling(reasoning_tokens=5))


def test_a_recipe_limits_and_keeps_thoughts(tmp_path: Path) -> None:
    keys = ["agent.reasoning_tokens=5", "model.keep_thoughts=true"]
    recipe = load("quick", keys)
    save_tokenizer(learn_vocabulary(["left or right?"], 300), tmp_path)
    with pytest.raises(InputError, match="reasoning_tokens = 5 has no effect on 'tiny'"):
        build_policy(recipe, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] = source("qwen3")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    kept = build_policy(recipe, tmp_path).renderer
    assert kept.thought_end and not kept.drops_thoughts
    assert build_policy(load("quick", keys[:1]), tmp_path).renderer.drops_thoughts


def test_a_policy_of_another_family_is_exported_with_its_template(tmp_path: Path) -> None:
    recipe = load("quick", [])
    export(model("glm"), recipe, tmp_path)
    again = TemplateRenderer.from_folder(tmp_path)
    assert again.start(MESSAGES) == tiny("glm").start(MESSAGES)
    assert again.end_tokens == tiny("glm").end_tokens


def test_an_evaluation_limits_reasoning(tmp_path: Path) -> None:
    recipe = load("quick", [])
    export(model("minimax"), recipe, tmp_path / "model")
    vocabulary = tmp_path / "model" / "tokenizer.json"  # of a model that was not trained on ChatML
    vocabulary.write_text(vocabulary.read_text().replace("<|im_start|>", "<|start|>"))
    asked = {"env": "probe/umbrella-4", "n": 2, "workers": 0, "progress": False}
    asked |= {"max_tokens": 24, "reasoning_tokens": 5, "agent": "react"}
    found = pa.evaluate(model=str(tmp_path / "model"), run=tmp_path / "run", **asked)
    calls = [call for one in found.episodes for call in one.calls]
    assert calls and all(call.forced == (5, *call.forced[1:]) for call in calls)
    assert found.data["reasoning_tokens"] == 5
    with pytest.raises(InputError, match=r"reasoning_tokens=5 is not supported by .*random"):
        pa.evaluate(model="random", run=tmp_path / "other", **asked)
    with pytest.raises(InputError, match="reasoning_tokens"):
        pa.evaluate(model="random", run=tmp_path / "other", **asked | {"reasoning_tokens": 0})


def test_an_evaluation_keeps_thoughts_and_has_a_context_of_its_own(tmp_path: Path) -> None:
    export(model("minimax"), load("quick", []), tmp_path / "model")
    vocabulary = tmp_path / "model" / "tokenizer.json"  # of a model that was not trained on ChatML
    vocabulary.write_text(vocabulary.read_text().replace("<|im_start|>", "<|start|>"))
    asked = {"env": "probe/umbrella-4", "n": 2, "workers": 0, "progress": False, "seed": 1}
    asked |= {"max_tokens": 8, "agent": "react", "model": str(tmp_path / "model")}
    dropped = pa.evaluate(run=tmp_path / "dropped", **asked)
    kept = pa.evaluate(run=tmp_path / "kept", keep_thoughts=True, context=500, **asked)
    assert [roots(one) for one in dropped.episodes] == [len(e.calls) for e in dropped.episodes]
    assert [roots(one) for one in kept.episodes] == [1, 1]
    assert (kept.data["context"], kept.data["keep_thoughts"]) == (500, True)
    assert (dropped.data["context"], dropped.data["keep_thoughts"]) == (2048, False)
    with pytest.raises(InputError, match=r"context = 1000000 is longer than the context of"):
        pa.evaluate(run=tmp_path / "other", context=1_000_000, **asked)
    loaded = pa.load(tmp_path / "model", keep_thoughts=True, progress=False)
    assert not loaded.model.renderer.drops_thoughts
    with pytest.raises(InputError, match="context does not change a policy that is loaded"):
        pa.evaluate(run=tmp_path / "other", context=500, **asked | {"model": loaded})
    assert not (tmp_path / "other").exists()


def roots(episode: pa.Episode) -> int:
    return sum(call.parent is None for call in episode.calls)
