"""AgentOccam: observations and actions in a form that language models know well.

Source: Yang et al. 2024, "AgentOccam: A Simple Yet Strong Baseline for LLM-Based Web Agents".
Observations are compacted: blank lines are removed, repeated lines are counted, of earlier pages
the pivotal lines stay, and of a long page the lines that fit the task best (`page_lines.py`). The
history is a tree of plans: the model opens a sub-plan with `Branch`, abandons one and goes back
with `Prune`, keeps facts with `Note`, and elements of a page with `Keep`. The prompt shows only the
steps of the active plan. Each of these can be left out, so that its effect can be measured.
Planning commands may accompany an action or stand alone. After two replies in a row without an
action, the reply itself is the action. The paper's merged texts and tables as Markdown are views of
the environment (`?observation=tree,merged,tables`), and so are its fewer actions (`?gestures=`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from palaestra.agents import line_ranking
from palaestra.agents.memory.cross_episode import Shelf
from palaestra.agents.memory.exemplars import exemplars
from palaestra.agents.memory.retrieval import By, Retrieval, retrieval
from palaestra.agents.page_lines import caption, compact, pivotal, ranked, without_id
from palaestra.agents.plan_tree import COMMAND, Plan, PlanTree
from palaestra.agents.react import action_of
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session

PLANNING = 2  # of this many replies in a row without an action, the last is taken as one
FORMS = {
    "Note": "Note: a fact to be kept",
    "Keep": "Keep: the numbers of elements of this page that will be needed, such as 12, 15",
    "Branch": "Branch: a sub-plan to begin now",
    "Prune": "Prune: the number of the plan to go back to, as this one is done or has failed",
}
Count = Annotated[int, Field(ge=0)]


class OccamAgent(Agent):
    """AgentOccam: compact observations, and a tree of plans that selects the steps shown."""

    name = "occam"

    def __init__(
        self,
        *,
        steps: Count = 12,
        plans: bool = True,
        notes: bool = True,
        pivotal: bool = True,
        ranked: By | Literal["trained", "no"] = "no",
        top: Annotated[int, Field(ge=1)] = 40,
        replays: Count = 0,
        shelf: str | None = None,
    ) -> None:
        """Show the last `steps` steps of the active plan.

        Args:
            steps: in the prompt, of the active plan.
            plans: whether the model may open sub-plans.
            notes: whether it may keep facts.
            pivotal: whether steps show the lines of the page that matter, or all of it.
            ranked: how the `top` lines of a page are chosen that fit the task and the plan: by
                "words", by "embeddings", by "both", by the "trained" ranker, or "no".
            replays: the number of earlier episodes in the prompt that solved a like task; they are
                stored in the file `shelf` if given.

        Raises:
            MissingPackage: the embeddings asked for are not installed.
        """
        if shelf is not None and not replays:
            raise ValueError("shelf is only read with replays=1 or more")
        self.steps, self.pivotal, self.top, self.replays = steps, pivotal, top, replays
        self.rank = _ranking(ranked)
        self.shelf = Shelf(shelf)
        asked = {"Note": notes, "Keep": pivotal, "Branch": plans, "Prune": plans}
        self.commands = [name for name, on in asked.items() if on]

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        place = self.shelf.place(session)
        first = compact(session.observation.text)
        head, tree = self._head(session, first, place), PlanTree([Plan("solve the task", None)])
        try:
            await self._act(session, head, first, tree)
        finally:
            if self.replays and session.outcome is not None and session.outcome.scored:
                self.shelf.keep(session, place)

    async def _act(self, session: Session, head: Message, first: str, tree: PlanTree) -> None:
        goal, seen, only_planned = caption(first) or first, first, 0
        while not session.over:
            page = self._shown(seen, f"{goal}\n{tree.plans[tree.active].text}")
            reply = await session.generate([head, user(self._prompt(goal, tree, page))])
            given = [one for one in COMMAND.findall(reply.text) if one[0] in self.commands]
            tree.apply(given)
            if "Action:" not in reply.text and given:
                only_planned += 1
                if only_planned < PLANNING:
                    continue
            only_planned, action = 0, action_of(reply.text)
            kept = [id for name, ids in given if name == "Keep" for id in re.findall(r"\w+", ids)]
            step = pivotal(seen, action, kept) if self.pivotal else seen
            tree.plans[tree.active].steps.append(f"{step} > {action}")
            transition = await session.act(action, by=reply)
            seen = compact(transition.observation.text)

    def phrase(self, action: Action) -> str:
        return f"Action: {action.text}"

    def _head(self, session: Session, first: str, place: str) -> Message:
        """Return the first message: the instructions, the commands, and exemplars."""
        if self.replays and session.first_recorded_call is not None:  # the same prompt as then
            return session.first_recorded_call.messages[0]
        lines = [session.instructions]
        if self.commands:
            lines.append("Reply with lines of these forms; all but the last one may be left out:")
        lines += [*(FORMS[name] for name in self.commands), "Action: one action"]
        text = "\n".join(lines)
        if self.replays:
            known = self.shelf.read(place)
            text += exemplars(known, caption(first), self.replays)
        return system(text)

    def _shown(self, seen: str, query: str) -> str:
        return seen if self.rank is None else ranked(seen, query, self.top, self.rank)

    def _prompt(self, goal: str, tree: PlanTree, page: str) -> str:
        """Return the prompt: the task, the plans, notes and steps, and the present page."""
        plans = "Branch" in self.commands
        begun = [] if page.startswith(goal) else [f"At the start:\n{goal}\n"]
        return "\n".join([*begun, tree.shown(self.steps, plans=plans), f"\nNow:\n{page}"])


def _ranking(by: By | Literal["trained", "no"]) -> Retrieval | None:
    """Return how lines are ranked; words and meanings are those of lines without their ids."""
    if by == "no":
        return None
    if by == "trained":
        return line_ranking.best
    method = retrieval(by)
    return lambda query, lines, count: method(query, list(map(without_id, lines)), count)
