"""Leading: rank 0 deals a step's micro-batches out to all ranks, which learn as one process does.

Rank 0 sends rows; another rank runs its network on them, and sends the figures of their tokens.
Rank 0 computes every loss from these as it does alone, so losses, credit rules, entropy terms and
critics know of no ranks, and sends the gradients with respect to the figures back. What is left is
to sum the gradients of the weights over the ranks.

In a deterministic run, gradients are added in the order of the micro-batches: the running sum
visits each rank, which is slower, and gives the bits of one process.

Where ranks divide gradients and the optimiser's state (`sharded_optimiser`), they sum gradients
while the backward passes run, at the same time on all ranks; else once, after the last pass.

Weights move in two steps: all ranks name the checksum of their gradients; only if they agree, each
one takes the optimiser step, and names the checksum of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from palaestra.core.errors import RankLost
from palaestra.core.message import ImageSpan
from palaestra.learning.compute.even_batches import even_batches
from palaestra.learning.compute.packing import Micro, Trained, micro_batches
from palaestra.learning.compute.passes import Outputs, OwnPass, Pass, Wanted
from palaestra.learning.parallel import Ranks
from palaestra.models.local.feed_forward import add_counts
from palaestra.models.local.network import DecoderNetwork

if TYPE_CHECKING:
    from palaestra.learning.loop.trained_state import TrainedState

SLICE = 0.02  # seconds that rank 0 waits for figures before the model may act

Row = tuple[list[int], list[bool], frozenset[str], tuple[ImageSpan, ...], "Row | None"]
"""What the network reads of a row: tokens, mask, roles, images, and the row of a teacher."""

Parameters = Mapping[str, nn.Parameter]
"""What is trained by name, in the precision in which gradients are summed."""

Form = dict[str, dict[str, tuple[tuple[int, ...], torch.dtype]]]
"""Shape and type of each tensor of a learner's state, by part and name."""


@dataclass(frozen=True, slots=True)
class Order:
    """A message of rank 0."""

    command: str  # of `Follower`
    arguments: tuple[object, ...]
    number: int | None = None  # of the reply; None: there is none


class Leader:
    """What the learner of rank 0 does with the other ranks."""

    def __init__(
        self,
        ranks: Ranks,
        description: object,
        *,
        ordered: bool = False,
        replace: Callable[[RankLost], Ranks] | None = None,
    ) -> None:
        """Lead other ranks, once a learner is given to them (`Learner.lead`).

        Args:
            ranks: joined; this process is rank 0.
            description: from which each other rank makes the same learner, see `following.serve`.
            ordered: results have the bits of one process, which is slower.
            replace: returns new ranks where one is lost; the work under way is done again with
                them. None: it ends with RankLost.
        """
        self.ranks, self.ordered = ranks, ordered
        self._description, self._replace = description, replace
        self._asked = 0

    def replaced(self, lost: RankLost) -> Leader:
        """Leave all ranks, and return a leader of new ones.

        Raises:
            RankLost: `lost`, where there are no new ones.
        """
        if self._replace is None:
            raise lost
        self.ranks.close()
        ranks = self._replace(lost)
        return Leader(ranks, self._description, ordered=self.ordered, replace=self._replace)

    def tell(self, command: str, *arguments: object, doing: str) -> None:
        """Let all other ranks run a command of `Follower`.

        Of a rank that is lost, the next reply tells.
        """
        for rank in self.ranks.others:
            with suppress(RankLost):
                self.ranks.send(rank, Order(command, arguments), doing)

    def request(self, rank: int, command: str, *arguments: object, doing: str) -> int:
        """Let one rank run a command; return the number of its reply."""
        self._asked += 1
        self.ranks.send(rank, Order(command, arguments, self._asked), doing)
        return self._asked

    def reply(self, rank: int, number: int) -> Any:
        """Return the reply of that number; earlier ones belong to a step that failed."""
        while True:
            found, content = self.ranks.receive(rank)
            if found == number:
                return content

    def ask(self, command: str, *arguments: object, doing: str) -> list[Any]:
        """Let all other ranks run a command; return their replies, by rank."""
        others = self.ranks.others
        numbers = [self.request(rank, command, *arguments, doing=doing) for rank in others]
        return [self.reply(rank, number) for rank, number in zip(others, numbers, strict=True)]

    def start(self, device: torch.device) -> None:
        """Let all other ranks make their learners, and connect all for transfers.

        Raises:
            RankLost: a rank could not make it, or computes on another kind of device.
        """
        found = self.ask("make", self._description, doing="loading the model")
        for rank, kind in zip(self.ranks.others, found, strict=True):
            if kind != device.type:
                raise self.ranks.lost(
                    rank, f"computes on '{kind}', and rank 0 on '{device.type}'; set model.device"
                )
        self.tell("connect", doing="connecting")
        self.ranks.connect(device)

    def agree(self, command: str, own: str, what: str) -> None:
        """Raise RankLost unless all ranks reply to a command with the same checksum as this one."""
        found = self.ask(command, doing=f"comparing its {what}")
        for rank, theirs in zip(self.ranks.others, found, strict=True):
            if theirs != own:
                raise self.ranks.lost(
                    rank,
                    f"holds other {what} than rank 0 ({theirs}, not {own}): its machine or its "
                    "packages compute differently, or its memory is faulty",
                )

    # ── passes ───────────────────────────────────────────────────────────────

    def cut(
        self,
        rows: Sequence[Trained],
        most_tokens: int,
        network: DecoderNetwork,
        *,
        whole_rollouts: bool = False,
    ) -> list[list[Trained]]:
        """Return `micro_batches` that occupy all ranks; in order, those of one process."""
        if self.ordered:
            return micro_batches(rows, most_tokens, network, whole_rollouts=whole_rollouts)
        parts = self.ranks.world
        return even_batches(rows, most_tokens, parts, network, whole_rollouts=whole_rollouts)

    def passes(
        self,
        micros: Sequence[Micro],
        wanted: Wanted,
        compute: Callable[[Micro], Outputs],
        trained: TrainedState,
    ) -> Iterator[Pass]:
        """Yield the passes of micro-batches, in their order; all ranks compute at the same time.

        Args:
            micros: all of them.
            wanted: what each pass computes.
            compute: runs one in this process.
            trained: what the passes add gradients to.
        """
        at_once = trained.sharding is not None and not trained.sharding.whole
        for turn in rounds(micros, self.ranks.world):
            *dealt, own = turn
            elsewhere = [
                DealtPass(micro, rank, self, wanted, trained.totals, later=at_once)
                for rank, micro in enumerate(dealt, 1)
            ]
            here = (
                TogetherPass(own, compute, elsewhere, self, trained)
                if at_once
                else OwnPass(own, compute)
            )
            here.start()  # while the others compute
            yield from elsewhere
            yield here

    # ── one optimiser step ───────────────────────────────────────────────────

    def sum_gradients(self, trained: TrainedState, network: nn.Module) -> None:
        """Sum gradients over the ranks; what has none on any rank stays without.

        Args:
            trained: holds this rank's gradients, then the sums.
            network: counts the tokens of its experts, if it has any; they are summed too.

        Raises:
            RankLost: a rank is lost, or holds other sums.
        """
        found = self.ask("gradients", doing="summing gradients")
        has = dict.fromkeys(trained.reached())
        for names, counts in found:
            has |= dict.fromkeys(names)
            add_counts(network, counts)
        self.tell("sum", [*has], self.ordered, doing="summing gradients")
        trained.sum_over(self.ranks, [*has], self.ordered)
        self.agree("vote", trained.vote(), "gradients")

    # ── state ────────────────────────────────────────────────────────────────

    def share(self, parts: Mapping[str, Mapping[str, Tensor]], command: str = "load") -> None:
        """Let all other ranks load a learner's state, or what the command takes of it."""
        self.tell(command, form_of(parts), doing="taking over the weights")
        self.ranks.broadcast([tensor for part in parts.values() for tensor in part.values()])


class DealtPass:
    """A pass that another rank runs; it has been asked for."""

    def __init__(
        self,
        micro: Micro,
        rank: int,
        leader: Leader,
        wanted: Wanted,
        parameters: Parameters,
        *,
        later: bool = False,
    ) -> None:
        self.micro, self._rank, self._leader, self._wanted = micro, rank, leader, wanted
        self._parameters, self._later = parameters, later
        self._leaves: list[Tensor] = []
        self._number = leader.request(
            rank, "run", sent(micro.rows), wanted, doing=f"computing {micro.size} tokens"
        )

    def outputs(self) -> Generator[None, None, Outputs]:
        """See `Pass`."""
        while not self._leader.ranks.arrived(self._rank, SLICE):
            yield
        parts = self._leader.reply(self._rank, self._number)
        device = self.micro.targets.device
        found = Outputs.of((part.to(device) for part in parts), self._wanted)
        if self._wanted.gradient:
            self._leaves = found.parts()
            for leaf in self._leaves:
                leaf.requires_grad_(leaf is not found.entropy or self._wanted.entropy)
        return found

    def backward(self, total: Tensor) -> None:
        """See `Pass`."""
        total.backward()
        if self._later:
            return
        if not self._leader.ordered:
            self.pull_back()
            return
        given, doing, leader = self._given(), self._doing, self._leader
        so_far = {name: g.cpu() for name, g in gradients_of(self._parameters).items()}
        number = leader.request(self._rank, "continue", given, so_far, doing=doing)
        set_gradients(self._parameters, leader.reply(self._rank, number))

    def pull_back(self) -> None:
        """Let the rank run its backward pass, after `backward` of the loss."""
        self._leader.ranks.send(self._rank, Order("pull_back", (self._given(),)), self._doing)

    def _given(self) -> list[Tensor | None]:
        given = [None if leaf.grad is None else leaf.grad.cpu() for leaf in self._leaves]
        self._leaves = []
        return given

    @property
    def _doing(self) -> str:
        return f"computing the gradient of {self.micro.size} tokens"


class TogetherPass(OwnPass):
    """A pass here whose backward pass all ranks run at once, those without rows as well."""

    def __init__(
        self,
        micro: Micro,
        compute: Callable[[Micro], Outputs],
        elsewhere: Sequence[DealtPass],
        leader: Leader,
        trained: TrainedState,
    ) -> None:
        super().__init__(micro, compute)
        self._elsewhere, self._leader, self._trained = elsewhere, leader, trained

    def backward(self, total: Tensor) -> None:
        """See `Pass`; the losses of the other passes have been computed."""
        for one in self._elsewhere:
            one.pull_back()
        ranks = self._leader.ranks
        for rank in range(len(self._elsewhere) + 1, ranks.world):
            ranks.send(rank, Order("pull_back", (None,)), "summing gradients")
        with self._trained.adding():
            super().backward(total)


def rounds(micros: Sequence[Micro], world: int) -> Iterator[Sequence[Micro]]:
    """Yield as many micro-batches as there are ranks, and at the end what is left."""
    for start in range(0, len(micros), world):
        yield micros[start : start + world]


def sent(rows: Iterable[Trained]) -> list[Row]:
    """Return what the network reads of rows."""
    return [_sent(row) for row in rows]


def _sent(row: Trained) -> Row:
    teacher = None if row.teacher is None else _sent(row.teacher)
    return row.tokens, row.mask, frozenset(row.roles), row.images, teacher


def read(rows: Iterable[Row]) -> list[Trained]:
    """Return rows of what `sent` returned."""
    return [_read(row) for row in rows]


def _read(row: Row) -> Trained:
    tokens, mask, roles, images, theirs = row
    teacher = None if theirs is None else _read(theirs)
    return Trained(tokens, mask, roles=roles, images=images, teacher=teacher)


def gradients_of(parameters: Parameters) -> dict[str, Tensor]:
    """Return the gradients that exist, by name."""
    return {name: p.grad for name, p in parameters.items() if p.grad is not None}


def set_gradients(parameters: Parameters, gradients: Mapping[str, Tensor]) -> None:
    """Replace all gradients; a parameter whose name is missing has none afterwards."""
    for name, parameter in parameters.items():
        found = gradients.get(name)
        parameter.grad = None if found is None else found.to(parameter.device)


def summed(ranks: Ranks, parameters: Parameters, names: Sequence[str], *, ordered: bool) -> None:
    """Sum the named gradients over the ranks, or take those of rank 0, which are the whole sum."""
    for name in names:
        if parameters[name].grad is None:
            parameters[name].grad = torch.zeros_like(parameters[name])
    found = list(gradients_of(parameters).values())
    if ordered:
        ranks.broadcast(found)
    else:
        ranks.sum(found)


def form_of(parts: Mapping[str, Mapping[str, Tensor]]) -> Form:
    """Return the shape and type of each tensor of a state."""
    return {
        part: {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
        for part, tensors in parts.items()
    }
