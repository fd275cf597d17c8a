"""Learned scorers: a network that scores states, or actions in a state.

A folder holds one scorer: `scorer.json` names its kind, `model/` is a checkpoint with its
tokenizer, and there is

`value`  `head.safetensors`, linear layers with ReLU between: the value of a state, read where the
         agent's reply begins (AgentRM, Xia et al. 2025; the critics of PPO and ArCHer).
`q`      `reference/`, the checkpoint that `model/` was trained from by DPO: the value of an action
         is `beta * (log p - log p_reference)` of its tokens (Zhai et al. 2024).

As a model it replies with one number to a conversation that ends with the current observation:
`value` scores the state, `q` scores the last action, as `x / (1 + |x|)`. Messages are encoded
again: what was sampled and recorded as tokens is read as its text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt, Renderer
from palaestra.core.paths import set_default_permissions
from palaestra.models.local.attention import Scores, causal, general_attention
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.networks import load_network, save_network

ABOUT, HEAD, MODEL, REFERENCE = "scorer.json", "head.safetensors", "model", "reference"
BESIDES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.*")
"""Files of a checkpoint other than weights."""


class Layer(NamedTuple):
    """One linear layer of a head."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor


class ScoringModel(Model):
    """A scorer read from its folder; its replies are numbers and are never trained on."""

    def __init__(self, name: str, folder: Path) -> None:
        """Read the folder.

        Raises:
            InputError: it holds no readable scorer.
        """
        from palaestra.models.registry import renderer_of

        self.name = name
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            self.kind, self.beta = str(about["kind"]), float(about.get("beta", 1.0))
            self._network = load_network(folder / MODEL, torch.float32)
            self._head = _read_head(folder / HEAD) if self.kind == "value" else []
            if self.kind not in ("value", "q"):
                raise ValueError(f"there is no kind '{self.kind}'")
            q = self.kind == "q"
            self._reference = load_network(folder / REFERENCE, torch.float32) if q else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"'{folder}' is not a readable scorer: {error}.") from None
        self._renderer: Renderer = renderer_of(folder / MODEL)

    async def generate(self, prompt: Prompt) -> Generation:
        score, read = self.score(prompt.messages)
        return Generation(
            text=f"{score:.6f}",
            tokens=(),
            logprobs=(),
            finish=Finish.STOP,
            policy=self.name,
            version=0,
            prompt_tokens=read,
            computed_tokens=read,
        )

    @torch.inference_mode()
    def score(self, messages: Sequence[Message]) -> tuple[float, int]:
        """Return the score, and the number of tokens read for it.

        Raises:
            InputError: the scorer scores actions, and the conversation has none.
        """
        if self._reference is None:
            tokens = self._renderer.start(messages)
            return float(self._value(tokens)), len(tokens)
        if len(messages) < 2 or messages[-2].role != "assistant":
            raise InputError(
                f"The scorer '{self.name}' scores actions, and the conversation has none; "
                "let it end with an action and an observation."
            )
        history = self._renderer.start(messages[:-2])
        reply = self._renderer.reply(messages[-2])
        ours, theirs = (
            _log_likelihood(n, history, reply) for n in (self._network, self._reference)
        )
        score = self.beta * (ours - theirs)
        return score / (1 + abs(score)), len(history) + len(reply)

    def _value(self, tokens: Sequence[int]) -> Tensor:
        hidden = _hidden(self._network, tokens)[-1:]
        state = self._network.normed(hidden)
        for number, layer in enumerate(self._head):
            state = F.linear(state.relu() if number else state, layer.weight, layer.bias)
        return state.squeeze()


def save_value(
    folder: Path, network: DecoderNetwork, head: Mapping[str, Tensor], origin: Path
) -> None:
    """Write a scorer of states.

    Args:
        folder: created if missing.
        network: the head reads its last hidden state, normed.
        head: its linear layers in order, as `NAME.weight` and `NAME.bias` each.
        origin: a checkpoint with the tokenizer.
    """
    from safetensors.torch import save_file

    _save(folder / MODEL, network, origin)
    layers = {name: tensor.detach().float().cpu().contiguous() for name, tensor in head.items()}
    save_file(layers, folder / HEAD)
    set_default_permissions(folder / HEAD)
    _write_about(
        folder, {"kind": "value", "layers": [name for name in head if name.endswith(".weight")]}
    )


def save_q(
    folder: Path, network: DecoderNetwork, reference: DecoderNetwork, origin: Path, *, beta: float
) -> None:
    """Write a scorer of actions: the trained network, and the one that it was trained from."""
    _save(folder / MODEL, network, origin)
    _save(folder / REFERENCE, reference, origin)
    _write_about(folder, {"kind": "q", "beta": beta})


def save_policy(folder: Path, network: DecoderNetwork, origin: Path) -> None:
    """Write a checkpoint that acts: `network` with the tokenizer of `origin`."""
    _save(folder, network, origin)


def _save(folder: Path, network: DecoderNetwork, origin: Path) -> None:
    save_network(network, folder)
    for pattern in BESIDES:
        for file in origin.glob(pattern):
            shutil.copyfile(file, folder / file.name)


def _write_about(folder: Path, about: dict[str, Any]) -> None:
    (folder / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")


def _read_head(file: Path) -> list[Layer]:
    from safetensors.torch import load_file

    found = load_file(file)
    names = json.loads(file.with_name(ABOUT).read_text(encoding="utf-8"))["layers"]
    return [Layer(found[name], found[name.removesuffix("weight") + "bias"]) for name in names]


def _log_likelihood(network: DecoderNetwork, history: Sequence[int], reply: Sequence[int]) -> float:
    """Return the log-likelihood of a reply after its history, summed over its tokens."""
    whole = [*history, *reply]
    hidden = _hidden(network, whole)[-len(reply) - 1 : -1]
    logprobs = network.logits(hidden).log_softmax(dim=-1)
    return float(logprobs.gather(1, torch.tensor(reply).unsqueeze(1)).sum())


def _hidden(network: DecoderNetwork, tokens: Sequence[int]) -> Tensor:
    """Return states of the last block, [N, width]; too long inputs lose their first tokens."""
    shown = torch.tensor(tokens[-network.config.max_position_embeddings :])
    return network.run(network.embed(shown), torch.arange(len(shown)), _causal)


def _causal(layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """Attend within one sequence (an `Attend`)."""
    if not scores.plain(len(q)):
        start = torch.zeros(1, dtype=torch.int64)
        seen = causal(start, start, len(q), len(q), scores.window)
        return general_attention(q[None], k[None], v[None], seen, scores)[0]
    share = q.shape[1] // k.shape[1]
    q, k, v = (
        x.transpose(0, 1) for x in (q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1))
    )
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scores.scale)
    return found.transpose(0, 1)
