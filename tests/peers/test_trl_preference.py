"""DPO and KTO: the same numbers as TRL's trainers, through a real model and its gradients."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.data.examples.labels import mismatched
from palaestra.learning.data.examples.preferred import Label
from palaestra.learning.data.rows import Row
from palaestra.learning.losses.preference import coefficients, dpo, implicit_reward, kto
from tests.peers.conftest import Agree
from tests.peers.made import SEEDS
from tests.peers.trl_trainers import preference

NO_TRL = "TRL cannot be imported here; `make check-peers` runs these comparisons"
pytest.importorskip("trl.trainer.dpo_trainer", reason=NO_TRL, exc_type=ImportError)
pytestmark = pytest.mark.trl

PAIRS, LABELS = ["red left", "blue right"], [True, False]


def dpo_trainer(folder: Path, **more: Any) -> Any:
    columns = {"prompt": ["red "] * 2, "chosen": PAIRS, "rejected": PAIRS}
    return preference(folder, "DPO", columns, **more)


def kto_trainer(folder: Path, **more: Any) -> Any:
    columns = {"prompt": ["red ", "blue "], "completion": PAIRS, "label": LABELS}
    return preference(folder, "KTO", columns, **more)


@dataclass(frozen=True, slots=True)
class Texts:
    """Responses to a question, each with an observation in its middle: int64 [N, T] all."""

    ids: Tensor
    attention: Tensor
    mask: Tensor  # 1 on tokens that the policy sampled

    @property
    def given(self) -> dict[str, Tensor]:
        names = ("input_ids", "attention_mask", "completion_mask")
        return dict(zip(names, (self.ids, self.attention, self.mask), strict=True))

    def logprobs(self, model: Any) -> Tensor:
        """The sum over sampled tokens, by torch's own softmax: [N]."""
        logits = model(input_ids=self.ids, attention_mask=self.attention).logits[:, :-1]
        each = torch.log_softmax(logits, -1).gather(-1, self.ids[:, 1:, None]).squeeze(-1)
        return (each * self.mask[:, 1:]).sum(dim=1)


def texts(seed: int, count: int) -> Texts:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        parts = [rng.randint(1, 3) for _ in range(4)]  # question, turn, observation, turn
        rows.append([on for on, n in zip((0, 1, 0, 1), parts, strict=True) for _ in range(n)])
    width = max(map(len, rows))
    attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    ids = torch.tensor([[rng.randrange(2, 8) for _ in range(width)] for _ in rows])
    return Texts(ids * attention, attention, mask)


def slope(loss: Tensor, model: Any) -> Tensor:
    """The gradient by all weights, flat."""
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([g.flatten() for g in found if g is not None])


def compare(agree: Agree, name: str, mine: Tensor, other: Tensor, model: Any) -> None:
    agree(name, mine, other)
    agree(f"{name}, gradient", slope(mine, model), slope(other, model))


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_dpo(agree: Agree, folder: Path, beta: float) -> None:
    peer = dpo_trainer(folder, beta=beta)
    for seed in SEEDS:
        responses = texts(seed, 6)  # three chosen, then three rejected
        other = peer._compute_loss(peer.model, responses.given, False)
        policy = responses.logprobs(peer.model).chunk(2)
        ref = responses.logprobs(peer.ref_model).detach().chunk(2)
        compare(agree, "dpo", dpo(*policy, *ref, beta=beta).mean(), other, peer.model)
        for which, lp, lp_ref in zip(("chosen", "rejected"), policy, ref, strict=True):
            reward = implicit_reward(lp, lp_ref, beta=beta).mean()
            agree("dpo, rewards", reward, peer._metrics["train"][f"rewards/{which}"][-1])


def test_dpo_as_policy_gradient(agree: Agree, folder: Path) -> None:
    """What the learner does: advantages for `-A * lp`, taken from all log-probabilities first."""
    peer = dpo_trainer(folder)
    for seed in SEEDS:
        responses = texts(seed, 6)
        other = peer._compute_loss(peer.model, responses.given, False)
        lp = responses.logprobs(peer.model)
        ref = responses.logprobs(peer.ref_model).detach().double().chunk(2)
        advantages = coefficients(lambda a, b, ref=ref: dpo(a, b, *ref), *lp.chunk(2))
        surrogate = -(torch.cat(advantages) / 3 * lp).sum()
        agree("dpo as advantages", slope(surrogate, peer.model), slope(other, peer.model))


def test_label_smoothing_is_that_of_aot_on_one_pair(agree: Agree, folder: Path) -> None:
    """TRL's `sigmoid` does not read `label_smoothing`; its `aot` does, and one pair is sorted."""
    smooth, plain = (
        dpo_trainer(folder, loss_type=[kind], label_smoothing=0.2) for kind in ("aot", "sigmoid")
    )
    for seed in SEEDS:
        responses = texts(seed, 2)
        other = smooth._compute_loss(smooth.model, responses.given, False)
        policy = responses.logprobs(smooth.model).chunk(2)
        ref = responses.logprobs(smooth.ref_model).detach().chunk(2)
        mine = dpo(*policy, *ref, label_smoothing=0.2).mean()
        compare(agree, "dpo, label smoothing", mine, other, smooth.model)
        ignored = plain._compute_loss(plain.model, responses.given, False)
        agree("dpo, smoothing not read", dpo(*policy, *ref).mean(), ignored)


@pytest.mark.parametrize("labels", [[1, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], ids=str)
def test_kto(agree: Agree, folder: Path, labels: list[int]) -> None:
    peer = kto_trainer(folder, beta=0.3, desirable_weight=1.2, undesirable_weight=0.7)
    desirable, bounded = torch.tensor(labels).bool(), []
    for seed in SEEDS:
        responses, others = texts(seed, 5), texts(seed + 100, 5)
        given = responses.given | {f"KL_{name}": x for name, x in others.given.items()}
        other = peer._compute_loss(peer.model, given | {"label": desirable}, False)
        policy, ref = (responses.logprobs(m) for m in (peer.model, peer.ref_model))
        kl = others.logprobs(peer.model) - others.logprobs(peer.ref_model)
        bounded.append(float(kl.detach().mean()) < 0)
        loss = partial(kto, beta=0.3, weight_desirable=1.2, weight_undesirable=0.7)
        mine = loss(policy, ref.detach(), desirable, kl).mean()
        compare(agree, "kto", mine, other, peer.model)
        agree("kto, reference point", kl.mean().clamp(min=0), peer._metrics["train"]["kl"][-1])
    assert any(bounded) and not all(bounded), "the reference point is bounded sometimes"


# ── differences ──────────────────────────────────────────────────────────────


def test_a_mismatched_response_answers_another_question_where_trl_only_shifts(
    folder: Path,
) -> None:
    """TRL pairs each question with the response before it, even one to the same question."""
    output = [("red", "green"), ("red", "left"), ("blue", "right")]
    columns = {"prompt": [f"{q} " for q, _ in output], "completion": [a for _, a in output]}
    peer = preference(folder, "KTO", columns | {"label": [True, False, True]})
    data, words = peer.train_dataset, peer.processing_class
    theirs = [words.decode(ids).split()[0] for ids in data["KL_completion_ids"]]
    assert theirs == ["right", "green", "left"]
    labels = []
    for question, answer in output:
        tokens = words(f"{question} {answer}")["input_ids"]
        row = Row(Key("rl/1", 0, 0), tokens, [False, True], [0.0, 0.0], [-1, 0])
        labels.append(Label((row,), True))
    mine = [words.decode(response[0].tokens) for response in mismatched(labels)]
    assert mine == ["red right", "red right", "blue green"]


def test_trl_trains_on_all_that_follows_the_prompt(folder: Path) -> None:
    """Its own data has no place for observations: the mask must be given as done above."""
    peer = dpo_trainer(folder)
    found = peer.data_collator([peer.train_dataset[0]])
    lengths = found["attention_mask"].sum(dim=1)
    assert found["completion_mask"].sum(dim=1).tolist() == (lengths - 1).tolist()
