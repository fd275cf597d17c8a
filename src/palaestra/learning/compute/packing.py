"""Rows to flat tensors: no padding, and each token that rows share is run once.

Rows of a micro-batch that begin alike (the system prompt, the task of a group, the
first turns of rollouts that acted alike, branches of one episode) share those
tokens: each distinct prefix is one entry of the flat batch, so that all work on it, its
gradient included, is done once. Micro-batches are cut where rows share least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, compress, islice, pairwise, repeat

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import Image, ImageSpan
from palaestra.learning.compute.shared_prefix_attention import RowAttention
from palaestra.learning.losses.trained_tokens import Tokens
from palaestra.models.local.image_features import embedded, places_of
from palaestra.models.local.image_tokens import ImageNumbers, with_images
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.prefix_tree import common_prefix


@dataclass(frozen=True, slots=True)
class Trained:
    """One row as the learner sees it; all lists have the row's length.

    Only `tokens` counts where `mask` is false. An omitted list gets the value in brackets
    everywhere, so imitation needs tokens, mask and weight only.

    Raises:
        InputError: a list of another length, or a first token to be trained.
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
    value_old: list[float] | None = None  # the critic's values when the targets were made
    roles: Set[str] = frozenset()  # whose replies it trains; see `adapter_of`
    images: tuple[ImageSpan, ...] = ()  # among its tokens, for a network that sees; never trained
    teacher: Trained | None = None
    """The row in which a teacher reads the same trained tokens, after other prompts [this row]."""
    privileged: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Of turns that it trains, by index of the call: numbers of the state before the reply."""

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
                "The first token of a row cannot be trained: nothing predicts it; put the prompt "
                "before it."
            )
        if self.teacher is not None and _trained(self.teacher) != _trained(self):
            raise InputError(
                "A teacher's row trains other tokens than the student's; change prompts only."
            )


def _trained(row: Trained) -> list[int]:
    return list(compress(row.tokens, row.mask))


def spread(mask: Sequence[bool], values: Iterable[float], elsewhere: float = 0.0) -> list[float]:
    """Expand one number per trained token to one per token, `elsewhere` where not trained.

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


def check_sampled(rows: Sequence[Trained]) -> None:
    """Raise InputError where a trained token has no log-probability of its sampler."""
    for number, row in enumerate(rows):
        if not any(map(math.isnan, chain(row.lp_old, row.lp_beh))):
            continue
        where = row.rollout if isinstance(row.rollout, Key) else f"row {number}"
        for call, old, sampled in compress(
            zip(row.turn, row.lp_old, row.lp_beh, strict=True), row.mask
        ):
            if math.isnan(old) or math.isnan(sampled):
                raise InputError(
                    f"Call {call} of {where} holds no log-probabilities of its tokens, which "
                    "reinforcement needs to weigh the policy's; record them, or recompute them "
                    "with the present policy (`TrainerStepPlan(recompute=True)`, or "
                    "`with_proximal` in a loop of your own)."
                )


def _first_of_turns(rows: Sequence[Trained]) -> Iterator[tuple[int, Sequence[float]]]:
    """Yield the turns with privileged numbers: the place of their first trained token, and them."""
    place = 0
    for row in rows:
        left = dict(row.privileged)
        for call in compress(row.turn, row.mask):
            if call in left:
                yield place, left.pop(call)
            place += 1


class Micro:
    """A micro-batch: N distinct tokens, M trained ones (a token may be trained by several rows).

    Per-token figures are flat tensors [M], row after row, in at least fp32.
    """

    def __init__(
        self, rows: Sequence[Trained], network: DecoderNetwork, *, base: bool = False
    ) -> None:
        """Flatten rows of one adapter; with `base`, they run through the network without it."""
        numbers = ImageNumbers()
        sequences = [keys(row, numbers) for row in rows]
        tokens, positions, paths = merged(sequences)
        self.network, device, self.rows = network, network.device, rows
        self._images = {numbers(span.image): span.image for row in rows for span in row.images}
        self.adapter = None if base else adapter_of(rows[0], network)

        def whole(numbers: Sequence[int]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.int64, device=device)

        def real(column: Callable[[Trained], Iterable[float]]) -> Tensor:
            values = [v for row in rows for v in compress(column(row), row.mask)]
            return torch.tensor(values, dtype=network.wide_dtype, device=device)

        self.tokens, self.positions = whole(tokens), whole(positions)
        for sequence, path in zip(sequences, paths, strict=True):
            places = places_of(network, sequence, self._images)
            if places is not None:
                if self.positions.dim() == 1:
                    self.positions = self.positions.repeat(len(places), 1)
                self.positions[:, path] = places
        self.attend = RowAttention(paths, len(tokens), device)
        self.size = sum(map(len, paths)) if network.own_cache else len(tokens)
        """Tokens that a pass runs."""
        self.ends = whole([path[-1] for path in paths])  # [rows]
        # the mask shifted by one: a token is predicted from the one before it in its row
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
        known = list(_first_of_turns(rows))
        self.privileged_at = whole([place for place, _ in known])
        """Where turns with privileged numbers begin among the trained tokens, [K]."""
        self.privileged = torch.tensor(
            [list(numbers) for _, numbers in known], dtype=network.wide_dtype, device=device
        )

    def hidden(self, frozen: int = 0, *, recompute: bool = False) -> Tensor:
        """Return the hidden states [N, width] of the last block.

        Args:
            frozen: number of lowest blocks that get no gradient.
            recompute: keep only the other blocks' inputs, and recompute each block in the
                backward pass; ignored by networks whose blocks only run together.
        """
        network = self.network
        x = embedded(network, self.tokens, self._images)
        if frozen:
            with torch.no_grad():
                x = self._run(x, 0, frozen)
        if not recompute or network.whole:
            return self._run(x, frozen)
        for layer in range(frozen, network.depth):
            x = checkpoint(
                self._run, x, layer, layer + 1, use_reentrant=False, preserve_rng_state=False
            )
        return x

    def _run(self, x: Tensor, first: int, last: int | None = None) -> Tensor:
        """Run blocks of the network with the adapter of these rows, if it has any."""
        adapters = self.network.adapters
        # where no roles have adapters of their own, the one that acts on the network learns
        own = adapters is not None and (adapters.by_role or self.adapter is None)
        with adapters.used(self.adapter) if adapters and own else nullcontext():
            return self.network.run(x, self.positions, self.attend, first=first, last=last)

    def teacher(self) -> Micro:
        """Return the rows in which a teacher reads the same trained tokens, in the same order."""
        rows = [row.teacher or row for row in self.rows]
        bare = [Trained(r.tokens, r.mask, roles=r.roles, images=r.images) for r in rows]
        return Micro(bare, self.network)

    def seen(
        self, lp: Tensor, *, current: int, proximal: int, divergence: Tensor | None = None
    ) -> Tokens:
        """Return what a loss reads: the micro-batch with its present log-probabilities [M].

        `divergence` is that of each token from the teacher [M], where a student learns.
        """
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
            divergence=divergence,
            current=current,
            proximal=proximal,
        )


def keys(row: Trained, number: Callable[[Image], int]) -> list[int]:
    """Return what the tokens of a row are known by where rows are compared; see `image_tokens`."""
    return with_images(row.tokens, row.images, number) if row.images else row.tokens


def merged(rows: Sequence[list[int]]) -> tuple[list[int], list[int], list[list[int]]]:
    """Return the distinct tokens of sequences, their positions, and the entries of each one."""
    entries: dict[tuple[int, int], int] = {}  # (entry before, token) -> entry
    tokens: list[int] = []
    positions: list[int] = []
    paths: list[list[int]] = []
    last: list[int] = []
    for row in rows:
        # rows that begin alike are mostly neighbours
        path = paths[-1][: common_prefix(last, row)] if paths else []
        for token in islice(row, len(path), None):
            known = entries.get((path[-1] if path else -1, token))
            if known is None:
                break
            path.append(known)
        own = row[len(path) :]
        numbers = range(len(tokens), len(tokens) + len(own))
        before = chain(path[-1:] or [-1], numbers)
        entries.update(zip(zip(before, own, strict=False), numbers, strict=True))
        tokens += own
        positions += range(len(path), len(row))
        paths.append([*path, *numbers])
        last = row
    return tokens, positions, paths


def adapter_of(row: Trained, network: DecoderNetwork) -> str:
    """Return the adapter of the network that sampled a row's replies.

    Raises:
        InputError: roles with different adapters replied in it.
    """
    if network.adapters is None:
        return OWN
    found = {network.adapters.by_role.get(role, OWN) for role in row.roles}
    if len(found) > 1:
        raise InputError(
            f"A row trains replies of the roles {', '.join(sorted(row.roles))}, whose adapters "
            "differ; record each under a name of its own, or leave them out of training.adapters."
        )
    return found.pop() if found else OWN


def micro_batches(
    rows: Sequence[Trained],
    most_tokens: int,
    network: DecoderNetwork | None = None,
    *,
    whole_rollouts: bool = False,
) -> list[list[Trained]]:
    """Group whole rows so that each group holds at most `most_tokens` distinct tokens.

    A network that reads one row at a time computes shared tokens in each row: all count.

    Rows that begin alike stay together: in the order of their tokens, they are cut so that
    as few tokens as possible are in two groups, and then into as few groups as possible. A
    single longer row is a group of its own. The grouping has no influence on the gradient.

    Args:
        rows: in any order.
        most_tokens: bound on the size of a forward pass.
        network: rows of its different adapters are in different groups; None: shares tokens.
        whole_rollouts: keep all rows of a rollout in one group, as a loss over whole rollouts
            needs; a longer rollout is a group of its own.
    """
    if network is not None and network.adapters is not None and network.adapters.by_role:
        by_adapter: dict[str, list[Trained]] = {}
        for row in rows:
            by_adapter.setdefault(adapter_of(row, network), []).append(row)
        return [
            group
            for own in by_adapter.values()
            for group in _groups(own, most_tokens, network, whole_rollouts)
        ]
    return _groups(rows, most_tokens, network, whole_rollouts)


def _groups(
    rows: Sequence[Trained],
    most_tokens: int,
    network: DecoderNetwork | None,
    whole_rollouts: bool,
) -> list[list[Trained]]:
    """Return the `micro_batches` of rows of one adapter."""
    number = ImageNumbers()
    known = {id(row): keys(row, number) for row in rows}
    alone = network is not None and network.own_cache

    def shared_by(a: Trained, b: Trained) -> int:
        return 0 if alone else common_prefix(known[id(a)], known[id(b)])

    together: dict[Hashable, list[Trained]] = {}
    for row in sorted(rows, key=lambda row: known[id(row)]):
        together.setdefault(row.rollout if whole_rollouts else id(row), []).append(row)
    units = list(together.values())
    # an upper bound where rollouts have several rows, exact where they have one
    sizes = [
        len(unit[0].tokens) + sum(len(b.tokens) - shared_by(a, b) for a, b in pairwise(unit))
        for unit in units
    ]
    shared = [0, *(shared_by(a[0], b[0]) for a, b in pairwise(units))]
    # of the first n units: (tokens run, groups, where the last group begins)
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for end in range(1, len(units) + 1):
        found, size = [], 0
        for start in reversed(range(end)):
            size += sizes[start]
            if size > most_tokens and start < end - 1:
                break
            tokens, groups, _ = best[start]
            found.append((tokens + size, groups + 1, start))
            size -= shared[start]
        best.append(min(found))
    cuts = [len(units)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][2])
    return [
        [row for unit in units[start:stop] for row in unit]
        for start, stop in pairwise(reversed(cuts))
    ]


def per_row(
    rows: Sequence[Trained],
    groups: list[list[Trained]],
    compute: Callable[[list[list[Trained]]], Iterable[Tensor]],
) -> list[list[float]]:
    """Return a number for each trained token of each row, in the order of `rows`.

    Args:
        rows: in any order.
        groups: all of them, see `micro_batches`.
        compute: groups of rows -> of each one [M], row after row.
    """
    found: dict[int, list[float]] = {}
    for group, numbers in zip(groups, compute(groups), strict=True):
        values = iter(numbers.tolist())
        for row in group:
            found[id(row)] = list(islice(values, sum(row.mask)))
    return [found[id(row)] for row in rows]
