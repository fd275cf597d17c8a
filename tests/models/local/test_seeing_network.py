"""Models that see act and learn with transformers' own code: images, cache, gradients, files."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import palaestra as pa
from palaestra.core.errors import ContextTooLong, InputError
from palaestra.core.message import Image, ImageSpan, Message, assistant, system, tool_result, user
from palaestra.core.model import Sampling
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.memory_budget import needs_of
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import adapters, everything, top_layers
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.policy_loss import pg
from palaestra.models.local.engine import Engine
from palaestra.models.local.image_features import ImageFeatures
from palaestra.models.local.lora import add_lora, merged
from palaestra.models.local.networks import blank_network, check_network, load_network, save_network
from palaestra.models.local.seeing_network import SeeingNetwork
from palaestra.models.registry import renderer_of
from palaestra.models.renderers.chat_template import TemplateRenderer
from tests.learning.made import finish, gradients, learner_of, resident
from tests.models.local.checkpoints import write_checkpoint
from tests.models.local.seeing import picture, write
from tests.models.local.test_architectures import off

FAMILIES = (
    "smolvlm",
    "idefics3",
    "llava",
    pytest.param("qwen2_vl", marks=pytest.mark.slow),  # so is its successor, in the fast suite
    "qwen2_5_vl",
)
A, B, C = picture(1), picture(2, 64, 32), picture(3, 32, 80)


class Pair(NamedTuple):
    """One network, theirs and ours, with its renderer, and the folder that it was read from."""

    kind: str
    theirs: Any
    ours: SeeingNetwork
    renderer: TemplateRenderer
    folder: Path


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def smolvlm(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return made("smolvlm", tmp_path_factory.mktemp("smolvlm"))


def made(kind: str, folder: Path) -> Pair:
    theirs = write(kind, folder)
    ours = load_network(folder, torch.float32)
    assert isinstance(ours, SeeingNetwork)
    renderer = renderer_of(folder)
    assert isinstance(renderer, TemplateRenderer)
    return Pair(kind, theirs, ours, renderer, folder)


class Prompt(NamedTuple):
    """Tokens, with the images among them."""

    tokens: list[int]
    images: tuple[ImageSpan, ...]


def prompt(pair: Pair, *messages: Message) -> Prompt:
    tokens = pair.renderer.start(messages)
    return Prompt(tokens, pair.renderer.images(messages, tokens))


def asked(*images: Image) -> tuple[Message, ...]:
    return system("You see."), user("look", *images)


def given(pair: Pair, tokens: Sequence[int], images: Sequence[Image]) -> dict[str, Tensor]:
    """Return the arguments of transformers' model for a sequence with images."""
    parts = [pair.ours.reader.prepare(image).inputs for image in images]
    dim = 1 if pair.kind in ("smolvlm", "idefics3") else 0
    # tiles of several images lie side by side there, as many for each as the largest has
    found = {name: torch.cat([part[name] for part in parts], dim=dim) for name in parts[0]}
    row = torch.tensor([list(tokens)])
    if "qwen" in pair.kind:
        found["mm_token_type_ids"] = (row == pair.ours.reader.token).int()
    return found | {"input_ids": row, "attention_mask": torch.ones_like(row)}


def test_greedy_replies_are_those_of_transformers(pair: Pair) -> None:
    prompts = [prompt(pair, *asked(*images)) for images in ((A, B), (B, A), (A, C), (C,), (A, B))]
    engine = Engine(
        pair.ours, frozenset(), slots=4, context=256, block=4, memory=2**22, step_tokens=16
    )
    for _ in range(2):  # the second time, prefixes are in the cache
        requests = [engine.submit(p.tokens, Sampling(0.0, 8), 0, images=p.images) for p in prompts]
        finish(engine, requests)
        for one, request in zip(prompts, requests, strict=True):
            inputs = given(pair, one.tokens, [span.image for span in one.images])
            theirs = pair.theirs.generate(
                **inputs, do_sample=False, max_new_tokens=8, min_new_tokens=8
            )
            assert request.completion == theirs[0, len(one.tokens) :].tolist()


def test_the_cache_knows_images_apart(pair: Pair) -> None:
    first, same, other = (prompt(pair, *asked(A, image)) for image in (B, B, picture(9, 64, 32)))
    assert first.tokens == other.tokens  # which only their images tell apart
    engine = Engine(pair.ours, frozenset(), context=256, block=4, memory=2**22)
    found = []
    for one in (first, same, other):
        request = engine.submit(one.tokens, Sampling(0.0, 4), 0, images=one.images)
        finish(engine, [request])
        found.append(request)
    start = first.images[1].start
    assert found[1].cached == len(first.tokens) - 1
    assert found[0].completion == found[1].completion
    assert found[2].cached == start
    alone = Engine(pair.ours, frozenset(), context=256, block=4, memory=2**22)
    request = alone.submit(other.tokens, Sampling(0.0, 4), 0, images=other.images)
    finish(alone, [request])
    assert found[2].completion == request.completion
    assert found[2].logprobs == pytest.approx(request.logprobs, abs=1e-4)


def rows(pair: Pair) -> list[Trained]:
    """Return conversations of two turns with an image each, that begin alike or nearly so."""
    found: list[Trained] = []
    for first, second in ((A, B), (A, A), (B, A), (A, B)):
        messages = [*asked(first), assistant("go"), user("more", second)]
        tokens, spans = (list(x) for x in prompt(pair, *messages[:2]))
        mask = [False] * len(tokens)
        replies = ("go", f"left {len(found) % 3}")
        for number, text in enumerate(replies):
            reply = pair.renderer.reply(text)
            tokens, mask = tokens + reply, mask + [True] * len(reply)
            if number == 0:
                new = pair.renderer.extend(messages[:3], messages[3:], True)
                shown = pair.renderer.images(messages[3:], new)
                spans += [span.moved(len(tokens)) for span in shown]
                tokens, mask = tokens + new, mask + [False] * len(new)
        generator = torch.Generator().manual_seed(len(found))
        advantage = torch.randn(len(tokens), generator=generator).tolist()
        found.append(Trained(tokens, mask, advantage=advantage, images=tuple(spans)))
    return found


def their_gradients(pair: Pair, theirs: Any) -> dict[str, Tensor]:
    """Return transformers' gradient of the rows' loss, row by row."""
    theirs.zero_grad()
    for row in rows(pair):
        inputs = given(pair, row.tokens, [span.image for span in row.images])
        every = theirs(**inputs).logits[0, :-1].log_softmax(dim=-1)
        lp = every.gather(1, torch.tensor(row.tokens[1:])[:, None]).squeeze(1)
        (-(lp * torch.tensor(row.advantage[1:]))[torch.tensor(row.mask[1:])]).sum().backward()
    return {
        f"model.{name}": torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in theirs.named_parameters()
    }


def same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for name, gradient in found.items():
        if float(wanted[name].abs().max()) > 1e-7:
            assert off(gradient, wanted[name]) <= 1e-4, name


@pytest.mark.parametrize("most", [10_000, 60])
def test_gradients_are_those_of_transformers_the_vision_tower_included(
    pair: Pair, most: int
) -> None:
    found = gradients(learner_of(copy.deepcopy(pair.ours), micro_tokens=most), rows(pair), pg)
    wanted = their_gradients(pair, pair.theirs)
    assert found.keys() <= wanted.keys()
    for name in wanted.keys() - found.keys():  # layers whose features LLaVA does not take
        assert not wanted[name].any(), name
    same_gradients(found, wanted)
    seen = [name for name in found if "vision" in name or "visual" in name]
    assert any(float(found[name].abs().max()) > 1e-5 for name in seen)


def test_the_tower_is_frozen_unless_all_weights_are_trained(pair: Pair) -> None:
    network = copy.deepcopy(pair.ours)
    learner = Learner(resident(network), top_layers(network, 1), Optimisation(1e-3, clip_norm=1e9))
    assert not network.tower_trains
    found, whole = gradients(learner, rows(pair), pg), their_gradients(pair, pair.theirs)
    assert found
    assert all(network.layer_of(name) in (2, 3) for name in found)
    same_gradients(found, whole)
    everything(network)
    assert network.tower_trains


def test_adapters_of_the_language_model_learn_from_images(pair: Pair, tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    network = copy.deepcopy(pair.ours)
    add_lora(network, 3, seed=1)
    chosen = adapters(network)
    assert not any("vision" in name or "visual" in name for name in chosen.parameters)
    assert not network.tower_trains
    with torch.no_grad():
        for name, parameter in chosen.parameters.items():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    start = {name: p.detach().clone() for name, p in chosen.parameters.items()}
    save_network(merged(network), tmp_path)
    load: Any = AutoModelForImageTextToText.from_pretrained
    whole = their_gradients(
        pair, load(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    )
    learner = Learner(resident(network), chosen, Optimisation(1e-3, clip_norm=1e9))
    found = gradients(learner, rows(pair), pg)
    for name in (name for name in start if "lora_B" in name):
        of_weight = whole[name.replace(".lora_B.default", ".weight")]
        wanted = 2.0 * of_weight @ start[name.replace("lora_B", "lora_A")].T  # alpha over rank
        if float(wanted.abs().max()) > 1e-7:
            assert off(found[name], wanted) <= 1e-4, name


def test_the_learner_reads_the_log_probabilities_that_the_engine_sampled_with(pair: Pair) -> None:
    found = []
    engine = Engine(pair.ours, frozenset(), context=256, memory=2**22, step_tokens=16)
    for images in ((A, B), (B, A), (A, C)):
        one = prompt(pair, *asked(*images))
        request = engine.submit(one.tokens, Sampling(1.0, 8), 3, images=one.images)
        finish(engine, [request])
        whole = [*one.tokens, *request.completion]
        mask = [False] * len(one.tokens) + [True] * len(request.completion)
        found.append((Trained(whole, mask, images=one.images), request.logprobs))
    learner = learner_of(pair.ours)
    for theirs, (_, ours) in zip(learner.logprobs([row for row, _ in found]), found, strict=True):
        assert theirs == pytest.approx(ours, abs=1e-4)


def test_features_do_not_outlive_the_weights(pair: Pair) -> None:
    model = resident(copy.deepcopy(pair.ours))
    learner = Learner(model, everything(model.network), Optimisation(0.02))
    one = prompt(pair, *asked(A, B))
    replies = []
    for _ in range(2):
        request = model.engine.submit(one.tokens, Sampling(0.0, 6), 0, images=one.images)
        finish(model.engine, [request])
        replies.append(request)
        learner.update(rows(pair), pg)
    fresh = Engine(copy.deepcopy(model.network), frozenset(), context=256, memory=2**22)
    again = [
        engine.submit(one.tokens, Sampling(0.0, 6), 0, images=one.images)
        for engine in (fresh, model.engine)
    ]
    finish(fresh, again[:1])
    finish(model.engine, again[1:])
    assert again[0].logprobs == pytest.approx(again[1].logprobs, abs=1e-5)
    assert again[1].logprobs != pytest.approx(replies[0].logprobs, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_is_what_was_read(pair: Pair, tmp_path: Path, dtype: torch.dtype) -> None:
    theirs = type(pair.theirs).from_pretrained(pair.folder, dtype=dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    pair.ours.reader.save(tmp_path / "theirs")
    save_network(load_network(tmp_path / "theirs", dtype), tmp_path / "ours")
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for file in ("config.json", "processor_config.json", "chat_template.jinja"):
        left, right = ((tmp_path / name / file).read_text() for name in ("theirs", "ours"))
        assert left == right


def test_a_conversation_shows_images_in_the_order_of_its_messages(smolvlm: Pair) -> None:
    renderer = smolvlm.renderer
    call = assistant("", tool_calls=())
    messages = [
        *asked(A, B),
        call,
        tool_result("a picture", images=[C]),
    ]
    one = prompt(smolvlm, *messages)
    assert [span.image for span in one.images] == [A, B, C]
    for span in one.images:
        shown = one.tokens[span.start : span.stop]
        assert shown.count(smolvlm.ours.reader.token) == 4
    assert one.images[1].start > one.images[0].stop
    assert "a picture" in renderer.text(one.tokens)


def test_text_that_looks_like_an_image_shows_none(smolvlm: Pair) -> None:
    one = prompt(smolvlm, user("an <image> here <fake_token_around_image>", A))
    assert len(one.images) == 1
    assert one.tokens.count(smolvlm.ours.reader.token) == 4


def test_extending_a_conversation_gives_the_tokens_of_rendering_it_whole(smolvlm: Pair) -> None:
    renderer = smolvlm.renderer
    messages = [*asked(A), assistant(" go"), user("more", B)]
    start = renderer.start(messages[:2])
    reply = [*renderer._encode(" go"), *renderer._encode("<end_of_utterance>")]
    more = renderer.extend(messages[:3], messages[3:], True)
    assert [*start, *reply, *more] == renderer.start([*messages[:2], assistant("go"), messages[3]])


def test_features_are_kept_within_their_budget(smolvlm: Pair) -> None:
    network = smolvlm.ours
    size = network.features([A])[0].nbytes
    kept = ImageFeatures(network, memory=2 * size)
    images = dict(enumerate([A, B, C]))
    for number in (0, 1, 0, 2):
        kept.embed([-1 - (number << 20)], [images])
        assert kept._bytes <= 2 * size
    assert list(kept._kept) == [0, 2]


def test_a_loaded_model_replies_to_images_and_a_blind_one_says_so(
    smolvlm: Pair, tmp_path: Path
) -> None:
    policy = pa.load(smolvlm.folder, progress=False)
    replies = {policy.reply(asked(*images), max_tokens=8) for images in ((A, B), (B, A))}
    assert len(replies) == 2
    write_checkpoint(tmp_path)
    with pytest.raises(InputError, match="reads text only; leave the images out"):
        pa.load(tmp_path, progress=False).reply(asked(A))


def test_a_broken_image_is_named(smolvlm: Pair) -> None:
    broken = Image.of(A.data[:60])
    with pytest.raises(InputError, match=f"The image {broken.sha256[:12]}… of 60 bytes") as error:
        smolvlm.renderer.start(asked(broken))
    assert "cannot be read" in str(error.value)


def test_a_template_that_shows_no_images_is_refused(smolvlm: Pair) -> None:
    renderer = copy.deepcopy(smolvlm.renderer)
    source = str(renderer._tokenizer.chat_template)
    renderer._tokenizer.chat_template = source.replace("{{ '<image>' }}", "")
    with pytest.raises(InputError, match="shows 0 of the 1 images"):
        renderer.start(asked(A))


def test_images_that_do_not_fit_the_context_make_the_prompt_too_long(smolvlm: Pair) -> None:
    one = prompt(smolvlm, *asked(*[A] * 8))
    engine = Engine(smolvlm.ours, frozenset(), context=64, memory=2**22)
    with pytest.raises(ContextTooLong, match="leaves no room in a context of 64"):
        engine.submit(one.tokens, Sampling(0.0, 4), 0, images=one.images)


def test_memory_counts_the_tower_where_it_is_trained(pair: Pair) -> None:
    network = copy.deepcopy(pair.ours)
    frozen = needs_of(network, top_layers(network, 3).parameters).per_token
    assert needs_of(network, everything(network).parameters).per_token > frozen
    blank = blank_network(pair.folder, torch.float32)
    assert blank.device.type == "meta"
    assert blank.config == pair.ours.config


def test_images_whose_tokens_see_each_other_both_ways_are_refused(tmp_path: Path) -> None:
    """So they do in Gemma 3, and only where its processor's kinds of tokens are passed on."""
    write("gemma3", tmp_path)
    check_network(tmp_path)
    with pytest.raises(InputError, match="tokens of images that do more than stand for features"):
        load_network(tmp_path, torch.float32)


def test_images_whose_features_enter_further_layers_are_refused(tmp_path: Path) -> None:
    """Qwen3-VL adds them to its first layers too."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder = tmp_path / "qwen3_vl"
    write("qwen2_vl", folder)
    data = json.loads((folder / "config.json").read_text())
    text = {**data["text_config"], "head_dim": 12, "model_type": "qwen3_vl_text"}
    tower = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
    tower |= {"patch_size": 4, "out_hidden_size": 48, "deepstack_visual_indexes": [0, 1]}
    named = {name: value for name, value in data.items() if name.endswith("token_id")}
    config = AutoConfig.for_model("qwen3_vl", text_config=text, vision_config=tower, **named)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    check_network(folder)
    with pytest.raises(InputError, match="tokens of images that do more than stand for features"):
        load_network(folder, torch.float32)


def test_a_model_without_a_processor_is_refused(smolvlm: Pair, tmp_path: Path) -> None:
    smolvlm.theirs.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"processor of the model in .* cannot be used"):
        check_network(tmp_path)
