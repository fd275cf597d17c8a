"""AgentOccam's parts, each of which can be left out, and exemplars of earlier episodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.agents.memory.cross_episode import PastEpisode
from palaestra.agents.memory.exemplars import told
from palaestra.agents.occam import OccamAgent
from palaestra.agents.registry import make_agent
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.wrappers.element_views import View
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import run_episode
from tests.environments.order_form import OrderForm

REPLIES = [
    "Note: the form is empty\nKeep: order, size\nBranch: the name\nAction: type [name] 'Ann'",
    "Action: click [agree]",
    "Action: give up",
]


def filled(agent: OccamAgent, replies: Sequence[str] = REPLIES) -> Episode:
    """Return an episode with the order form, with scripted replies."""
    script = iter(replies)
    form = LocalEnvironment(View(OrderForm(), "tree"))
    return run_episode(agent, ScriptedModel(lambda _: next(script)), form)


def last_prompt(episode: Episode) -> str:
    return episode.calls[-1].messages[-1].text


def test_steps_show_pivotal_lines_and_the_goal_stays_without_its_page() -> None:
    episode = filled(OccamAgent())
    prompt = last_prompt(episode)
    assert prompt.startswith("At the start:\nOrder the ")
    assert prompt.count("RootWebArea") == 1  # of the present page
    assert "1. the name, of 0, active" in prompt and "Notes:\nthe form is empty" in prompt
    assert "[name] textbox 'Name'\n[size] combobox 'Size'\n[order] button 'Order' > type" in prompt
    assert "[agree] checkbox 'I agree' > click [agree]" in prompt


def test_each_part_can_be_left_out() -> None:
    whole, plain = (
        filled(agent)
        for agent in (OccamAgent(), OccamAgent(plans=False, notes=False, pivotal=False))
    )
    assert "Plans:" not in last_prompt(plain) and "Notes:" not in last_prompt(plain)
    assert (
        last_prompt(plain).count("RootWebArea") == 3
    )  # both pages of the history, and the present
    head, less = (one.calls[0].messages[0].text for one in (whole, plain))
    for command in ("Note:", "Keep:", "Branch:", "Prune:"):
        assert command in head and command not in less


def test_long_pages_are_cut_to_the_lines_that_fit_the_task() -> None:
    prompt = filled(OccamAgent(ranked="words", top=2)).calls[0].messages[-1].text
    assert "[order] button 'Order'" in prompt and "[terms]" not in prompt
    assert prompt.count("are left out.)") == 1


def test_solved_episodes_of_like_tasks_are_replayed_and_stored(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf.jsonl"
    agent = f"occam?replays=1&shelf={shelf}"
    form = "tests.environments.order_form:OrderForm?observation=tree"
    for count in (1, 2):
        run = tmp_path / str(count)
        results = pa.evaluate(
            form, agent=agent, model="expert", n=1, workers=0, progress=False, run=run
        )
        assert results.success == 1.0
    (episode,) = results.episodes
    prompt = episode.calls[0].messages[0].text
    steps = [step.action.text for step in episode.steps]
    assert "A task like this one, and how it was solved:\nOrder the " in prompt
    assert [line[2:] for line in prompt.split("\n") if line.startswith("> ")] == steps


def test_an_exemplar_has_what_a_page_said_that_was_used_later() -> None:
    past = PastEpisode(
        "sites", "1", True, "Task: mail the price.\n[1] link 'Shop'",
        [("click 'Shop'", "[2] page 'Shop'\n  StaticText 'It costs 12 euros'\n  [3] link '120'"),
         ("go 'http://mail/'", "[4] textbox 'Body'"), ("type 'Body' '12'", "Sent.")],
        [],
    )  # fmt: skip
    assert told(past).split("\n") == [
        "Task: mail the price.",
        "[1] link 'Shop'",
        "> click 'Shop'",
        "[2] page 'Shop'",
        "StaticText 'It costs 12 euros'",
        "> go 'http://mail/'",
        "[4] textbox 'Body'",
        "> type 'Body' '12'",
    ]


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="shelf is only read with replays=1 or more"):
        make_agent("occam?shelf=x.jsonl")
    with pytest.raises(InputError, match="'ranked=luck' of the agent"):
        make_agent("occam?ranked=luck")
