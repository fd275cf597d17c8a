"""Named algorithms: which credit rule, loss, aggregation, filter and correction go together.

An algorithm is data. `replace` any part of it to make your own; `Method` looks the
parts up and is what the training loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from palaestra.core.errors import RecipeError, UnknownName
from palaestra.learning.credit import compose
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.losses.aggregation import Aggregation
from palaestra.learning.losses.policy_loss import unit_of
from palaestra.learning.losses.trained_tokens import TokenLoss, Tokens, Unit
from palaestra.learning.methods.component import Kind, Options, Status, find


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A complete method of turning rollouts into a gradient; every part by its registered name."""

    summary: str
    source: str
    credit: str  # a rule, or a sum of rules such as "rloo + 0.5*anchor"
    loss: str = "ppo"
    aggregation: Aggregation = Aggregation.TOKEN_MEAN
    filter: str = "all"
    correction: str | None = None
    whiten: str | None = None  # scope over which advantages are normalised afterwards
    negligible: float = 0.0  # drop rollouts whose advantages are all smaller (LOOP)
    status: Status = Status.RELEASE  # of the combination itself
    credit_options: Options = field(default_factory=dict)
    loss_options: Options = field(default_factory=dict)
    filter_options: Options = field(default_factory=dict)
    correction_options: Options = field(default_factory=dict)


MEAN, EACH, SUM = (
    Aggregation.TOKEN_MEAN,
    Aggregation.ROLLOUT_TOKEN_MEAN,
    Aggregation.ROLLOUT_TOKEN_SUM,
)

ALGORITHMS: dict[str, Algorithm] = {
    "loop": Algorithm(
        "leave-one-out advantages, log-symmetric clip per token, every rollout weighs the same",
        "Chen et al. 2025, as released in ml-loop",
        *("rloo", "loop", EACH),
        negligible=1e-3,  # the release drops below 0.01; shaped returns here are finer
    ),
    "rloo": Algorithm(
        "leave-one-out advantages, REINFORCE on whole rollouts, one update per batch",
        "Ahmadian et al. 2024, as in verl and TRL",
        *("rloo", "pg", SUM),
    ),
    "reinforce": Algorithm(
        "returns minus the mean of the other rollouts of the batch, no clip",
        "Williams 1992",
        *("reinforce", "pg", SUM),
        credit_options={"baseline": "batch"},
    ),
    "reinforce++": Algorithm(
        "returns-to-go whitened over the batch, PPO clip",
        "Hu 2025, as in verl",
        *("reinforce++", "ppo", MEAN),
    ),
    "remax": Algorithm(
        "returns minus that of a greedy rollout of the same task",
        "Li et al. 2023, as in verl",
        *("remax", "pg", SUM),
    ),
    "grpo": Algorithm(
        "advantages in group standard deviations (n - 1), PPO clip 0.2, original weighting",
        "Shao et al. 2024, as in verl (no KL term unless loss_options.beta is set)",
        *("grpo", "grpo", EACH),
    ),
    "drgrpo": Algorithm(
        "returns minus the group's mean, every token divided by one constant length",
        "Liu et al. 2025, as in verl and TRL",
        *("drgrpo", "ppo", Aggregation.ROLLOUT_TOKEN_NORM),
    ),
    "dapo": Algorithm(
        "GRPO with a higher upper clip, token mean, and groups of equal success left out",
        "Yu et al. 2025, as in verl",
        *("grpo", "dapo", MEAN, "dapo"),
    ),
    "gspo": Algorithm(
        "one length-normalised ratio per rollout",
        "Zheng et al. 2025, as in verl and TRL",
        *("grpo", "gspo", EACH),
    ),
    "gspo-turn": Algorithm(
        "GSPO with the turn as its sequence, so that it can carry credit per turn",
        "GSPO's definition on the unit that AReaL's note asks for",
        *("grpo", "gspo", EACH),
        loss_options={"unit": "turn"},
        status=Status.OURS,
    ),
    "cispo": Algorithm(
        "clipped importance weights instead of clipped updates: no token loses its gradient",
        "MiniMax 2025; absolute cap as in TRL",
        *("grpo", "cispo", MEAN),
        credit_options={"scale": "batch"},
    ),
    "ppo": Algorithm(
        "a critic and GAE over tokens, observations skipped, PPO clip",
        "Schulman et al. 2017, masked as in verl and RAGEN",
        *("gae", "ppo", MEAN),
    ),
    "turn-ppo": Algorithm(
        "a critic and GAE over turns, the value read before a turn's first token",
        "as in AReaL",
        *("turn_gae", "ppo", MEAN),
    ),
    "bilevel-ppo": Algorithm(
        "GAE over turns, then over the tokens inside each turn",
        "VAGEN, with explicit ends of turns",
        *("bilevel_gae", "ppo", MEAN),
    ),
    "vapo": Algorithm(
        "critic targets with lambda 1, policy lambda by length, higher upper clip",
        "VAPO, as AReaL and UI-TARS-2 use it",
        *("length_adaptive_gae", "dapo", MEAN),
    ),
    "gigpo": Algorithm(
        "group advantage of the rollout plus group advantage of steps taken in equal states",
        "Feng et al. 2025, as in the author's release",
        *("gigpo", "ppo", EACH),
    ),
    "mt-grpo": Algorithm(
        "normalised turn rewards added to the normalised outcome, turn by turn",
        "Zeng et al. 2025, extended to any number of turns",
        *("mt_grpo", "ppo", MEAN),
    ),
    "igpo": Algorithm(
        "gain in the probability of the right answer as turn reward, normalised together",
        "IGPO, as in its release",
        *("igpo", "grpo", MEAN),
    ),
    "spa": Algorithm(
        "a progress model's contributions as turn rewards",
        "SPA-RL, without its critic",
        *("spa", "ppo", MEAN),
        status=Status.OURS,
    ),
    "archer": Algorithm(
        "an off-policy critic of whole replies with replay, REINFORCE on their tokens",
        "Zhou et al. 2024 (ArCHer), with this step's replies in place of resampled ones",
        *("archer", "pg", SUM),
    ),
    "step-grpo": Algorithm(
        "all steps of a group normalised in one pool",
        "ComputerRL",
        *("step_grpo", "ppo", MEAN),
    ),
    "starpo-s": Algorithm(
        "PPO on the groups whose returns vary most, higher upper clip, no KL",
        "RAGEN",
        *("gae", "dapo", MEAN, "starpo"),
        filter_options={"share": 0.5},
    ),
    "supo": Algorithm(
        "one vote per rollout, broadcast to all its segments, overlong ones not trained",
        "SUPO; DeepMiner and MEM1 credit their segments alike",
        *("supo", "dapo", MEAN),
    ),
    "agentrl": Algorithm(
        "GRPO whose advantages are normalised again over each family of tasks",
        "AgentRL",
        *("grpo", "ppo", MEAN),
        whiten="task",
        status=Status.EXPERIMENTAL,  # known from a digest
    ),
}


def algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name, or raise UnknownName."""
    if name not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


class Method:
    """An algorithm with its parts looked up.

    Raises:
        UnknownName, RecipeError: a part or an option that does not exist.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        loss = find(Kind.LOSS, algorithm.loss)
        filters = find(Kind.FILTER, algorithm.filter)
        self.credit_rule: Callable[..., Credit] = compose.parse(
            algorithm.credit, algorithm.credit_options
        )
        self.loss: TokenLoss = loss.configured(algorithm.loss_options)
        self.unit: Unit = unit_of(loss, algorithm.loss_options)
        self.keep = filters.configured(algorithm.filter_options)
        self.correction: TokenLoss | None = None
        if algorithm.correction is not None:
            found = find(Kind.CORRECTION, algorithm.correction)
            self.correction = found.configured(algorithm.correction_options)
        elif algorithm.correction_options:
            raise RecipeError("rl.correction_options has no effect without rl.correction.")
        self.needs = (
            compose.needs(algorithm.credit, algorithm.credit_options)
            | loss.needs_with(algorithm.loss_options)
            | filters.needs_with(algorithm.filter_options)
        )
        names = compose.names(algorithm.credit)
        known = {find(Kind.CREDIT, name).status for name in names} | {loss.status, filters.status}
        self.status = algorithm.status
        """Experimental if the combination or any of its parts is."""
        if Status.EXPERIMENTAL in known:
            self.status = Status.EXPERIMENTAL

    def credit(self, batch: Sequence[Trajectory], state: Mapping[str, float]) -> Credit:
        """Return one advantage per sampled token; `state` is what the rule returned last time.

        Raises:
            InputError: the batch, or the rule's result, cannot be learned from.
        """
        memory = {"state": state} if self.remembers else {}
        credit = self.credit_rule(batch, **memory)
        scope = self.algorithm.whiten
        return compose.whiten(credit, batch, scope) if scope else credit

    @property
    def remembers(self) -> bool:
        return "state" in compose.options(self.algorithm.credit)

    def weigh(self, tokens: Tokens) -> Tensor | None:
        """Return the correction's weight per token, or None without one."""
        return None if self.correction is None else self.correction(tokens)
