"""TRL's own trainers on a transformer of a few hundred weights, on the CPU, from nothing stored.

Log-probabilities, rewards and replies are handed to them where they would ask a model for them,
so that it is their code that computes advantages and losses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from palaestra.learning.credit.rule import Credit
from palaestra.learning.losses.aggregation import Aggregation
from tests.peers.made import Batch, Policies, gradient, made

Columns = dict[str, list[Any]]

WORDS = ["<pad>", "<end>", "red", "green", "blue", "left", "right", "<unknown>"]
LENGTH = 40  # max_completion_length
MEAN, EACH = Aggregation.TOKEN_MEAN, Aggregation.ROLLOUT_TOKEN_MEAN
SUM, NORM = Aggregation.ROLLOUT_TOKEN_SUM, Aggregation.ROLLOUT_TOKEN_NORM
SEQUENCE = {"importance_sampling_level": "sequence"}


def tokenizer() -> Any:
    """One token per word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(WORDS)}
    found = Tokenizer(models.WordLevel(words, unk_token="<unknown>"))
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=found, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )


def model(seed: int) -> Any:
    """Large random weights, so that its distributions are far from uniform."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.5,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def built(folder: Path, kind: str, columns: Columns, settings: Any, **more: Any) -> Any:
    """`GRPOTrainer` for the kind "GRPO" and so on, in training; it writes nothing."""
    import datasets
    import trl

    datasets.disable_progress_bars()
    fixed = {"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": []}
    found = getattr(trl, f"{kind}Trainer")(
        model=model(1),
        args=getattr(trl, f"{kind}Config")(**fixed, **settings),
        train_dataset=datasets.Dataset.from_dict(columns),
        processing_class=tokenizer(),
        **more,
    )
    found.model.train()
    return found


def preference(folder: Path, kind: str, columns: Columns, **settings: Any) -> Any:
    """A trainer of pairs or labels, with another model as its reference."""
    return built(folder, kind, columns, settings, ref_model=model(2))


def online(folder: Path, kind: str = "GRPO", *, beta: float = 0.0, **more: Any) -> Any:
    """A trainer of groups of four, at the first micro-batch of a step."""
    settings = {"num_generations": 4, "per_device_train_batch_size": 12, "beta": 0.0}
    settings |= {"max_completion_length": LENGTH} | more
    found = built(
        folder,
        kind,
        {"prompt": ["red"] * 12},
        settings,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )
    found.pad_to_multiple_of = None
    found.beta = beta  # given at construction, it would load a reference model
    found.current_gradient_accumulation_steps = found.args.gradient_accumulation_steps
    return found


def completion(batch: Batch) -> Tensor:
    """1 up to and including one observation after the last sampled token: int64 [B, T]."""
    last = torch.tensor([int(row.nonzero().max()) for row in batch.mask])
    return (torch.arange(batch.mask.shape[1]) <= last[:, None] + 1).long()


def inputs(batch: Batch, numbers: Policies, **more: Tensor) -> dict[str, Tensor]:
    """What `_compute_loss` is given; sampled tokens are those of both masks."""
    ones, within = torch.ones(len(batch.mask), 1, dtype=torch.int64), completion(batch)
    return {
        "prompt_ids": ones,
        "prompt_mask": ones,
        "completion_ids": torch.ones_like(batch.mask),
        "completion_mask": within,
        "tool_mask": torch.where(within.bool(), batch.mask, 1),
        "advantages": numbers.advantage,
        "old_per_token_logps": numbers.lp_old,
        "ref_per_token_logps": numbers.lp_ref,
        "num_items_in_batch": batch.mask.sum(),
        **more,
    }


def their_loss(
    peer: Any, given: dict[str, Tensor], lp: Tensor, nats: Tensor | None = None
) -> Tensor:
    """TRL's loss where the policy's log-probabilities are `lp` and its entropies `nats`."""
    nats = torch.zeros_like(lp) if nats is None else nats
    peer._get_per_token_logps_and_entropies = lambda *_, **__: (lp, nats, None)
    return peer._compute_loss(peer.model, given)


def theirs(peer: Any, batch: Batch, numbers: Policies, **more: Tensor) -> tuple[Tensor, Tensor]:
    """TRL's loss of one batch, and its gradient by all log-probabilities."""
    total = their_loss(peer, inputs(batch, numbers, **more), numbers.lp)
    return total, gradient(total, numbers)


def replies(peer: Any, batch: Batch, numbers: Policies | None, rewards: Tensor) -> dict[str, Any]:
    """What the trainer makes of a batch of replies: advantages and, if asked for, corrections."""
    lengths = completion(batch).sum(dim=1).tolist()
    ids = [[2] * n for n in lengths]
    masks = [row[:n].tolist() for row, n in zip(batch.mask, lengths, strict=True)]
    sampled = None
    if numbers is not None:
        sampled = [row[:n].tolist() for row, n in zip(numbers.lp_beh, lengths, strict=True)]
        peer._get_per_token_logps_and_entropies = lambda *_, **__: (numbers.lp_old, None, None)
    texts = [""] * len(ids)
    peer._generate = lambda _: ([[2]] * len(ids), ids, masks, texts, sampled, {}, None, None)
    peer._calculate_rewards = lambda *_: rewards[:, None]
    return peer._generate_and_score_completions([{"prompt": "red"}] * len(ids))


def in_groups(seed: int) -> tuple[Batch, list[int], Tensor]:
    """A batch of groups of four, in which order they come group by group, and their returns."""
    batch = made(seed, members=(4, 4))
    keys = [(t.key.group, t.key.member) for t in batch.trajectories]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    returns = [batch.trajectories[i].total for i in order]
    return batch, order, torch.tensor(returns, dtype=torch.float64)


def per_rollout(credit: Credit, order: list[int]) -> Tensor:
    """One advantage per rollout, in that order."""
    return torch.stack([credit.advantages[i][0] for i in order])
