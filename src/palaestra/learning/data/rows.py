"""Rows: what the learner trains on, read from the message graph.

One row per root-to-leaf branch. A sampled token is trained in exactly one row
(where branches share a past, in the first of them; where rollouts do, in the one that sampled it)
and nothing else is trained: prompts, observations and other policies' replies are context only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import ImageSpan
from palaestra.core.model import adapter_role, is_of


@dataclass(frozen=True, slots=True)
class Row:
    """One token sequence; all lists have its length."""

    key: Key  # the rollout it belongs to
    tokens: list[int]
    mask: list[bool]  # true on sampled tokens that this row trains; forced ones are context
    logprobs: list[float]  # the sampler's where mask is true, NaN if unknown; elsewhere 0
    calls: list[int]  # index of the model call that sampled the token; -1 elsewhere
    versions: list[int] = field(default_factory=list)  # of the weights; 0 where mask is false
    roles: set[str] = field(default_factory=set)  # whose adapters replied in what it trains
    images: list[ImageSpan] = field(default_factory=list)  # among its tokens, in order

    @property
    def trained(self) -> int:
        """Number of tokens that this row trains."""
        return sum(self.mask)


def rows_of(episode: Episode, policy: str) -> list[Row]:
    """Return the training rows of the replies of `policy` in one episode.

    Replies of its different adapters are in different rows, in which those of the others are
    context.

    Raises:
        InputError: a reply of the policy has no token ids (its model has no renderer), has
            log-probabilities or versions for only some of its tokens, has no prompt (nothing
            predicts its first token), or does not say where its images are.
    """
    names = dict.fromkeys(call.policy for call in episode.calls if is_of(call.policy, policy))
    return [row for name in names for row in _rows_of(episode, name)]


def _rows_of(episode: Episode, policy: str) -> list[Row]:
    """Return the rows of calls that are recorded under exactly that name."""
    rows: list[Row] = []
    done: set[int] = set()
    for branch in episode.graph.branches():
        row = Row(episode.key, [], [], [], [])
        for call in branch:
            if call.policy == policy:
                _check(call, episode.key)
            trained = call.policy == policy and call.index not in done and call.shared_by is None
            done.add(call.index)
            add_images(row, call.images)
            append(row, call.prompt)
            append(row, call.completion, call if trained else None, call.index)
        if row.mask and row.mask[0]:
            raise InputError(
                f"{episode.key}: call {branch[0].index} has an empty prompt, so that nothing "
                "predicts its first token; record the prompt of the policy, or leave the episode "
                "out."
            )
        if row.trained:
            rows.append(_trim(row))
    return rows


def append(row: Row, tokens: Sequence[int], call: Call | None = None, number: int = -1) -> None:
    """Append tokens to a row: not trained, or those of a trained call, as call `number`."""
    n, start = len(tokens), len(row.tokens)
    row.tokens.extend(tokens)
    row.mask.extend([call is not None] * n)
    unknown = 0.0 if call is None else math.nan
    row.logprobs.extend(call.logprobs if call and call.logprobs else [unknown] * n)
    row.calls.extend([-1 if call is None else number] * n)
    row.versions.extend(call.token_versions if call else [0] * n)
    if call is not None:
        row.roles.add(adapter_role(call.policy, call.role))
    for place in call.forced if call else ():
        row.mask[start + place] = False
        row.logprobs[start + place] = 0.0
        row.calls[start + place] = -1
        row.versions[start + place] = 0


def add_images(row: Row, images: Sequence[ImageSpan]) -> None:
    """Record the places of images among the tokens that are appended next."""
    row.images.extend(span.moved(len(row.tokens)) for span in images)


def refuse_images(images: Sequence[ImageSpan], what: str) -> None:
    """Raise InputError for images in what cannot learn from conversations with images."""
    if images:
        raise InputError(
            f"{what} does not learn from conversations with images; leave out observation=image, "
            "or learn by imitation of whole episodes and a policy loss."
        )


def _check(call: Call, key: Key) -> None:
    """Raise InputError unless the call can be learned from, token for token."""
    n = len(call.completion)
    if not n and call.reply.parts:
        raise InputError(
            f"{key}: call {call.index} holds no token ids, so that '{call.policy}' cannot learn "
            "from it; record its tokens, or leave the episode out."
        )
    shown = [image for message in call.messages for image in message.images]
    if n and shown != [span.image for span in call.images]:
        raise InputError(
            f"{key}: call {call.index} shows {len(shown)} images, and its record places "
            f"{len(call.images)} of them among its tokens, so that '{call.policy}' cannot learn "
            "from it; leave the episode out."
        )
    if any(not 0 <= place < n for place in call.forced):
        raise InputError(
            f"{key}: call {call.index} has {n} tokens, and forced ones at {list(call.forced)}; "
            "record positions within the reply."
        )
    for name, numbers in (("log-probabilities", call.logprobs), ("versions", call.versions)):
        if len(numbers) not in (0, n):
            raise InputError(
                f"{key}: call {call.index} has {n} sampled tokens, but {len(numbers)} {name}; "
                "record one for each token, or none."
            )


def _trim(row: Row) -> Row:
    """Drop what follows the last trained token: nothing depends on it."""
    end = len(row.mask) - row.mask[::-1].index(True)
    return replace(
        row,
        tokens=row.tokens[:end],
        mask=row.mask[:end],
        logprobs=row.logprobs[:end],
        calls=row.calls[:end],
        versions=row.versions[:end],
        images=[span for span in row.images if span.start < end],
    )
