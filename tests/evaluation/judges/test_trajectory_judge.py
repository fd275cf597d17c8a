"""A judge of trajectories learns from right ones, and wrong ones that are made of them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from palaestra.cli.main import main
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.core.message import ToolCall
from palaestra.core.tool import written_call
from palaestra.evaluation.judges.case import Case, CaseTurn
from palaestra.evaluation.judges.corrupted_trajectories import CORRUPTIONS, corrupted
from palaestra.evaluation.judges.registry import JudgeRequest, make_judge
from palaestra.evaluation.judges.trajectory_features import (
    FEATURES,
    Library,
    Trajectory,
    features,
    trajectory_of,
    values_of,
)
from palaestra.evaluation.judges.trajectory_judge import (
    TrajectoryJudge,
    Verifier,
    fit,
    logistic_regression,
)
from tests.evaluation.made import SUCCESS, episode

NAMES = ("Ida Marsh", "Omar Reed", "Lena Vogt", "Paul Yilmaz", "Rosa Abbott")


def paying(number: int) -> Trajectory:
    """Return a right payment: the address is found, and the amount sent."""
    name, amount = NAMES[number % len(NAMES)], 10 + number
    email = f"{name.split()[0].lower()}@post.example"
    return Trajectory(
        f"Please send {amount} to {name}.",
        (
            ToolCall("contacts_search", {"query": name, "per_page": 5}),
            ToolCall("bank_send", {"payee": email, "amount": float(amount)}),
            ToolCall("finish", {}),
        ),
        (
            f'{{"contacts": [{{"id": {number}, "name": "{name}", "email": "{email}"}}]}}',
            '{"paid": true}',
            "The task is over.",
        ),
    )


def deleting(number: int) -> Trajectory:
    """Return a right deletion: the mail is found, and deleted by its id."""
    subject = f"plan {number}"
    return Trajectory(
        f"Delete the mail '{subject}' of my inbox.",
        (
            ToolCall("mail_search", {"query": subject}),
            ToolCall("mail_delete", {"message_id": 70 + number}),
            ToolCall("finish", {}),
        ),
        (
            f'{{"messages": [{{"id": {70 + number}, "subject": "{subject}"}}, '
            f'{{"id": {80 + number}, "subject": "other"}}]}}',
            "{}",
            "The task is over.",
        ),
    )


RIGHT = [make(number) for number in range(15) for make in (paying, deleting)]


def measured(trajectory: Trajectory, library: Library | None = None) -> dict[str, float]:
    found = features(trajectory, library or Library(RIGHT))
    return dict(zip(FEATURES, found.tolist(), strict=True))


def changed(one: Trajectory, at: int, call: ToolCall) -> Trajectory:
    return replace(one, calls=(*one.calls[:at], call, *one.calls[at + 1 :]))


# ── features ─────────────────────────────────────────────────────────────────


def test_values_of_a_request_are_what_only_it_can_tell() -> None:
    text = "Mail Ida Marsh the code 'blue door' by 2026-03-04, and pay 25.50 to a.b@c.example."
    assert values_of(text) == ["Ida Marsh", "blue door", "2026-03-04", "25.50", "a.b@c.example"]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("send(to='Ida', amount=3)", ToolCall("send", {"to": "Ida", "amount": 3})),
        ("look('here', deep=True) and more", ToolCall("look", {"0": "here", "deep": True})),
        ('{"name": "send", "arguments": {"to": "Ida"}}', ToolCall("send", {"to": "Ida"})),
        ("I will send(it).", None),
        ("go (train, tomorrow)", None),
        ("open(", None),
    ],
)
def test_a_recorded_action_is_read_without_its_tools(text: str, call: ToolCall | None) -> None:
    assert written_call(text) == call


def test_the_request_is_what_follows_the_word_task() -> None:
    turns = (CaseTurn("", "finish(answer=3)", "over"), CaseTurn("", "Hello?", ""))
    found = trajectory_of(Case(episode("a", 0, SUCCESS), "Tools: a()\nTask: Count them.", turns))
    assert found.request == "Count them."
    assert found.names == ("finish", "say") and found.seen == ("over", "")


def test_a_right_trajectory_has_nothing_against_it() -> None:
    found = measured(deleting(99), Library(RIGHT))
    for name in (FEATURES[0], FEATURES[1], FEATURES[2], *FEATURES[8:]):
        assert found[name] == 0, name
    assert found[FEATURES[4]] < 0.2 and found[FEATURES[5]] < 0.2


def test_each_fault_shows_in_its_feature() -> None:
    one = paying(7)
    amount = ToolCall("bank_send", {"payee": "omar@post.example", "amount": 99.0})
    assert measured(changed(one, 1, amount))[FEATURES[0]] == 0.5  # of the name and the amount
    # Of the three values (how many rows a page has is none) nobody has told the address.
    stranger = ToolCall("bank_send", {"payee": "omar@post.example", "amount": 17.0})
    assert measured(changed(one, 1, stranger))[FEATURES[1]] == pytest.approx(1 / 3)
    row = ToolCall("mail_delete", {"message_id": 83})
    assert measured(changed(deleting(3), 1, row))[FEATURES[2]] == 1
    assert measured(replace(one, seen=("error 404", *one.seen[1:])))[FEATURES[9]] == pytest.approx(
        1 / 3
    )
    twice = replace(one, calls=(one.calls[0], *one.calls), seen=(one.seen[0], *one.seen))
    assert measured(twice)[FEATURES[10]] == 0.25
    answer = ToolCall("finish", {"answer": "purple"})
    assert measured(changed(one, 2, answer))[FEATURES[11]] == 1
    without = replace(one, calls=one.calls[:1] + one.calls[2:], seen=one.seen[:1] + one.seen[2:])
    assert measured(without)[FEATURES[4]] > measured(one)[FEATURES[4]] + 0.2
    assert measured(without)[FEATURES[8]] == pytest.approx(1 / 3)


def test_a_request_for_two_things_needs_what_each_of_them_needs() -> None:
    both = replace(paying(3), request=f"{paying(3).request} {deleting(4).request}")
    expected = Library(RIGHT).expected(both.words, None)
    for tool in ("contacts_search", "bank_send", "mail_search", "mail_delete"):
        assert expected[tool] == pytest.approx(1, abs=0.25), tool


def test_leaving_one_out_is_the_regression_without_it() -> None:
    library, others = Library(RIGHT), Library(RIGHT[1:])
    left_out = library.expected(RIGHT[0].words, 0)
    anew = others.expected(RIGHT[0].words, None)
    assert {key: left_out[key] for key in anew} == pytest.approx(anew)
    one = library.likeness_generated_back(RIGHT[0], 0)
    assert one <= library.likeness_generated_back(RIGHT[0], None)


# ── learning ─────────────────────────────────────────────────────────────────


def test_corruptions_change_one_thing_each() -> None:
    rng = random.Random(0)
    for one in RIGHT:
        made = corrupted(one, RIGHT, rng)
        assert len(made) >= len(CORRUPTIONS) - 1  # there is no answer to be another one
        for other in made:
            assert other.request == one.request and other.calls != one.calls
            assert len(other.calls) == len(other.seen)
            assert abs(len(other.calls) - len(one.calls)) <= 2


def test_the_regression_is_at_the_minimum_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = (x[:, 0] - 0.5 * x[:, 1] + rng.normal(size=80) > 0).astype(float)
    weight = rng.uniform(0.5, 2, size=80)
    found, bias = logistic_regression(x, y, weight)
    residual = weight * (1 / (1 + np.exp(-(x @ found + bias))) - y)
    assert np.abs(x.T @ residual + found).max() < 1e-6 and abs(residual.sum()) < 1e-6
    assert found[0] > 0 > found[1]


def test_separable_examples_have_finite_weights() -> None:
    x = np.array([[-1.0], [-0.5], [0.5], [1.0]])
    found, bias = logistic_regression(x, (x[:, 0] > 0).astype(float), np.ones(4))
    assert 0 < found[0] < 10 and abs(bias) < 1e-6


def test_it_tells_right_from_wrong_in_requests_that_it_has_not_met(tmp_path: Path) -> None:
    verifier = fit(RIGHT)
    new = [paying(40), deleting(41)]
    for one in new:
        assert verifier.probability(one) > 0.5
        amount = ToolCall("bank_send", {"payee": "omar@post.example", "amount": 99.0})
        row = ToolCall("mail_delete", {"message_id": 5})
        wrong = changed(one, 1, amount if one is new[0] else row)
        assert verifier.probability(wrong) < 0.5
    verifier.save(tmp_path / "v.json")
    again = Verifier.load(tmp_path / "v.json")
    assert again.probability(new[0]) == pytest.approx(verifier.probability(new[0]))
    assert fit(RIGHT).weights.tolist() == verifier.weights.tolist()


def test_a_verdict_says_what_speaks_most_against_it(tmp_path: Path) -> None:
    fit(RIGHT).save(tmp_path / "v.json")
    judge, _ = make_judge(JudgeRequest(f"trajectory:{tmp_path / 'v.json'}"), no_world, no_model)
    one = paying(40)
    turns = [CaseTurn("", str(call), seen) for call, seen in zip(one.calls, one.seen, strict=True)]
    wrong = [
        turns[0],
        replace(turns[1], action="bank_send(payee='x@y.example', amount=3)"),
        turns[2],
    ]
    for steps, solved in ((turns, True), (wrong, False)):
        case = Case(episode("a", 0, SUCCESS), f"Task: {one.request}", tuple(steps))
        verdict = asyncio.run(judge.judge(case))
        assert verdict.solved is solved
        assert (verdict.reason in FEATURES) is not solved


def no_world(name: str) -> None:
    raise AssertionError(name)


no_model = no_world


def test_too_few_trajectories_are_refused() -> None:
    with pytest.raises(GroupTooSmall, match=r"There are 3 right trajectories"):
        fit(RIGHT[:3])


@pytest.mark.parametrize("text", ["", "{}", '{"features": ["height"]}', "[1]"])
def test_a_file_that_is_no_verifier_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(InputError, match="judge fit"):
        TrajectoryJudge(tmp_path / "v.json")


def test_a_run_becomes_a_judge_of_another(tmp_path: Path, capsys) -> None:
    evaluate = ["eval", "--env", "apps/easy", "--model", "expert", "--workers", "0", "--run"]
    assert main([*evaluate, str(tmp_path / "right"), "-n", "22", "--split", "train"]) == 0
    assert main([*evaluate, str(tmp_path / "other"), "-n", "3"]) == 0
    file = tmp_path / "v.json"
    assert main(["judge", "fit", str(tmp_path / "right"), "--to", str(file)]) == 0
    assert "has learned from 2" in capsys.readouterr().out
    options = ["--judge", f"trajectory:{file}", "--unmeasured", "--json"]
    assert main(["judge", str(tmp_path / "other"), *options]) == 0
    assert '"episodes": 3' in capsys.readouterr().out
    assert main(["judge", "fit", str(tmp_path / "right")]) == 2
    assert "name it with --to FILE" in capsys.readouterr().err
    assert main(["judge", str(tmp_path / "other"), "--to", str(file)]) == 2
    assert main(["judge", "fit", str(tmp_path / "right"), "--to", str(file), "--probe", "x"]) == 2
