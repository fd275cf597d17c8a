"""Calibration: agreement with the truth, biases that were built in, and where it is kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant
from palaestra.core.model import Finish
from palaestra.evaluation.judges import stored_verdicts
from palaestra.evaluation.judges.active_judge import ActiveJudge, FixedProbes
from palaestra.evaluation.judges.agreement import Judged, agreement, kappa
from palaestra.evaluation.judges.bias_probes import Effect
from palaestra.evaluation.judges.calibration import Calibration, calibrate, pairs, trusted
from palaestra.evaluation.judges.case import FILLER, Case, case_of
from palaestra.evaluation.judges.model_judge import ModelJudge
from palaestra.evaluation.judges.rule_judges import RuleJudge
from palaestra.evaluation.judges.verdict import Judge, Verdict
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.store.database import Database
from tests.evaluation.attribution.worlds import LOOKUP, PARCEL, RIGHT, roll_out, worlds
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode


def judged(*counts: int) -> list[Judged]:
    """So many cases of said and true yes, yes and no, no and yes, no and no; one per task."""
    kinds = [(True, True), (True, False), (False, True), (False, False)]
    both = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    return [Judged(task, *kind) for task, kind in enumerate(both)]


# ── agreement ────────────────────────────────────────────────────────────────


def test_kappa_is_that_of_the_textbook() -> None:
    """Observed 0.7, expected 0.5: kappa 0.4 (the usual example of two readers)."""
    found = kappa(judged(20, 5, 10, 15))
    assert found is not None
    assert found.mean == pytest.approx(0.4)
    assert found.low < 0.4 < found.high


def test_shares_are_those_of_the_table() -> None:
    found = agreement(judged(20, 5, 10, 15))
    assert found.accuracy and found.precision and found.recall and found.specificity
    assert found.accuracy.mean == 0.7
    assert found.precision.mean == 20 / 25
    assert found.recall.mean == 20 / 30
    assert found.specificity.mean == 15 / 20
    assert (found.cases, found.silent, found.solved) == (50, 0, 30)


def test_full_agreement_is_one_and_a_coin_is_about_zero() -> None:
    full = kappa(judged(30, 0, 0, 30))
    rng = random.Random(0)
    coin = kappa([Judged(t, rng.random() < 0.5, rng.random() < 0.5) for t in range(400)])
    assert full is not None and coin is not None
    assert (full.mean, full.low, full.high) == (1.0, 1.0, 1.0)
    assert coin.low < 0 < coin.high


def test_kappa_does_not_exist_where_nothing_varies() -> None:
    assert kappa(judged(9, 0, 0, 0)) is None
    assert kappa([]) is None


def test_the_interval_of_kappa_covers_the_truth_about_as_often_as_it_claims() -> None:
    """Accuracy 0.8 on half solved cases is a kappa of 0.6."""
    rng = random.Random(1)
    hits = 0
    for _ in range(60):
        cases = []
        for task in range(80):
            true = rng.random() < 0.5
            cases.append(Judged(task, true if rng.random() < 0.8 else not true, true))
        found = kappa(cases, samples=300)
        assert found is not None
        hits += found.low <= 0.6 <= found.high
    assert hits >= 50


def test_cases_without_a_verdict_count_in_no_share() -> None:
    silent = [Judged(100 + i, None, True) for i in range(50)]
    with_them, without = (
        agreement([*judged(20, 5, 10, 15), *silent]),
        agreement(judged(20, 5, 10, 15)),
    )
    assert with_them.silent == 50
    assert (with_them.accuracy, with_them.recall) == (without.accuracy, without.recall)


def test_repeats_of_a_task_are_no_new_evidence() -> None:
    once = agreement(judged(20, 5, 10, 15))
    thrice = agreement(judged(20, 5, 10, 15) * 3)
    assert once.accuracy == thrice.accuracy
    assert once.kappa == thrice.kappa


def test_few_cases_are_called_few() -> None:
    assert agreement(judged(20, 5, 10, 15)).few
    assert not agreement(judged(40, 5, 10, 35)).few


# ── biases that were built in ────────────────────────────────────────────────


def by(policy: str, made: Episode) -> Episode:
    """The same episode, chosen by a model of that name."""
    call = Call(0, None, "agent", (), (), assistant("x"), (), (), Finish.STOP, policy, 0)
    steps = tuple(replace(step, call=0) for step in made.steps)
    return replace(made, calls=(call,), steps=steps)


def mixed(count: int = 16, author: str = "other") -> list[Episode]:
    """Episodes, every second one solved, as the last words show."""
    return [
        by(
            author if group % 4 < 2 else "other",
            episode(
                "t", group, SUCCESS if group % 2 else FAILURE, seen="won" if group % 2 else "lost"
            ),
        )
        for group in range(count)
    ]


def scripted(script: Callable[[str], str]) -> ModelJudge:
    def answer(messages: Sequence[Message]) -> str:
        return script(messages[-1].text)

    return ModelJudge(ScriptedModel(answer, name="me"))


def fair(text: str) -> str:
    if "Agent B" not in text:
        return "1: yes" if "won" in text else "1: no"
    first, _, second = text.partition("Agent B:")
    if ("won" in first) == ("won" in second):
        return "Better: equal"
    return "Better: A" if "won" in first else "Better: B"


def measured(script: Callable[[str], str], episodes: list[Episode]) -> dict[str, Effect]:
    found, _ = asyncio.run(calibrate(scripted(script), episodes, model="me"))
    return {effect.probe: effect for effect in found.effects}


def test_a_fair_judge_agrees_fully_and_shows_no_bias() -> None:
    found, verdicts = asyncio.run(calibrate(scripted(fair), mixed(author="me"), model="me"))
    assert found.agreement.accuracy and found.agreement.accuracy.mean == 1.0
    assert found.agreement.kappa and found.agreement.kappa.mean == 1.0
    assert len(verdicts) == 16
    effects = {effect.probe: effect.effect for effect in found.effects}
    for probe in ("order", "length", "name", "self"):
        interval = effects[probe]
        assert interval is not None
        assert (interval.mean, interval.low, interval.high) == (0.0, 0.0, 0.0)


def test_a_judge_that_prefers_the_first_position_is_found() -> None:
    order = measured(lambda text: "Better: A" if "Agent B" in text else fair(text), mixed())[
        "order"
    ]
    assert order.effect is not None and order.flipped is not None
    assert (order.effect.mean, order.flipped.mean) == (0.5, 1.0)


def test_a_judge_that_likes_long_answers_is_found() -> None:
    length = measured(lambda t: "1: yes" if FILLER in t else fair(t), mixed())["length"]
    assert length.effect is not None and length.flipped is not None
    assert length.effect.mean == 0.5  # of all cases, the unsolved half moves by one
    assert length.effect.above_zero
    assert length.flipped.mean == 0.5


def test_a_judge_that_likes_its_own_name_is_found() -> None:
    name = measured(lambda t: "1: yes" if "actions: me" in t else fair(t), mixed())["name"]
    assert name.effect is not None and name.effect.mean == 0.5


def test_a_judge_that_is_mild_with_its_own_is_found() -> None:
    own = [replace(e, task=replace(e.task, instruction="")) for e in mixed(32, author="me")]
    marked = [
        replace(e, task=replace(e.task, instruction="(style of me)"))
        if e.calls[0].policy == "me"
        else e
        for e in own
    ]
    found = measured(lambda t: "1: yes" if "style of me" in t else fair(t), marked)["self"]
    assert found.effect is not None and found.effect.above_zero
    assert found.effect.mean == 0.5


def test_what_cannot_be_measured_reports_why() -> None:
    found = measured(fair, mixed())
    assert found["self"].effect is None
    assert "needs two episodes by 'me'" in found["self"].note
    assert found["brevity"].effect is not None  # the calls said more than the actions
    silent = measured(lambda text: "no comment", mixed())
    assert silent["order"].effect is None
    assert silent["order"].silent > 0


def test_pairs_hold_a_solved_and_an_unsolved_case_each() -> None:
    for a, b in pairs([case_of(made) for made in mixed()]):
        assert a.episode.outcome.solved != b.episode.outcome.solved


def test_only_scored_episodes_are_truth() -> None:
    broken = episode("t", 99, CRASH)
    found, _ = asyncio.run(calibrate(scripted(fair), [*mixed(), broken]))
    assert found.agreement.cases == 16
    with pytest.raises(InputError, match="No episode has a valid result"):
        asyncio.run(calibrate(scripted(fair), [broken]))


# ── what looking first is worth ──────────────────────────────────────────────


def test_a_judge_that_looks_agrees_more_than_one_that_reads_what_is_claimed() -> None:
    """Half of these episodes are solved; the others claim it, having sent nothing or rubbish."""
    plans = (RIGHT, (LOOKUP, PARCEL, "finish()"), RIGHT, (LOOKUP, "send('p-1')", "finish()"))
    claims = [roll_out(plans[g % 4], seed=g, group=g) for g in range(24)]
    shown = RuleJudge("shown", r"sent p-\d+ for (?!nobody)")
    reading, _ = asyncio.run(calibrate(RuleJudge("seen", "successfully"), claims))
    looking, _ = asyncio.run(
        calibrate(ActiveJudge(shown, FixedProbes(["status()"]), worlds), claims)
    )
    assert reading.agreement.accuracy and looking.agreement.accuracy
    assert (reading.agreement.accuracy.mean, looking.agreement.accuracy.mean) == (0.5, 1.0)
    assert reading.agreement.precision and looking.agreement.precision
    assert (reading.agreement.precision.mean, looking.agreement.precision.mean) == (0.5, 1.0)


# ── where it is kept ─────────────────────────────────────────────────────────


def kept(path: Path, judge: Judge) -> tuple[Calibration, Database]:
    database = Database.open(path / "run.sqlite")
    found, _ = asyncio.run(calibrate(judge, mixed()))
    stored_verdicts.store_calibration(database, found)
    return found, database


def test_a_calibration_is_attached_to_later_verdicts_of_the_same_judge(tmp_path: Path) -> None:
    judge = RuleJudge("seen", "won")
    found, database = kept(tmp_path, judge)
    verdict = asyncio.run(judge.judge(case_of(mixed()[1])))
    known = trusted(verdict, stored_verdicts.calibration(database, judge.name))
    assert known.calibration == found.short()
    assert known.calibration["accuracy"][0] == 1.0
    other = replace(verdict, identity="another")
    assert trusted(other, stored_verdicts.calibration(database, judge.name)).calibration is None
    assert trusted(verdict, None).calibration is None
    database.close()


def test_verdicts_are_kept_beside_episodes_and_add_up(tmp_path: Path) -> None:
    judge = RuleJudge("seen", "won")
    _, database = kept(tmp_path, judge)
    verdict = asyncio.run(judge.judge(case_of(mixed()[1])))
    stored_verdicts.store_verdicts(database, judge.name, {Key("t", 1): verdict})
    stored_verdicts.store_verdicts(database, judge.name, {Key("t", 2): verdict})
    assert stored_verdicts.judges(database) == ["seen:won"]
    assert set(stored_verdicts.verdicts(database, judge.name)) == {"t/1.0", "t/2.0"}
    assert stored_verdicts.verdicts(database, "nobody") == {}
    assert stored_verdicts.verdicts(database, judge.name)["t/1.0"]["value"] == 1.0
    assert [one["judge"] for one in stored_verdicts.verdicts_on(database, Key("t", 2))] == [
        "seen:won"
    ]
    database.close()


def test_verdicts_of_an_older_run_are_read_and_newer_ones_go_before_them(tmp_path: Path) -> None:
    judge = RuleJudge("seen", "won")
    _, database = kept(tmp_path, judge)
    old = {"value": 0.0, "identity": "then"}
    database.put(f"judge/{judge.name}/verdicts", {"t/1.0": old, "t/3.0": old})
    verdict = asyncio.run(judge.judge(case_of(mixed()[1])))
    stored_verdicts.store_verdicts(database, judge.name, {Key("t", 1): verdict})
    found = stored_verdicts.verdicts(database, judge.name)
    assert {key: one["value"] for key, one in found.items()} == {"t/1.0": 1.0, "t/3.0": 0.0}
    database.close()


def test_a_verdict_never_shares_a_case_with_the_truth() -> None:
    """The case of a judge has no field from which success could be read in its text."""

    class Peeping(Judge):
        name = rule = "peeping"

        async def judge(self, case: Case) -> Verdict:
            return self.verdict(float("success" in f"{case.turns}{case.task}"), "")

    found, _ = asyncio.run(calibrate(Peeping(), mixed()))
    assert found.agreement.recall is not None and found.agreement.recall.mean == 0.0
