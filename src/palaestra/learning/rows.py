"""Rows: what the learner trains on, read off the message graph.

One row per root-to-leaf branch. A sampled token is trained in exactly one row
(where branches share a past, in the first of them) and nothing else is trained:
prompts, observations and other policies' replies are context only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.graph import Call


@dataclass(frozen=True, slots=True)
class Row:
    """One token sequence; all lists have its length."""

    key: Key  # the rollout it belongs to
    tokens: list[int]
    mask: list[bool]  # true on sampled tokens that this row trains
    logprobs: list[float]  # the sampler's where mask is true, NaN if unknown; elsewhere 0
    calls: list[int]  # index of the model call that sampled the token; -1 elsewhere
    versions: list[int] = field(default_factory=list)  # of the weights; 0 where mask is false

    @property
    def trained(self) -> int:
        """Number of tokens that this row trains."""
        return sum(self.mask)


def rows_of(episode: Episode, policy: str) -> list[Row]:
    """The training rows of what `policy` said in one episode.

    Raises:
        InputError: a call of the policy said something but has no token ids (its model has no
            renderer), has log-probabilities or versions of other than all of its tokens, or has
            no prompt (a first token has nothing to be predicted from).
    """
    rows: list[Row] = []
    done: set[int] = set()
    for branch in episode.graph.branches():
        row = Row(episode.key, [], [], [], [])
        for call in branch:
            if call.policy == policy:
                _check(call, episode.key)
            trained = call.policy == policy and call.index not in done
            done.add(call.index)
            append(row, call.prompt)
            append(row, call.completion, call if trained else None, call.index)
        if row.mask and row.mask[0]:
            raise InputError(
                f"{episode.key}: call {branch[0].index} has an empty prompt, so that nothing "
                "predicts its first token; record what the policy was asked, or leave the "
                "episode out."
            )
        if row.trained:
            rows.append(_trim(row))
    return rows


def append(row: Row, tokens: Sequence[int], said: Call | None = None, number: int = -1) -> None:
    """Write on: tokens that are not trained, or those of a call that are, as call `number`."""
    n = len(tokens)
    row.tokens.extend(tokens)
    row.mask.extend([said is not None] * n)
    unknown = 0.0 if said is None else math.nan
    row.logprobs.extend(said.logprobs if said and said.logprobs else [unknown] * n)
    row.calls.extend([-1 if said is None else number] * n)
    row.versions.extend(said.token_versions if said else [0] * n)


def _check(call: Call, key: Key) -> None:
    """Raises InputError unless the call can be learned from, token for token."""
    n = len(call.completion)
    if not n and call.reply.content:
        raise InputError(
            f"{key}: call {call.index} holds no token ids, so that '{call.policy}' cannot learn "
            "from it; record its tokens, or leave the episode out."
        )
    for name, numbers in (("log-probabilities", call.logprobs), ("versions", call.versions)):
        if len(numbers) not in (0, n):
            raise InputError(
                f"{key}: call {call.index} has {n} sampled tokens, but {len(numbers)} {name}; "
                "record one for each token, or none."
            )


def _trim(row: Row) -> Row:
    """Without what follows the last trained token: nothing depends on it."""
    end = len(row.mask) - row.mask[::-1].index(True)
    return replace(
        row,
        tokens=row.tokens[:end],
        mask=row.mask[:end],
        logprobs=row.logprobs[:end],
        calls=row.calls[:end],
        versions=row.versions[:end],
    )
