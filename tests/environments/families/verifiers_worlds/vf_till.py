"""A till with tools: a server of its own for each rollout, whose state the reward reads."""

import verifiers.v1 as vf

__all__ = ["TillTaskset"]


class TillState(vf.State):
    """What is in the till."""

    coins: int = 0


class TillData(vf.TaskData):
    """A row."""

    start: int
    goal: int


class TillTools(vf.Toolset[vf.ToolsetConfig, TillState]):
    """The till."""

    TOOL_PREFIX = "till"

    async def setup_task(self, task: TillData) -> None:
        """Know the task's beginning."""
        self.start = task.start

    @vf.tool
    def put(self, coins: int) -> str:
        """Put coins into the till."""
        if coins < 0:
            raise ValueError("coins are not taken out")
        self.state.coins += coins
        return f"{self.start + self.state.coins} in the till"

    @vf.tool
    def count(self) -> int:
        """How many coins there are."""
        return self.start + self.state.coins


class TillConfig(vf.TaskConfig):
    """Where the till's server runs."""

    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class TillTask(vf.Task[TillData, TillState, TillConfig]):
    """One till to fill."""

    @classmethod
    def toolsets(cls, config: TillConfig) -> list[vf.Toolset]:
        return [TillTools(config.tools)]

    @vf.reward
    async def filled(self, trace: vf.Trace) -> float:
        """Whether there is what was wanted, and it is said."""
        right = self.data.start + trace.state.coins == self.data.goal
        return float(right and str(self.data.goal) in trace.last_reply)


class TillTasksetConfig(vf.TasksetConfig):
    """What every taskset has."""

    task: TillConfig = TillConfig()


class TillTaskset(vf.Taskset[TillTask, TillTasksetConfig]):
    """Seven tills, in no splits."""

    def load(self) -> list[TillTask]:
        return [
            TillTask(
                TillData(
                    prompt=f"Fill the till to {start + 10} coins, and say how many there are.",
                    start=start,
                    goal=start + 10,
                ),
                self.config.task,
            )
            for start in range(7)
        ]


if __name__ == "__main__":
    TillTools.run()
