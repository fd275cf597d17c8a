"""Reasoning Gym: the package's questions and scores, and the guard of its verifiers."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym")

import numpy
import reasoning_gym
from reasoning_gym.factory import DATASETS, create_curriculum

from palaestra.core.environment import Action, Capability
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.task import Split, Task
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.reasoning.environment import TRIES, ReasoningGym, answer_in
from palaestra.environments.families.reasoning.guard import UNREADABLE, guarded
from palaestra.environments.families.reasoning.sets import EXCLUDED, UNANSWERED, levels, titles

SAMPLE = (
    "ab acre basic_arithmetic bf boxnet chain_sum circuit_logic codeio complex_arithmetic dice "
    "emoji_mystery family_relationships graph_color gsm_symbolic isomorphic_strings jugs kakurasu "
    "knights_knaves list_functions maze mini_sudoku number_sequence pool_matrix power_function "
    "propositional_logic rubiks_cube rush_hour shortest_path simple_integration string_insertion "
    "time_intervals tower_of_hanoi word_sorting"
).split()
ALL = [
    pytest.param(title, marks=[] if title in SAMPLE else [pytest.mark.slow]) for title in titles()
]
WRONG = ("", "x", "0", "1", "yes", "True", "1 2 3", "[[0, 1], [1, 0]]", "A B C", "P")
CURRICULA_REFUSED = {
    "caesar_cipher": (2, 3),
    "knight_swap": (0, 1, 2, 3, 4),
    "modulo_grid": (1,),
    "rubiks_cube": (4,),
    "survo": (2, 3),
}


def task(seed: int) -> Task:
    return Task(id=f"train/{seed}", environment="reasoning", seed=seed)


def world(name: str, seed: int = 0) -> ReasoningGym:
    made = ReasoningGym(name)
    made.reset(task(seed))
    return made


def packaged(title: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """The package itself: its data set of that seed, and its first item."""
    random.seed(seed)  # list_functions and pool_matrix use the global random generator
    numpy.random.seed(seed)
    size = {} if title == "acre" else {"size": 1}
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = reasoning_gym.create_dataset(title, seed=seed, **size)
        return dataset, dataset[0]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["chain_sum@2", "countdown+feedback", "mini_sudoku", "boxnet"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: ReasoningGym(name), ReasoningGym.tasks(f"reasoning/{name}"), steps=15))


# ── as the package says ──────────────────────────────────────────────────────


@pytest.mark.parametrize("title", ALL)
def test_questions_and_scores_are_the_packages_own(title: str) -> None:
    seed = 4
    dataset, entry = packaged(title, seed)
    made = ReasoningGym(title)
    assert made.reset(task(seed)).text == entry["question"]
    answers = [*WRONG, entry["question"], f"{entry['answer']} x", str(entry["answer"])[:-1]]
    for answer in answers:
        if not answer.strip() or guarded(title, answer.strip()) == UNREADABLE:
            continue
        made.reset(task(seed))
        got = made.step(Action(answer))
        try:
            score = dataset.score_answer(answer.strip(), entry)
        except Exception:
            score = 0.0
        assert got.reward == score, answer
        assert got.terminated and got.valid and not got.truncated
        assert got.success == (score >= 1 - 1e-9)


@pytest.mark.parametrize("title", ALL)
def test_the_packages_own_answer_has_the_full_score(title: str) -> None:
    for seed in range(3):
        made = world(title, seed)
        if title in UNANSWERED:
            with pytest.raises(CapabilityMissing):
                made.oracle()
            assert packaged(title, seed)[1]["answer"] is None
            continue
        (path,) = made.oracle()
        done = made.step(path)
        assert done.success and done.reward == pytest.approx(1.0) and made.progress() == 1.0


def test_a_level_is_the_packages_curriculum_at_that_level() -> None:
    curriculum = create_curriculum("chain_sum")
    curriculum.set_global_level(3)
    dataset = DATASETS["chain_sum"][0](curriculum.generate_configuration({"seed": 7, "size": 1}))
    assert ReasoningGym("chain_sum@3").reset(task(7)).text == dataset[0]["question"]
    assert levels("chain_sum") == 11 and levels("acre") == 0


def test_the_packages_global_rng_is_left_alone() -> None:
    random.seed(1)
    numpy.random.seed(1)
    expected = random.random(), numpy.random.random()
    random.seed(1)
    numpy.random.seed(1)
    world("list_functions", 0)
    world("pool_matrix", 0)
    assert (random.random(), numpy.random.random()) == expected


def test_what_the_package_prints_is_kept_from_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world("bf")
    assert capsys.readouterr().out == ""


# ── several tries ────────────────────────────────────────────────────────────


def test_with_feedback_a_wrong_answer_is_reported_and_the_next_may_solve() -> None:
    made = world("chain_sum+feedback")
    (right,) = made.oracle()
    first = made.step(Action("no idea"))
    assert first.observation.text == f"That is wrong. Try again; tries left: {TRIES - 1}."
    assert not first.terminated and first.reward == 0.0
    near = made.step(Action(f"{right.text} perhaps"))
    assert "Its score is 0." in near.observation.text and near.reward == 0.0
    assert 0 < made.progress() < 1
    last = made.step(right)
    assert last.success and last.reward == 1.0 and last.observation.text == "Right."


def test_after_the_last_try_the_last_score_is_the_reward_and_no_answer_is_reported() -> None:
    made = world("chain_sum+feedback")
    (right,) = made.oracle()
    shown = [made.step(Action(f"{right.text} perhaps")) for _ in range(TRIES)]
    assert [step.terminated for step in shown] == [False] * (TRIES - 1) + [True]
    assert [step.reward for step in shown[:-1]] == [0.0] * (TRIES - 1)
    assert 0 < shown[-1].reward < 1 and not shown[-1].success
    assert not any(right.text in step.observation.text for step in shown)
    assert made.oracle() == [] and not made.step(right).valid


def test_a_partial_score_is_no_success_and_keys_tell_it_apart() -> None:
    one, other = world("chain_sum+feedback"), world("chain_sum+feedback")
    one.step(Action(f"{one.oracle()[0].text} x"))
    other.step(Action("x"))
    assert one.progress() > other.progress() == 0.0
    assert one.state_key() != other.state_key()


def test_an_empty_reply_is_no_answer_and_costs_no_try() -> None:
    made = world("chain_sum")
    assert not made.step(Action(" \n")).valid
    assert made.step(made.oracle()[0]).success


@pytest.mark.parametrize(
    ("output", "meant"),
    [
        (" 42 \n", "42"),
        ("so\n<answer>\n42\n</answer> it is", "42"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer></answer>", ""),
        ("<answer>1", "<answer>1"),
    ],
)
def test_what_counts_as_the_answer(output: str, meant: str) -> None:
    assert answer_in(output) == meant


# ── faults of the package ────────────────────────────────────────────────────


def test_the_data_set_left_out_gives_the_full_score_to_any_words() -> None:
    assert "game_of_life_halting" in EXCLUDED
    dataset, entry = packaged("game_of_life_halting", 0)
    assert dataset.score_answer("banana", entry) == 1.0


def test_a_known_answer_that_the_packages_own_verifier_refuses() -> None:
    dataset, entry = packaged("propositional_logic", 159)
    assert entry["metadata"]["example_answer"] == "P"
    assert dataset.score_answer("P", entry) == 0.05
    assert world("propositional_logic", 159).oracle() == []


def test_an_empty_answer_can_be_right_and_is_written_in_tags() -> None:
    made = world("ab", 18)
    (path,) = made.oracle()
    assert path.text == "<answer></answer>" and made.step(path).success


def test_a_number_sequence_that_squares_without_end_is_made_all_the_same() -> None:
    assert world("number_sequence", 163).oracle()  # the package alone never returns


# ── what verifiers must not be handed ────────────────────────────────────────


@pytest.mark.parametrize("title", ["n_queens", "binary_matrix", "spiral_matrix", "countdown"])
def test_an_answer_is_never_run_as_a_program(title: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    for attack in (f"[open({str(witness)!r}, 'w')]", f"open({str(witness)!r}, 'w').close() or 1"):
        assert world(title).step(Action(attack)).reward <= 0.01
    assert not witness.exists()


def test_the_verifiers_own_variables_cannot_be_read() -> None:
    dataset, entry = packaged("string_insertion", 0)
    assert dataset.score_answer("oracle_answer", entry) == 0.1
    assert world("string_insertion").step(Action("oracle_answer")).reward == 0.0


def test_nan_is_no_complex_number_that_was_asked_for() -> None:
    dataset, entry = packaged("complex_arithmetic", 0)
    assert dataset.score_answer("nan", entry) == 1.0
    assert not world("complex_arithmetic").step(Action("nan")).success


@pytest.mark.parametrize(
    ("title", "attack"),
    [
        ("countdown", "9**9**9**9"),
        ("countdown", "((9**9)**9)**9"),
        ("countdown", "1e-999999999"),
        ("countdown", "99999999!"),
        ("puzzle24", "2**(9*9*9*9*9*9)"),
        ("coin_flip", "1e9_9_9_9_9_9_9"),
        ("simple_integration", "exp(exp(exp(exp(exp(10)))))"),
        ("simple_integration", "sin(" * 90 + "x" + ")" * 90),
        ("intermediate_integration", "Integral(x, x)"),
        ("polynomial_multiplication", "eval(chr(49))"),
        ("polynomial_multiplication", "x.__class__"),
        ("rubiks_cube", "U999999999"),
        ("rush_hour", "A+999999999999"),
        ("propositional_logic", "¬" * 3000),
    ],
)
def test_what_would_fill_memory_or_time_is_unreadable(title: str, attack: str) -> None:
    assert guarded(title, attack) == UNREADABLE
    assert not world(title).step(Action(attack)).success


@pytest.mark.parametrize(
    ("title", "answer"),
    [
        ("countdown", "(3 + 4)*5 - 2/7"),
        ("puzzle24", "6*4*(2 - 1)"),
        ("coin_flip", "3/8"),
        ("simple_integration", "2*X**3/3 - sqrt(X)*exp(2*X) + log(Abs(cos(X))) + C"),
        ("polynomial_multiplication", "-21*x**4*y + 12*x - 7" + " + x*y" * 300),
        ("spiral_matrix", "[1, 2, 3]"),
        ("spiral_matrix", "1 2 3"),
        ("binary_matrix", "0 1\n1 0"),
        ("n_queens", "[['Q', '_'], ['_', 'Q']]"),
        ("rubiks_cube", "U R2 F' L12"),
    ],
)
def test_what_a_question_asks_for_is_handed_on_unchanged(title: str, answer: str) -> None:
    assert guarded(title, answer) == answer


# ── names, tasks and snapshots ───────────────────────────────────────────────


def test_names_are_all_data_sets_but_the_excluded_each_with_and_without_feedback() -> None:
    names = ReasoningGym.names()
    assert len(names) == len(set(names)) == 2 * (len(DATASETS) - len(EXCLUDED)) == 208
    assert Capability.ORACLE not in ReasoningGym.spec_of("boxnet+feedback").capabilities


def test_wrong_names_and_levels_are_refused_in_words() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'chain_sum'"):
        ReasoningGym("chain_sun")
    with pytest.raises(UnknownName, match="no level 'chain_sum@11'"):
        ReasoningGym("chain_sum@11")
    with pytest.raises(UnknownName, match="no level 'acre@0'"):
        ReasoningGym("acre@0")
    with pytest.raises(InputError, match="is excluded"):
        ReasoningGym("composite")
    for title, refused in CURRICULA_REFUSED.items():
        for level in range(levels(title)):
            if level in refused:
                with pytest.raises(InputError, match="refuses level"):
                    ReasoningGym(f"{title}@{level}")
            else:
                ReasoningGym(f"{title}@{level}")


def test_a_task_with_parameters_is_another_environments() -> None:
    other = Task("train/0", "textworld/coin-easy", 0, Split.TRAIN, parameters={"quest": 3})
    with pytest.raises(InputError, match="take no parameters"):
        ReasoningGym("chain_sum").reset(other)
    with pytest.raises(InputError, match="call reset"):
        ReasoningGym("chain_sum").step(Action("1"))


def test_a_snapshot_of_another_puzzle_or_name_is_refused_and_changes_nothing() -> None:
    made = world("isomorphic_strings+feedback", 5)
    saved = made.snapshot()
    other = world("isomorphic_strings", 6)
    with pytest.raises(InputError, match="make 'reasoning/isomorphic_strings\\+feedback'"):
        other.restore(saved)
    head, _, body = saved.rpartition(b"\n")
    digest, answers = json.loads(body)
    forged = head + b"\n" + json.dumps(["0" + digest, answers]).encode()
    again = world("isomorphic_strings+feedback", 6)
    before = again.state_key(), again.snapshot()
    with pytest.raises(InputError, match="PYTHONHASHSEED"):
        again.restore(forged)
    assert (again.state_key(), again.snapshot()) == before
