"""A debate of two models."""

import verifiers.v1 as vf

__all__ = ["DebateEnv", "DebateTaskset"]


class DebateConfig(vf.EnvConfig):
    """Two roles."""

    one: vf.AgentConfig = vf.AgentConfig()
    other: vf.AgentConfig = vf.AgentConfig()


class DebateEnv(vf.Env[DebateConfig]):
    """Each says something."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.one.run(task)
        await agents.other.run(task)


class DebateTaskset(vf.Taskset[vf.Task, vf.TasksetConfig]):
    """One question."""

    def load(self) -> list[vf.Task]:
        return [vf.Task(vf.TaskData(prompt="Is it?"))]
