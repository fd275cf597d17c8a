"""Imagined pages: what the model learns from, and which successes in a dream are none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.learning.loop.imitation import ImitationPlan
from palaestra.rollout.runner import Job
from recipes.web.dynaweb import Experiment, solved_really
from recipes.web.page_model import ImaginedSite, PageModel, change, changed, visits_of
from recipes.web.shelter import PROPOSED, ShelterTasks


def demonstrated(experiment: Experiment, count: int) -> list[Episode]:
    """Return rollouts of the expert on the real site."""
    jobs = [Job(Key("expert", n), task) for n, task in enumerate(experiment.demonstrated[:count])]
    return asyncio.run(experiment.roll_out(jobs, experiment.expert))


@pytest.mark.parametrize("after", ["Done: Feed Rex", "Shelter\nlink 'Cats'\nbutton 'Feed Milo'"])
@pytest.mark.parametrize("page", ["Shelter\nlink 'Cats'", "Shelter\nlink 'Cats'\nbutton 'x'"])
def test_a_change_of_a_page_gives_the_next_one(page: str, after: str) -> None:
    assert changed(page, change(page, after)) == after


def test_a_reply_that_is_no_change_is_a_text_of_its_own() -> None:
    assert changed("Shelter\nlink 'Cats'", "what?\nlink 'Dogs'") == "what?\nlink 'Dogs'"


def test_visits_are_those_of_the_real_site_and_do_not_tell_the_task() -> None:
    experiment = Experiment(0)
    (episode,) = demonstrated(experiment, 1)
    world = ShelterTasks(PROPOSED)
    world.reset(experiment.demonstrated[0])
    home, after = visits_of([episode])
    assert home.page.split("\n")[0] == "Shelter" and f"'{world.asked}'" not in home.page
    assert home.after == after.page and f"button '{world.asked}'" in after.page
    assert after.after == f"Done: {world.asked}"


def test_refusals_are_visits_that_do_not_leave_the_page() -> None:
    experiment = Experiment(0)
    (episode,) = demonstrated(experiment, 1)
    world = ShelterTasks(PROPOSED)
    world.reset(episode.task)
    refusal = world.step(Action("click 'Nobody'"))
    step = replace(episode.steps[0], action=Action("click 'Nobody'"), transition=refusal)
    wrong, right, *_ = visits_of([replace(episode, steps=(step, *episode.steps))])
    assert wrong.after == "No element fits" and right.page == wrong.page


def test_a_success_that_skips_a_page_is_none_on_the_real_site() -> None:
    (episode,) = demonstrated(Experiment(0), 1)
    assert solved_really(episode)
    assert not solved_really(replace(episode, steps=episode.steps[1:]))


@pytest.mark.slow
def test_a_model_that_knows_the_pages_of_some_tasks_imagines_their_success() -> None:
    experiment = Experiment(0)
    shown = demonstrated(experiment, 6)
    pages = PageModel(experiment.tokenizer, seed=0)
    plan = ImitationPlan(epochs=150, batch=16, learning_rate=3e-3)
    assert pages.learn(visits_of(shown), plan, seed=0) < 0.05
    solved = 0
    for episode in shown:
        site = ImaginedSite(PROPOSED, pages)
        first, _ = asyncio.run(site.reset(replace(episode.task, environment="imagined")))
        assert first == episode.observation
        for step in episode.steps:
            seen, _ = asyncio.run(site.step(step.action))
        solved += seen.success
    assert solved >= 5
