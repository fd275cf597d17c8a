"""A learner rank on another machine, which joins the ranks that its driver tells it of."""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.cluster.placement import Kind
from palaestra.cluster.supervised_process import Driver
from palaestra.cluster.worker_messages import Call
from palaestra.core.errors import InfrastructureFault, RankLost

MODULE = "palaestra.cluster.learner_process"


def learner_kind(count: int, cpus: float = 1.0, gpus: float = 0.0, *, shard: bool = False) -> Kind:
    """Return the kind of `count` ranks beside rank 0; see `placement.Kind`."""
    part = f"1/{count + 1} of " if shard else ""
    note = f"each holds the weights and {part}the optimiser's state"
    return Kind("learner", "cluster.learners", MODULE, "ranks", count, count, cpus, gpus, note)


@dataclass(frozen=True, slots=True)
class Ready:
    """This process can join ranks now."""


@dataclass(frozen=True, slots=True)
class Join:
    """Join these ranks, and learn with them until they end."""

    rank: int
    world: int
    address: str  # where all meet
    prefix: str  # of this try


def serve(call: Call) -> None:
    """Learn with rank 0 until it ends the connection, or ends itself.

    Raises:
        OSError: the driver cannot be reached.
        PalaestraError: this rank cannot make the learner, or its work failed.
    """
    driver = Driver(call)
    from palaestra.learning.parallel import join
    from palaestra.training.ranks import follow

    while True:
        try:
            driver.send(Ready())
            told: Join = driver.receive()
        except EOFError:  # the driver's end, or that of the run
            return
        try:
            follow(join(told.rank, told.world, told.address, prefix=told.prefix))
        except (RankLost, InfrastructureFault):  # rank 0 left, to go on with other ranks
            continue
