"""Judges: rules, checks of the world's state, models with rubrics, and those that look first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.core.environment import Environment
from palaestra.core.episode import Episode
from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.evaluation.attribution.turn_replay import TurnReplay
from palaestra.evaluation.judges.active_judge import (
    ActiveJudge,
    FixedProbes,
    PlannedProbes,
    gather,
    last_open,
)
from palaestra.evaluation.judges.case import Case, Evidence, case_of
from palaestra.evaluation.judges.model_judge import ModelJudge
from palaestra.evaluation.judges.registry import JudgeRequest, make_judge
from palaestra.evaluation.judges.rule_judges import RuleJudge, StateJudge, state_check
from palaestra.evaluation.judges.verdict import Choice, Judge, Verdict
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.evaluation.attribution.worlds import (
    LOOKUP,
    PARCEL,
    RIGHT,
    SEND,
    Parcels,
    roll_out,
    worlds,
)
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode
from tests.models.remote.provider_server import responds as answers
from tests.models.remote.provider_server import serving

CLAIMED = (LOOKUP, PARCEL, "finish()")  # nothing was sent, and the world says "successfully"


def verdict(judge: Judge, of: Episode | Case) -> Verdict:
    return asyncio.run(judge.judge(of if isinstance(of, Case) else case_of(of)))


def responds(reply: str | Callable[[Sequence[Message]], str], name: str = "m") -> ScriptedModel:
    return ScriptedModel(reply if callable(reply) else lambda messages: reply, name=name)


# ── a stated error ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(("error", "low", "high"), [("0", 0, 0), ("0.2", 50, 110), ("1", 400, 400)])
def test_an_erring_judge_is_wrong_as_often_as_it_says(error: str, low: int, high: int) -> None:
    judge, _ = make_judge(JudgeRequest(f"erring:{error}"), worlds, lambda name: responds("", name))
    for outcome in (SUCCESS, FAILURE):
        some = [episode("explore", index, outcome) for index in range(400)]
        given = [verdict(judge, one).solved for one in some]
        assert low <= sum(passed != outcome.solved for passed in given) <= high
        assert given == [verdict(judge, one).solved for one in some]
    assert verdict(judge, episode("explore", 0, CRASH)).value is None


@pytest.mark.parametrize("error", ["1.5", "-0.1", "often", "nan"])
def test_an_error_that_is_no_probability_is_refused(error: str) -> None:
    with pytest.raises(InputError, match="number from 0 to 1"):
        make_judge(JudgeRequest(f"erring:{error}"), worlds, lambda name: responds("", name))


# ── rules ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (("seen", "completed SUCC"), 1.0),
        (("seen", "on its way"), 0.0),  # not in the last observation
        (("said", r"^finish\(\)$"), 1.0),
        (("said", "send"), 0.0),
        (("called", "send"), 1.0),
        (("called", "status"), 0.0),
    ],
)
def test_a_rule_looks_at_one_part_of_the_case(rule: tuple[str, str], value: float) -> None:
    assert verdict(RuleJudge(*rule), roll_out(RIGHT)).value == value


def test_a_call_that_was_not_understood_is_no_call() -> None:
    assert verdict(RuleJudge("called", "send"), roll_out(("send(3)",))).value == 0.0


def test_a_rule_with_nothing_to_look_at_gives_no_verdict() -> None:
    found = verdict(RuleJudge("shown", "sent"), roll_out(RIGHT))
    assert (found.value, found.solved) == (None, None)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="not a regular expression"):
        RuleJudge("seen", "(")


def sent(world: Environment) -> bool:
    assert isinstance(world, Parcels)
    return world.state["sent"] is not None


def test_a_state_check_looks_at_the_world_and_not_at_what_is_claimed() -> None:
    judge = StateJudge("state:sent", sent, worlds)
    assert verdict(judge, roll_out(RIGHT)).value == 1.0
    assert verdict(judge, roll_out(CLAIMED)).value == 0.0


def test_a_state_that_cannot_be_replayed_gives_no_verdict() -> None:
    found = verdict(StateJudge("state:sent", sent, worlds), roll_out(RIGHT, environment="lottery"))
    assert found.value is None
    assert "not deterministic" in found.reason


@pytest.mark.parametrize("target", ["json:nothing", "no.such.module:f", "json"])
def test_a_check_that_does_not_exist_is_refused(target: str) -> None:
    with pytest.raises(InputError, match="cannot be imported"):
        state_check(target)


# ── models ───────────────────────────────────────────────────────────────────


def test_a_models_answer_is_a_verdict_with_its_reason_and_cost() -> None:
    found = verdict(ModelJudge(responds("1: yes\nReason: it arrived.")), roll_out(RIGHT))
    assert (found.value, found.solved, found.reason) == (1.0, True, "it arrived.")
    assert found.cost.calls == 1
    assert found.judge == "model:m"


@pytest.mark.parametrize("reply", ["", "I would rather not say.", "1: yes\n1: no"])
def test_a_refusal_is_no_verdict_and_never_a_zero(reply: str) -> None:
    found = verdict(ModelJudge(responds(reply)), roll_out(RIGHT))
    assert (found.value, found.solved) == (None, None)
    assert "not in the form" in found.reason


def test_a_model_that_breaks_gives_no_verdict() -> None:
    class Gone(Model):
        name = "gone"

        async def generate(self, prompt: Prompt) -> Generation:
            raise InfrastructureFault("model", "nobody answers")

    found = verdict(ModelJudge(Gone()), roll_out(RIGHT))
    assert found.value is None
    assert "nobody answers" in found.reason
    both = asyncio.run(
        ModelJudge(Gone()).prefer(case_of(roll_out(RIGHT)), case_of(roll_out(RIGHT)))
    )
    assert both.choice is Choice.NONE


def test_a_model_reads_the_record_and_no_outcome() -> None:
    asked: list[str] = []

    def answer(messages: Sequence[Message]) -> str:
        asked.append(messages[-1].text)
        return "1: no"

    verdict(ModelJudge(responds(answer)), episode("a", 0, SUCCESS))
    verdict(ModelJudge(responds(answer)), episode("a", 0, FAILURE))
    assert asked[0] == asked[1]
    assert "red ball" in asked[0]


def test_two_cases_are_compared_in_one_question() -> None:
    judge = ModelJudge(responds("Better: B"))
    found = asyncio.run(judge.prefer(case_of(roll_out(CLAIMED)), case_of(roll_out(RIGHT))))
    assert (found.choice, found.cost.calls) == (Choice.SECOND, 1)


def test_rules_prefer_the_higher_verdict() -> None:
    judge, cases = RuleJudge("called", "send"), [case_of(roll_out(x)) for x in (CLAIMED, RIGHT)]
    assert asyncio.run(judge.prefer(*cases)).choice is Choice.SECOND
    assert asyncio.run(judge.prefer(cases[0], cases[0])).choice is Choice.EQUAL
    silent = RuleJudge("shown", "x")
    assert asyncio.run(silent.prefer(*cases)).choice is Choice.NONE


def test_an_identity_changes_with_the_model_and_the_question() -> None:
    one = ModelJudge(responds("1: yes"))
    assert one.identity == ModelJudge(responds("1: no")).identity
    assert one.identity != ModelJudge(responds("1: yes", name="other")).identity
    assert one.identity != ModelJudge(responds("1: yes"), tokens=7).identity


# ── judges that look first ───────────────────────────────────────────────────


def test_an_active_judge_sees_through_a_false_claim() -> None:
    """The record ends with the word "successfully" both times; only one parcel was sent."""
    believing = RuleJudge("seen", "successfully")
    looking = ActiveJudge(RuleJudge("shown", r"^sent p-\d+ for"), FixedProbes(["status()"]), worlds)
    assert [verdict(believing, roll_out(x)).value for x in (RIGHT, CLAIMED)] == [1.0, 1.0]
    assert [verdict(looking, roll_out(x)).value for x in (RIGHT, CLAIMED)] == [1.0, 0.0]


def test_what_probes_showed_is_part_of_the_verdict_and_they_are_counted() -> None:
    judge = ActiveJudge(RuleJudge("shown", "nothing was sent"), FixedProbes(["status()"]), worlds)
    found = verdict(judge, roll_out(CLAIMED))
    assert found.evidence == ("status(): nothing was sent",)
    assert found.cost.actions == len(CLAIMED)  # two to get to the last open state, and the probe


def test_a_probe_that_changes_the_state_shows_nothing() -> None:
    """Else the judge could do the task itself, and then find it done."""
    judge = ActiveJudge(RuleJudge("shown", "."), FixedProbes([SEND, "send('p-1')"]), worlds)
    assert verdict(judge, roll_out(CLAIMED)).value is None


def test_a_probe_that_is_not_understood_shows_nothing() -> None:
    with TurnReplay.of(roll_out(CLAIMED), worlds) as replay:
        shown = gather(lambda: replay.at(2), ["stat()", "status()"])
    assert shown == (Evidence("status()", "nothing was sent", False),)


def test_probes_look_at_the_last_state_in_which_the_world_was_open() -> None:
    with (
        TurnReplay.of(roll_out(CLAIMED), worlds) as ended,
        TurnReplay.of(roll_out(CLAIMED[:2]), worlds) as open_,
    ):
        assert (last_open(ended), last_open(open_)) == (2, 2)


def test_a_model_reads_the_evidence_beside_the_record() -> None:
    def answer(messages: Sequence[Message]) -> str:
        return "1: no" if "Shown: nothing was sent" in messages[-1].text else "1: yes"

    judge = ActiveJudge(ModelJudge(responds(answer)), FixedProbes(["status()"]), worlds)
    assert [verdict(judge, roll_out(x)).value for x in (RIGHT, CLAIMED)] == [1.0, 0.0]


def test_a_model_can_plan_the_probes() -> None:
    planner = responds("- status()\n- finish()\n", name="planner")
    judge = ActiveJudge(RuleJudge("shown", "nothing"), PlannedProbes(planner), worlds)
    found = verdict(judge, roll_out(CLAIMED))
    assert (found.value, found.evidence) == (1.0, ("status(): nothing was sent",))
    assert found.cost.calls == 1


def test_a_world_that_cannot_be_put_back_gives_no_verdict() -> None:
    judge = ActiveJudge(RuleJudge("shown", "."), FixedProbes(["status()"]), worlds)
    found = verdict(judge, roll_out(CLAIMED, environment="lottery"))
    assert found.value is None
    assert "could not be probed" in found.reason
    case = case_of(roll_out(CLAIMED, environment="lottery"))
    assert asyncio.run(judge.prefer(case, case)).choice is Choice.NONE


def test_each_world_is_probed_once() -> None:
    judge = ActiveJudge(RuleJudge("shown", "."), FixedProbes(["status()"]), worlds)
    case = case_of(roll_out(CLAIMED))
    first, second = verdict(judge, case), verdict(judge, replace(case, author="me"))
    assert (first.evidence, second.cost.actions) == (second.evidence, 0)


# ── by name ──────────────────────────────────────────────────────────────────


def named(name: str, **parts: object) -> Judge:
    wanted = replace(JudgeRequest(name), **parts)  # type: ignore[arg-type]
    return make_judge(wanted, worlds, lambda model: responds("1: yes", model))[0]


def test_judges_are_made_by_name() -> None:
    assert isinstance(named("seen:done"), RuleJudge)
    assert isinstance(named("state:tests.evaluation.judges.test_judges:sent"), StateJudge)
    assert isinstance(named("openai:x@http://y"), ModelJudge)
    assert isinstance(named("shown:done", probes=("look",)), ActiveJudge)
    assert named("seen:done", prober="planner").name == "active:seen:done"


def test_a_rubric_is_part_of_a_models_name(tmp_path: Path) -> None:
    (tmp_path / "paid.toml").write_text('[rubric]\ncriteria = ["It was paid."]')
    assert named("some-model", rubric=tmp_path / "paid.toml").name == "model:some-model@paid"
    with pytest.raises(InputError, match="a rubric needs a model"):
        named("seen:x", rubric=tmp_path / "paid.toml")


@pytest.mark.parametrize("name", ["expert", "random", "model:random"])
def test_models_that_only_know_worlds_cannot_judge(name: str) -> None:
    with pytest.raises(InputError, match="reads no text"):
        named(name)


def test_a_rule_about_probes_needs_probes() -> None:
    with pytest.raises(InputError, match="--probe"):
        named("shown:x")


def test_a_remote_judge_is_not_cut_and_what_it_samples_is_counted() -> None:
    with serving() as server:
        message = {"role": "assistant", "content": "1: yes\nReason: it arrived."}
        usage = {"prompt_tokens": 700, "completion_tokens": 300}
        server.answers = [answers(200, {"choices": [{"message": message}], "usage": usage})]
        found = verdict(ModelJudge(RemoteModel("m", server.url)), roll_out(RIGHT))
        assert "max_tokens" not in server.requests[0]
    assert found.value == 1.0
    assert (found.cost.prompt_tokens, found.cost.sampled_tokens) == (700, 300)
