"""Following: a rank above 0 does what rank 0 asks for, until rank 0 ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from palaestra.core.errors import PalaestraError
from palaestra.learning.compute.master_weights import Parts
from palaestra.learning.compute.packing import Micro
from palaestra.learning.compute.passes import Outputs, Wanted, pull_back
from palaestra.learning.loop.leading import (
    Form,
    Order,
    Row,
    gradients_of,
    read,
    set_gradients,
)
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.trained_state import TrainedState
from palaestra.learning.parallel import End, Ranks
from palaestra.models.local.feed_forward import take_counts

Make = Callable[[Any], Learner]
"""Builds the learner that `Learner.lead` describes."""


def serve(ranks: Ranks, make: Make) -> int:
    """Follow rank 0 until it ends; return its exit code.

    Args:
        ranks: joined; this process is not rank 0.
        make: description that rank 0 gives to `Learner.lead` -> a learner of the same weights.

    Raises:
        RankLost: rank 0 died, or has been silent for too long.
    """
    follower = Follower(ranks, make)
    try:
        while True:
            message = ranks.receive(0, None)  # rollouts may take any time
            if isinstance(message, End):
                return message.code
            assert isinstance(message, Order)
            found = follower.commands[message.command](*message.arguments)
            if message.number is not None:
                ranks.send(0, (message.number, found))
    except Exception as error:
        ranks.fail(error)
        raise
    finally:
        ranks.close()


class Follower:
    """The learner of a rank above 0; its commands are those that `Leader` sends."""

    def __init__(self, ranks: Ranks, make: Make) -> None:
        self._ranks, self._make_learner = ranks, make
        self._learner: Learner | None = None
        self._running: Outputs | None = None  # until its backward pass
        self.commands: dict[str, Callable[..., object]] = {
            "make": self._make,
            "connect": lambda: ranks.connect(self.learner.model.network.device),
            "load": lambda form: self._trained.load(self._received(form)),
            "load_critic": lambda form: self._trained.load_critic(self._received(form)),
            "load_reference": lambda form: self._trained.load_reference(self._received(form)),
            "publish": lambda: self._trained.publish(),
            "part": lambda name: self._trained.part(name),
            "compare": lambda: self._trained.checksum(),
            "run": self._run,
            "pull_back": self._pull_back,
            "continue": self._continue,
            "drop_gradients": self._drop_gradients,
            "gradients": self._gradients,
            "sum": lambda names, ordered: self._trained.sum_over(ranks, names, ordered),
            "vote": lambda: self._trained.vote(),
            "step": lambda learning_rate: self._trained.step(learning_rate),
            "set_reference": lambda: self._trained.set_reference(),
            "exchange": lambda: self._trained.exchange(),
        }

    @property
    def learner(self) -> Learner:
        """The learner.

        Raises:
            PalaestraError: rank 0 has not described one.
        """
        if self._learner is None:
            raise PalaestraError("Rank 0 sent work before it described the learner.")
        return self._learner

    @property
    def _trained(self) -> TrainedState:
        return self.learner.trained

    def _make(self, description: object) -> str:
        if self._learner is not None:
            self._learner.close()
        self._learner = self._make_learner(description)
        return self._learner.model.network.device.type

    def _received(self, form: Form) -> Parts:
        device = self.learner.model.network.device
        parts: Parts = {}
        for part, tensors in form.items():
            parts[part] = {}
            for name, (shape, dtype) in tensors.items():
                tensor = torch.empty(shape, dtype=dtype, device=device)
                self._ranks.broadcast([tensor])
                parts[part][name] = self._trained.kept(part, name, tensor)
        return parts

    def _run(self, rows: list[Row], wanted: Wanted) -> list[Tensor]:
        learner = self.learner
        micro = Micro(read(rows), learner.model.network, base=wanted.base)
        with torch.set_grad_enabled(wanted.gradient):
            found = learner.outputs(micro, wanted)
        self._running = found if wanted.gradient else None
        return [part.detach().cpu() for part in found.parts()]

    def _pull_back(self, given: list[Tensor | None] | None) -> None:
        """Run the backward pass of the last `run`; None: there is none, but others have one."""
        running, self._running = self._running, None
        with self._trained.adding():
            if given is not None:
                assert running is not None  # of a `run` with gradients
                device = running.lp.device
                pull_back(running, [None if g is None else g.to(device) for g in given])

    def _continue(self, given: list[Tensor | None], so_far: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the gradient to a running sum; return the sum."""
        totals = self._trained.totals
        set_gradients(totals, so_far)
        self._pull_back(given)
        return {name: gradient.cpu() for name, gradient in gradients_of(totals).items()}

    def _drop_gradients(self) -> None:
        self._running = None
        self._trained.drop_gradients()

    def _gradients(self) -> tuple[list[str], list[list[int]]]:
        return self._trained.reached(), take_counts(self.learner.model.network)
