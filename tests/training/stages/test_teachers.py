"""Stages that distil: from versions of the policy, from hints in prompts, from other models."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from palaestra.cli.main import main
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.models.registry import licence_of
from palaestra.store.run_folder import RunFolder
from palaestra.training import run_context
from palaestra.training.accounting import Accounts
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.stages.reading import HINTS
from tests.models.remote.provider_server import Server, responds, serving
from tests.training.runs import palaestra, recorded_episodes, weights_hash
from tests.training.stages.interrupted import Stop, killed
from tests.training.stages.made import HEAD, IMITATE, resumed, run_stages, written
from tests.training.stages.test_stage_sections import EXPLORE, refusal, stage

TAUGHT = """
[[stage]]
do = "explore"
tasks = 8

[[stage]]
do = "distil"
start = "base"
teacher = "imitate"
from = "explore"
epochs = 4
batch = 4
learning_rate = 3e-3
"""

HINTED = """
[[stage]]
do = "explore"
name = "shown"
speaker = "expert"
tasks = 8

[[stage]]
do = "explore"
name = "tried"
like = "shown"
tasks = 8
group = 2

[[stage]]
do = "explore"
name = "hinted"
like = "shown"
hints = ["shown", "tried"]
tasks = 8
group = 2

[[stage]]
do = "distil"
from = "hinted"
divergence = "reverse"
learning_rate = 1e-3
"""


def documents(run: Path, name: str) -> Any:
    with RunFolder.read(run) as opened:
        return opened.database.get(name)


def metrics(run: Path, phase: str) -> list[dict[str, float]]:
    with RunFolder.read(run) as opened:
        return [row for _, row in opened.database.metrics(phase)]


def episodes(run: Path, phase: str) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return opened.database.episodes(phase)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("taught"), HEAD + IMITATE + TAUGHT)[0]


@pytest.fixture(scope="module")
def hinted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("hinted"), HEAD + IMITATE + HINTED)[0]


# ── versions as teachers ─────────────────────────────────────────────────────


def test_the_base_learns_what_a_later_version_does(taught: Path) -> None:
    losses = [row["loss"] for row in metrics(taught, "distil")]
    assert len(losses) == 8 and losses[-1] < 0.6 * losses[0]
    (noted,) = (one for one in documents(taught, "lineage") if one["version"] == "distil")
    assert (noted["start"], noted["teacher"]) == (["base"], "imitation")
    assert noted["rows"]["explore"] == {
        "speaker": "policy",
        "rows": 8,
        "tokens": noted["rows"]["explore"]["tokens"],
    }


def test_the_lineage_names_the_teacher(taught: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(taught)]) == 0
    assert "distil from base, taught by imitation: 8 rows of the policy in explore" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "text", [TAUGHT, pytest.param(HINTED, marks=pytest.mark.slow)], ids=["taught", "hinted"]
)
def test_a_run_stopped_before_its_checkpoint_ends_the_same(
    text: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = request.getfixturevalue("taught" if text == TAUGHT else "hinted")
    real = run_context.checkpoint.save

    def dying(folder: Path, name: str, *more: Any) -> Any:
        if name == "distil":
            raise Stop
        return real(folder, name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(run_context.checkpoint, "save", dying)
        with pytest.raises(Stop):
            run_stages(tmp_path, HEAD + IMITATE + text)
    resumed(tmp_path / "run")
    assert weights_hash(tmp_path / "run") == weights_hash(whole)
    assert recorded_episodes(tmp_path / "run") == recorded_episodes(whole)


@pytest.mark.slow
def test_a_run_stopped_after_its_checkpoint_ends_the_same(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Accounts.finish_stage

    def dying(self: Accounts, stage: str, *more: Any, **named: Any) -> None:
        if stage == "distil":
            raise Stop
        real(self, stage, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Accounts, "finish_stage", dying)
        with pytest.raises(Stop):
            run_stages(tmp_path, HEAD + IMITATE + TAUGHT)
    resumed(tmp_path / "run")
    assert weights_hash(tmp_path / "run") == weights_hash(taught)


@pytest.fixture(scope="module")
def whole_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `hinted`, in a process like those that are killed: bits depend on its threads."""
    folder = tmp_path_factory.mktemp("whole_process")
    palaestra("train", written(folder, HEAD + IMITATE + HINTED), "--run", folder / "run", "--json")
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_run_killed_at_random_moments_ends_the_same(
    whole_process: Path, tmp_path: Path, seed: int
) -> None:
    run = killed(tmp_path, HEAD + IMITATE + HINTED, seed)
    assert weights_hash(run) == weights_hash(whole_process)
    assert recorded_episodes(run) == recorded_episodes(whole_process)


def test_a_teacher_whose_weights_are_gone_is_learned_again(tmp_path: Path, taught: Path) -> None:
    shutil.copytree(taught, tmp_path / "run")
    for part in ("checkpoints/distil", "checkpoints/imitation", "final"):
        shutil.rmtree(tmp_path / "run" / part, ignore_errors=True)
    resumed(tmp_path / "run")
    assert weights_hash(tmp_path / "run") == weights_hash(taught)


# ── hints ────────────────────────────────────────────────────────────────────


def test_hints_stand_in_the_recorded_prompts_word_for_word(hinted: Path) -> None:
    known = documents(hinted, HINTS + "hinted")
    assert known
    stated = 0
    for episode in episodes(hinted, "hinted"):
        own = known.get(episode.task.id, {})
        for step in episode.steps:
            call = next(c for c in episode.calls if c.index == step.call)
            hint = own.get(step.before.state_key)
            text = call.messages[-1].text
            assert text.endswith(hint) if hint else "Hint:" not in text
            stated += hint is not None
    assert stated > 0
    assert not any(
        "Hint:" in message.text
        for episode in episodes(hinted, "tried")
        for call in episode.calls
        for message in call.messages
    )


def test_the_student_learns_without_the_hints_that_its_teacher_reads(hinted: Path) -> None:
    rows = metrics(hinted, "distil")
    assert rows and rows[0]["loss"] > 0  # the same weights, other prompts
    (noted,) = (one for one in documents(hinted, "lineage") if one["version"] == "distil")
    assert "teacher" not in noted and noted["rows"]["hinted"]["rows"] == 16


def test_only_episodes_that_succeed_enough_are_learned_from(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path, HEAD + IMITATE + HINTED, "stage.distil.least=1.0")
    solved = sum(e.outcome.solved for e in episodes(run, "hinted"))
    rows = next(o for o in documents(run, "lineage") if o["version"] == "distil")["rows"]
    assert rows.get("hinted", {"rows": 0})["rows"] == solved < 16


# ── other models as speakers ─────────────────────────────────────────────────

SPOKEN = """
[[stage]]
do = "explore"
speaker = "SPEAKER"
tasks = 4

[[stage]]
do = "imitate"
from = "explore"
examples_options = {least = 0.0}
"""


def test_a_model_behind_a_server_speaks_and_is_imitated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def turns(handler: BaseHTTPRequestHandler) -> None:
        message = {"role": "assistant", "content": "turn left"}
        choice = {"message": message, "finish_reason": "stop"}
        responds(200, {"choices": [choice], "usage": {"prompt_tokens": 9}})(handler)

    with serving() as server:
        assert isinstance(server, Server)
        server.answers = [turns]
        name = f"openai:big@{server.url}"
        text = (HEAD + SPOKEN).replace("deterministic = true\n", "").replace("SPEAKER", name)
        run, _ = run_stages(tmp_path, text, "environment.turns=2")
    assert len(server.requests) == 8
    (learned,) = documents(run, "lineage")
    rows = learned["rows"]["explore"]
    assert (rows["speaker"], rows["rows"]) == (name, 4)
    assert learned["models"] == {name: ""}
    for episode in episodes(run, "explore"):
        assert [call.reply.text for call in episode.calls] == ["turn left"] * 2
        assert all(call.completion == () for call in episode.calls)  # as the server sent them
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"4 rows of the {name} in explore" in shown and f"{name}, licence unknown" in shown


def test_a_named_model_speaks_with_its_licence(tmp_path: Path) -> None:
    text = (HEAD + SPOKEN).replace("deterministic = true\n", "")
    run, _ = run_stages(tmp_path, text.replace("SPEAKER", "expert?error=0.5"))
    (learned,) = documents(run, "lineage")
    assert learned["rows"]["explore"]["rows"] == 4
    assert learned["models"] == {"expert?error=0.5": ""}
    assert licence_of("smollm2-135m") == "Apache-2.0"
    assert licence_of("openai:gpt") == licence_of("random") == ""


# ── searchers ────────────────────────────────────────────────────────────────

SEARCHED = """
[[stage]]
do = "explore"
agent = "best_first?scorer=progress&budget=3&samples=3"
tasks = 4

[[stage]]
do = "imitate"
name = "traced"
from = "explore"
examples_options = {least = 0.0}
"""


def test_of_a_search_only_the_path_that_it_took_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = run_stages(tmp_path, HEAD + IMITATE + SEARCHED)
    (learned,) = (one for one in documents(run, "lineage") if one["version"] == "traced")
    recorded = episodes(run, "explore")
    assert {episode.agent for episode in recorded} == {"best_first"}
    taken = sum(
        len(episode.calls[step.call].completion)
        for episode in recorded
        for step in episode.steps
        if step.call is not None
    )
    assert learned["rows"]["explore"] == {
        "speaker": "policy",
        "agent": "best_first",
        "rows": 4,
        "tokens": taken,
    }
    assert main(["show", str(run)]) == 0
    assert "4 rows of the policy by best_first in explore" in capsys.readouterr().out
    assert sum(len(c.completion) for e in recorded for c in e.calls) > taken


# ── bad input ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (EXPLORE + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'x'"), "policy 'x'"),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'explore'"),
            "is taught by 'explore', which writes no version of the policy",
        ),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'imitate'") + IMITATE,
            "is taught by 'imitate', which runs later",
        ),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'smollm2-135m'"),
            "whose tokens need not be those of 'tiny'; explore with speaker = 'smollm2-135m'",
        ),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'"),
            "is taught by the version that it begins with, and reads no prompt that holds a hint",
        ),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'base'"),
            "is taught by the version that it begins with",
        ),
        (
            EXPLORE + stage("do = 'distil'\nfrom = 'explore'\ndivergence = 'js'"),
            "'stage[2].divergence' cannot be 'js'",
        ),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nexamples = 'distillation'"),
            "removes hints, and reads no prompt that holds one",
        ),
        (
            EXPLORE + stage("do = 'explore'\nname = 'h'\nhints = 'explore'"),
            "hints are of attempts at the same tasks; set like = 'explore'",
        ),
        (
            EXPLORE + stage("do = 'explore'\nname = 'h'\nlike = 'explore'\nhints = 'x'"),
            "no stage that records episodes 'x'",
        ),
        (
            EXPLORE
            + stage(
                "do = 'explore'\nname = 'h'\nlike = 'explore'\nhints = 'explore'\n"
                "speaker = 'random'"
            ),
            "hints has no effect on random actions",
        ),
        (
            EXPLORE.replace("tasks", "speaker = 'expert'\ncommands = 'explore'\ntasks"),
            "makes commands of 'explore', which runs later",
        ),
        (
            EXPLORE + stage("do = 'explore'\nname = 'c'\ncommands = 'explore'\nspeaker = 'expert'"),
            "commands has no effect on the speaker 'expert'",
        ),
        (
            EXPLORE + stage("do = 'evaluate'\ncommands = 'explore'"),
            "tests 'base' on the test split, where it was tested under other commands",
        ),
        (EXPLORE.replace("tasks", "agent = 'best_firs'\ntasks"), "no agent 'best_firs'"),
        (
            EXPLORE.replace("tasks", "speaker = 'openai:gpt-4o@http://localhost:1/v1'\ntasks"),
            "whose replies are not equal in each run; unset deterministic",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path: Path, stages: str, words: str) -> None:
    message = refusal(tmp_path, HEAD + stages)
    assert words.lower() in message.lower(), message


def test_a_search_has_the_prompts_of_the_direct_agent(tmp_path: Path) -> None:
    for key in ("agent.name=react", "agent.name=direct?history=2"):
        message = refusal(tmp_path, HEAD + SEARCHED, key)
        assert "are those of 'direct' and not of" in message


def test_hints_and_commands_are_for_one_agent_alone(tmp_path: Path) -> None:
    text = EXPLORE + stage("do = 'explore'\nname = 'c'\ncommands = 'explore'")
    message = refusal(tmp_path, HEAD + text, "environment.id=openspiel/kuhn_poker:self")
    assert "for one agent alone" in message


def test_rules_of_hints_and_commands_need_stages(tmp_path: Path) -> None:
    for rule, needs in (("distillation", "hints"), ("commands", "commands")):
        with pytest.raises(InputError, match=f"needs {needs} in prompts; write stages"):
            check_recipe(load("quick", [f"imitation.examples={rule}"]))


def test_a_dry_run_draws_hints_commands_and_teachers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = stage("do = 'evaluate'\nname = 'asked'\ncommands = 'tried'")
    back = TAUGHT.replace('do = "distil"', 'do = "distil"\nname = "back"')
    merge = stage("do = 'merge'\nfrom = ['distil', 'back']")
    file = written(tmp_path, HEAD + IMITATE + HINTED + back + merge + last)
    assert main(["train", str(file), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "policy on 8 x 2 tasks, with hints of shown and tried → episodes" in shown
    assert "(taught by itself, with hints, reverse KL) → version" in shown
    assert "base + explore (taught by imitate, forward KL) → version" in shown
    assert "the latest version on test tasks, with commands of tried" in shown


def test_stages_are_listed_with_their_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "stages", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"teacher", "divergence", "least", "from"} <= set(rows["distil"]["keys"])
    assert {"hints", "commands"} <= set(rows["explore"]["keys"])
    assert "Rusu" in rows["distil"]["source"]
