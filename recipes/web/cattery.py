"""One application, its register of cats, as an environment: actions on its pages, and whole plans.

`actions`: tasks as of `web/easy` about this application alone; each reply is a gesture, and each
observation has the lines of the page that the page before did not have, the first one the task as
well. `plans`: the same tasks, of which one
reply is the plan, a step a line in the words of the application's help. Its steps are grounded one
by one in the page that is open (`plan_grounding.py`), and the verdict is that of the task. With
`:browser` the pages are in Chromium, else they are read as text.

The application is compiled from the blueprint below, with one look for all tasks, so what its help
says of it stays true. People and cats belong to the task's world.

Source of the experiment: Wang et al. 2024 (Large Action Models), whose application is Word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.gestures.element_words import words_of
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.task import Task, TaskSet
from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.setting import Setting
from palaestra.environments.families.apps.world import World
from palaestra.environments.families.web.app_sites import AppSites
from palaestra.environments.families.web.environment import CAPABILITIES, Web
from recipes.web.plan_grounding import NotGrounded, grounded, plans_of

BLUEPRINT = """
app = "cattery"
about = "The cats of a shelter."

[entities.cat]
about = "A cat."
owner = "owner"
search = ["name"]
unique = [["name"]]
fields.owner = {type = "person", by = "service"}
fields.name = {type = "text", least = 1, most = 40}
fields.colour = {type = "choice", choices = ["black", "white", "ginger", "grey"]}
fields.room = {type = "choice", choices = ["attic", "cellar", "garden", "kitchen"]}
"""
LOOK = 4  # the seed of the look
ACTIONS, PLANS = "actions", "plans"
BROWSER = ":browser"
MOST_STEPS = 16  # of a plan that are carried out
OF_BROWSERS = {"collapsed", "focused"}  # states that pages read as text do not have


@cache
def cattery() -> Setting:
    return Setting.of([App(parse(BLUEPRINT))])


class Cattery(Web, capabilities=CAPABILITIES, typical_turns=10):
    """Tasks with the register of cats, done by gestures, or by one plan."""

    instructions = "Do the task with the register of cats. Reply as the task is shown."

    def __init__(self, name: str = ACTIONS) -> None:
        super().__init__(name)
        self._setting = cattery()
        self._plans = name.partition(":")[0] == PLANS
        self.gestures: list[str] = []  # done so far, valid ones
        self._before: list[str] = []  # the lines of the page that was observed last

    @classmethod
    def parts_of(cls, name: str) -> tuple[str, str, str, str]:
        return "", "easy", "", name.partition(":")[2]

    @classmethod
    def names(cls) -> list[str]:
        return [f"{kind}{form}" for kind in (ACTIONS, PLANS) for form in ("", BROWSER)]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        plans = name.startswith(PLANS)
        return replace(super().spec_of(name), typical_turns=1 if plans else 10, free_text=plans)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def _begin(self, task: Task) -> Observation:
        self.gestures, self._before = [], []
        return super()._begin(task)

    def _act(self, action: Action) -> Transition:
        return self._carry_out(action.text) if self._plans else self._gesture(action)

    def _gesture(self, action: Action) -> Transition:
        self.gestures.append(action.text)
        transition = super()._act(action)
        if not transition.valid:
            self.gestures.pop()
        return transition

    def _carry_out(self, plan: str) -> Transition:
        """Ground the steps of a plan and do them; the task ends where one cannot be grounded."""
        for step in plan.splitlines()[:MOST_STEPS]:
            try:
                gesture = grounded(step, self.elements())
            except NotGrounded as why:
                return Transition(Observation(str(why)), terminated=True)
            transition = self._gesture(Action(write_line(gesture)))
            if transition.terminated or not transition.valid:
                return replace(transition, terminated=True, valid=True)
        return Transition(Observation("The plan ends before the task does."), terminated=True)

    def _observation(self) -> Observation:
        task = f"Task: {self.goal}"
        if self._plans and not self.gestures:
            return Observation(f"{task}\nReply with the plan, one step a line.")
        elements = [replace(one, states=_plain(one.states)) for one in self.elements()]
        page = flat(elements, words=words_of(elements)).splitlines()
        new = [line for line in page if line not in self._before]
        self._before = page
        return Observation("\n".join(new if self.gestures else [task, *new]))

    def _saved_state(self) -> bytes:
        """Return nothing: what was observed before is part of the state, so it is replayed."""
        return b""

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the reference; of plans, a write-up of the help that works."""
        if not self._plans:
            return super().oracle()
        return [] if self._over else [Action("\n".join(plans_of(self.goal)[0]))]

    @property
    def goal(self) -> str:
        """The task in words."""
        return self._drawn.task.instruction

    def _sites(self, world: World, task: Task) -> AppSites:
        return AppSites.of(world, LOOK, self._languages)


def _plain(states: Sequence[str]) -> tuple[str, ...]:
    """Return the states that an element has in a browser and in text alike."""
    return tuple(one for one in states if one not in OF_BROWSERS)
