"""The bases of adapters: a current task, its end, replay snapshots."""

from __future__ import annotations

import pytest

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.base import Replayed, hashed, refused, without_parameters

FIRST, SECOND = TaskSet("counting").take(Split.TRAIN, 2)


class Counting(Replayed, id="counting", capabilities={"snapshot", "state_key"}):
    """Count to three, from a number that the seed decides."""

    instructions = "Say: one, two."
    OVER = "Enough."

    def _begin(self, task: Task) -> Observation:
        without_parameters(task)
        self.count = task.seed % 2
        return Observation(str(self.count))

    def _act(self, action: Action) -> Transition:
        if action.text != "one":
            return refused("Say one.")
        self.count += 1
        done = self.count >= 3
        return Transition(Observation(str(self.count)), terminated=done, success=done)

    def state_key(self) -> str:
        return hashed(self._current().seed, self.count)


def played(*words: str, task: Task = FIRST) -> Counting:
    world = Counting()
    world.reset(task)
    for word in words:
        world.step(Action(word))
    return world


def test_before_the_first_task_there_is_nothing_to_do() -> None:
    with pytest.raises(InputError, match="'counting' has no task yet; call reset"):
        Counting().step(Action("one"))


def test_after_the_end_every_action_is_refused_until_a_reset() -> None:
    world = played("one", "one", "one")
    assert world.step(Action("one")) == refused("Enough.")
    world.reset(FIRST)
    assert world.step(Action("one")).valid


def test_a_reset_that_fails_leaves_no_task() -> None:
    world = played("one")
    with pytest.raises(InputError, match="take no parameters"):
        world.reset(Task("odd", "counting", 1, parameters={"level": 2}))
    with pytest.raises(InputError, match="no task yet"):
        world.step(Action("one"))


def test_a_restored_environment_has_the_task_the_state_and_the_past() -> None:
    world = played("one", "what?", "one", task=SECOND)
    other = played("one")
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key() != played().state_key()
    assert other.snapshot() == world.snapshot()


def test_an_end_is_restored_too() -> None:
    other = Counting()
    other.restore(played("one", "one", "one").snapshot())
    assert other.step(Action("one")) == refused("Enough.")


def test_another_environments_snapshot_is_refused() -> None:
    class Others(Counting, id="others"):
        pass

    with pytest.raises(InputError, match="cannot be restored in 'others'"):
        Others().restore(played().snapshot())


def test_what_is_not_declared_is_not_saved() -> None:
    class Unsaved(Replayed):
        instructions = ""

        def _begin(self, task: Task) -> Observation:
            return Observation("")

        def _act(self, action: Action) -> Transition:
            return refused("")

    with pytest.raises(CapabilityMissing, match="snapshot"):
        Unsaved().snapshot()
