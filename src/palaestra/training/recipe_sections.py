"""The tables of a recipe: keys, defaults and meanings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from palaestra.gateway.program_agents import name_of
from palaestra.models.local.quantisation import Quantisation


class Section(BaseModel):
    """A table of a recipe. Unknown keys are errors, numbers are finite, values are immutable."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # infinite options of parts survive storing
    )


class EnvironmentPart(Section):
    """The environments of training and testing."""

    id: str = Field(description="environment to learn in, e.g. babyai/GoToLocalS5N2")
    turns: int | None = Field(
        None, ge=1, description="actions per episode; unset: the environment's own"
    )
    max_invalid_actions: int = Field(
        3,
        ge=0,
        description="consecutive invalid actions that end an episode as a failure; 0: no limit",
    )
    transfer: str | None = Field(None, description="environment used only for testing; unset: none")
    workers: int = Field(
        1, ge=0, description="worker processes; 0: environments run in this process"
    )
    timeout: float = Field(
        60, gt=0, description="seconds after which an environment counts as hung"
    )


class AgentPart(Section):
    """How the agent acts and samples."""

    name: str = Field("direct", description="an agent of `palaestra list agents`")
    command: str | None = Field(
        None, description="a program that is the agent, e.g. python my_agent.py; unset: `name`"
    )
    sandbox: str | None = Field(
        None, description="where `command` runs, e.g. bubblewrap; unset: as a plain process"
    )
    mounts: tuple[str, ...] = Field(
        (), description="files and folders that `command` sees in the sandbox"
    )
    limits: tuple[str, ...] = Field(
        (), description="resource limits in the sandbox, e.g. memory=1000000000"
    )
    rewards: bool = Field(True, description="whether `command` receives the rewards of its actions")
    temperature: float = Field(1.0, gt=0, description="sampling temperature, also in evaluation")
    max_tokens: int = Field(8, ge=1, description="sampled tokens per reply")
    stop: tuple[str, ...] = Field((), description="texts that end a reply")
    reasoning_tokens: int | None = Field(
        None, ge=1, description="tokens after which a reply's thought is ended; unset: no limit"
    )

    @model_validator(mode="after")
    def _a_command_is_the_agent(self) -> AgentPart:
        if self.command is not None and self.name != "direct":
            raise ValueError("agent.name has no effect with agent.command; unset one")
        if self.command is None and (self.sandbox or self.mounts or self.limits):
            raise ValueError("agent.sandbox, mounts and limits need agent.command; set it")
        if self.command is None and not self.rewards:
            raise ValueError("agent.rewards has no effect without agent.command; unset one")
        return self

    @property
    def chosen(self) -> str:
        """The agent's name, or the name of its command."""
        if self.command is None:
            return self.name
        sandbox = (self.sandbox, self.mounts, self.limits)
        return name_of(self.command, *sandbox, rewards=self.rewards)


class TinyVision(Section):
    """Sizes of the vision tower of a tiny model that sees."""

    side: int = Field(112, ge=8, description="pixels of an image's longer side, after scaling")
    patch: int = Field(16, ge=4, description="pixels of a patch's side")
    merge: int = Field(1, ge=1, description="patches of a block's side that become one token")
    layers: int = Field(2, ge=1)
    width: int = Field(64, ge=16)
    heads: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _the_image_is_whole_blocks(self) -> TinyVision:
        if self.side % (self.patch * self.merge):
            raise ValueError(
                f"model.tiny.vision.side = {self.side} is no multiple of patch * merge = "
                f"{self.patch * self.merge}; change one of them"
            )
        if self.width % self.heads:
            raise ValueError(
                f"model.tiny.vision.width = {self.width} is no multiple of heads = {self.heads}; "
                "change one of them"
            )
        return self


class Tiny(Section):
    """Sizes of the tiny transformer, trained from scratch."""

    layers: int = Field(4, ge=1)
    width: int = Field(128, ge=32)
    heads: int = Field(4, ge=1)
    vision: TinyVision | None = Field(
        None, description="the vision tower of a model that sees; unset: it reads text only"
    )


class ModelPart(Section):
    """The policy."""

    name: str = Field(
        "smollm2-135m",
        description="a name of `palaestra list models`: a checkpoint's folder, a GGUF file, or a "
        "hub id",
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bf16 where the device supports it natively"
    )
    quantise: Quantisation | None = Field(
        None,
        description="format of the frozen weights under LoRA adapters: int8, or nf4 (4 bits); "
        "unset: `precision`",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a CUDA device if available"
    )
    backend: Literal["auto", "resident", "transformers"] = Field(
        "auto",
        description="whose code runs the model; auto: palaestra's for the types that it knows "
        "(fastest), transformers' for any other",
    )
    context: int = Field(1024, ge=64, description="longest conversation in tokens")
    slots: int | None = Field(None, ge=1, description="concurrent replies; unset: one per session")
    schedule: Literal["fcfs", "attained"] = Field(
        "fcfs",
        description="order of replies when more wait than fit: first come first served, or least "
        "attained service first (the episode that has used the engine least)",
    )
    keep_thoughts: bool = Field(
        False,
        description="continue a conversation with its earlier thoughts where the chat template "
        "would drop them and begin a new branch",
    )
    tiny: Tiny | None = Field(None, description="only with name = tiny")

    @model_validator(mode="after")
    def _tiny_sizes_need_tiny(self) -> ModelPart:
        if self.tiny is not None and self.name != "tiny":
            raise ValueError("model.tiny has no effect unless model.name is 'tiny'")
        if self.backend != "auto" and self.name == "tiny":
            raise ValueError("model.backend has no effect on the tiny transformer; unset it")
        return self


class Adapter(Section):
    """The LoRA adapter of a role or player."""

    folder: str | None = Field(
        None,
        description="the adapter that it begins with: a folder of peft's, or a run; unset: a new "
        "one, or the base alone if it is frozen",
    )
    frozen: bool = Field(False, description="act with it as it is, and learn nothing")


class Training(Section):
    """The trained weights of the model."""

    weights: Literal["full", "top", "lora"] = Field("full")
    top_layers: int | None = Field(None, ge=1, description="layers trained with weights = top")
    lora_rank: int | None = Field(None, ge=1, description="rank with weights = lora")
    adapters: dict[str, Adapter] = Field(
        default_factory=dict,
        description="roles or players with an adapter of their own, beside the agent's, with "
        'weights = lora; a list of them, or e.g. {planner = {folder = "runs/a", frozen = true}}',
    )
    alternate: int | None = Field(
        None,
        ge=1,
        description="RL steps in which one adapter learns, before it is the next one's turn; "
        "unset: all learn in each step",
    )
    memory: float | None = Field(
        None, gt=0, description="GB for learning besides the weights; unset: half of the total"
    )
    clip_norm: float = Field(1.0, gt=0, description="bound on the gradient's norm")

    @field_validator("adapters", mode="before")
    @classmethod
    def _a_list_names_roles(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        if len(set(map(str, value))) < len(value):
            raise ValueError("a role is named twice; name each once")
        return {role: {} for role in value}

    @property
    def learners(self) -> tuple[str, ...]:
        """The roles whose adapters learn, in the order of their turns; without LoRA none."""
        if self.weights != "lora":
            return ()
        every = {"agent": Adapter()} | self.adapters
        return tuple(role for role, adapter in every.items() if not adapter.frozen)

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else int(self.memory * 1e9)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Training:
        for key, value, owner in (
            ("top_layers", self.top_layers, "top"),
            ("lora_rank", self.lora_rank, "lora"),
        ):
            if (value is not None) != (self.weights == owner):
                needs = "needs" if value is None else "is the only one that reads"
                raise ValueError(f"training.weights = '{owner}' {needs} training.{key}")
        if self.adapters and self.weights != "lora":
            raise ValueError("training.adapters needs training.weights = 'lora'")
        if self.alternate is not None and len(self.learners) < 2:
            raise ValueError(
                "training.alternate has no effect unless two adapters learn; add one to "
                "training.adapters, or unset it"
            )
        return self


class Imitation(Section):
    """Imitation of demonstrations, by the environment's expert or others."""

    demonstrations: int = Field(32, ge=0, description="number of episodes; 0 skips imitation")
    demonstrator: Literal["expert", "policy", "random", "recorded"] = Field(
        "expert",
        description="source of the episodes: the environment's expert, the policy, random actions, "
        "or another run",
    )
    run: str | None = Field(None, description="recorded: folder of the other run")
    label: str | None = Field(
        None, description="recorded: only episodes with this label by a person"
    )
    judge: str | None = Field(
        None, description="recorded: only episodes that this judge marks as solved"
    )
    examples: str = Field(
        "filtered-cloning", description="how to choose examples, of `palaestra list curricula`"
    )
    examples_options: dict[str, Any] = Field({}, description="e.g. {share = 0.5}")
    epochs: int = Field(2, ge=1)
    batch: int = Field(8, ge=1, description="episodes per optimizer step")
    learning_rate: float = Field(1e-4, gt=0)

    @model_validator(mode="after")
    def _a_run_is_recorded(self) -> Imitation:
        if (self.run is not None) != (self.demonstrator == "recorded"):
            raise ValueError(
                "imitation.run and imitation.demonstrator = 'recorded' need each other; set both"
            )
        for key, value in (("label", self.label), ("judge", self.judge)):
            if value is not None and self.run is None:
                raise ValueError(f"imitation.{key} has no effect without imitation.run")
        return self


class ClusterPart(Section):
    """The machines of a run on a cluster (`--on ray`)."""

    workers: tuple[int, int] = Field(
        (1, 8), description="processes that run sessions: at least, and where there is room"
    )
    worker_cpus: float = Field(1, gt=0, description="processors that each of them reserves")
    engines: int | None = Field(
        None,
        ge=1,
        description="processes that act in the rollouts of RL with copies of the weights; unset: "
        "the learner's process acts",
    )
    engine: Literal["resident", "vllm"] | None = Field(
        None, description="whose engine they are: palaestra's (resident) or vLLM's; unset: resident"
    )
    engine_cpus: float | None = Field(
        None, gt=0, description="processors that each engine reserves; unset: 1"
    )
    engine_gpus: float | None = Field(
        None, gt=0, description="CUDA devices that each engine reserves; unset: it uses processors"
    )

    learners: int = Field(
        1, ge=1, description="processes that learn together: this one, and others elsewhere"
    )
    shard: bool = Field(
        False, description="divide gradients and the optimiser's state among the learners"
    )
    learner_cpus: float | None = Field(
        None, gt=0, description="processors that each further learner reserves; unset: 1"
    )
    learner_gpus: float | None = Field(
        None, gt=0, description="CUDA devices that each reserves; unset: it uses processors"
    )
    copies: int = Field(
        1,
        ge=1,
        description="of the record; all but the run's folder are kept in step on other machines",
    )

    @field_validator("workers")
    @classmethod
    def _at_least_one(cls, workers: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= workers[0] <= workers[1]:
            raise ValueError("give the least, 1 or more, and then the most")
        return workers

    @model_validator(mode="after")
    def _processes_are_asked_for(self) -> ClusterPart:
        for name in ("engine", "engine_cpus", "engine_gpus"):
            if getattr(self, name) is not None and self.engines is None:
                raise ValueError(f"cluster.{name} has no effect without cluster.engines; set that")
        for name in ("shard", "learner_cpus", "learner_gpus"):
            if getattr(self, name) and self.learners == 1:
                raise ValueError(
                    f"cluster.{name} has no effect without cluster.learners above 1; set that"
                )
        return self


class Evaluation(Section):
    """The number of held-out test tasks, and general text that must not be forgotten."""

    tasks: int = Field(256, ge=1)
    transfer_tasks: int = Field(128, ge=1)
    general: tuple[str, ...] = Field(
        (),
        description="text files whose held-out paragraphs' loss is measured after each stage that "
        "trains, beside those that stages mix in",
    )
