"""The planner reads its prompt: states, moves that were said, proposals, messages, and plans."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaestra as pa
from palaestra.agents.direct import DirectAgent
from palaestra.core.environment import Action, Environment
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.task import Split
from palaestra.core.team_words import ASKED, CHECK, NEXT, parts_of
from palaestra.environments.registry import make, tasks
from palaestra.models.registry import check_model
from palaestra.models.scripted.box_reading import Reading
from palaestra.models.scripted.planner import PlannerCompetence, PlannerModel


def reply(messages: list[Message], seed: int = 0, own: float = 1.0, others: float = 1.0) -> str:
    model = PlannerModel(DirectAgent(), competence=PlannerCompetence(own, others))
    prompt = Prompt(messages=messages, tokens=None, sampling=Sampling(), seed=seed)
    return asyncio.run(model.generate(prompt)).text


def begun(name: str, index: int = 0) -> tuple[Environment, str]:
    world = make(f"boxes/{name}")
    return world, world.reset(tasks(f"boxes/{name}").task(Split.TRAIN, index)).text


def rules(name: str, player: str = "") -> Message:
    return system(make(f"boxes/{name}").instructions + (f"\nYou are {player}." if player else ""))


YOU = ["", "robot1", "robot3", "central"]
ROW = "Round 1 of 14.\nrobot1: boxes A; goals C\nrobot2: boxes B; goals none\n"
ROW += "robot3: boxes C; goals A, B"


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 1000), st.integers(0, 5), st.booleans())
def test_what_it_plans_is_possible_and_without_errors_nothing_collides(
    n: int, index: int, seed: int, errs: bool
) -> None:
    world, seen = begun(str(n), index)
    messages = [rules(str(n)), user(seen)]
    for _ in range(3):
        plan = reply(messages, seed, others=0.5 if errs else 1.0)
        done = world.step(Action(plan))
        assert done.valid, done.observation.text
        assert errs or "did not move" not in done.observation.text
        if done.terminated:
            break
        messages += [assistant(plan), user(done.observation.text)]


def test_it_reads_what_stands_in_the_grid() -> None:
    reading = Reading([rules("3", "robot2"), user(ROW)])
    assert (reading.me, reading.round, reading.room) == ("robot2", 1, 2)
    assert reading.boxes == {"A": "robot1", "B": "robot2", "C": "robot3"}
    assert reading.goals == {"C": "robot1", "A": "robot3", "B": "robot3"}
    later = "Round 2 of 14.\nrobot1: boxes none; goals C\nrobot2: boxes A, B; goals none\n"
    later += "robot3: boxes none; goals A, B\nrobot1 moved box A east.\nrobot3 brought box C home."
    moved = Reading([rules("3"), user(ROW), assistant("robot1: box A east"), user(later)])
    assert moved.boxes == {"A": "robot2", "B": "robot2"} and moved.home == ["C"]
    assert moved.came_from == {"A": "west"}


def test_competence_is_the_share_of_best_moves() -> None:
    prompt = [rules("3"), user(ROW)]
    found = [dict(parts_of(reply(prompt, seed, others=0.7)))["robot1"] for seed in range(400)]
    # robot1 has two moves, box A east and wait; 4 standard deviations of 400 are 0.092
    assert abs(found.count("box A east") / 400 - 0.7) < 0.092
    assert reply([rules("3:each", "robot1"), user(ROW)]) == "box A east"


def test_a_robot_accepts_a_move_as_good_as_its_own_and_says_its_own_else() -> None:
    def answer(proposal: str) -> str:
        said = f"{ROW}\ncentral proposes: {proposal}\n{ASKED['talk']}"
        return reply([rules("3", "robot1"), user(said)])

    assert answer("robot1: box A east; robot2: box B east; robot3: wait") == "accept"
    assert answer("robot1: wait; robot2: box B east; robot3: wait") == "box A east"
    across = answer("robot1: box A east; robot2: box B west; robot3: wait")
    assert across == "wait"  # robot2 reaches across the same border


def test_a_robot_that_talks_avoids_moves_that_others_said() -> None:
    said = f"{ROW}\nrobot2: box B east\nrobot1: wait\n{ASKED['talk']}"
    assert reply([rules("3", "robot3"), user(said)]) == "wait"
    assert reply([rules("3", "robot3"), user(f"{ROW}\n{ASKED['talk']}")]) == "box C west"


def test_the_central_planner_takes_the_moves_that_robots_say() -> None:
    proposal = "robot1: wait; robot2: box B west; robot3: wait"
    messages = [rules("3"), user(f"{ROW}\n{ASKED['propose']}"), assistant(proposal)]
    messages.append(user(f"robot1: accept\nrobot2: box B east\n{ASKED['propose']}"))
    assert reply(messages) == "robot1: wait; robot2: box B east; robot3: wait"


def test_a_box_whose_goal_was_never_said_is_carried_on_and_a_message_says_where() -> None:
    seen = "Round 3 of 14.\nrobot2: boxes A; goals none"
    asked = [rules("3:cell", "robot2"), user(seen)]
    assert {reply(asked, seed) for seed in range(20)} == {"box A east", "box A west"}
    mail = '[facts] robot3 to you (and 1 more): {"goals": {"A": "robot3"}}\n'
    assert {reply([asked[0], user(mail + seen)], seed) for seed in range(20)} == {"box A east"}


def test_a_plan_of_all_is_followed_and_without_one_a_collision_is_avoided_next_time() -> None:
    mail = '[plan] robot1 to you: {"from": 2, "rounds": ["robot3: wait", "robot3: box C west"]}\n'
    seen = ROW.replace("Round 1", "Round 2")
    assert reply([rules("3:each", "robot3"), user(mail + seen)]) == "wait"
    assert reply([rules("3:each", "robot3"), user(seen)]) == "box C west"
    failed = f"{seen}\nrobot3 did not move box C west: there was no room."
    replies = [reply([rules("3:each", "robot3"), user(failed)], seed) for seed in range(100)]
    assert 30 < replies.count("wait") < 70


LINES = [
    "Round 2 of 14.", "robot1: boxes A, B; goals C", "robot9: boxes D; goals A", "robot2: wait",
    "robot9: box A east", "robot2: box Z north", "central proposes: robot1: x; y; robot7: wait",
    "[a] robot1 to you: []", '[a] robot1 to you: {"goals": {"A": ["robot1"]}}', "That was no valid",
    '[a] robot1 to you: {"goals": 3, "rounds": 4}', '[a] x to you: {"from": 2, "rounds": [1, "y"]}',
    "robot1 moved box Q west.", "robot3 brought box A home.", "robot2 did not move box B west: no.",
    *ASKED.values(), NEXT.format("robot2"), NEXT.format("nobody"), CHECK.format("x"), "",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES)), st.sampled_from(["3", "3:each"]), st.sampled_from(YOU))
def test_whatever_others_write_is_answered(lines: list[str], name: str, player: str) -> None:
    assert reply([rules(name, player), user("\n".join(lines))])


@pytest.mark.parametrize("team", ["dmas:4", "hmas-1:4", "hmas-2:4"])
def test_layouts_bring_the_boxes_home(team: str, tmp_path: object) -> None:
    found = pa.evaluate(
        "boxes/4", team=team, model="planner?own=0.9", n=3, run=f"{tmp_path}/run", workers=0,
        progress=False,
    )  # fmt: skip
    assert found.success == 1.0
    roles = {call.role for episode in found.episodes for call in episode.calls}
    central = set() if team == "dmas:4" else {"central"}
    assert roles == {"robot1", "robot2", "robot3", "robot4"} | central


def test_robots_that_share_facts_know_goals_that_they_cannot_see(tmp_path: object) -> None:
    channels = f"{tmp_path}/facts.toml"
    with open(channels, "w", encoding="utf-8") as file:
        file.write('[channels.facts]\ncontent = {type = "object"}\n')
    found = pa.evaluate(
        f"boxes/4:cell?messages={channels}", agent="players", model="planner", n=3,
        run=f"{tmp_path}/run", workers=0, progress=False,
    )  # fmt: skip
    for episode in found.episodes:
        sent = [s for s in episode.steps if "message" in s.transition.info]
        assert 1 <= len(sent) <= 4  # at most one for each robot
        assert all(s.transition.info["channel"] == "facts" for s in sent)


def test_what_it_cannot_read_or_be_is_refused() -> None:
    with pytest.raises(InputError, match="finds no grid"):
        reply([system("Say a side: heads, tails."), user("Which side?")])
    with pytest.raises(UnknownName, match="option of the model 'planner'"):
        check_model("planner?right=0.5")
    with pytest.raises(InputError, match="a number from 0 to 1"):
        check_model("planner?own=2")


def test_equal_seeds_give_equal_replies() -> None:
    seeds = [random.Random(7).randrange(1000) for _ in range(5)]
    prompt = [rules("3"), user(ROW)]
    first = [reply(prompt, seed, others=0.5) for seed in seeds]
    assert first == [reply(prompt, seed, others=0.5) for seed in seeds]
