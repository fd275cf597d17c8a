"""Logs of Inspect AI: what is written is its format, and what it wrote is understood.

`inspect-sums.json` and `inspect-sums.eval` are logs that Inspect 0.3.285 wrote of a task with
four samples and two tools, answered by its mock model: one sample right, one wrong after a tool
failed, one whose solver broke, and one that reached a limit of messages. (Tracebacks and
arguments of the model, which name a machine, were taken out.)
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall, assistant, system, text_message, user
from palaestra.core.model import Finish
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.store.exchange.inspect_import import read_inspect
from palaestra.store.exchange.inspect_log import write_inspect
from tests.core import small
from tests.evaluation import made
from tests.store import samples

HERE = Path(__file__).parent
START = datetime(2026, 1, 1, tzinfo=UTC)


def foreign(file: Path = HERE / "inspect-sums.json") -> dict[str, Episode]:
    return {episode.task.id: episode for episode in read_inspect(file)}


def test_the_outcome_of_each_sample_is_that_of_its_score_error_or_limit() -> None:
    found = foreign()
    assert {name: episode.outcome for name, episode in found.items()} == {
        "one": Outcome.success(),
        "two": Outcome.failure(),
        "three": Outcome.error(
            "sample", Owner.INFRASTRUCTURE, "RuntimeError('the world went away')"
        ),
        "4": Outcome.truncated(Limit.TURNS),
    }
    assert found["one"].labels == {"score/includes": "C"}
    assert found["two"].task.parameters == {"target": "undefined", "hard": True}
    assert [found[name].reward for name in ("one", "two", "4")] == [1.0, 0.0, 0.0]


def test_epochs_are_rollouts_of_one_task(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text())
    log["samples"] = [{**sample, "epoch": epoch} for epoch in (2, 1) for sample in log["samples"]]
    (tmp_path / "x.json").write_text(json.dumps(log))
    keys = {str(episode.key): episode.task.id for episode in read_inspect(tmp_path / "x.json")}
    assert len(keys) == 8
    assert keys["eval/sums/0.0"] == keys["eval/sums/0.1"] == log["eval"]["dataset"]["sample_ids"][0]


def test_what_is_no_sample_is_refused_by_its_place(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text())
    for event in log["samples"][1]["events"]:
        event.pop("function", None)
    (tmp_path / "x.json").write_text(json.dumps(log))
    with pytest.raises(InputError, match=r"x\.json, sample 2 is not a valid sample .* 'function'"):
        list(read_inspect(tmp_path / "x.json"))


def test_model_events_become_one_branch_of_calls_without_tokens() -> None:
    first, second = foreign()["one"].calls
    assert (first.parent, second.parent) == (None, 0)
    asked = (system("You add numbers."), user("What is 1 + 2?"))
    assert first.messages == asked
    assert first.reply == assistant("Let me add.\nadd(x=1, y=2)")
    assert second.messages == (text_message("tool", "3"),)
    assert second.reply.text.startswith("<think>\nA sum of two.\n</think>\nThe answer is 3.")
    assert first.policy == "mockllm/model" and first.finish is Finish.STOP
    assert not first.prompt and not first.completion and not first.logprobs


def test_tool_events_become_steps_and_the_answer_is_the_last_one() -> None:
    found = foreign()
    called, answered = found["two"].steps
    assert called.action.call == ToolCall("divide", {"x": 7, "y": 0})
    assert called.transition.observation.text == "division by zero"
    assert not called.transition.valid
    assert answered.action.text == "I cannot say." and answered.transition.terminated
    assert [step.call for step in found["two"].steps] == [0, 1]
    assert found["4"].steps[-1].action.call is not None, "stopped before it could answer"
    assert found["three"].steps == found["three"].calls == ()


def test_an_archive_as_inspect_compresses_it_gives_the_same_episodes() -> None:
    pytest.importorskip("pyarrow", reason="Zstandard is read with it")
    packed = foreign(HERE / "inspect-sums.eval")
    plain = foreign()
    assert packed.keys() == plain.keys()
    for name, episode in plain.items():
        assert packed[name].steps == episode.steps
        assert [one.messages for one in packed[name].calls] == [
            one.messages for one in episode.calls
        ]
        assert packed[name].outcome == episode.outcome


def test_a_log_without_a_transcript_still_gives_its_conversation(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text())
    for sample in log["samples"]:
        sample["events"] = []
    (tmp_path / "x.json").write_text(json.dumps(log))
    bare, full = foreign(tmp_path / "x.json"), foreign()
    for name in ("one", "two"):
        shown = [(call.parent, call.messages, call.reply) for call in bare[name].calls]
        assert shown == [(call.parent, call.messages, call.reply) for call in full[name].calls]
        assert bare[name].outcome == full[name].outcome


def test_calls_of_a_scorer_are_the_judges(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text())
    events: list[dict[str, Any]] = log["samples"][1]["events"]
    scorer = next(e for e in events if e["event"] == "span_begin" and e["type"] == "scorer")
    asked = next(event for event in events if event["event"] == "model")
    events.insert(events.index(scorer) + 1, {**asked, "span_id": scorer["id"]})
    (tmp_path / "x.json").write_text(json.dumps(log))
    episode = foreign(tmp_path / "x.json")[log["samples"][1]["id"]]
    assert [call.role for call in episode.calls] == ["agent", "agent", "judge"]


def test_scores_that_are_several_numbers_leave_the_outcome_open(tmp_path: Path) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text())
    for sample, value in zip(log["samples"], ("P", {"a": 1}, 0.25, True), strict=True):
        sample["scores"] = {"own": {"value": value}}
        sample["error"] = sample["limit"] = None
    (tmp_path / "x.json").write_text(json.dumps(log))
    found = list(read_inspect(tmp_path / "x.json"))
    assert [str(episode.outcome) for episode in found] == [
        "failure",
        "error(unjudged, infrastructure)",
        "failure",
        "success",
    ]
    assert found[1].labels == {"score/own": '{"a": 1}'}


# ── what palaestra writes ────────────────────────────────────────────────────

WRITTEN = [
    replace(samples.episode(Key("eval/test", 0)), labels={"world": "grid"}),
    samples.episode(Key("eval/test", 0, 1)),
    made.episode("eval/test", 1, made.OUT_OF_TURNS),
    made.episode("eval/test", 2, made.CRASH),
    made.episode("eval/test", 3, made.UNPARSED, invalid=[1]),
    replace(small.run_episode(small.Acting("up", "fall")), key=Key("eval/test", 4)),
]


def test_messages_stand_once_however_many_calls_read_them(tmp_path: Path) -> None:
    write_inspect(tmp_path / "x.json", [samples.episode(Key("rl/1", 0), turns=50)], START)
    (sample,) = json.loads((tmp_path / "x.json").read_text())["samples"]
    assert len(sample["events_data"]["messages"]) == 100
    asked = [event for event in sample["events"] if event["event"] == "model"]
    assert asked[-1]["input"] == [] and asked[-1]["input_refs"] == [[0, 99]]


@pytest.mark.parametrize("name", ["x.eval", "x.json"])
def test_inspects_own_reader_takes_what_is_written(name: str, tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="Inspect AI is not in the dev extra")
    file = tmp_path / name
    write_inspect(file, WRITTEN, START)
    read = log.read_eval_log(str(file))
    assert (read.version, read.status, len(read.samples)) == (2, "success", len(WRITTEN))
    scores = {score.name: score.metrics for score in read.results.scores}
    assert scores["success"]["accuracy"].value == pytest.approx(2 / 5)
    head = log.read_eval_log(str(file), header_only=True)
    assert head.eval.model == "resident" and head.eval.dataset.samples == 5
    summaries = log.read_eval_log_sample_summaries(str(file))
    assert len(summaries) == len(WRITTEN)

    one = log.read_eval_log_sample(str(file), id="eval/test/0", epoch=2)
    model, acted = one.events[:2]
    assert [message.text for message in model.input] == ["turn 0"]
    assert (model.event, acted.event) == ("model", "info")
    assert [message.role for message in one.messages] == ["user", "assistant"] * 3
    assert one.model_usage["resident"].output_tokens == 6
    assert one.scores["success"].value == "C" and one.scores["reward"].value == 1.5
    by_group = {(sample.id, sample.epoch): sample for sample in read.samples}
    assert by_group["eval/test/1", 1].limit.type == "turn"
    crashed = by_group["eval/test/2", 1]
    assert "the world went away" in crashed.error.message and not crashed.scores


def test_what_inspect_has_rewritten_comes_back_equal(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="Inspect AI is not in the dev extra")
    write_inspect(tmp_path / "x.json", WRITTEN, START)
    read = log.read_eval_log(str(tmp_path / "x.json"))
    for name in ("y.eval", "y.json"):
        log.write_eval_log(read, str(tmp_path / name))
        back = {str(episode.key): episode for episode in read_inspect(tmp_path / name)}
        assert back == {str(episode.key): episode for episode in WRITTEN}
