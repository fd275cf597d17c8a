"""Rows to flat tensors: no padding and no shared prefix is run twice.

Rows of a micro-batch that begin alike (the system prompt, the task of a group, the
first turns of rollouts that acted alike, branches of one episode) share those
tokens: each distinct prefix is one entry of the flat batch, so embeddings, matrix
products and their gradients are computed once for it. Attention alone works row by
row, on padded views gathered from the flat batch; being causal, it never looks at
padding, and what a token attends to is exactly its own row's past.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice, pairwise, repeat

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.core.errors import InputError
from palaestra.learning.losses.tokens import Tokens
from palaestra.models.cache import common_prefix
from palaestra.models.network import DecoderNetwork


@dataclass(frozen=True, slots=True)
class Trained:
    """One row as the learner sees it; all lists have the row's length.

    Only `tokens` counts where `mask` is false. A list that is left out gets the value in
    brackets everywhere, so imitation needs tokens, mask and weight only.

    Raises:
        InputError: a list of another length, or a first token that is to be trained.
    """

    tokens: list[int]
    mask: list[bool]  # true on the tokens that this row trains
    lp_old: list[float] = field(default_factory=list)  # under the proximal policy [0]
    advantage: list[float] = field(default_factory=list)  # [1]
    weight: list[float] = field(default_factory=list)  # of each token's loss [1]
    lp_beh: list[float] = field(default_factory=list)  # as the sampler recorded it [lp_old]
    version: list[int] = field(default_factory=list)  # of the weights that sampled it [0]
    turn: list[int] = field(default_factory=list)  # index of the call that sampled it [0]
    rollout: Hashable = field(default_factory=object)  # equal in a rollout's rows [one of its own]
    lp_ref: list[float] | None = None  # under the frozen reference policy
    value_target: list[float] | None = None  # the critic's, NaN where there is none
    value_old: list[float] | None = None  # what the critic said when the target was made

    def __post_init__(self) -> None:
        length = len(self.tokens)
        defaults = {"lp_old": 0.0, "advantage": 1.0, "weight": 1.0, "version": 0, "turn": 0}
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, [value] * length)
        if not self.lp_beh:
            object.__setattr__(self, "lp_beh", self.lp_old)
        for name in ("mask", *defaults, "lp_beh", "lp_ref", "value_target", "value_old"):
            values = getattr(self, name)
            if values is not None and len(values) != length:
                raise InputError(
                    f"A row has {length} tokens, but {len(values)} entries of `{name}`; "
                    "give one for each token, trained or not."
                )
        if self.mask[:1] == [True]:
            raise InputError(
                "The first token of a row cannot be trained: nothing predicts it. Put the "
                "prompt before it."
            )


def spread(mask: Sequence[bool], values: Iterable[float], elsewhere: float = 0.0) -> list[float]:
    """One number per trained token to one per token, `elsewhere` where the mask is false.

    Raises:
        InputError: more or fewer numbers than trained tokens.
    """
    numbers = list(values)
    if len(numbers) != sum(mask):
        raise InputError(
            f"A row trains {sum(mask)} tokens, but {len(numbers)} numbers were given for them."
        )
    following = iter(numbers)
    return [next(following) if on else elsewhere for on in mask]


class Micro:
    """A micro-batch: N distinct tokens, M trained ones (a token may be trained by several rows).

    Per-token figures are flat tensors [M], row after row, in at least fp32.
    """

    def __init__(self, rows: Sequence[Trained], network: DecoderNetwork) -> None:
        tokens, positions, paths = _merged(rows)
        self.network, device = network, network.device

        def whole(numbers: Sequence[int]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.int64, device=device)

        def real(column: Callable[[Trained], Iterable[float]]) -> Tensor:
            values = [v for row in rows for v in compress(column(row), row.mask)]
            return torch.tensor(values, dtype=network.wide_dtype, device=device)

        self.tokens, self.positions = whole(tokens), whole(positions)
        self.attend = RowAttention(paths, len(tokens), device)
        self.ends = whole([path[-1] for path in paths])  # [rows]
        # the mask moved by one: a token is predicted from the one before it in its row
        self.predictors = whole(
            [
                entry
                for path, row in zip(paths, rows, strict=True)
                for entry in compress(path, islice(row.mask, 1, None))
            ]
        )
        self.targets = whole([t for row in rows for t in compress(row.tokens, row.mask)])
        rollouts: dict[Hashable, int] = {}
        turns: dict[tuple[int, int], int] = {}
        rollout: list[int] = []
        turn: list[int] = []
        for row in rows:
            number = rollouts.setdefault(row.rollout, len(rollouts))
            for call in compress(row.turn, row.mask):
                rollout.append(number)
                turn.append(turns.setdefault((number, call), len(turns)))
        self.rollout, self.turn = whole(rollout), whole(turn)
        self.call = whole([call for row in rows for call in compress(row.turn, row.mask)])
        self.version = whole([v for row in rows for v in compress(row.version, row.mask)])
        self.lp_old = real(lambda row: row.lp_old)
        self.lp_beh = real(lambda row: row.lp_beh)
        self.advantage = real(lambda row: row.advantage)
        self.weight = real(lambda row: row.weight)
        with_reference = sum(row.lp_ref is not None for row in rows)
        if with_reference not in (0, len(rows)):
            raise InputError(
                f"{with_reference} of {len(rows)} rows have reference log-probabilities; "
                "give lp_ref to all rows of a batch or to none."
            )
        self.lp_ref = real(lambda row: row.lp_ref or ()) if with_reference else None
        self.value_target = real(lambda row: row.value_target or repeat(math.nan))
        self.value_old = real(lambda row: row.value_old or repeat(math.nan))

    def hidden(self, frozen: int = 0) -> Tensor:
        """Hidden states [N, width] of the last block; no gradient in the lowest `frozen` ones."""
        network = self.network
        x = network.embed(self.tokens)
        if frozen:
            with torch.no_grad():
                x = network.run(x, self.positions, self.attend, last=frozen)
        return network.run(x, self.positions, self.attend, first=frozen)

    def seen(self, lp: Tensor, *, current: int, proximal: int) -> Tokens:
        """What a loss sees: the micro-batch with its present log-probabilities [M]."""
        return Tokens(
            lp=lp,
            lp_old=self.lp_old,
            advantage=self.advantage,
            turn=self.turn,
            rollout=self.rollout,
            lp_beh=self.lp_beh,
            version=self.version,
            call=self.call,
            lp_ref=self.lp_ref,
            current=current,
            proximal=proximal,
        )


def _merged(rows: Sequence[Trained]) -> tuple[list[int], list[int], list[list[int]]]:
    """The distinct tokens of all rows, their positions, and which ones each row consists of."""
    entries: dict[tuple[int, int], int] = {}  # (entry before, token) -> entry
    tokens: list[int] = []
    positions: list[int] = []
    paths: list[list[int]] = []
    for row in rows:
        path: list[int] = []
        before = -1
        for position, token in enumerate(row.tokens):
            entry = entries.setdefault((before, token), len(tokens))
            if entry == len(tokens):
                tokens.append(token)
                positions.append(position)
            path.append(entry)
            before = entry
        paths.append(path)
    return tokens, positions, paths


ROWS_AT_ONCE = 4  # rows attended together; few, so that they are of nearly equal length


class RowAttention:
    """Causal attention along each row of a flat batch (an `Attend`)."""

    def __init__(self, paths: Sequence[Sequence[int]], count: int, device: torch.device) -> None:
        ordered = sorted(paths, key=len)
        home = [-1] * count  # where in the padded rows each token's own result stands
        self.buckets: list[tuple[Tensor, tuple[int, int]]] = []
        offset = 0
        for at in range(0, len(ordered), ROWS_AT_ONCE):
            bucket = ordered[at : at + ROWS_AT_ONCE]
            longest = len(bucket[-1])
            gather: list[int] = []
            for path in bucket:
                for position, entry in enumerate(path):
                    if home[entry] < 0:
                        home[entry] = offset + position
                gather += [*path, *[0] * (longest - len(path))]
                offset += longest
            self.buckets.append((torch.tensor(gather, device=device), (len(bucket), longest)))
        self.home = torch.tensor(home, device=device)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = []
        for gather, shape in self.buckets:
            # index_select, not x[...]: its backward pass is 20 times faster on CPUs
            rows = [x.index_select(0, gather).view(*shape, *x.shape[1:]) for x in (q, k, v)]
            parts.append(causal_attention(*rows).flatten(0, 1))
        return torch.cat(parts).index_select(0, self.home)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention within rows: q [R, L, heads, d], k and v [R, L, kv_heads, d].

    On CPUs plain batched products: for rows of a few hundred tokens, torch's fused kernel
    takes twice as long forward and three times backward (measured in bf16, two cores).
    """
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if share > 1:
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    rows, heads, length, d = q.shape
    future = q.new_full((length, length), float("-inf")).triu(1)
    q, k, v = (x.reshape(rows * heads, length, d) for x in (q, k, v))
    scores = torch.baddbmm(future.expand(rows * heads, -1, -1), q, k.mT, alpha=d**-0.5)
    out = torch.bmm(scores.softmax(dim=-1), v)
    return out.view(rows, heads, length, d).transpose(1, 2)


def micro_batches(
    rows: Sequence[Trained], most_tokens: int, *, whole_rollouts: bool = False
) -> list[list[Trained]]:
    """Whole rows grouped so that each group holds at most `most_tokens` distinct tokens.

    A single longer row travels alone. Rows that begin alike travel together; the
    order has no influence on the gradient.

    Args:
        rows: in any order.
        most_tokens: bound on the size of a forward pass.
        whole_rollouts: keep all rows of a rollout in one group, as a loss over whole rollouts
            needs; a longer rollout travels alone.
    """
    units: dict[Hashable, list[Trained]] = {}
    for row in sorted(rows, key=lambda row: row.tokens):
        units.setdefault(row.rollout if whole_rollouts else id(row), []).append(row)
    groups: list[list[Trained]] = []
    size = 0
    before: Trained | None = None  # the first row of the latest unit
    for unit in units.values():
        # an upper bound where rollouts have several rows, exact where they have one
        own = len(unit[0].tokens) + sum(
            len(b.tokens) - common_prefix(a.tokens, b.tokens) for a, b in pairwise(unit)
        )
        known = common_prefix(before.tokens, unit[0].tokens) if before is not None else 0
        if before is None or size + own - known > most_tokens:
            groups.append([])
            size = known = 0
        groups[-1] += unit
        size += own - known
        before = unit[0]
    return groups


def per_row(
    rows: Sequence[Trained], most_tokens: int, compute: Callable[[list[Trained]], Tensor]
) -> list[list[float]]:
    """Numbers of the trained tokens of each row, in the order of `rows`.

    Args:
        rows: in any order.
        most_tokens: per group, see `micro_batches`.
        compute: a group of rows -> [M], row after row.
    """
    found: dict[int, list[float]] = {}
    for group in micro_batches(rows, most_tokens):
        values = iter(compute(group).tolist())
        for row in group:
            found[id(row)] = list(islice(values, sum(row.mask)))
    return [found[id(row)] for row in rows]
