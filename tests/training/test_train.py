"""`palaestra train`, as a user meets it."""

from __future__ import annotations

import io
import json
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.api.train_run import Training
from palaestra.cli.main import main
from palaestra.core.errors import MissingPackage, MissingSystemPart
from palaestra.runtime.progress import Reporter
from palaestra.training.recipe import keys, load, recipe_names
from palaestra.training.recipe_check import check_recipe
from tests.training.runs import RECIPE, in_this_process, palaestra, weights_hash, write_recipe

WORLDS = sorted((Path(__file__).parents[2] / "recipes" / "worlds").glob("*.toml"))


@pytest.mark.parametrize("file", WORLDS, ids=lambda file: file.stem)
def test_each_recipe_of_the_worlds_can_be_started(file: Path) -> None:
    recipe = load(str(file))
    assert recipe.summary and recipe.rl.tokens
    try:
        check_recipe(recipe)
    except (MissingPackage, MissingSystemPart) as missing:
        pytest.skip(str(missing))


def test_a_summary_speaks_of_the_environment_and_the_model_that_are_trained() -> None:
    plain = load("quick")
    assert load("quick", ["rl.steps=3"]).summary == plain.summary
    moved = load("quick", ["environment.id=probe/recall"])
    assert moved.summary == "tiny on probe/recall, with the recipe quick"
    assert load("quick", [], {"model": {"name": "random"}}).summary != plain.summary
    assert load("quick", ["environment.id=probe/recall", "summary=mine"]).summary == "mine"


def test_the_first_line_names_the_environment_that_is_trained_on(tmp_path: Path) -> None:
    recipe = load("quick", ["environment.id=probe/umbrella-4", "environment.transfer="])
    output, folder = io.StringIO(), tmp_path / "run"
    reporter = Reporter(Console(file=output, width=1000))
    with Training.begin(recipe, folder, reporter=reporter):
        pass
    with Training.resume(folder, reporter=reporter):
        pass
    assert output.getvalue().count("training tiny on probe/umbrella-4") == 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    folder = tmp_path_factory.mktemp("train")
    said = in_this_process("train", write_recipe(folder), "--run", folder / "run", "--json")
    return folder / "run", json.loads(said.strip().splitlines()[-1])


def test_the_json_object_is_the_promised_one(finished: tuple[Path, dict[str, object]]) -> None:
    run, result = finished
    assert {"run", "seconds", "peak_memory_bytes", "success", "paired"} <= set(result)
    success, paired = result["success"], result["paired"]
    assert isinstance(success, dict) and isinstance(paired, dict)
    for stage in ("base", "imitation", "rl"):
        assert {"mean", "low", "high", "n"} <= set(success[stage])
        assert success[stage]["n"] == 8
    for difference in ("rl_minus_imitation", "rl_minus_base"):
        assert {"mean", "low", "high"} <= set(paired[difference])
    assert result["run"] == str(run)


def test_the_run_folder_holds_report_curve_and_model(
    finished: tuple[Path, dict[str, object]],
) -> None:
    run, _ = finished
    for name in ("report.json", "report.md", "learning_curve.png", "final/model.safetensors"):
        assert (run / name).stat().st_size > 0


def test_transformers_loads_the_final_model(finished: tuple[Path, dict[str, object]]) -> None:
    transformers = pytest.importorskip("transformers")
    run, _ = finished
    model = transformers.AutoModelForCausalLM.from_pretrained(run / "final")
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "final")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "go"}], add_generation_prompt=True, return_tensors="pt"
    )
    ids = prompt["input_ids"] if hasattr(prompt, "keys") else prompt
    assert model(ids).logits.shape[-1] == model.config.vocab_size


def test_the_trained_model_can_be_evaluated_by_the_same_command_line(
    finished: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    run, _ = finished
    said = in_this_process(
        "eval", "--env", "babyai/GoToObjS4", "--agent", "direct", "--model", run / "final",
        "-n", "4", "--json", "--run", tmp_path / "eval",
    )  # fmt: skip
    result = json.loads(said.strip().splitlines()[-1])
    assert result["tasks"] == 4
    assert 0 <= result["interval"][0] <= result["success"] <= result["interval"][1] <= 1


@pytest.mark.slow
def test_training_ends_with_commands_that_work_as_they_stand(
    finished: tuple[Path, dict[str, object]], tmp_path: Path
) -> None:
    run = tmp_path / "a run's copy"
    shutil.copytree(finished[0], run)
    result = palaestra("train", "--resume", run).stdout
    after = result.partition("What to type next\n")[2]
    commands = [shlex.split(line, comments=True) for line in after.splitlines()]
    show, view, trial = (
        words[words.index(name) :]
        for words, name in zip(commands, ("show", "view", "eval"), strict=True)
    )
    assert "end: " in palaestra(*show).stdout
    assert Path(view[1]) == run
    done = palaestra(*trial, "-n", "2", "--json", "--run", tmp_path / "trial")
    assert json.loads(done.stdout.strip().splitlines()[-1])["scored"] == 2


def test_an_expert_who_never_succeeds_is_reported_before_anything_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = ["environment.id=probe/umbrella-8", "environment.transfer=", "environment.turns=2"]
    recipe = str(write_recipe(tmp_path))
    assert main(["train", recipe, "--run", str(tmp_path / "r"), "--set", *world]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "solved none of" in said and "after 2 turns" in said
    assert not (tmp_path / "r" / "final").exists()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["loop", "rloo", "grpo"])
def test_every_algorithm_is_one_flag_away_and_imitation_can_be_skipped(
    algorithm: str, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, RECIPE.replace("steps = 4", "steps = 1"))
    run = tmp_path / "r"
    flags = ["--algorithm", algorithm, "--no-imitation", "--json"]
    done = palaestra("train", recipe, *flags, "--run", run)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert result["success"]["imitation"] is None
    assert result["success"]["rl"]["n"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("weights", ['"lora"\nlora_rank = 4', '"top"\ntop_layers = 1'])
def test_lora_and_top_layers_train_and_resume(weights: str, tmp_path: Path) -> None:
    text = f"{RECIPE}\n[training]\nweights = {weights}\n".replace("steps = 4", "steps = 2")
    run = tmp_path / "r"
    palaestra("train", write_recipe(tmp_path, text), "--run", run, "--json")
    trained = weights_hash(run)
    (run / "final" / "model.safetensors").unlink()
    palaestra("train", "--resume", run, "--json")  # restores the last checkpoint, exports again
    assert weights_hash(run) == trained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["defualt"], "Did you mean 'default'?"),
        (["default", "--set", "rl.step=3"], "Did you mean 'rl.steps'?"),
        (["default", "--set", "rl.steps=many"], "rl.steps"),
        (["default", "--env", "babyai/GoToLocal55N2"], "Did you mean 'GoToLocalS5N2'?"),
        (["default", "--env", "babyay/GoToLocalS5N2"], "Did you mean 'babyai'?"),
        (["default", "--algorithm", "grop"], "Did you mean 'grpo'?"),
        (["default", "--set", "agent.name=raect"], "Did you mean 'react'?"),
        (["default", "--set", "model.name=smolm2-135m"], "Did you mean 'smollm2-135m'?"),
        (["default", "--set", "rl.group=1"], "rl.group"),
        (["default", "--set", "model.context=100000"], "model.context"),
        (["default", "--set", "training.lora_rank=8"], "lora_rank"),
        (["quick", "--env", "minigrid/Empty-5x5"], "--no-imitation"),
        (["quick", "--set", "training.memory=1e-4"], "(training.memory)"),
        (["--resume", "nowhere"], "nowhere"),
        (["nowhere.toml"], "nowhere.toml"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--resume" not in arguments:
        arguments = [*arguments, "--run", str(tmp_path / "r")]
    assert main(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("palaestra: ") == 1
    assert "test base" not in captured.out + captured.err  # nothing was done before


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_with_palaestra_is_valid(name: str) -> None:
    assert load(name).environment.id


def test_every_key_of_a_recipe_can_be_overridden_by_its_dotted_name() -> None:
    assert "rl.learning_rate" in keys()
    assert load("default", ["rl.learning_rate=1e-6"]).rl.learning_rate == 1e-6
