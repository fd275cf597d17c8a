"""Parts of messages on pages: reasoning, calls and their results, pictures, tools."""

from __future__ import annotations

import asyncio
import html
import re
from pathlib import Path

import numpy
import pytest
from starlette.testclient import TestClient

from palaestra.agents.registry import make_agent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Key
from palaestra.core.message import Image, ToolCall, assistant
from palaestra.core.session import Session
from palaestra.core.task import Task, TaskSet
from palaestra.core.tool import Tool
from palaestra.environments.shared.png_images import png
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.runtime.visible_text import visible
from palaestra.store.run_folder import RunFolder
from tests.viewer.browser import chromium, entered, served
from tests.viewer.stores import client_of

EPISODE = "/run/desk/episode/test/0.0"
FIRST, SECOND, LAST = (f"/run/desk/call/test/0.0?call={n}" for n in range(3))
THOUGHT = "The drawer <b>may</b> hold\u200b the key."
ID = 'call-"><i>1'
COLOURS = ((200, 40, 40), (40, 40, 200))


def picture(number: int) -> Image:
    return Image.of(png(numpy.full((24, 40, 3), COLOURS[number], numpy.uint8)))


class Desk(Environment, typical_turns=4):
    """A desk with drawers; opening one shows what is in it."""

    instructions = "Find the key."
    tools = (
        Tool(
            "open",
            "Open a drawer <now>.",
            {
                "type": "object",
                "properties": {"drawer": {"type": "integer"}},
                "required": ["drawer"],
            },
        ),
        Tool("wait", "Wait.", {"type": "object", "properties": {}}),
    )

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def reset(self, task: Task) -> Observation:
        return Observation("A desk with two drawers.", images=(picture(0),))

    def step(self, action: Action) -> Transition:
        if action.call is None or action.call.name not in ("open", "wait"):
            return Transition(Observation("There is no such tool <here>.\u202e"), valid=False)
        if action.call.name == "wait":
            return Transition(Observation("The key is yours."), 1.0, terminated=True, success=True)
        return Transition(Observation("A key </div> of brass.", images=(picture(0), picture(1))))


REPLIES = (
    assistant("", reasoning=THOUGHT, tool_calls=[ToolCall("open", {"drawer": 1}, ID)]),
    assistant(
        "Both at once.",
        reasoning="Be quick.",
        tool_calls=[
            ToolCall("break", {"what": "<script>alert(1)</script>"}, "call-2"),
            ToolCall("open", {"drawer": 2}, "call-3"),
        ],
    ),
    assistant("", tool_calls=[ToolCall("wait", {}, "call-4")]),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    models = {"agent": ScriptedModel(REPLIES)}
    task = Task("test/0", "desk", 0)
    session = Session(Key("test", 0), task, LocalEnvironment(Desk()), make_agent("react"), models)
    with RunFolder.create(folder / "desk", {}) as run:
        run.database.finish(asyncio.run(session.run()))
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> TestClient:
    return client_of(root)


def page(client: TestClient, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.text


def shown(text: str) -> str:
    """A text as a page holds it: escaped, with what is invisible marked."""
    return (
        html.escape(visible(text), quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
    )


@pytest.mark.parametrize("address", [EPISODE, FIRST])
def test_reasoning_is_folded(client: TestClient, address: str) -> None:
    folded = re.findall(r"<details class=\"reasoning\">.*?</details>", page(client, address), re.S)
    assert shown(THOUGHT) in folded[0] and "<summary" in folded[0]
    assert "⟨U+200B⟩" in folded[0] and "<b>" not in folded[0]


def test_parallel_calls_are_shown_with_their_ids(client: TestClient) -> None:
    for address in (EPISODE, SECOND):
        whole = page(client, address)
        for call in REPLIES[1].tool_calls:
            assert shown(str(call)) in whole
            assert re.search(rf'class="id"[^>]*>{call.id}<', whole)
        assert "alert(1)</script>" not in whole
    assert f">{shown(ID)}</span>" in page(client, EPISODE)


def test_a_parallel_call_that_acts_in_a_later_turn_names_its_reply(client: TestClient) -> None:
    third = page(client, EPISODE).partition('id="turn-3"')[2].partition("</article>")[0]
    assert "open(drawer=2)" in third and ">call-3</span>" in third
    assert 'of <a href="/run/desk/call/test/0.0?call=1">call 1</a>' in third


def test_results_name_their_calls_and_failed_ones_say_so(client: TestClient) -> None:
    answered = page(client, LAST)
    errors = re.findall(r'<p class="who bad">error <span class="id">([^<]*)</span>', answered)
    results = re.findall(r'<p class="who">result <span class="id">([^<]*)</span>', answered)
    assert (errors, results) == (["call-2"], ["call-3"])
    assert shown("There is no such tool <here>.\u202e") in answered and "⟨U+202E⟩" in answered


def test_pictures_are_shown_in_observations_messages_and_results(client: TestClient) -> None:
    first, second = (
        f'<img class="picture" alt="a picture in this message" src="{p.url}">'
        for p in map(picture, range(2))
    )
    assert page(client, FIRST).count(first) == 1
    assert page(client, SECOND).count(first) == page(client, SECOND).count(second) == 1
    turns = page(client, EPISODE)
    assert turns.count(picture(0).url) == 3 and turns.count(picture(1).url) == 2


def test_the_tools_that_a_call_was_offered_are_shown(client: TestClient) -> None:
    offered = page(client, FIRST)
    for tool in Desk.tools:
        assert shown(tool.signature) in offered


@pytest.mark.parametrize("address", [EPISODE, FIRST, SECOND, LAST])
def test_nothing_of_a_part_is_markup_or_invisible(client: TestClient, address: str) -> None:
    whole = page(client, address)
    assert visible(whole) == whole
    for markup in ("<i>1", "<now>", "<here>", "</div> of brass", "<b>may"):
        assert markup not in whole


def test_a_whole_reply_can_be_had_as_text(client: TestClient) -> None:
    answer = client.get("/run/desk/text/test/0.0?part=reply&call=1")
    calls = [str(call) for call in REPLIES[1].tool_calls]
    assert answer.text == "\n\n".join(["Be quick.", "Both at once.", *calls])


@pytest.mark.slow
@pytest.mark.parametrize("width", [1300, 400])
def test_parts_fit_a_wide_and_a_narrow_window(root: Path, width: int) -> None:
    with served(root) as address, chromium() as browser:
        window = browser.new_page(viewport={"width": width, "height": 900})
        tab = entered(window, address)
        for path in (EPISODE, FIRST, SECOND, LAST):
            tab.goto(address + path)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.goto(address + EPISODE)
        thought = tab.locator("details.reasoning .thought").first
        assert not thought.is_visible()
        tab.locator("details.reasoning summary").first.click()
        assert thought.is_visible()
