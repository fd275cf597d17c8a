"""Fresh replies of the policy to recorded histories, outside of any session."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.episode import derive_seed
from palaestra.core.model import Sampling
from palaestra.models.local.resident import ResidentModel


class FreshReplies:
    """A sampler of the present policy, for critics whose targets are what it would reply now.

    It runs the model's engine by itself, so no session may wait for a reply meanwhile.
    """

    def __init__(self, model: ResidentModel, sampling: Sampling) -> None:
        """Sample from `model`, as its agent does."""
        self.model, self.sampling = model, sampling

    def __call__(self, histories: Sequence[tuple[int, ...]], seed: int) -> list[list[int]]:
        """Return one reply to each history, in tokens; equal seeds give equal replies.

        Raises:
            RuntimeError: a session's reply is in flight.
        """
        engine = self.model.engine
        if engine.pending:
            raise RuntimeError("fresh replies were asked for while sessions wait for theirs")
        requests = [
            engine.submit(
                history, self.sampling, derive_seed(seed, index), adapter=self.model.adapter
            )
            for index, history in enumerate(histories)
        ]
        while any(request.finish is None for request in requests):
            engine.step()
        return [request.completion for request in requests]
