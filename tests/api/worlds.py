"""A world, an agent and a rule of one's own, as a user's module has them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import palaestra as pa


class Door(pa.ToolWorld, typical_turns=4):
    """Open the door."""

    def begin(self, task: pa.Task) -> str:
        self.state = {"locked": task.seed % 2 == 0, "open": False}
        return "A door."

    @pa.tool
    def unlock(self) -> str:
        """Turn the key."""
        self.state["locked"] = False
        return "Click."

    @pa.tool
    def push(self) -> str:
        """Push the door."""
        self.state["open"] = not self.state["locked"]
        return "It opens." if self.state["open"] else "It is locked."

    def verdict(self) -> bool | None:
        return True if self.state["open"] else None


class Careful(pa.Agent):
    """Unlocks before it pushes."""

    name = "careful"

    async def run(self, session: pa.Session) -> None:
        for tool in ("unlock", "push"):
            await session.act(f'<tool_call>{{"name": "{tool}", "arguments": {{}}}}</tool_call>')


def raw_returns(batch: Sequence[pa.Trajectory], *, scale: float = 1.0) -> list[torch.Tensor]:
    """The return of a rollout for each of its tokens."""
    return [torch.full((t.tokens,), scale * t.total, dtype=torch.float64) for t in batch]
