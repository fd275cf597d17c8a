"""Rewards and setups that fail, by the row; settings that are needed are of the environment."""

import verifiers.v1 as vf

__all__ = ["OddTaskset"]


class OddTask(vf.Task[vf.TaskData]):
    """Fails as its name says."""

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.data.name == "setup":
            raise RuntimeError("no chalk")

    @vf.stop
    async def enough(self, trace: vf.Trace) -> bool:
        """Nothing is wanted of an agent that is not asked."""
        return self.data.name == "stopped"

    @vf.reward
    async def mark(self, trace: vf.Trace) -> float:
        """A half."""
        if self.data.name == "reward":
            raise ZeroDivisionError("nobody counted")
        return 0.5


class OddConfig(vf.TasksetConfig):
    """Needs to be told."""

    names: list[str]


class OddTaskset(vf.Taskset[OddTask, OddConfig]):
    """A row for each name."""

    def load(self) -> list[OddTask]:
        return [
            OddTask(
                vf.TaskData(name=name, prompt="Hello?", image="box" if name == "image" else None),
                self.config.task,
            )
            for name in self.config.names
        ]
