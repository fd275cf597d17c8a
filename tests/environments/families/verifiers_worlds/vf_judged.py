"""Essays, which a model judges."""

import verifiers.v1 as vf

__all__ = ["EssayTaskset"]


class EssayTaskConfig(vf.TaskConfig):
    """With a judge that the task's own code calls."""

    judge: vf.JudgeConfig = vf.JudgeConfig(model="wise")


class EssayConfig(vf.TasksetConfig):
    """What every taskset has."""

    task: EssayTaskConfig = EssayTaskConfig()


class EssayTaskset(vf.Taskset[vf.Task[vf.TaskData, vf.State, EssayTaskConfig], EssayConfig]):
    """One essay."""

    def load(self) -> list[vf.Task]:
        return [vf.Task(vf.TaskData(prompt="Write."), self.config.task)]
