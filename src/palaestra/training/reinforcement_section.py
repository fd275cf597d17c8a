"""The table `rl` of a recipe: reinforcement learning from rollouts, and its subtables."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from palaestra.learning.data.control_reward import Arm
from palaestra.learning.data.rewards import DEFAULT_WEIGHTS
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.training.recipe_sections import Section


class Critic(Section):
    """The value function for credit rules that need one."""

    kind: Literal["head", "separate"] = Field(
        "head", description="head: on the policy's features; separate: its own network"
    )
    learning_rate: float = Field(1e-3, gt=0)
    coefficient: float | None = Field(
        None, gt=0, description="head: weight of its loss beside the policy's; unset: 0.5"
    )
    shared: bool = Field(False, description="let the head's gradient reach the policy's features")
    warmup: int = Field(0, ge=0, description="first steps, in which only the critic learns")

    @model_validator(mode="after")
    def _separate_shares_nothing(self) -> Critic:
        for name in ("shared", "coefficient"):
            if self.kind == "separate" and getattr(self, name):
                raise ValueError(f"rl.critic.{name} has no effect with rl.critic.kind = 'separate'")
        return self


class ProgressModel(Section):
    """The model of what each turn adds to the return, for credit rules that read contributions."""

    learning_rate: float = Field(3e-4, gt=0)
    updates: int = Field(16, ge=1, description="of the model per RL step")
    batch: int = Field(32, ge=1, description="rollouts per update")
    warmup: int = Field(3, ge=0, description="first steps, in which only the model learns")


class UtteranceCritic(Section):
    """ArCHer's critic of whole replies, for credit rules that read action values."""

    learning_rate: float = Field(1e-3, gt=0)
    updates: int = Field(16, ge=1, description="of the critic per RL step")
    batch: int = Field(16, ge=1, description="rollouts per update, of all so far")
    discount: float = Field(0.95, ge=0, le=1, description="per turn")
    polyak: float = Field(
        0.1, gt=0, le=1, description="share by which its target networks move per update"
    )
    replay: int = Field(100_000, ge=1, description="replies that are kept, the latest ones")
    warmup: int = Field(3, ge=0, description="first steps, in which only the critic learns")


class Tree(Section):
    """Rollouts of a task that share beginnings, for credit rules that read trees."""

    width: int = Field(2, ge=2, description="rollouts that one goes on as, at each branching")
    after: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1,), min_length=1, description="replies after which rollouts branch, e.g. [1, 2]"
    )

    @property
    def leaves(self) -> int:
        """The number of rollouts that have their first reply in common."""
        return int(self.width ** len(self.after))

    @model_validator(mode="after")
    def _one_branching_after_the_other(self) -> Tree:
        if any(later <= earlier for earlier, later in pairwise(self.after)):
            raise ValueError("rl.tree.after must rise; list each number of replies once, in order")
        return self


class Entropy(Section):
    """Entropy bonus and smoothing, which keep up exploration."""

    bonus: float = Field(gt=0, description="weight of the entropy, per nat and token")
    smoothing: float = Field(
        0.0,
        ge=0,
        description="EPO: weight of the penalty for leaving the band of past entropy; 0: none",
    )
    form: Literal["squared", "indicator"] | None = Field(
        None, description="of EPO's penalty; unset: squared; indicator: as released, no gradient"
    )

    @model_validator(mode="after")
    def _a_form_needs_smoothing(self) -> Entropy:
        if self.form is not None and not self.smoothing:
            raise ValueError("rl.entropy.form has no effect without rl.entropy.smoothing")
        return self


class Entropulse(Section):
    """Phases of imitating the run's own successes, between phases of reinforcement."""

    rl_steps: int = Field(ge=1, description="maximum steps of reinforcement per phase")
    sft_steps: int = Field(ge=1, description="steps of imitation per phase")
    cycles: int = Field(1, ge=1, description="number of imitation phases")
    entropy: float | None = Field(
        None, gt=0, description="imitate when the entropy falls below this"
    )
    plateau: int | None = Field(None, ge=1, description="or after this many steps without success")
    batch: int = Field(16, ge=1, description="successes per step of imitation")
    learning_rate: float | None = Field(None, gt=0, description="unset: half of rl.learning_rate")


class Horizon(Section):
    """ScalingInter-RL: more turns per episode as training goes on."""

    turns: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="turns per stage, e.g. [4, 8, 12]"
    )
    every: int = Field(ge=1, description="RL steps per stage")


class Curriculum(Section):
    """The choice of training tasks: among levels, or among a fixed number of tasks."""

    rule: str = Field("learnability", description="a rule of `palaestra list curricula`")
    options: dict[str, Any] = Field({}, description="e.g. {window = 64}")
    levels: tuple[str, ...] = Field((), description="environments to choose from")
    tasks: int | None = Field(
        None, ge=1, description="or the number of tasks of environment.id to choose from"
    )

    @model_validator(mode="after")
    def _levels_or_tasks(self) -> Curriculum:
        if bool(self.levels) == (self.tasks is not None):
            raise ValueError("rl.curriculum needs levels or tasks to choose from; set one")
        return self


class PrivilegedPart(Section):
    """An auxiliary loss: predict numbers of the hidden state that no agent sees (SGC)."""

    coefficient: float = Field(
        ge=0, description="weight of its mean squared error beside the policy's loss; 0: no head"
    )
    learning_rate: float = Field(1e-3, gt=0, description="of the head that predicts")


class Advisor(Section):
    """The environment's expert as an advisor, which acts in some turns of rollouts, not of tests.

    What it did is learned with importance weights (VARL); in how far it is a reward, too, says
    `rewards.intervention` (RLIF).
    """

    probability: float | None = Field(
        None, gt=0, lt=1, description="of each turn to be the advisor's, at the first step"
    )
    anneal: int | None = Field(
        None, ge=1, description="steps over which the probability falls to 0; unset: it stays"
    )
    after: int | None = Field(
        None,
        ge=1,
        description="or: the advisor takes over after this many actions in a row that differ from "
        "its own",
    )
    turns: int | None = Field(
        None, ge=1, description="actions of a takeover; unset: to the episode's end"
    )
    error: float = Field(
        0.0, ge=0, lt=1, description="probability that an action of the advisor is random instead"
    )
    weight: Literal["turn", "rollout"] = Field(
        "turn",
        description="importance weight of each turn, or the product over the rollout, which is "
        "unbiased and varies more",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Advisor:
        if (self.probability is None) == (self.after is None):
            raise ValueError("rl.advisor needs either probability or after; set one of them")
        if self.anneal is not None and self.probability is None:
            raise ValueError("rl.advisor.anneal has no effect without rl.advisor.probability")
        if self.turns is not None and self.after is None:
            raise ValueError("rl.advisor.turns has no effect without rl.advisor.after")
        return self


class Reinforcement(Section):
    """Reinforcement learning from rollouts."""

    algorithm: str = Field("loop", description="an algorithm of `palaestra list algorithms`")
    credit: str | None = Field(None, description="its credit rule, e.g. rloo or rloo + 0.5*anchor")
    loss: str | None = Field(None, description="its loss, e.g. ppo")
    aggregation: Aggregation | None = Field(
        None, description="how the losses of tokens are aggregated"
    )
    filter: str | None = Field(None, description="its group filter, e.g. dapo")
    correction: str | None = Field(None, description="its off-policy correction, e.g. tis")
    whiten: Literal["batch", "task", "group", "trajectory"] | None = Field(
        None, description="scope over which advantages are normalized"
    )
    credit_options: dict[str, Any] = Field({}, description="options of the credit rule")
    loss_options: dict[str, Any] = Field({}, description="options of the loss, e.g. {beta = 0.01}")
    reference: Literal["start", "base"] | None = Field(
        None,
        description="reference policy of losses that have one: the policy as RL begins (start; "
        "unset), or, with training.weights = lora, the base without adapters, at no memory",
    )
    filter_options: dict[str, Any] = Field({})
    correction_options: dict[str, Any] = Field({})
    critic: Critic | None = Field(
        None, description="for credit rules that read values; unset: the defaults"
    )
    progress_model: ProgressModel | None = Field(
        None, description="for credit rules that read contributions; unset: the defaults"
    )
    utterance_critic: UtteranceCritic | None = Field(
        None, description="for credit rules that read action values; unset: the defaults"
    )
    tree: Tree | None = Field(
        None, description="for credit rules that read trees; unset: the defaults"
    )
    entropy: Entropy | None = Field(None, description="unset: no entropy term")
    staleness: int = Field(
        0, ge=0, description="maximum steps between starting a rollout and learning from it"
    )
    asynchronous: bool = Field(
        False, description="make rollouts while the learner works, instead of alternating"
    )
    on_update: Literal["drain", "recompute", "keep"] | None = Field(
        None,
        description="asynchronous: on new weights, finish running replies first (drain; unset), or "
        "continue them with keys and values recomputed or kept",
    )
    actor: str | None = Field(
        None,
        description="actor of the rollouts: the learner's process (unset), process (another one on "
        "this machine), or served:MODEL@URL (vLLM or palaestra's server, on the same files)",
    )
    recompute: bool = Field(
        True, description="stale rollouts: lp_old from the learner's weights, not the sampler's"
    )
    steps: int = Field(20, ge=0)
    tokens: int | None = Field(
        None,
        ge=1,
        description="stop before `steps` after this many tokens of rollouts; unset: no limit",
    )
    tasks: int = Field(16, ge=1, description="tasks per step")
    group: int = Field(4, ge=1, description="rollouts per task")
    quorum: int | None = Field(
        None,
        ge=1,
        description="valid rollouts of a group after which the others are cancelled; unset: none",
    )
    minibatches: int = Field(2, ge=1, description="optimizer steps per RL step")
    learning_rate: float = Field(2.5e-5, gt=0)
    warmup: int = Field(2, ge=1, description="steps over which the learning rate rises")
    rewards: dict[str, float] = Field(
        dict(DEFAULT_WEIGHTS),
        description="weights of reward terms, of `palaestra list rewards`, e.g. {progress = 0.5}; "
        "unset: outcome = 1 and invalid = -0.05, which also hold where other terms are set; 0: "
        "logged, but no part of the reward",
    )
    reward_options: dict[str, dict[str, Any]] = Field(
        {}, description="options of reward terms, e.g. {outcome = {turn_cost = 0.1}}"
    )
    privileged: PrivilegedPart | None = Field(
        None, description="for environments that declare such numbers; unset: no such loss"
    )
    advisor: Advisor | None = Field(None, description="unset: the policy acts in every turn")
    horizon: Horizon | None = Field(None, description="unset: environment.turns throughout")
    curriculum: Curriculum | None = Field(None, description="unset: new tasks at every step")
    conflict: Literal["measure", "project"] | None = Field(
        None,
        description="gradients of the curriculum's levels: log the cosine of each pair (measure), "
        "and also remove what opposes another level's (project, PCGrad); unset: neither",
    )
    entropulse: Entropulse | None = Field(None, description="unset: reinforcement only")
    control: Arm | None = Field(
        None,
        description="control experiment: replace the true reward by a fair coin, a constant or its "
        "inverse; unset: the true reward",
    )
    success_replay: bool = Field(
        False, description="ARPO: add a stored success of the task to a group that fails completely"
    )

    @field_validator("rewards")
    @classmethod
    def _usual_terms_hold(cls, weights: dict[str, float]) -> dict[str, float]:
        return {**DEFAULT_WEIGHTS, **weights}

    @model_validator(mode="after")
    def _options_belong_to_parts(self) -> Reinforcement:
        for term in self.reward_options:
            if term not in self.rewards:
                raise ValueError(
                    f"rl.reward_options.{term} has no effect without rl.rewards.{term}; set both"
                )
        if self.correction_options and self.correction is None:
            raise ValueError("rl.correction_options has no effect without rl.correction")
        if not self.recompute and not self.staleness:
            raise ValueError("rl.recompute = false has no effect without rl.staleness")
        if self.asynchronous and not self.staleness:
            raise ValueError("rl.asynchronous needs rl.staleness of 1 or more")
        if self.on_update and not self.asynchronous:
            raise ValueError("rl.on_update has no effect without rl.asynchronous")
        if self.quorum is not None and self.quorum >= self.group:
            raise ValueError("rl.quorum has no effect unless it is less than rl.group")
        if self.asynchronous and (self.success_replay or self.entropulse):
            part = "rl.success_replay" if self.success_replay else "rl.entropulse"
            raise ValueError(f"{part} works step by step; unset it or rl.asynchronous")
        reads = {
            name: getattr(self, name) for name in ("curriculum", "success_replay", "entropulse")
        }
        for name, used in (reads | {"rewards.progress": self.rewards.get("progress")}).items():
            if self.control is not None and used:
                raise ValueError(
                    f"rl.{name} reads the true success, which rl.control = '{self.control}' "
                    "hides; unset one"
                )
        if self.conflict is not None and len(set(self.levels)) < 2:
            raise ValueError(
                "rl.conflict compares the gradients of several environments; name two or more in "
                "rl.curriculum.levels"
            )
        for name in ("staleness", "success_replay", "entropulse"):
            if self.advisor is not None and getattr(self, name):
                raise ValueError(
                    f"rl.{name} learns from older rollouts, and rl.advisor weighs those of the "
                    "present policy; unset one"
                )
        if self.success_replay and (self.curriculum is None or self.curriculum.tasks is None):
            raise ValueError(
                "rl.success_replay needs tasks that are repeated; set rl.curriculum.tasks"
            )
        return self

    @property
    def levels(self) -> tuple[str, ...]:
        """The environments that the curriculum chooses from; empty without a choice of them."""
        return () if self.curriculum is None else self.curriculum.levels

    @property
    def families(self) -> int:
        """The number of environments whose gradients are kept apart; 0: none is."""
        return 0 if self.conflict is None else len(set(self.levels))

    @property
    def predicts_privileged(self) -> bool:
        """Whether a head predicts privileged numbers; with a weight of 0 there is none."""
        return self.privileged is not None and self.privileged.coefficient > 0
