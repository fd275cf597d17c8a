"""Demonstrations in the layout of WebLINX, read, imported, exported and read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.element import Box, Element
from palaestra.core.errors import InputError
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.store.exchange.detect import detect
from palaestra.store.exchange.weblinx_demonstrations import (
    Demonstration,
    demonstrations_in,
    read_demonstration,
    splits_of,
)
from palaestra.store.exchange.weblinx_export import ShownEpisode, ShownTurn, write_weblinx
from palaestra.store.exchange.weblinx_import import read_weblinx
from tests.store.exchange.weblinx_made import SEARCH, act, say, write

FORM = "tests.environments.order_form:OrderForm"


def test_what_the_navigator_says_and_does_is_in_one_action_space(tmp_path: Path) -> None:
    found = read_demonstration(write(tmp_path, "aaabtsd", SEARCH))
    lines = [turn.gesture and write_line(turn.gesture) for turn in found.turns]
    assert lines == [
        None,
        "say 'Hi, what can I do?'",
        None,
        "go 'http://shop.example/'",
        "click [field]",
        "type [field] 'red shoes'",
        "press [f] 'Enter'",
        "scroll down 200",
        "click [card]",
        "say 'They cost 20 €.'",
    ]
    assert (
        found.turns[2].words == "Find red shoes" and found.turns[4].words == "click button 'Find'"
    )
    assert found.turns[3].url == "" and found.turns[4].url == "http://shop.example/"
    page = found.page(found.turns[4])
    assert page.boxes["field"] == Box(100, 50, 200, 30) and "Far below" not in page.text


def test_without_a_file_of_boxes_all_of_a_page_is_shown(tmp_path: Path) -> None:
    folder = write(tmp_path, "a", SEARCH)
    (folder / "bboxes" / "bboxes-1.json").unlink()
    demonstration = read_demonstration(folder)
    page = demonstration.page(demonstration.turns[8])
    assert page.boxes == {"card": Box(0, 120, 400, 100)}  # as recorded with the click
    assert "[find] button 'Find'" in page.text and "Far below" in page.text


def test_other_intents_are_history_and_only_some_turns_are_predicted(tmp_path: Path) -> None:
    data = [
        act("click", "find"),
        act("submit", "find"),  # the click before it is the same act
        act("click", "home"),
        act("copy", selected="Home"),  # the click before it only selects
        act("paste", pasted="Home"),
        act("hover", "card"),
        act("tabcreate", properties={"tabId": 900}),
        act("tabswitch", properties={"tabIdOrigin": 900, "tabId": 7}),
        act("tabremove", properties={"tabId": 900}),
        act("scroll", scrollX=0, scrollY=0),
        act("change", "size", value="small"),
        act("click", "gone"),  # has no area
        act("click"),  # has no element
    ]
    found = read_demonstration(write(tmp_path, "a", data))
    assert [turn.gesture and write_line(turn.gesture) for turn in found.turns[4:9]] == [
        "press 'Control+v'", "hover [card]", "tab new", "tab 1", "tab close"
    ]  # fmt: skip
    assert found.turns[9].gesture is None
    assert [turn.intent for turn in found.predicted()] == ["submit", "change"]


def test_without_a_file_of_splits_the_sites_of_the_test_were_never_seen(tmp_path: Path) -> None:
    for number in range(12):
        site = f"site{number // 2}.example"
        write(tmp_path, f"demo{number:02}", [act("click", "find", site=site)])
    splits, there = splits_of(tmp_path), demonstrations_in(tmp_path)
    sites = {
        split: {read_demonstration(there[name]).site for name in names}
        for split, names in splits.items()
    }
    assert {split: len(found) for split, found in sites.items()} == {
        "test_web": 2, "valid": 1, "train": 3
    }  # fmt: skip
    assert len(set.union(*sites.values())) == 6


def test_named_splits_hold_what_is_in_the_folder(tmp_path: Path) -> None:
    for name in ("a", "b", "broken"):
        write(tmp_path, name, SEARCH)
    (tmp_path / "demonstrations" / "broken" / "invalid.json").write_text("{}")
    named = {"train": ["a", "elsewhere"], "test_geo": ["b", "broken"]}
    (tmp_path / "splits.json").write_text(json.dumps(named))
    assert splits_of(tmp_path) == {"train": ["a"], "test_geo": ["b"]}
    found = list(read_weblinx(tmp_path))
    assert [one.task.environment for one in found] == ["weblinx", "weblinx/test_geo"]
    keys = [(str(one.key), one.task.split) for one in found]
    assert keys == [
        ("weblinx/train/0.0", Split.TRAIN), ("weblinx/test_geo/0.0", Split.TEST)
    ]  # fmt: skip


def test_a_demonstration_is_an_episode_that_a_policy_can_imitate(tmp_path: Path) -> None:
    write(tmp_path, "aaabtsd", SEARCH)
    (episode,) = read_weblinx(tmp_path)
    assert episode.outcome.solved and episode.reward == 1.0 and episode.task.id == "aaabtsd"
    assert episode.task.instruction == "Hello" and episode.labels["site"] == "shop.example"
    assert episode.observation is not None and episode.observation.text.startswith("User: Hello")
    assert "[find] button 'Find'" in episode.steps[0].transition.observation.text
    assert len(episode.calls) == len(episode.steps) == 8
    conversation = episode.graph.conversation(7)
    said = [message.text for message in conversation]
    assert said[2].startswith("User: Find red shoes\n[home] link 'Home'")
    assert said[3:6] == ["go 'http://shop.example/'", "", "click [field]"]
    assert conversation[-1].text == episode.steps[-1].action.text == "say 'They cost 20 €.'"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"data": [act("teleport")]}, "has the intent 'teleport', which WebLINX does not have"),
        (
            {"data": [{"type": "chat"}]},
            "is not a valid demonstration of WebLINX: it has no 'speake",
        ),
        ([], "is not a valid demonstration"),
    ],
)
def test_what_is_invalid_is_named_in_one_sentence(tmp_path: Path, change: object, why: str) -> None:
    folder = write(tmp_path, "a", SEARCH)
    (folder / "replay.json").write_text(json.dumps(change))
    with pytest.raises(InputError, match=why) as refused:
        read_demonstration(folder)
    assert str(folder / "replay.json") in str(refused.value)


def test_folders_of_demonstrations_are_known_from_others(tmp_path: Path) -> None:
    write(tmp_path / "some", "a", SEARCH)
    (tmp_path / "none").mkdir()
    assert detect(tmp_path / "some") == detect(tmp_path / "some" / "demonstrations") == "weblinx"
    with pytest.raises(InputError, match="holds no demonstrations of WebLINX; name the folder in"):
        next(read_weblinx(tmp_path / "none"))


def test_episodes_on_pages_become_demonstrations_and_come_back(tmp_path: Path) -> None:
    run, folder, back = (str(tmp_path / name) for name in ("run", "demos", "back"))
    pa.evaluate(FORM, model="expert", n=2, workers=0, progress=False, run=Path(run))
    assert main(["export", run, "--format", "weblinx", "--to", folder]) == 0
    assert main(["import", folder, "--run", back]) == 0
    recorded, imported = pa.Run(Path(run)), pa.Run(Path(back))
    before = list(recorded.episodes(recorded.phases[0]))
    after = list(imported.episodes("weblinx/test_iid"))
    for old, new in zip(before, after, strict=True):
        lines = [step.action.text for step in old.steps]
        assert [step.action.text for step in new.steps] == [
            line.removesuffix(" clear") for line in lines
        ]
        assert new.task.instruction.startswith("Order the ")
    environment = registry.make(FORM)
    environment.reset(before[0].task)
    name = splits_of(Path(folder))["test_iid"][0]
    demonstration = read_demonstration(Path(folder, "demonstrations", name))
    page = demonstration.page(demonstration.turns[1])
    shown = {one.id: one for one in environment.elements()}  # type: ignore[attr-defined]
    for element in page.elements:
        if element.id in shown:
            assert element == shown[element.id]
    assert {"name", "size", "agree", "order"} <= page.boxes.keys()
    assert main(["export", run, "--format", "weblinx", "--to", folder]) == 2  # it exists


def test_what_has_no_elements_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    pa.evaluate("probe/memory-4", model="expert", n=1, workers=0, progress=False, run=Path(run))
    assert main(["export", run, "--format", "weblinx", "--to", str(tmp_path / "demos")]) == 2
    assert "'probe/memory-4' shows no elements" in capsys.readouterr().err
    assert not (tmp_path / "demos").exists()


PAGE = [
    Element("1", "RootWebArea", "Shop", box=Box(0, 0, 100, 100)),
    Element("2", "textbox", "Name", box=Box(10, 10, 50, 10), parent="1"),
    Element("3", "button", "Order", box=Box(10, 30, 50, 10), parent="1"),
    Element("4", "StaticText", "Order", box=Box(12, 32, 20, 6), parent="3"),
]


def exported(folder: Path, *lines: str) -> Demonstration:
    """Write gestures on `PAGE` as a demonstration, and read it."""
    turns = [ShownTurn(read_line(line), PAGE) for line in lines]
    made = ShownEpisode("aaabtsd", "Order", "http://shop", (100, 100), "train", turns)
    assert write_weblinx(folder, [made]) == 1
    return read_demonstration(folder / "demonstrations" / "aaabtsd")


def test_a_gesture_may_become_two_actions_on_elements(tmp_path: Path) -> None:
    lines = ("type 'Name' 'Ann' clear enter", "click [4]", "scroll down 40", "say 'Done.'")
    found = exported(tmp_path / "demos", *lines)
    assert [write_line(turn.gesture) for turn in found.turns if turn.gesture] == [
        "type [e2] 'Ann'",
        "press [e2] 'Enter'",
        "click [e3]",  # what the text is in
        "scroll down 40",
        "say 'Done.'",
    ]
    assert {turn.page for turn in found.turns[1:]} == {"page-1-0.html"}
    assert found.turns[3].words == "click button 'Order'" and found.turns[3].size == (100, 100)
    page = found.page(found.turns[3])
    assert [one.id for one in page.elements][:3] == ["e1", "e2", "e3"]  # numbers are no ids there
    assert [one.box for one in page.elements][:3] == [one.box for one in PAGE][:3]


@pytest.mark.parametrize("line", ["drag [2] to [3]", "double [3]", "back", "click", "press 'Tab'"])
def test_a_gesture_without_an_intent_is_not_exported(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"WebLINX has no action for `.*`; export other episodes"):
        exported(tmp_path / "demos", line)
    assert not (tmp_path / "demos").exists()


def test_a_conversation_alone_is_a_demonstration(tmp_path: Path) -> None:
    talk = [say("instructor", "Hello"), say("navigator", "Hello!"), say("instructor", "Bye")]
    (episode,) = read_weblinx(write(tmp_path, "a", talk).parent.parent)
    assert [step.action.text for step in episode.steps] == ["say 'Hello!'"]
    assert episode.steps[0].transition.observation.text == "User: Bye"
