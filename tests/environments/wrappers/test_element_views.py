"""Views of elements as observations, and actions in other systems' dialects."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import palaestra as pa
from palaestra.core.environment import Action, Environment
from palaestra.core.errors import InputError
from palaestra.core.gestures.dialects import DIALECTS
from palaestra.core.rare_capabilities import elements_of
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.shared.marked_picture import with_marks
from palaestra.environments.wrappers.gesture_selection import without_forms
from tests.environments.order_form import SIZE

FORM = "tests.environments.order_form:OrderForm"
TREE = """\
[page] RootWebArea 'Shop'
  [title] heading 'Order', level=1
  [name] textbox 'Name'
  [size] combobox 'Size'
  [agree] checkbox 'I agree'
  [order] button 'Order'
  [terms] link 'Terms'"""
MARKS = """\
#1 textbox 'Name'
#2 combobox 'Size'
#3 checkbox 'I agree'
#4 button 'Order'"""


def begun(query: str, id: str = FORM) -> tuple[Environment, pa.Observation]:
    environment = registry.make(f"{id}{query}")
    return environment, environment.reset(registry.tasks(FORM).task(Split.TRAIN, 0))


def test_views_take_the_place_of_the_environments_own_text() -> None:
    environment, first = begun("?observation=tree")
    goal, page = first.text.split("\n", 1)
    assert goal.startswith("Order the ") and page == TREE and not first.images
    second = environment.step(Action("type 'Ann'")).observation
    assert second.text.startswith("Nothing can do `type 'Ann'` there.")  # an invalid action
    third = environment.step(Action("type [name] 'Ann'")).observation
    assert third.text == "Done.\n" + TREE.replace("'Name'", "'Name', value='Ann', focused")
    _, words = begun("?observation=text")
    assert words.text.split("\n")[1:] == [
        "Order",
        *(line.strip() for line in TREE.split("\n")[2:]),
    ]


def test_views_of_words_can_be_compact() -> None:
    environment, first = begun("?observation=tree,merged,tables+changes,merged")
    tree, changes = first.text.split("\n", 1)[1][: len(TREE)], first.text[-len("'Terms'") :]
    assert tree == TREE and changes == "'Terms'"
    seen = environment.step(Action("click [agree]")).observation.text.split("\n")
    assert seen[-1] == "[agree] checkbox 'I agree', checked, focused"
    assert seen[:-1] == [
        "Done.",
        *TREE.replace("I agree'", "I agree', checked, focused").split("\n"),
    ]


def test_only_selected_gestures_are_taken_and_told() -> None:
    environment, _ = begun("?gestures=click,type")
    assert environment.step(Action("type [name] 'Ann'")).valid
    refused = environment.step(Action("select [size] 'large'"))
    assert not refused.valid
    assert (
        refused.observation.text == "'select' is not taken here; use: click, type, answer, give up."
    )
    assert list(environment.oracle()) == []  # its plan needs `select`
    whole, _ = begun("?gestures=click,type,select")
    assert whole.oracle()[0].text.startswith("type")
    rng = random.Random(0)
    samples = {environment.sample_action(rng).text.split()[0] for _ in range(40)}  # type: ignore[attr-defined]
    assert samples == {"click", "type"}


def test_tools_of_gestures_that_are_not_taken_are_not_offered() -> None:
    environment = registry.make(f"{FORM}OfTools?gestures=click,type")
    assert {tool.name for tool in environment.tools} == {"click", "type", "give_up"}


@pytest.mark.parametrize(
    ("kept", "instructions"),
    [
        ("click", "Reply with: click [3]. When done, reply answer ''. Be quick."),
        ("click back", "Reply with: click [3]; back. When done, reply answer ''. Be quick."),
        ("click type", "Reply with: click [3]; type 'a'. When done, reply answer ''. Be quick."),
    ],
)
def test_instructions_leave_out_gestures(kept: str, instructions: str) -> None:
    whole = "Reply with: click [3]; type 'a'; back. When done, reply answer ''. Be quick."
    left_out = {"click", "type", "back"} - set(kept.split())
    assert without_forms(whole, left_out) == instructions
    lines = "Such as:\nclick [3]\ntype [4] 'a'\nback\nThe numbers are ids."
    without = without_forms(lines, left_out).split("\n")
    assert [line.split()[0] for line in without[1:-1]] == kept.split()


def test_marks_number_the_picture_and_are_targets() -> None:
    environment, first = begun("?observation=marks+picture")
    assert first.text.split("\n", 1)[1] == MARKS
    numbered, plain = first.images
    assert numbered != plain
    assert Image.open(io.BytesIO(numbered.data)).size == SIZE
    step = environment.step(Action("click #3"))
    assert "#3 checkbox 'I agree', checked, focused" in step.observation.text
    assert environment.spec.images
    gone = environment.step(Action("click #9"))
    assert gone.observation.text == "There is no mark #9: they go from #1 to #4."


def test_targets_by_words_are_named_by_the_oracle_and_shown_in_place_of_ids() -> None:
    environment, first = begun("?targets=words&observation=text")
    shown = "Order\ntextbox 'Name'\ncombobox 'Size'\ncheckbox 'I agree'\nbutton 'Order'\n"
    assert shown in first.text and "[" not in first.text
    assert "click 'Submit'" in environment.instructions
    assert "with its [id]" not in environment.instructions
    said = []
    while plan := environment.oracle():
        said.append(plan[0].text)
        last = environment.step(plan[0])
    assert last.success
    assert [line.partition("' ")[0] for line in said] == [
        "type 'Name",
        "select 'Size",
        "click 'I agree'",
        "click 'Order'",
    ]


def test_the_numbers_of_a_picture_are_drawn_at_their_boxes() -> None:
    environment, first = begun("?observation=picture")
    plain = first.images[0].data
    drawn = with_marks(plain, elements_of(environment))
    assert drawn == with_marks(plain, elements_of(environment))
    before, after = (Image.open(io.BytesIO(data)).convert("RGB") for data in (plain, drawn))
    changed = {
        (x // 4, y // 4)
        for x in range(SIZE[0])
        for y in range(SIZE[1])
        if before.getpixel((x, y)) != after.getpixel((x, y))
    }
    for element in elements_of(environment):
        if element.box is not None:
            at = int(element.box.x + 2) // 4, int(element.box.y + 2) // 4
            assert (at in changed) == (element.role != "RootWebArea" and element.id != "hello")


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("babyai/GoToLocalS5N2?observation=tree", "observation=tree needs 'elements'"),
        ("babyai/GoToLocalS5N2?observation=tree+picture", "which 'GoToLocalS5N2' does not declare"),
        ("babyai/GoToLocalS5N2?dialect=openai", "dialect=openai needs 'elements'"),
        ("babyai/GoToLocalS5N2?targets=words", "targets=words needs 'elements'"),
        (f"{FORM}?targets=words&dialect=openai", "'targets' and 'dialect', which has its own"),
        (
            f"{FORM}?observation=tree+tree",
            "is not valid; give diff, image, pixels, blank, or views",
        ),
        (f"{FORM}?observation=tree+sound", "is not valid; give diff"),
        (f"{FORM}?observation=marks,merged", "of words also with ,tables and ,merged behind"),
        (f"{FORM}?observation=tree,merged,merged", "is not valid; give diff"),
        (f"{FORM}?gestures=click,jump", "is not valid; give kinds joined by commas: click, double"),
        (f"{FORM}?gestures=click,click", "is not valid; give kinds joined by commas"),
        ("babyai/GoToLocalS5N2?gestures=click", "gestures=click needs 'elements'"),
        (f"{FORM}?observation=tree&stale=0.5", "observation=tree shows what stale and partial"),
        (f"{FORM}?dialect=klingon", "is not valid; give aitw, androidworld"),
    ],
)
def test_what_does_not_go_is_refused_in_one_sentence(id: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        registry.make(id)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("targets", ["dialect=webarena", "targets=words"])
def test_views_and_targets_keep_the_contract(
    targets: str, clause: Callable[[Subject], None]
) -> None:
    query = f"{targets}&observation=tree,merged+marks&errors=0.3&budget=9"
    query += "&gestures=click,type,select,scroll,wait"
    clause(Subject.of(f"{FORM}?{query}", steps=4, per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "OfTools", *(f"?dialect={name}" for name in DIALECTS)])
def test_each_dialect_keeps_the_contract(query: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"{FORM}{query}", steps=9))


def test_an_error_is_said_beside_the_page() -> None:
    environment, _ = begun("?observation=tree&errors=1")
    assert environment.step(Action("click [agree]")).observation.text.startswith("Something went")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("browsergym", "click('agree')"),
        ("pyautogui", "pyautogui.click(64, 73)"),
        ("openai", '{"type": "click", "button": "left", "x": 64, "y": 73}'),
        ("anthropic", '{"action": "left_click", "coordinate": [64, 73]}'),
        ("ui-tars", "click(start_box='(267,456)')"),
        ("androidworld", '{"action_type": "click", "index": 3}'),
    ],
)
def test_an_oracle_speaks_the_dialect_and_its_actions_do_what_gestures_do(
    name: str, action: str
) -> None:
    environment, _ = begun(f"?dialect={name}")
    plain, _ = begun("")
    for line in ("type [name] 'Ann' clear", "select [size] 'large'"):
        environment.step(Action(line)), plain.step(Action(line))
    while not environment.oracle()[0].text.count(action):
        step = environment.oracle()[0]
        assert environment.step(step).valid
        plain.step(Action(plain.oracle()[0].text))  # type: ignore[attr-defined]
    assert environment.oracle()[0].text == action
    assert environment.step(Action(action)).valid
    plain.step(Action("click [agree]"))
    assert environment.state_key() == plain.state_key()


def test_random_actions_are_in_the_dialect() -> None:
    environment, _ = begun("?dialect=openai")
    texts = {
        environment.sample_action(random.Random(seed)).text  # type: ignore[attr-defined]
        for seed in range(30)
    }
    assert any(text.startswith('{"type": "click"') for text in texts)


def test_what_is_no_action_of_a_dialect_says_so() -> None:
    environment, _ = begun("?dialect=webarena")
    step = environment.step(Action("press the button"))
    assert not step.valid
    assert step.observation.text.startswith(
        "'press the button' is no action of WebArena: write one"
    )


def test_the_expert_solves_the_form_in_a_dialect_through_evaluate() -> None:
    id = f"{FORM}?observation=tree&dialect=browsergym"
    results = pa.evaluate(id, model="expert", n=2, workers=0, progress=False)
    assert results.success == 1.0


@pytest.mark.slow
def test_numbered_pictures_are_recorded_across_workers(tmp_path: Path) -> None:
    run, id = tmp_path / "run", f"{FORM}?observation=marks"
    pa.evaluate(id, model="expert", n=1, workers=1, progress=False, run=run)
    recorded = pa.Run(run)
    (episode,) = recorded.episodes(recorded.phases[0])
    first = registry.make(id).reset(episode.task)
    assert episode.observation == first
    assert episode.observation is not None
    assert episode.observation.images[0].data == first.images[0].data
