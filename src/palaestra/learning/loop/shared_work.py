"""The work that a learner may share: it does all of it itself, until it leads other ranks.

A learner that leads does here what it tells the other ranks to do. A rank that is lost is noticed
at the next reply; its work is then done again, if there are ranks to replace it (see `Leader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from torch import Tensor

from palaestra.core.errors import RankLost
from palaestra.learning.compute.packing import Micro, Trained, micro_batches
from palaestra.learning.compute.passes import Pass, Wanted, own_passes
from palaestra.learning.loop.leading import Leader

if TYPE_CHECKING:
    from palaestra.learning.loop.learner import Learner

P = ParamSpec("P")
T = TypeVar("T")


class SharedWork:
    """What a learner does on all ranks; alone, it does it in this process."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._leader: Leader | None = None

    def lead(self, leader: Leader) -> None:
        """See `Learner.lead`."""
        learner = self._learner
        while True:
            try:
                leader.start(learner.model.network.device)
                leader.share(learner.trained.beginning())
                leader.tell("publish", doing="taking over the weights")
                learner.trained.publish()
                leader.agree("compare", learner.trained.checksum(), "weights")
                break
            except RankLost as lost:
                leader = self._replaced(leader, lost)
        self._leader = leader

    def replace(self, lost: RankLost) -> None:
        """Go on with other ranks, which take over the present state; raise `lost` without any."""
        assert self._leader is not None  # it lost a rank
        self.lead(self._replaced(self._leader, lost))

    def _replaced(self, leader: Leader, lost: RankLost) -> Leader:
        """Return a leader of other ranks; raise `lost` if its part of the state is lost with it."""
        if self._learner.trained.sharding is not None:
            raise lost
        return leader.replaced(lost)

    def tell(self, command: str, *arguments: object) -> None:
        """Let the other ranks run a command of `Follower`."""
        if self._leader is not None:
            self._leader.tell(command, *arguments, doing=command.replace("_", " "))

    def everywhere(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a method of what is trained on all ranks; return what it returns here."""
        self.tell(work.__name__, *arguments)
        return work(*arguments, **named)

    def state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the whole state; what ranks have divided is gathered when it is read."""
        trained = self._learner.trained
        if trained.sharding is None:
            return {name: trained.part(name) for name in trained.parts}
        return _Gathered(trained.parts, lambda part: self.everywhere(trained.part, part))

    def share(self, parts: Mapping[str, Mapping[str, Tensor]], command: str = "load") -> None:
        """Let the other ranks restore a part of the present state."""
        if self._leader is not None:
            try:
                self._leader.share(parts, command)
            except RankLost as lost:
                self.replace(lost)

    def agree(self) -> None:
        """Check that all ranks hold the same weights; replace those that do not."""
        if self._leader is not None:
            try:
                self._leader.agree("compare", self._learner.trained.checksum(), "weights")
            except RankLost as lost:
                self.replace(lost)

    def groups(
        self, rows: Sequence[Trained], *, whole_rollouts: bool = False
    ) -> list[list[Trained]]:
        """Return rows in groups, each for one pass; see `micro_batches`."""
        most, network = self._learner.budget.tokens, self._learner.model.network
        cut = micro_batches if self._leader is None else self._leader.cut
        return cut(rows, most, network, whole_rollouts=whole_rollouts)

    def passes(self, micros: Sequence[Micro], wanted: Wanted) -> Iterable[Pass]:
        """Return the passes of micro-batches, in their order.

        Raises:
            RankLost: while they are run.
        """
        learner = self._learner
        compute = partial(learner.outputs, wanted=wanted)
        if self._leader is None:
            return own_passes(micros, compute)
        return self._leader.passes(micros, wanted, compute, learner.trained)

    def sum_gradients(self) -> None:
        """Sum the gradients over all ranks.

        Raises:
            RankLost: a rank is lost, or holds other sums.
        """
        if self._leader is not None:
            self._leader.sum_gradients(self._learner.trained, self._learner.model.network)


class _Gathered(Mapping[str, Mapping[str, Tensor]]):
    """A state of which a part is gathered each time that it is read, so that one exists at once."""

    def __init__(self, parts: Sequence[str], gather: Callable[[str], Mapping[str, Tensor]]) -> None:
        self._parts, self._gather = parts, gather

    def __getitem__(self, part: str) -> Mapping[str, Tensor]:
        if part not in self._parts:
            raise KeyError(part)
        return self._gather(part)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
