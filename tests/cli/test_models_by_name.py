"""Models by name, and the random model."""

import asyncio
from pathlib import Path

import pytest

from palaestra.agents.react import ReActAgent, action_of
from palaestra.cli.resources import measure
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.rare_capabilities import stated_actions
from palaestra.environments.registry import make
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.tiny import learn_vocabulary, tiny_network
from palaestra.models.local.weights import check_name
from palaestra.models.registry import check_model, load_model, models
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.training.policy_building import save_tokenizer
from palaestra.training.recipe import load

AGENT = ReActAgent()


def test_a_random_agent_samples_the_same_action_from_the_same_seed() -> None:
    model = RandomModel(AGENT).for_environment(LocalEnvironment(make("babyai/GoToLocalS5N2")))

    def reply(seed: int) -> str:
        prompt = Prompt((user("go"),), None, Sampling(), seed)
        return asyncio.run(model.generate(prompt)).text

    sampled = [reply(seed) for seed in range(60)]
    assert sampled == [reply(seed) for seed in range(60)]
    words = {action_of(text) for text in sampled}
    assert words == {"left", "right", "forward", "pickup", "drop", "toggle"}


def test_actions_are_read_from_the_instructions() -> None:
    text = "You walk. Note: be quick. Reply with one action: left, go on, or jump."
    assert stated_actions(text) == ["left", "go on", "jump"]
    assert stated_actions("Do what you like.") == []


def test_a_checkpoint_and_a_run_that_ended_in_it_are_the_same_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    vocabulary = learn_vocabulary(["left right forward"])
    sizes = {"layers": 1, "width": 32, "heads": 2, "context": 64, "seed": 1}
    write_network(tiny_network(vocabulary.get_vocab_size(), **sizes), run / "final")
    save_tokenizer(vocabulary, run / "final")
    (run / "run.json").write_text("{}")

    texts = []
    for name in (str(run), str(run / "final")):
        model = load_model(name, AGENT, slots=1, context=1024, progress=print)
        assert model.renderer is not None
        tokens = tuple(model.renderer.start([user("left")]))
        prompt = Prompt((user("left"),), tokens, Sampling(max_tokens=4), 7)
        texts.append(asyncio.run(model.generate(prompt)).tokens)
    assert texts[0] == texts[1]


def test_a_run_without_a_trained_policy_is_no_model_yet(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="no trained policy yet"):
        check_model(str(tmp_path))


def test_names_are_judged_without_loading_anything(tmp_path: Path) -> None:
    check_name("smollm2-135m")
    with pytest.raises(UnknownName, match="smollm2-135m"):
        check_name("smollm2")
    with pytest.raises(InputError, match=r"config\.json"):
        check_name(str(tmp_path))
    with pytest.raises(InputError, match="openai:MODEL@URL"):
        check_model("openai:small@nowhere")
    with pytest.raises(InputError, match="trained"):
        check_model("tiny")
    assert {"smollm2-135m", "expert", "random"} < set(models())


@pytest.mark.parametrize(
    ("name", "parameters"), [("smollm2-135m", 134_515_008), ("qwen2.5-coder-1.5b", 1_777_088_000)]
)
def test_the_sizes_of_a_named_model_are_known_without_its_weights(
    name: str, parameters: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path))
    size = measure(load("default", [f"model.name={name}"]))
    assert size.parameters == parameters
    assert 0 < size.trained < size.parameters
    assert "not cached" in size.note
