"""Page graph: tasks sampled from a graph of the pages of local sites.

Ids: `page-graph/apps` (the sites of a person's apps), `page-graph/apps-new` (sites that were
generated for the world), `page-graph/encyclopedia` (of `families/real_sites`). A world is crawled
in the real browser, subgraphs are sampled by meta-paths, and candidates that no clicks lead to,
that mean several pages or that nearly repeat another one are left out. The oracle walks the graph.
Actions are gestures; a task ends with `answer '…'`, and must leave all rows as they are. After
Graph2Eval (Chen et al. 2025), its web part; ours: no language model writes or rates the tasks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from palaestra.browser.shared_browser import new_session
from palaestra.browser.web_gestures import do
from palaestra.core.element_text import flat
from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Split, Task
from palaestra.environments.base import hashed, refused, without_parameters
from palaestra.environments.families.apps.composing.verifier import same_answer
from palaestra.environments.families.page_graph import local_sites
from palaestra.environments.families.page_graph.crawling import crawled
from palaestra.environments.families.page_graph.linked_pages import PageGraph, gestures_of
from palaestra.environments.families.page_graph.local_sites import LocalSites
from palaestra.environments.families.page_graph.meta_paths import Candidate
from palaestra.environments.families.page_graph.task_filters import Kept, kept_tasks, way
from palaestra.environments.shared.browser_page import BrowserPage
from palaestra.environments.shared.sampled_gestures import click_or_type

SIZE = (1000, 700)  # of the window, in pixels
TASKS = 16  # of a world
INSTRUCTIONS = (
    "You look something up in a web browser. Reply with one gesture: click 'words of a link or "
    "button', or click [id]; type 'words of a field' 'text'; select 'words of a list' 'option'; "
    "scroll down 400; go 'address'; back. When you know it, reply answer '…'; if nothing is asked, "
    "answer ''. Change nothing."
)


@dataclass(frozen=True)
class Drawn:
    """The graph of a world, and its tasks."""

    graph: PageGraph
    kept: Kept


@lru_cache(maxsize=64)
def drawn(name: str, seed: int) -> Drawn:
    """Crawl a world and sample its tasks.

    Raises:
        EnvironmentFault: no candidate is a task.
    """
    sites, session = local_sites.opened(name, seed), new_session(SIZE)
    rng = random.Random(f"page graph {name} {seed}")
    try:
        session.begin(sites.by_host, sites.start, seed, cookies=sites.cookies)
        graph = crawled(session, sites.start, rng)
    finally:
        session.close()
        sites.close()
    kept = kept_tasks(graph, rng, TASKS)
    if not kept.tasks:
        raise EnvironmentFault("reset", f"no task of 'page-graph/{name}' in the world {seed}")
    return Drawn(graph, kept)


class PageGraphTasks(
    BrowserPage,
    Sampling,
    id="page-graph",
    capabilities=("state_key", "snapshot", "oracle", "elements", "picture"),
    waits=True,
    typical_turns=12,
):
    """The sites of a world, and one question about their pages."""

    OVER = "The task is over."
    instructions = INSTRUCTIONS

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        local_sites.check(name)
        self._sites: LocalSites | None = None
        self._left: list[str] = []  # stops that the oracle has not seen

    @classmethod
    def names(cls) -> list[str]:
        return list(local_sites.NAMES)

    def _begin(self, task: Task) -> Observation:
        without_parameters(task, "choose sites by their name instead")
        index, split = divmod(task.seed, len(Split))
        number, slot = divmod(index, TASKS)
        seed = number * len(Split) + split
        self.drawn = drawn(self.spec.name, seed)
        kept = self.drawn.kept.tasks
        self.candidate: Candidate = kept[slot % len(kept)]
        self._end_world()
        self._sites = local_sites.opened(self.spec.name, seed)
        session = self._working_session(SIZE)
        session.begin(self._sites.by_host, self._sites.start, seed, cookies=self._sites.cookies)
        self._left = list(self.candidate.stops)
        self._said = f"Task: {self.candidate.goal}"
        return self._observation()

    def _act(self, action: Action) -> Transition:
        session = self._here()
        try:
            gesture = gesture_in(action)
            if gesture.kind in ("answer", "give up"):
                return self._end(gesture)
            do(session, gesture)
        except InputError as wrong:
            return refused(str(wrong))
        self._said = ""
        if self._left and session.tab.dialog is None and session.tab.address() == self._left[0]:
            del self._left[0]
        return Transition(self._observation())

    def _end(self, gesture: Gesture) -> Transition:
        assert self._sites is not None
        right = gesture.kind == "answer" and self._is_right(gesture.text)
        success = right and not self._sites.is_changed()
        info = {"meta_path": self.candidate.meta_path, "right": right}
        self._said = self.OVER
        return Transition(
            Observation(self.OVER),
            reward=float(success),
            terminated=True,
            success=success,
            info=info,
        )

    def _is_right(self, answer: str) -> bool:
        if self.candidate.answer is not None:
            return same_answer(answer, self.candidate.answer)
        tab = self._here().tab
        return tab.dialog is None and tab.address() == self.candidate.stops[-1]

    def oracle(self) -> Sequence[Action]:
        """Return the way over the stops that are left; empty at a dialog."""
        tab = self._here().tab
        if self._over or tab.dialog is not None:
            return []
        graph, here = self.drawn.graph, tab.address()
        stops = self._left
        if self.candidate.answer is None and not stops and here != self.candidate.stops[-1]:
            stops = [self.candidate.stops[-1]]
        lines, path = [], way(graph, here, stops) if here in graph.pages else None
        if path is None:
            lines, path = [f"go '{graph.start}'"], way(graph, graph.start, stops)
        assert path is not None  # else it would be no task
        answer = self.candidate.answer
        ending = write_line(Gesture("answer", text="" if answer is None else str(answer)))
        return [Action(line) for line in (*lines, *gestures_of(path), ending)]

    def state_key(self) -> str:
        """Hash the gestures so far, which the page and its sites follow from."""
        return hashed(self._current().id, self._past)

    def sample_action(self, rng: random.Random) -> Action:
        """Return a click on something, or a word typed into a field."""
        words = self.candidate.goal.split()
        return Action(click_or_type(self.elements(), words, "scroll down 100", rng))

    def close(self) -> None:
        self._end_world()
        super().close()

    def _end_world(self) -> None:
        if self._sites is not None:
            self._sites.close()
        self._sites = None

    def _observation(self) -> Observation:
        session = self._here()
        page = f"{session.tab.address()}\n{flat(session.elements())}"
        return Observation("\n".join(filter(None, [self._said, page])))
