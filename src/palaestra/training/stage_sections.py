"""The table `stage` of a recipe: a short program of stages over one run's records.

Each stage reads episodes and versions of the policy that earlier ones wrote (`from`, `start`), and
writes episodes or the next version. What a recipe without stages does is such a program as well,
see `stage_program`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, field_validator, model_validator

from palaestra.core.task import Split
from palaestra.training.adapter_sections import Clusters, TrainedRoles
from palaestra.training.distillation_section import Distillation
from palaestra.training.general_section import General
from palaestra.training.learned_model_sections import (
    Advantages,
    ModelOfRun,
    RewardRefresh,
    Steering,
)
from palaestra.training.offline_sections import InverseModel, OwnAdapters
from palaestra.training.prompt_sections import Commanded, Hinted
from palaestra.training.recipe_sections import Section
from palaestra.training.reinforcement_section import Reinforcement
from palaestra.training.stage_sources import (
    LAST,
    ReadingPart,
    Source,
    StagePart,
    TrainingPart,
    listed,
)


class Explore(StagePart, Hinted, Commanded):
    """Record episodes on training tasks that were not used before."""

    do: Literal["explore"]
    paper: ClassVar[str] = "demonstrations by scripted experts; exploration as in ReST-EM, AgentGym"
    speaker: str = Field(
        "policy",
        min_length=1,
        description="policy, expert (the environment's), random (actions), or a model's name, such "
        "as openai:MODEL@URL or smollm2-135m",
    )
    tasks: int = Field(32, ge=1)
    group: int = Field(1, ge=1, description="episodes per task")
    agent: str | None = Field(
        None,
        description="another agent than the recipe's that acts here: a team, such as plan, whose "
        "runs the rule flattened joins, or one that searches, such as best_first, of which only "
        "the path that it took is learned; unset: the recipe's",
    )
    like: str | None = Field(
        None, description="a stage whose tasks are taken again, from its first one; unset: new ones"
    )


class Imitate(TrainedRoles, OwnAdapters, TrainingPart, ReadingPart):
    """Learn the replies of chosen episodes (supervised fine-tuning)."""

    do: Literal["imitate"]
    paper: ClassVar[str] = (
        "Pomerleau 1989; the rules of examples name their own sources; adapters of clusters: "
        "Belcak et al. 2025"
    )
    examples: str = Field(
        "filtered-cloning", description="how to choose them, of `palaestra list curricula`"
    )
    examples_options: dict[str, Any] = Field({}, description="e.g. {share = 0.5}")
    advantages: Advantages | None = Field(
        None, description="weigh tokens by a stage's action values; unset: all of them alike"
    )
    epochs: int = Field(2, ge=1)
    batch: int = Field(8, ge=1, description="examples per optimizer step")
    learning_rate: float = Field(1e-4, gt=0)
    adapters: Clusters | None = Field(
        None,
        description="cluster the calls, train an adapter for each cluster, and let a router choose "
        "among them from then on, e.g. {clusters = 4}; unset: no clusters",
    )
    general: General | None = Field(
        None, description='general text to mix in, e.g. {files = ["LICENSE"], share = 0.2}'
    )

    @model_validator(mode="after")
    def _clusters_learn_alone(self) -> Imitate:
        if self.adapters is not None and self.train is not None:
            raise ValueError("adapters trains those of its clusters, and train others; unset one")
        return self


class Prefer(TrainedRoles, TrainingPart, ReadingPart):
    """Learn from pairs of replies or rollouts, or from labels, near the policy it begins with."""

    do: Literal["prefer"]
    paper: ClassVar[str] = "Rafailov et al. 2023 (DPO); Ethayarajh et al. 2024 (KTO)"
    examples: str = Field(
        "trajectory-pairs", description="how to pair or label, of `palaestra list curricula`"
    )
    examples_options: dict[str, Any] = Field({}, description="e.g. {gap = 0.5}")
    loss: str = Field("dpo", description="a preference loss: dpo, step-dpo or kto")
    loss_options: dict[str, Any] = Field({}, description="e.g. {beta = 0.1}")
    epochs: int = Field(1, ge=1)
    batch: int = Field(16, ge=1, description="pairs or labels per optimizer step")
    learning_rate: float = Field(2e-5, gt=0)


class Distil(TrainedRoles, TrainingPart, ReadingPart, Distillation):
    """Learn a teacher's distribution at each token of recorded replies, without their hints."""

    do: Literal["distil"]
    paper: ClassVar[str] = "Rusu et al. 2016 (policy distillation); Memento No More 2025 (hints)"


class Reinforce(TrainedRoles, TrainingPart, Reinforcement):
    """Reinforcement learning from rollouts; the keys are those of the table `rl`."""

    do: Literal["reinforce"]
    reward_model: str | ModelOfRun | None = Field(
        None,
        description="a stage whose reward model replaces the outcome, or {run, stage}: that of "
        "another run; unset: the true one",
    )
    reward_refresh: RewardRefresh | None = Field(
        None, description="let the reward model learn from new rollouts; unset: it stays as it is"
    )
    reads: ClassVar[str] = "a version"
    writes: ClassVar[str] = "episodes, a version"
    paper: ClassVar[str] = "the algorithms of `palaestra list algorithms` name their own sources"

    @model_validator(mode="after")
    def _a_refresh_needs_a_model(self) -> Reinforce:
        if self.reward_refresh is not None and not isinstance(self.reward_model, str):
            raise ValueError(
                "reward_refresh needs a reward model of this run; name its stage in reward_model"
            )
        return self


class Study(TrainingPart):
    """Continue pre-training on texts, of which every token is learned."""

    do: Literal["study"]
    reads: ClassVar[str] = "a version, texts"
    paper: ClassVar[str] = "Su et al. 2025 (AgentFounder), with texts of our own"
    instructions: bool = Field(
        True, description="learn the environment's instructions and the descriptions of its tools"
    )
    sources: tuple[Source, ...] = Field(
        (), alias="from", description="episodes to retell, in the forms of `imitate`'s from"
    )
    form: Literal["text", "chat"] = Field(
        "text",
        description="of the episodes: retold as text, or the conversations in the model's own "
        "format, with all their tokens learned",
    )
    files: tuple[str, ...] = Field((), description="text files to learn")
    epochs: int = Field(1, ge=1)
    batch: int = Field(8, ge=1, description="texts per optimizer step")
    learning_rate: float = Field(1e-4, gt=0)

    @field_validator("sources", mode="before")
    @classmethod
    def _names_stand_for_stages(cls, value: object) -> object:
        return listed(value)

    @model_validator(mode="after")
    def _there_are_texts(self) -> Study:
        if not (self.instructions or self.sources or self.files):
            raise ValueError("there is nothing to study; set instructions, from or files")
        if self.form == "chat" and not self.sources:
            raise ValueError("form has no effect without episodes; set from, or unset form")
        return self


class Reward(ReadingPart):
    """Learn a reward model, which `reinforce` can put in place of the outcome."""

    do: Literal["reward"]
    reads: ClassVar[str] = "a version, episodes"
    writes: ClassVar[str] = "a reward model"
    paper: ClassVar[str] = "Christiano et al. 2017; Leike et al. 2018; SalesRLAgent 2025"
    kind: Literal["success", "preference"] = Field(
        "success",
        description="predict each turn's chance of success, or prefer the better rollout of a task",
    )
    updates: int = Field(32, ge=1)
    batch: int = Field(16, ge=1, description="rollouts or pairs per update")
    learning_rate: float = Field(3e-4, gt=0)
    held_out: float = Field(
        0.2, gt=0, lt=1, description="share of the tasks on which the model is only tested"
    )


class Value(ReadingPart):
    """Learn the action values of recorded tokens offline, to weigh them or to steer replies."""

    do: Literal["value"]
    reads: ClassVar[str] = "a version, episodes"
    writes: ClassVar[str] = "action values"
    paper: ClassVar[str] = "Snell et al. 2022 (ILQL); Kostrikov et al. 2021 (IQL)"
    updates: int = Field(200, ge=1)
    batch: int = Field(32, ge=1, description="episodes per update")
    learning_rate: float = Field(3e-4, gt=0)
    discount: float = Field(0.99, ge=0, le=1, description="per token")
    expectile: float = Field(
        0.7, gt=0, lt=1, description="of the values of actions in the data: 0.5 mean, near 1 best"
    )
    conservative: float = Field(
        0.01, ge=0, description="weight of the penalty on tokens that the data never shows"
    )
    polyak: float = Field(
        0.05, gt=0, le=1, description="share by which the target networks move per update"
    )


class Judge(ReadingPart):
    """Let a judge say which episodes succeeded; `from` takes its verdicts in place of outcomes."""

    do: Literal["judge"]
    writes: ClassVar[str] = "verdicts"
    reads: ClassVar[str] = "episodes"
    paper: ClassVar[str] = "Pan et al. 2024 (autonomous evaluation)"
    judge: str = Field(
        description="a rule, such as seen:PATTERN (see docs/evaluation/judges.md), a model's name, "
        "or policy: the policy judges itself"
    )
    rubric: str | None = Field(
        None, description="a rubric's file, for models; unset: solved or not"
    )
    tokens: int = Field(96, ge=1, description="of a model's reply")


class Label(InverseModel, ReadingPart):
    """Name the actions of most episodes, by a model that learns from the others."""

    do: Literal["label"]
    writes: ClassVar[str] = "proxy labels"
    reads: ClassVar[str] = "a version, episodes"
    paper: ClassVar[str] = "Zheng et al. 2023 (SS-ORL); Torabi et al. 2018"


class Merge(TrainingPart):
    """Average the weights of several versions of the policy."""

    do: Literal["merge"]
    reads: ClassVar[str] = "versions"
    paper: ClassVar[str] = "Wortsman et al. 2022 (model soups)"
    versions: tuple[str, ...] = Field(
        alias="from", min_length=1, description="names of stages that train, or base"
    )
    rounds: Literal["last", "all"] = Field(
        "last", description="of stages in a repeat: their last version, or those of all rounds"
    )

    @field_validator("versions", mode="before")
    @classmethod
    def _one_needs_no_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _it_begins_with_what_it_merges(self) -> Merge:
        if self.start is not None:
            raise ValueError("start has no effect on a merge; name its versions in from")
        if len(self.versions) == 1 and self.rounds == LAST:
            raise ValueError("a merge of one version changes nothing; name two, or rounds = 'all'")
        return self


class Evaluate(StagePart, Commanded):
    """Test the policy as it is now."""

    do: Literal["evaluate"]
    writes: ClassVar[str] = "results"
    split: Literal["validation", "test"] = Field(
        "test", description="validation may guide rounds, test never does"
    )
    tasks: int | None = Field(None, ge=1, description="unset: evaluation.tasks")
    steer: Steering | None = Field(
        None, description="steer replies by a stage's action values (ILQL); unset: the policy alone"
    )

    @property
    def tested(self) -> Split:
        """The split of its tasks."""
        return Split(self.split)


class Until(Section):
    """When a repeat ends before its last round."""

    stage: str = Field(description="an evaluation on the validation split, within the repeat")
    success: float | None = Field(None, gt=0, le=1, description="end at this success")
    player: str | None = Field(
        None, description="in a game: the player whose mean return is read in place of success"
    )
    mean_return: float | None = Field(None, description="end at this mean return of the player")
    patience: int | None = Field(
        None, ge=1, description="end after so many rounds without a result above the best so far"
    )

    @model_validator(mode="after")
    def _something_ends_it(self) -> Until:
        if self.success is None and self.mean_return is None and self.patience is None:
            raise ValueError("until needs success or patience, or a mean_return; set one")
        if self.mean_return is not None and self.player is None:
            raise ValueError("until.mean_return needs the player whose return it is; set player")
        if self.success is not None and self.player is not None:
            raise ValueError("until.player has a mean_return and no success; set mean_return")
        return self


class Repeat(StagePart):
    """Run the same stages several times."""

    do: Literal["repeat"]
    reads: ClassVar[str] = "what its stages read"
    writes: ClassVar[str] = "what its stages write"
    rounds: int = Field(ge=1)
    stages: tuple[AnyStage, ...] = Field(min_length=1, description="in the order of a round")
    until: Until | None = Field(None, description="a rule that ends it earlier; unset: none")


AnyStage = Annotated[
    Explore
    | Judge
    | Label
    | Imitate
    | Prefer
    | Distil
    | Reinforce
    | Study
    | Reward
    | Value
    | Merge
    | Evaluate
    | Repeat,
    Discriminator("do"),
]
Repeat.model_rebuild()

STAGES: Mapping[str, type[StagePart]] = {
    "explore": Explore,
    "judge": Judge,
    "label": Label,
    "study": Study,
    "imitate": Imitate,
    "prefer": Prefer,
    "distil": Distil,
    "reward": Reward,
    "value": Value,
    "reinforce": Reinforce,
    "merge": Merge,
    "evaluate": Evaluate,
    "repeat": Repeat,
}
"""The stages by what they do."""
