"""WebPilot: a plan of subtasks, and a Monte-Carlo tree search for each of them.

The role "planner" divides the task into subtasks. Each is searched for in a trial: every iteration
descends by UCT, asks for one more action where the tree may still widen, and tries it. The role
"judge" values the result by the effect of the action and by the potential of the new state, both
for the subtask only. After a search the agent takes the actions to the best state. If the subtask
was not completed, the planner reflects on what happened and writes the rest of the plan again.

Source: Zhang et al. 2024 (WebPilot): subtasks with reflective adjustment, the two values,
reflection on siblings (a prompt tells what was tried in the same state), and values that are backed
up as the maximum. Ours: progressive widening (Coulom 2007), and judging the state that an action
led to, where the paper also simulates ahead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.numbered_plan import longer, numbered, steps_of
from palaestra.agents.search.base import Count, Temperature, take
from palaestra.agents.search.effect_and_potential import NOW, VALUE, changed, effect_and_potential
from palaestra.agents.search.scorers import ended, transcript
from palaestra.agents.search.tree import Node, Tree, back_up_best
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.trial import Trial

WHOLE = "the whole task"
PLAN = "Divide the task into subtasks, one a line, numbered."
AGAIN = "Write the subtasks that are still to be done from here on, in the same form."
TRIED = "\nTried here already; propose something else:\n"
CHUNK = 4  # actions of a subtask in an oracle plan


class WebPilotAgent(Agent):
    """Plans subtasks, and searches for each by its effect and potential (MCTS)."""

    name = "webpilot"
    roles = ("planner", "judge")

    def __init__(
        self,
        *,
        iterations: Count = 16,
        depth: Count = 8,
        widen: Count = 1,
        explore: Temperature = 0.2,
        effect: Annotated[float, Field(ge=0, le=1)] = 0.5,
        plan: bool = True,
        temperature: Temperature = 1.0,
    ) -> None:
        """Search each subtask for `iterations` trial steps, `depth` actions deep.

        A state that was visited v times has at most `widen` √v children. `explore` is UCT's
        constant, `effect` the weight of the effect beside the potential. Without `plan`, the whole
        task is the only subtask.
        """
        self.iterations, self.depth, self.widen = iterations, depth, widen
        self.explore, self.effect, self.plan = explore, effect, plan
        self.temperature = temperature

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        messages = [system(session.instructions), user(session.observation.text)]
        planning = [messages[0], user(f"{messages[1].text}\n\n{PLAN}")]
        subtasks: list[str] = []
        while not session.over:
            if not subtasks:
                subtasks = await self._planned(session, planning)
            path, completed = await self._search(session, messages, subtasks[0])
            messages, as_tried = await take(session, messages, path)
            completed = completed and as_tried
            subtask = subtasks.pop(0)
            if not completed or not subtasks:
                subtasks = []
                state = "was completed" if completed else "was not completed"
                told = f"{transcript(messages[1:])}\n\nThe subtask '{subtask}' {state}. {AGAIN}"
                planning = [messages[0], user(told)]

    async def _planned(self, session: Session, planning: Sequence[Message]) -> list[str]:
        if not self.plan:
            return [WHOLE]
        reply = await session.generate(planning, role="planner", sampling=longer(session))
        return steps_of(reply.text) or [WHOLE]

    async def _search(
        self, session: Session, messages: list[Message], subtask: str
    ) -> tuple[list[Node], bool]:
        """Return the path to the best state, and whether the subtask is completed there."""
        completed: list[Node] = []

        async def value(session: Session, trial: Trial, node: Node) -> float:
            if ended(node):
                completed.extend([node] if node.solved else [])
                return 1.0 if node.solved else -1.0
            effect, potential = await effect_and_potential(session, node, subtask)
            completed.extend([node] if potential >= 1 else [])
            return self.effect * effect + (1 - self.effect) * potential

        async with session.trial() as trial:
            root = Node(messages, trial.signals, point=await trial.save())
            tree = Tree(session, trial, root, value, self.temperature)
            for _ in range(self.iterations):
                node = self._select(root)
                if completed or node is None or session.tries_left == 0:
                    break
                reply = await self._proposal(tree, node, subtask)
                child = None if reply is None else await tree.attempt(node, reply)
                if child is None:
                    break
                back_up_best(child)
        best = completed[0] if completed else tree.best
        return ([] if best is None else best.path), bool(completed)

    def _select(self, node: Node) -> Node | None:
        """Return the state in which to propose an action; None: the tree cannot grow."""
        while len(node.children) >= self.widen * math.sqrt(max(node.visits, 1)):
            growing = [c for c in node.children if not c.closed and c.depth < self.depth]
            if not growing:
                break
            seen = math.log(max(node.visits, 1))
            node = max(growing, key=lambda c: c.worth + self.explore * math.sqrt(seen / c.visits))
        return None if node.point is None else node

    async def _proposal(self, tree: Tree, node: Node, subtask: str) -> Generation | None:
        """Sample an action for the subtask, told what was tried in this state."""
        tried = [f"{c.reply.text.strip()} ({c.score:.1f})" for c in node.children if c.reply]
        told = f"{NOW}{subtask}" + (TRIED + "\n".join(tried) if tried else "")
        asked = Node(
            [*node.messages[:-1], user(node.messages[-1].text + told)], node.signals,
            point=node.point,
        )  # fmt: skip
        replies = await tree.sample(asked, 1)
        return replies[0] if replies else None

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Plan by chunks of actions, each named by its last one; value by what is left of it."""
        texts, asked = [action.text for action in actions], messages[-1].text
        if asked.endswith((PLAN, AGAIN)):
            return numbered([*texts[CHUNK - 1 : -1 : CHUNK], texts[-1]])
        if messages[0].text != VALUE:
            return self.phrase(actions[0])
        last = asked.partition("\n")[0].removeprefix(NOW.strip()).strip()
        left = texts.index(last) + 1 if last in texts else 0
        left = len(texts) if last == WHOLE else left
        return f"Effect: {10 if changed(asked) else 0}\nPotential: {10 / (1 + left):.2f}"
