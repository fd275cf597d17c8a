"""Encoder of the scorers: hidden states of a `DecoderNetwork` at chosen tokens of a row.

The embedding of a history is the state at its last token, the one before the reply
begins; that of a reply is the state at its own last token. A scorer has a network of
its own: trained in place, never the policy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.compute.shared_prefix_attention import RowAttention
from palaestra.learning.data.rows import Row, refuse_images
from palaestra.learning.data.trajectory import Trajectory
from palaestra.models.local.network import DecoderNetwork

T = TypeVar("T")
AT_ONCE = 32  # sequences per pass where no gradient is wanted


@dataclass(frozen=True, slots=True)
class Reply:
    """One turn in tokens: `row[start:end]`, the reply to `row[:start]`."""

    row: Sequence[int]  # shared by the turns of a row: histories are not copied
    start: int
    end: int

    @property
    def history(self) -> tuple[int, ...]:
        """All tokens before the reply."""
        return tuple(self.row[: self.start])

    @property
    def tokens(self) -> tuple[int, ...]:
        """The reply."""
        return tuple(self.row[self.start : self.end])

    @property
    def whole(self) -> tuple[int, ...]:
        """The history and the reply."""
        return tuple(self.row[: self.end])


def replies(trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> list[list[Reply]]:
    """Return the turns of each trajectory in tokens, in the order of its turns.

    Raises:
        InputError: the rows do not hold a turn, hold another number of its tokens, or hold images.
    """
    known: dict[tuple[Key, int], Reply] = {}
    for row in rows:
        refuse_images(row.images, "A separate critic")
        at = 0
        for call, span in itertools.groupby(row.calls):
            length = sum(1 for _ in span)
            if call >= 0:
                known[row.key, call] = Reply(row.tokens, at, at + length)
            at += length
    found: list[list[Reply]] = []
    for trajectory in trajectories:
        turns: list[Reply] = []
        for turn in trajectory.turns:
            reply = known.get((trajectory.key, turn.call))
            if reply is None or reply.end - reply.start != turn.tokens:
                has = "none" if reply is None else str(reply.end - reply.start)
                raise InputError(
                    f"Call {turn.call} of {trajectory.key} has {turn.tokens} tokens, but the "
                    f"rows hold {has}; give the rows of the same episodes and policy."
                )
            turns.append(reply)
        found.append(turns)
    return found


def hidden_at(
    network: DecoderNetwork,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
) -> Tensor:
    """Return hidden states of the last block at the given positions of each sequence.

    What sequences share at their beginning is run once. A sequence longer than the
    network's context loses its first tokens.

    Returns:
        [sum of the numbers of positions, width], sequence after sequence.

    Raises:
        InputError: no sequence, an empty one, or a position that the context cuts off.
    """
    if not sequences or not all(sequences):
        raise InputError("There is no token to score; give at least one sequence, and none empty.")
    limit = network.config.max_position_embeddings
    entries: dict[tuple[int, int], int] = {}  # (entry before, token) -> entry
    tokens: list[int] = []
    places: list[int] = []
    walked: dict[int, list[int]] = {}
    paths: list[list[int]] = []  # of the sequences that no other one begins with
    for index in sorted(range(len(sequences)), key=lambda i: len(sequences[i]), reverse=True):
        path: list[int] = []
        before, known = -1, len(tokens)
        for position, token in enumerate(sequences[index][-limit:]):
            entry = entries.setdefault((before, token), len(tokens))
            if entry == len(tokens):
                tokens.append(token)
                places.append(position)
            path.append(entry)
            before = entry
        walked[index] = path
        if len(tokens) > known:
            paths.append(path)
    reads: list[int] = []
    for index, wanted in enumerate(positions):
        cut = max(0, len(sequences[index]) - limit)
        if any(position < cut for position in wanted):
            raise InputError(
                f"A reply with its history is longer than the scorer's context of {limit} tokens; "
                "give the scorer a network with a longer one."
            )
        reads += [walked[index][position - cut] for position in wanted]
    device = network.device
    x = network.run(
        network.embed(torch.tensor(tokens, device=device)),
        torch.tensor(places, device=device),
        RowAttention(paths, len(tokens), device),
    )
    return x.index_select(0, torch.tensor(reads, device=device))


def states_at(
    network: DecoderNetwork,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
) -> Tensor:
    """Return `hidden_at` through the final norm and in at least fp32: the input of heads."""
    hidden = hidden_at(network, sequences, positions)
    return network.normed(hidden).to(network.wide_dtype)


def last_states(network: DecoderNetwork, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return the state at the last token of each sequence, [N, width]."""
    return states_at(network, sequences, [[len(sequence) - 1] for sequence in sequences])


def head(
    network: DecoderNetwork, outputs: int, generator: torch.Generator, *, states: int = 1
) -> nn.Sequential:
    """Return a perceptron with one hidden layer on `states` joined states, near zero at first."""
    width = network.config.hidden_size
    # skip_init: a plain Linear would sample from torch's global generator
    first = nn.utils.skip_init(nn.Linear, states * width, width)
    last = nn.utils.skip_init(nn.Linear, width, outputs)
    nn.init.normal_(first.weight, std=(states * width) ** -0.5, generator=generator)
    nn.init.normal_(last.weight, std=0.1 * width**-0.5, generator=generator)
    nn.init.zeros_(first.bias)
    nn.init.zeros_(last.bias)
    return nn.Sequential(first, nn.ReLU(), last).to(network.device, network.wide_dtype)


class Scalar(nn.Module):
    """A network and a head that reads one number at the last token of a sequence."""

    def __init__(self, network: DecoderNetwork, seed: int) -> None:
        super().__init__()
        self.network = network
        self.head = head(network, 1, torch.Generator().manual_seed(seed))

    def forward(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Map sequences [N] to numbers [N]."""
        return self.head(last_states(self.network, sequences)).squeeze(1)

    @torch.no_grad()
    def read(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Return the numbers of any number of sequences."""
        return [number for part in parts(sequences, AT_ONCE) for number in self(part).tolist()]


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield consecutive parts of at most `size` items."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
