"""From a domain to rows: all that is made passes the gate, with and without a model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.environments.families.apps.composing.composition import Composition
from palaestra.environments.families.apps.composing.gate import judged, rejection
from palaestra.environments.families.apps.composing.goal import MAIN, Goal
from palaestra.environments.families.apps.composing.verifier import run
from palaestra.environments.families.apps.generated import blueprint_text
from palaestra.environments.families.synthesised.lines import suite_of, task_of, world_of
from palaestra.environments.families.synthesised.linked_goals import AddLinked, linked_atoms
from palaestra.store.exchange.chat_jsonl import conversations
from palaestra.store.exchange.detect import detect, read_episodes
from palaestra.store.run_folder import RunFolder
from palaestra.synthesis.committee import ungrounded
from palaestra.synthesis.domain_file import Review
from palaestra.synthesis.task_stage import order_matters
from tests.synthesis.made import ABOUT, COUNTY, FILES, county_model, lines, made
from tests.training.stages.made import run_stages


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("county") / "made"
    made(folder)
    return folder


def test_tasks_pass_the_gate_again_when_they_are_read(county: Path) -> None:
    worlds = lines(county, "worlds")
    for number, line in enumerate(lines(county, "tasks")):
        suite = suite_of(worlds[int(str(line["world"]))])
        world = world_of(worlds[int(str(line["world"]))], suite)
        task = task_of(line, suite)
        assert task.instruction == line["instruction"]
        assert rejection(world, task, random.Random(number)) is None
        ways, other = task.ways(world), Composition(task.goals[::-1])
        ran = run(other.steps(), world, MAIN)
        assert judged(world, ways, ran.answer or "").success  # in any order


def test_dialogues_are_solved_episodes_and_rows_are_their_conversations(county: Path) -> None:
    file = county / "dialogues.jsonl"
    episodes = list(read_episodes(file, detect(file)))
    assert len(episodes) == COUNTY.tasks
    assert all(episode.outcome.solved for episode in episodes)
    assert {episode.task.environment for episode in episodes} == {"synthesised/county"}
    rows = [row for episode in episodes for row in conversations(episode)]
    assert json.loads(json.dumps(rows)) == lines(county, "rows")


def test_apps_are_about_what_the_domain_names_and_refer_to_each_other(county: Path) -> None:
    for line in lines(county, "blueprints"):
        assert any(word in str(line["toml"]) for word in ("shelter", "museum"))
    for line in lines(county, "worlds"):
        suite = suite_of(line)
        _, first, second = suite.apps
        references = suite.blueprints[second].references
        assert any(target.startswith(f"{first}.") for _, _, target in references)


def test_a_linked_goal_needs_both_apps_and_its_near_misses_fail(county: Path) -> None:
    line, rng = lines(county, "worlds")[0], random.Random(1)
    suite = suite_of(line)
    world = world_of(line, suite)
    atoms = [one for one in linked_atoms(suite) if isinstance(one, AddLinked) and len(one.apps) > 1]
    assert atoms
    for atom in atoms:
        slots = atom.draw(world, rng)
        assert slots is not None
        task = Composition((Goal(atom, slots),))
        assert rejection(world, task, rng) is None
        ran, _ = task.reference(world)
        assert {call.api.partition(".")[0] for call in ran.calls} == atom.apps
        assert len(atom.near_misses(slots, world, rng)) >= 2


def test_counting_what_another_goal_changes_depends_on_the_order(county: Path) -> None:
    line = lines(county, "worlds")[0]
    suite = suite_of(line)
    world = world_of(line, suite)
    atoms = list(linked_atoms(suite))
    count = next(one for one in atoms if one.name == "count")
    delete = next(one for one in atoms if one.name == "delete" and one.apps == count.apps)
    rng = random.Random(0)
    while True:
        one, other = count.draw(world, rng), delete.draw(world, rng)
        assert one is not None and other is not None
        row = world.state.find(delete.table, **{delete.title: other["title"]})[0]
        if count.table != delete.table:
            pytest.skip("the first entities of the apps differ")
        goals = (Goal(count, one), Goal(delete, other))
        counted = row[one["field"]] == one["value"]
        assert order_matters(world, Composition(goals)) == counted
        if counted:
            return


def test_a_committee_accepts_words_that_hold_all_values(tmp_path: Path) -> None:
    domain = COUNTY.model_copy(update={"review": Review(reviewers=3, rounds=1)})
    found = {one.stage: one for one in made(tmp_path / "made", domain, county_model())}
    assert found["tasks"].made == found["dialogues"].made == COUNTY.tasks
    for line in lines(tmp_path / "made", "tasks"):
        assert str(line["instruction"]).startswith("Hello! ")
    messages = lines(tmp_path / "made", "rows")[0]["messages"]
    assert "Task: Hello! " in json.dumps(messages)


def test_what_the_committee_says_reaches_the_writer(tmp_path: Path) -> None:
    votes: list[str] = []

    def review(question: str) -> str:
        votes.append(question)
        better = "please, dear" in question
        return json.dumps({"accept": better, "why": "It lacks a friendly word."})

    def write(text: str) -> str:
        plain = text.partition("in plain terms: ")[2].partition("\n")[0] or text
        friendly = "please, dear: " if "lacks a friendly word" in text else ""
        return json.dumps({"instruction": friendly + plain})

    domain = COUNTY.model_copy(update={"tasks": 2, "review": Review(reviewers=3, rounds=2)})
    found = {
        one.stage: one
        for one in made(tmp_path / "made", domain, county_model(write=write, review=review))
    }
    assert found["tasks"].made == 2
    assert found["tasks"].reasons["words: the committee"] == 2
    assert len(votes) == 2 * 2 * 3


def test_a_majority_decides_and_rejected_words_leave_no_task(tmp_path: Path) -> None:
    votes = iter("+-- ++- --+ +-+".replace(" ", "") * 4)

    def review(question: str) -> str:
        return json.dumps({"accept": next(votes) == "+", "why": ""})

    domain = COUNTY.model_copy(update={"review": Review(reviewers=3, rounds=1)})
    model = county_model(review=review)
    found = {one.stage: one for one in made(tmp_path / "made", domain, model)}
    assert found["tasks"].made == found["dialogues"].made == 2
    assert found["tasks"].reasons["words: the committee"] == 2


def test_words_without_a_value_or_with_the_name_of_a_call_are_refused(county: Path) -> None:
    line = lines(county, "tasks")[0]
    suite = suite_of(lines(county, "worlds")[0])
    world, task = world_of(lines(county, "worlds")[0], suite), task_of(line, suite)
    plain = task.instruction
    assert not list(ungrounded(plain, task, world))
    assert list(ungrounded("Do what I want.", task, world))
    api = task.reference(world)[0].calls[0].api
    assert f"it names the call {api}" in list(ungrounded(f"{plain} Use {api}.", task, world))


def test_a_model_that_writes_no_words_makes_no_tasks_and_says_why(tmp_path: Path) -> None:
    found = {
        one.stage: one for one in made(tmp_path / "m", model=county_model(write=lambda plain: "Hm"))
    }
    assert found["tasks"].made == found["rows"].made == 0
    assert found["tasks"].reasons["words: no JSON with an instruction"] == 2 * COUNTY.tasks


def test_a_blueprint_that_is_refused_is_written_anew_with_the_reason(tmp_path: Path) -> None:
    def engineer(question: str) -> str:
        number = int(question.partition("It is service ")[2].split()[0])
        good = blueprint_text(number)
        if "It was refused: the blueprint, line " in question:
            return good
        return good.replace('owner = "owner"', 'owner = "keeper_of_it"')

    model = county_model(engineer=engineer)
    found = {one.stage: one for one in made(tmp_path / "made", model=model)}
    assert found["blueprints"].made == COUNTY.blueprints
    assert found["blueprints"].tried == 2 * COUNTY.blueprints
    assert all("keeper_of_it" in reason for reason in found["blueprints"].reasons)


def test_a_model_that_returns_no_toml_is_refused(tmp_path: Path) -> None:
    model = county_model(engineer=lambda question: "I would rather not.")
    with pytest.raises(InputError, match=r"No blueprint of writer passed .*not valid TOML"):
        made(tmp_path / "made", model=model)


# ── the command line ─────────────────────────────────────────────────────────


def refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> str:
    """What the command says about a domain that it refuses."""
    file = tmp_path / "domain.toml"
    file.write_text(text)
    assert main(["synthesise", str(file), "--to", str(tmp_path / "made"), *options]) == 2
    assert not (tmp_path / "made").exists()
    return capsys.readouterr().err


HEAD = f'name = "county"\nabout = "{ABOUT}"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "county"\nabout = " "', "'about' says nothing"),
        ('name = "county"\nabout = "Things."', "names nothing that apps can be drawn about"),
        ('name = "county"', "about: Field required"),
        (HEAD + "taks = 3", "taks: Extra inputs are not permitted"),
        (HEAD + "[review]", "has [review], and nobody does that without a model"),
        (HEAD + 'agent = "direkt"', "Did you mean 'direct'?"),
        (HEAD + 'files = ["none.toml"]', "cannot be read"),
        (HEAD + "worlds = ", "is not valid TOML"),
    ],
)
def test_a_domain_that_cannot_be_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert said in refusal(tmp_path, capsys, text)


def test_a_blueprint_that_contradicts_itself_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = blueprint_text(3).replace('owner = "owner"', 'owner = "nobody"')
    (tmp_path / "own.toml").write_text(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if one == "[entities.cat]")
    said = refusal(tmp_path, capsys, HEAD + 'files = ["own.toml"]')
    assert f"own.toml, line {line}: entity 'cat' names the field 'nobody'" in said


def test_a_model_that_writes_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "'null' writes no text" in refusal(tmp_path, capsys, HEAD, "--model", "null")


def test_the_command_prints_the_yield_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "domain.toml"
    file.write_text(HEAD + "tasks = 2\nworlds = 1\n")
    (tmp_path / "shelter.toml").write_text(blueprint_text(3))
    command = ["synthesise", str(file), "--to", str(tmp_path / "made")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert all(f"{stage}: finished" in said for stage in FILES)
    assert main([*command, "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [(one["stage"], one["made"]) for one in stages][2:] == [
        ("tasks", 2),
        ("dialogues", 2),
        ("rows", 2),
    ]


@pytest.mark.slow
def test_a_stage_imitates_synthesised_dialogues(
    county: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported = tmp_path / "imported"
    assert main(["import", str(county / "dialogues.jsonl"), "--run", str(imported)]) == 0
    path, said = run_stages(tmp_path / "training", RECIPE.format(run=imported))
    with RunFolder.read(path) as run:
        assert len(run.database.metrics("imitation")) == 2  # updates
        assert "left out" not in said
    with pytest.raises(InputError, match=r"No episode of .* can be imitated on 'apps/easy-new'"):
        run_stages(tmp_path / "other", RECIPE.format(run=imported).replace(FROM, ""))


FROM = ', environment = "synthesised/county"'
RECIPE = (
    '''
summary = "imitate synthesised dialogues"
deterministic = true

[environment]
id = "apps/easy-new"
workers = 0
turns = 1

[model]
name = "tiny"
context = 2048

[model.tiny]
layers = 2
width = 32

[evaluation]
tasks = 1

[[stage]]
do = "imitate"
from = {{run = "{run}"'''
    + FROM
    + """}}
epochs = 2
batch = 4
learning_rate = 1e-3
"""
)
