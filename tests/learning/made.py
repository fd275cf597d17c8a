"""Small policies and hand-made episodes: real parts, small enough to see whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from palaestra.core.budget import Usage
from palaestra.core.episode import Episode, Key
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Finish, Renderer
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.packing import Trained
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.data.rows import Row
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.trained_tokens import TokenLoss
from palaestra.models.local.architecture import NetworkConfig
from palaestra.models.local.engine import Engine, Request
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network

TASK = Task("train/0", "made", 0)


class Words(Renderer):
    """One token per word of a fixed list; `<end>` closes and `<turn>` opens each message."""

    name = "words"

    def __init__(self, words: Sequence[str] = ("say", "red", "green", "blue", "right", "wrong")):
        self.words = ["<end>", "<turn>", "<unknown>", *words]

    @property
    def end_tokens(self) -> frozenset[int]:
        return frozenset({0})

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        tokens: list[int] = []
        for message in messages:
            tokens += [1, *self._words(message.text), 0]
        return [*tokens, 1]

    def extend(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        closed: bool,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        return [*([] if closed else [0]), *self.start(new)]

    def reply(self, reply: str | Message) -> list[int]:
        return [*self._words(reply if isinstance(reply, str) else reply.text), 0]

    def text(self, tokens: Sequence[int]) -> str:
        return " ".join(self.words[token] for token in tokens if token > 1)

    def token_strings(self, tokens: Sequence[int]) -> list[str]:
        return [self.words[token] for token in tokens]

    def _words(self, text: str) -> list[int]:
        return [self.words.index(word) if word in self.words else 2 for word in text.split()]


def lively(network: DecoderNetwork, factor: float = 8.0) -> DecoderNetwork:
    """The network with larger matrices, so that its distributions are far from uniform."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
    return network


def tiny(vocabulary: int = 24, *, layers: int = 2, seed: int = 0) -> DecoderNetwork:
    """A tiny transformer in fp32 with a context of 128 tokens."""
    return lively(
        tiny_network(vocabulary, layers=layers, width=32, heads=4, context=128, seed=seed)
    )


def grouped(*, tied: bool = True, seed: int = 0) -> DecoderNetwork:
    """As `tiny`, but two query heads share a key head, as in the real models."""
    network = DecoderNetwork(
        NetworkConfig(
            vocab_size=24,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            tie_word_embeddings=tied,
        )
    )
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        mean = 0.0 if parameter.dim() > 1 else 1.0
        torch.nn.init.normal_(parameter, mean=mean, std=0.2, generator=generator)
    return network


def resident(
    network: DecoderNetwork, *, lockstep: bool = False, slots: int = 8, **options: Any
) -> ResidentModel:
    count = network.config.vocab_size - 3
    return ResidentModel(
        "policy",
        network,
        Words([f"w{i}" for i in range(count)]),
        slots=slots,
        context=128,
        lockstep=lockstep,
        **options,
    )


def learner_of(
    network: DecoderNetwork,
    *,
    micro_tokens: int = 64,
    rate: float = 1e-3,
    clip: float = 1e9,
    **options: Any,
) -> Learner:
    """A learner of all weights, whose passes hold at most `micro_tokens` distinct tokens."""
    optimisation = Optimisation(rate, clip_norm=clip)
    learner = Learner(resident(network), everything(network), optimisation, **options)
    learner.budget.tokens = micro_tokens
    return learner


def gradients(
    learner: Learner, rows: Sequence[Trained], loss: TokenLoss, **options: Any
) -> dict[str, Tensor]:
    """The gradient of each parameter, read off the first moments of a first Adam step."""
    learner.update(rows, loss, **options)
    first = 1 - learner.optimisation.betas[0]
    return {name: moment / first for name, moment in learner.state()["exp_avg"].items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-5) -> bool:
    """Equal up to rounding, relative to the largest entry of each tensor."""
    return a.keys() == b.keys() and all(
        float((a[n] - b[n]).abs().max()) <= tolerance * max(1.0, float(a[n].abs().max())) for n in a
    )


def sampled_rows(count: int, *, vocabulary: int = 24, seed: int = 0) -> list[Trained]:
    """Rows of 4 to 30 random tokens; a random half of the later ones is trained."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        n = int(torch.randint(4, 31, (1,), generator=g))
        mask = [False, *(torch.rand(n - 2, generator=g) < 0.5).tolist(), True]
        values = torch.randn(3, n, generator=g)
        rows.append(
            Trained(
                tokens=torch.randint(vocabulary, (n,), generator=g).tolist(),
                mask=mask,
                lp_old=(-3 + 0.3 * values[0]).tolist(),
                advantage=[float(v) if on else 0.0 for v, on in zip(values[1], mask, strict=True)],
                weight=[
                    float(v.abs()) / count if on else 0.0
                    for v, on in zip(values[2], mask, strict=True)
                ],
            )
        )
    return rows


def credited(
    rows: Sequence[Row],
    advantage: Mapping[Key, float],
    aggregation: Aggregation = Aggregation.ROLLOUT_TOKEN_MEAN,
) -> list[Trained]:
    """Rows with one advantage per rollout."""
    weights = token_weights(rows, aggregation)
    return [
        Trained(
            row.tokens,
            row.mask,
            row.logprobs,
            [advantage[row.key]] * len(row.tokens),
            weight,
            turn=row.calls,
            rollout=row.key,
        )
        for row, weight in zip(rows, weights, strict=True)
    ]


def call(
    index: int,
    parent: int | None,
    prompt: Sequence[int],
    completion: Sequence[int],
    *,
    policy: str = "policy",
    logprobs: Sequence[float] | None = None,
) -> Call:
    return Call(
        index=index,
        parent=parent,
        role="agent",
        messages=(user(f"question {index}"),),
        prompt=tuple(prompt),
        reply=assistant(f"answer {index}"),
        completion=tuple(completion),
        logprobs=tuple(logprobs if logprobs is not None else [-1.0] * len(completion)),
        finish=Finish.STOP,
        policy=policy,
        version=0,
    )


def episode(
    calls: Sequence[Call] = (),
    *,
    group: int = 0,
    member: int = 0,
    outcome: Outcome | None = None,
    turns: int = 0,
) -> Episode:
    return Episode(
        key=Key("rl/1", group, member),
        task=TASK,
        agent="direct",
        observation=None,
        calls=tuple(calls),
        steps=(),
        outcome=outcome or Outcome.success(),
        usage=Usage(turns=turns),
    )


def finish(engine: Engine, requests: Sequence[Request]) -> list[Request]:
    """Step until every request has its reply."""
    while any(request.finish is None for request in requests):
        engine.step()
    return list(requests)
