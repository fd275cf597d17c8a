"""Ranks that learn together learn what one process learns."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.core.errors import InputError, RankLost
from palaestra.learning.compute.packing import Micro, Trained
from palaestra.learning.compute.passes import Outputs, Wanted
from palaestra.learning.credit.rule import Credit
from palaestra.learning.critics.value_head import Critic
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.loop.leading import Leader
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.entropy import Smoother
from palaestra.learning.losses.entropy_control import EntropyControl, EntropyPlan
from palaestra.learning.losses.kl import Divergence, distillation
from palaestra.learning.losses.policy_loss import pg, ppo, unit_of
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods.component import Kind, components, find
from palaestra.learning.parallel import Ranks, checksum
from tests.learning.credit.made import ROLES
from tests.learning.made import sampled_rows
from tests.learning.ranks import Described, ended, leading, made, others, started

Work = Callable[[Learner], Any]

LOSSES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in components(Kind.LOSS)),
    ("loop", {"unit": "turn"}),
    ("loop", {"unit": "rollout"}),
    ("gspo", {"unit": "turn"}),
    ("decoupled", {"mode": "truncate"}),
    ("grpo", {"beta": 0.1}),
    ("grpo", {"beta": 0.1, "kl": "k3+"}),
    ("gspo", {"beta": 0.1}),
]
CRITICS = [
    Critic(0.01),
    Critic(0.01, coefficient=0.3, clip=0.2),
    Critic(0.01, shared=False),
]
ENTROPIES = [EntropyPlan(0.01), *(EntropyPlan(0.02, 1.0, form, 10) for form in Smoother)]


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with others(2) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    with others(4) as ranks:
        yield ranks


def batch(count: int = 9, seed: int = 0) -> list[Trained]:
    """Rows with everything that a loss may read, in turns, a rollout of two rows among them."""
    rows = sampled_rows(count, seed=seed)
    g = torch.Generator().manual_seed(seed + 1)
    found = []
    for number, row in enumerate(rows):
        length = len(row.tokens)
        noise = 0.2 * torch.randn(3, length, generator=g)
        old = torch.tensor(row.lp_old)
        found.append(
            replace(
                row,
                lp_beh=(old + noise[0]).tolist(),
                lp_ref=(old + noise[1]).tolist(),
                value_old=noise[2].tolist(),
                value_target=[float(token % 2) for token in row.tokens],
                turn=[at // 5 for at in range(length)],
                version=[0] * length,
                rollout=max(1, number),  # the first two are rows of one rollout
            )
        )
    return found


def gradient(
    learner: Learner, rows: list[Trained], *args: Any, **options: Any
) -> dict[str, Tensor]:
    """The gradients of a first step, the critic's included, and what the learner says of it."""
    update = learner.update(rows, *args, **options)
    first = 1 - learner.optimisation.betas[0]
    found = {name: moment / first for name, moment in learner.state()["exp_avg"].items()}
    figures = update.figures()
    del figures["processed"]  # rows that other ranks run may begin alike
    return {**found, "figures": torch.tensor(list(figures.values()), dtype=torch.float64)}


def run(learner: Learner, work: Work) -> Any:
    try:
        return work(learner)
    finally:
        learner.close()


def check(
    ranks: Ranks, described: Described, work: Work, tolerance: float = 1e-12, *, bits: bool = True
) -> None:
    """The work gives the same with all ranks; with `bits`, and in order, bit for bit.

    The tolerance is relative to the norm of each tensor, and to a thousandth of the largest norm.
    """
    alone = run(made(described), work)
    if bits:
        ordered = run(leading(ranks, described, ordered=True), work)
        assert alone.keys() == ordered.keys()
        assert [name for name in alone if not torch.equal(alone[name], ordered[name])] == []
    together = run(leading(ranks, described), work)
    assert alone.keys() == together.keys()
    least = 1e-3 * max(float(tensor.norm()) for tensor in alone.values())
    for name, tensor in alone.items():
        scale = max(float(tensor.norm()), least)
        assert float((together[name] - tensor).norm()) <= tolerance * scale, name


# ── the gradient ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("direction", Divergence)
def test_the_gradient_of_a_divergence_is_that_of_one_process(
    two: Ranks, direction: Divergence
) -> None:
    rows = [
        replace(row, teacher=Trained([5, *row.tokens], [False, *row.mask])) if number % 2 else row
        for number, row in enumerate(batch())
    ]

    def work(learner: Learner) -> dict[str, Tensor]:
        weights = learner.state()["weights"].items()
        learner.take_reference({name: 1.1 * tensor for name, tensor in weights})
        return gradient(learner, rows, distillation, divergence=direction)

    check(two, Described(reference="start"), work)


@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_the_gradient_of_every_loss_is_that_of_one_process(
    two: Ranks, name: str, options: dict[str, Any]
) -> None:
    loss = find(Kind.LOSS, name).configured(options)
    whole = unit_of(name, options) is Unit.ROLLOUT
    check(two, Described(), partial(gradient, rows=batch(), loss=loss, whole_rollouts=whole))


@pytest.mark.parametrize("plan", ENTROPIES, ids=str)
def test_the_gradient_of_every_entropy_term_is_that_of_one_process(
    two: Ranks, plan: EntropyPlan
) -> None:
    def work(learner: Learner) -> dict[str, Tensor]:
        memory = {f"entropy.sum.{turn}": 1.0 + turn for turn in range(4)}
        memory |= {f"entropy.count.{turn}": 1.0 for turn in range(4)}
        control = EntropyControl(plan, 3, memory)
        found = gradient(learner, batch(), ppo, entropy=control.term)
        kept = sorted(control.remembered().items())
        return {**found, "kept": torch.tensor([value for _, value in kept], dtype=torch.float64)}

    check(two, Described(), work)


@pytest.mark.parametrize("critic", CRITICS, ids=str)
def test_the_gradient_of_every_critic_is_that_of_one_process(two: Ranks, critic: Critic) -> None:
    def work(learner: Learner) -> dict[str, Tensor]:
        rows = batch()
        learner.update_values(rows)  # values that differ from token to token
        found = gradient(learner, rows, ppo)
        values = [torch.tensor(v, dtype=torch.float64) for v in learner.values(rows)]
        return {**found, "values": torch.cat(values)}

    check(two, Described(critic=critic), work)


@pytest.mark.parametrize("rule", components(Kind.CREDIT))
def test_the_gradient_of_every_credit_rule_is_that_of_one_process(two: Ranks, rule: str) -> None:
    rollouts = rollouts_with_everything()
    rows = credited(rollouts, find(Kind.CREDIT, rule).configured({})(rollouts))
    assert any(any(row.advantage) for row in rows)
    check(two, Described(critic=CRITICS[0]), partial(gradient, rows=rows, loss=ppo), bits=False)


def rollouts_with_everything() -> list[Trajectory]:
    """Two groups of three rollouts in which every slot that a rule may read is filled."""
    rng, found = random.Random(0), []
    for group in range(2):
        for member in range(3):
            count = 2 + member
            turns = tuple(
                Turn(
                    tokens=1 + (turn + member) % 3,
                    reward=rng.choice((-0.5, 0.25, 1.0)),
                    call=turn,
                    role=ROLES[(turn + member) % 2],
                    step=turn // 2,
                    segment=turn % 2,
                    valid=turn != 1,
                    anchor="ab"[turn % 2],
                    values=tuple(rng.random() for _ in range(1 + (turn + member) % 3)),
                    progress=rng.random(),
                    belief=rng.random(),
                    contribution=rng.random(),
                    seconds=rng.uniform(0.1, 10.0),
                    advantage=rng.uniform(-1.0, 1.0),
                )
                for turn in range(count)
            )
            outcome = rng.choice((0.25, 0.5, 1.0)) + member
            found.append(
                Trajectory(
                    key=Key("rl/1", group, member),
                    group=f"rl/1/{group}",
                    turns=turns,
                    outcome=outcome,
                    task="maze",
                    success=member > 0,
                    belief=0.4,
                    greedy=0.5,
                    outcomes={ROLES[0]: outcome, ROLES[1]: -outcome},
                    parents=tuple(f"{group}.{member}.{turn}" for turn in range(count)),
                )
            )
    return found


def credited(drawn: list[Trajectory], credit: Credit) -> list[Trained]:
    """A row of each trajectory, with the rule's advantages, and its returns as targets."""
    found = []
    for number, one in enumerate(drawn):
        count = sum(turn.tokens for turn in one.turns)
        turns = [index for index, turn in enumerate(one.turns) for _ in range(turn.tokens)]
        returns = None if credit.returns is None else credit.returns[number].tolist()
        found.append(
            Trained(
                [1, 2, *((7 * number + 3 * at) % 24 for at in range(count))],
                [False, False, *([True] * count)],
                lp_old=[0.0, 0.0, *([-3.0] * count)],
                advantage=[0.0, 0.0, *credit.advantages[number].tolist()],
                weight=[0.0, 0.0, *([1 / len(drawn)] * count)],
                turn=[0, 0, *turns],
                rollout=one.key,
                value_target=None if returns is None else [0.0, 0.0, *returns],
            )
        )
    return found


def test_adapters_learn_what_they_learn_in_one_process(two: Ranks) -> None:
    check(two, Described(lora=True), partial(gradient, rows=batch(), loss=ppo))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_ranks_with_fewer_rows_or_none_change_no_gradient(two: Ranks, count: int) -> None:
    described = Described(micro_tokens=1)  # each row is a micro-batch
    check(two, described, partial(gradient, rows=batch(count), loss=ppo))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-6)], ids=str
)
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_narrow_numbers_lose_nothing(
    two: Ranks, dtype: torch.dtype, tolerance: float, lora: bool
) -> None:
    """Micro-batches are the same, so that only the order of the sum of gradients differs."""
    described = Described(dtype, lora=lora, micro_tokens=1)
    check(two, described, partial(gradient, rows=batch(), loss=ppo), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [1, 3, 4, 9, 13])
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_four_ranks_learn_what_one_process_learns(
    four: Ranks, dtype: torch.dtype, count: int, lora: bool
) -> None:
    critic, control = CRITICS[1], EntropyControl(ENTROPIES[0], 1, {})
    described = Described(dtype, lora=lora, critic=critic, micro_tokens=1)
    tolerance = 1e-12 if dtype is torch.float64 else 1e-6
    work = partial(gradient, rows=batch(count), loss=ppo, entropy=control.term)
    check(four, described, work, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), LOSSES)
def test_the_gradient_of_every_loss_on_four_ranks(
    four: Ranks, name: str, options: dict[str, Any]
) -> None:
    loss = find(Kind.LOSS, name).configured(options)
    whole = unit_of(name, options) is Unit.ROLLOUT
    work = partial(gradient, rows=batch(13), loss=loss, whole_rollouts=whole)
    for described in (Described(), Described(lora=True)):
        check(four, described, work)


# ── all that a learner does ──────────────────────────────────────────────────


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_a_whole_run_of_a_learner_is_that_of_one_process(two: Ranks, lora: bool) -> None:
    """Several updates at rates of their own, references old and new, a restored state."""
    described = Described(lora=lora, critic=CRITICS[0], reference="start")

    def work(learner: Learner) -> dict[str, Tensor]:
        rows, found = batch(), {}
        for step in range(2):
            learner.update(rows, ppo, learning_rate=1e-3 / (step + 1))
        state = {
            part: {name: tensor.clone() for name, tensor in tensors.items()}
            for part, tensors in learner.state().items()
        }
        found["reference"] = flat(learner.reference(rows))
        learner.set_reference()
        learner.update(rows, pg)
        found["new reference"] = flat(learner.reference(rows))
        found["logprobs"] = flat(learner.logprobs(rows))
        learner.restore(state)
        learner.update_values(rows)
        learner.update(rows, pg)
        return found | learner.state()["weights"] | learner.state()["exp_avg_sq"]

    check(two, described, work, 1e-9)  # Adam divides small gradients by their size


def test_the_base_as_reference_is_that_of_one_process(two: Ranks) -> None:
    described = Described(lora=True, reference="base")
    check(two, described, lambda learner: {"base": flat(learner.reference(batch()))})


def flat(values: list[list[float]]) -> Tensor:
    return torch.tensor([value for row in values for value in row], dtype=torch.float64)


def test_a_step_that_fails_leaves_the_ranks_as_they_were(two: Ranks) -> None:
    calls = []

    def fails_once(tokens: Any) -> Tensor:
        calls.append(tokens)
        return tokens.lp[:-1] if len(calls) == 2 else -tokens.advantage * tokens.lp

    def work(learner: Learner) -> dict[str, Tensor]:
        return gradient(learner, batch(), pg)

    alone = run(made(Described()), work)
    learner = leading(two, Described(), ordered=True)
    with pytest.raises(InputError, match="fails_once"):
        learner.update(batch(), fails_once)
    again = run(learner, work)
    assert all(torch.equal(alone[name], again[name]) for name in alone)


# ── lost ranks ───────────────────────────────────────────────────────────────


def while_learning(end: Callable[[], None], at: int) -> Callable[[Any], Tensor]:
    """A loss in whose `at`-th call something happens."""
    calls = []

    def loss(tokens: Any) -> Tensor:
        calls.append(tokens)
        if len(calls) == at:
            end()
        return -tokens.advantage * tokens.lp

    return loss


@pytest.mark.parametrize(
    "at", [2, *(pytest.param(call, marks=pytest.mark.slow) for call in (1, 3, 4))]
)
def test_a_killed_rank_ends_the_update_and_moves_no_weights(at: int) -> None:
    ranks, processes = started(2)
    learner = leading(ranks, Described(micro_tokens=1))
    before = learner.trained.checksum()
    pid = processes[0].pid
    assert pid is not None
    loss = while_learning(lambda: os.kill(pid, signal.SIGKILL), at)
    with pytest.raises(RankLost, match=rf"rank 1 \(.*process {pid}\) ended.*; it was comp"):
        learner.update(batch(), loss)
    assert learner.trained.checksum() == before
    assert learner.model.version == 0
    with pytest.raises(RankLost):  # not as if it were alone from now on
        learner.update(batch(), pg)
    assert ended(ranks, processes) == [-signal.SIGKILL]


@pytest.mark.slow
def test_a_frozen_rank_is_lost_after_a_while() -> None:
    ranks, processes = started(2, patience=3.0)
    learner = leading(ranks, Described(micro_tokens=1))
    before = learner.trained.checksum()
    pid = processes[0].pid
    assert pid is not None
    loss = while_learning(lambda: os.kill(pid, signal.SIGSTOP), 2)
    with pytest.raises(RankLost, match="silent for 3 seconds; it was computing"):
        learner.update(batch(), loss)
    assert learner.trained.checksum() == before
    ranks.close()
    os.kill(pid, signal.SIGCONT)
    processes[0].join(20)
    assert processes[0].exitcode == 1  # it finds that rank 0 has left


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_new_ranks_replace_lost_ones_within_an_update(dtype: torch.dtype) -> None:
    """Also while the reference policy computes; all that follows is that of one process."""
    described = Described(dtype, critic=CRITICS[0], reference="start", micro_tokens=1)
    control, undisturbed = EntropyControl(ENTROPIES[1], 1, {}), EntropyControl(ENTROPIES[1], 1, {})
    teams = [started(2)]

    def kill() -> None:
        pid = teams[-1][1][0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def replaced(lost: RankLost) -> Ranks:
        assert lost.rank == 1
        teams.append(started(2))
        return teams[-1][0]

    def work(learner: Learner, loss: Any, entropy: Any, kill: Callable[[], None]) -> Any:
        learner.update(batch(), pg)
        learner.update(batch(), loss, entropy=entropy)
        with monkeypatched(learner, kill):
            reference = flat(learner.reference(batch()))
        learner.update(batch(), pg)
        state = learner.state()
        return (
            {"reference": reference}
            | state["weights"]
            | {f"{name}.moment": tensor for name, tensor in state["exp_avg"].items()}
        )

    nothing = partial(work, loss=pg, entropy=undisturbed.term, kill=lambda: None)
    alone = run(made(described), nothing)
    learner = made(described)
    learner.lead(Leader(teams[0][0], described, ordered=True, replace=replaced))
    loss = while_learning(kill, 3)
    together = run(learner, partial(work, loss=loss, entropy=control.term, kill=kill))
    assert len(teams) == 3
    assert [name for name in alone if not torch.equal(alone[name], together[name])] == []
    assert control.remembered() == undisturbed.remembered()
    assert ended(*teams[-1], code=3) == [3]
    for _, processes in teams[:-1]:
        processes[0].join(20)
        assert processes[0].exitcode == -signal.SIGKILL


@contextmanager
def monkeypatched(learner: Learner, act: Callable[[], None]) -> Iterator[None]:
    """Within the context, something happens once, before the second pass here."""
    calls: list[object] = []
    outputs = learner.outputs

    def counted(micro: Micro, wanted: Wanted) -> Outputs:
        calls.append(micro)
        if len(calls) == 2:
            act()
        return outputs(micro, wanted)

    learner.outputs = counted  # type: ignore[method-assign]
    try:
        yield
    finally:
        learner.outputs = outputs  # type: ignore[method-assign]


@pytest.mark.slow
def test_a_rank_that_cannot_work_says_why() -> None:
    ranks, processes = started(2)
    learner = made(Described())
    with pytest.raises(RankLost, match="ValueError: no such model; it was loading the model"):
        learner.lead(Leader(ranks, Described(broken=True)))
    assert ended(ranks, processes) == [1]


@pytest.mark.slow
def test_a_rank_with_other_weights_is_refused() -> None:
    ranks, processes = started(2)
    described = Described(lora=True)  # the base is not sent
    learner = made(described)
    with torch.no_grad():
        learner.model.network.get_parameter("embedding.weight").mul_(2)
    with pytest.raises(RankLost, match="holds other weights than rank 0"):
        learner.lead(Leader(ranks, described))
    assert ended(ranks, processes) == [1]  # lost: it is told nothing more, and ends by itself


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.uint8])
def test_one_bit_changes_a_checksum(dtype: torch.dtype) -> None:
    tensor = torch.arange(1, 100, dtype=torch.float64).to(dtype)
    before = checksum([tensor])
    assert checksum([tensor.clone()]) == before
    tensor.view(torch.uint8)[17] ^= 1
    assert checksum([tensor]) != before
