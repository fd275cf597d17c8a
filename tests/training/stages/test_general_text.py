"""General text beside imitation: what is mixed in, what is measured, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.cli.stage_plan import graph
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.mixture import GENERAL
from palaestra.learning.data.examples.text_examples import is_held_out, paragraphs
from palaestra.learning.data.rows import Row
from palaestra.store.run_folder import RunFolder
from palaestra.training.stages import imitating
from tests.training.runs import weights_hash
from tests.training.stages.made import HEAD, IMITATE, recipe_of, resumed, run_stages

TEXT = "\n\n".join(f"Paragraph {n} says something of the number {n * n}." for n in range(40))
HELD = [part for part in paragraphs(TEXT) if is_held_out(part)]
MIXED = IMITATE.replace("epochs = 6", "epochs = 2") + "general = {files = ['FILE'], share = 0.25}"
STUDY = """
[[stage]]
do = "study"
files = ["{0}"]
instructions = false
learning_rate = 1e-3
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "general.txt"
    file.write_text(TEXT)
    return file


def document(run: Path, name: str) -> dict[str, float]:
    with RunFolder.read(run) as opened:
        return dict(opened.database.get(name) or {})


def test_a_share_of_all_trained_tokens_is_general_and_none_of_them_is_held_out(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[list[Row]] = []
    said: list[str] = []
    real = imitating.imitate

    def watched(learner, batches, plan):  # type: ignore[no-untyped-def]
        renderer = learner.model.renderer
        for batch in batches:
            trained.append([example.row for example in batch])
            said.extend(
                renderer.text(row.tokens) for row in trained[-1] if row.key.phase == GENERAL
            )
        return real(learner, batches, plan)

    monkeypatch.setattr(imitating, "imitate", watched)
    run, _ = run_stages(tmp_path, HEAD + MIXED.replace("FILE", str(text)))
    agent = general = 0
    for batch in trained:
        agent += sum(row.trained for row in batch if row.key.phase != GENERAL)
        general += sum(row.trained for row in batch if row.key.phase == GENERAL)
        assert general == agent // 3  # a quarter of all
    assert HELD and not any(held in one for held in HELD for one in said)
    with RunFolder.read(run) as opened:
        (noted,) = opened.database.get("lineage")
    assert noted["rows"][GENERAL]["tokens"] == general
    assert noted["rows"][GENERAL]["speaker"] == "text"


def test_the_loss_on_held_out_text_is_measured_after_each_stage_and_shown(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = STUDY.format(text) + IMITATE.replace("epochs = 6", "epochs = 1")
    recipe = HEAD + f"general = ['{text}']\n" + stages
    run, said = run_stages(tmp_path, recipe)
    losses = document(run, "general_loss")
    assert list(losses) == ["base", "study", "imitation"]
    assert losses["study"] < losses["base"]
    assert losses["imitation"] > losses["study"]  # what was not mixed in is forgotten
    assert f"imitation: loss on held-out general text {losses['imitation']:.3f} nats" in said
    assert json.loads((run / "report.json").read_text())["general_loss"] == losses
    assert "held-out general text" in (run / "report.md").read_text()
    main(["show", str(run)])
    assert f"study {losses['study']:.3f} → imitation" in capsys.readouterr().out


@pytest.mark.slow
def test_a_resumed_run_measures_what_it_lacks_and_learns_the_same(
    tmp_path: Path, text: Path
) -> None:
    run, _ = run_stages(tmp_path, HEAD + MIXED.replace("FILE", str(text)))
    before, losses = weights_hash(run), document(run, "general_loss")
    with RunFolder.open(run) as opened:  # as if it had been killed before it measured
        opened.database.put("general_loss", {"base": losses["base"]})
    assert "updates" not in resumed(run)
    assert document(run, "general_loss") == losses
    with RunFolder.open(run) as opened:  # as if it had been killed while it learned
        rows = [row for row in opened.database.get("stages") or [] if row["name"] != "imitation"]
        opened.database.put("stages", rows)
    resumed(run)
    assert weights_hash(run) == before
    text.write_text(TEXT + "\n\nMore.")
    with pytest.raises(InputError, match=r"general.txt' has changed since the run began"):
        resumed(run)


def test_a_dry_run_names_the_text(tmp_path: Path, text: Path) -> None:
    lines = graph(recipe_of(tmp_path, HEAD + MIXED.replace("FILE", str(text))))
    assert any(f"25% general text of {text}" in line for line in lines)


@pytest.mark.parametrize(
    ("content", "share", "words"),
    [
        (None, "0.2", "cannot be read"),
        ("", "0.2", "has no paragraph to learn"),
        ("one paragraph alone", "0.2", "is held out (about one in 10 is)"),
        (TEXT, "0", "'stage[1].general.share' cannot be 0"),
        (TEXT, "1.0", "'stage[1].general.share' cannot be 1.0"),
    ],
)
def test_bad_general_text_is_refused_in_one_sentence(
    tmp_path: Path, content: str | None, share: str, words: str
) -> None:
    file = tmp_path / "given.txt"
    if content is not None:
        file.write_text(content)
    stages = MIXED.replace("FILE", str(file)).replace("share = 0.25", f"share = {share}")
    with pytest.raises(InputError) as refused:
        recipe_of(tmp_path, HEAD + stages)
    assert words in str(refused.value) and "\n" not in str(refused.value)
