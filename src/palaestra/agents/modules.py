"""A main agent that gives work to modules, with reflection and voting over whole runs.

The main agent replies `NAME: what to do` to give a piece of work to a module, or `Finish: ACTION`
with the action that ends the task. A module is a conversation of its own for that one piece: it
acts in the environment, and reports one text to the main agent, which sees nothing else of it.

With `retries`, the role "reviewer" reads a finished run before its last action is taken; if it
objects, the task is run again, told the objection. With `votes`, several runs are made, and the
most frequent last action is taken; of equals, the first. Such runs are trials: the steps of the
episode are those of the run that was chosen. Without either, there is one run, and no trial.

Source: Fang et al. 2025 (Cognitive Kernel-Pro). There, a model chooses among the runs; here they
are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from palaestra.agents.module_lines import MAIN, MODULE, OBJECTION, REVIEW, UNREAD, parsed
from palaestra.agents.search.base import Count
from palaestra.agents.search.scorers import transcript
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.trial import Trial


@dataclass
class Run:
    """One whole run, up to its last action, which is not taken."""

    talk: list[Message]  # of the main agent
    steps: list[tuple[str, Generation]] = field(default_factory=list)
    last: tuple[str, Generation] | None = None  # None: it came to no end


class ModulesAgent(Agent):
    """A main agent with modules; whole runs may be reviewed, retried and voted on."""

    name = "modules"
    roles = ("web", "file", "code", "reviewer")

    def __init__(
        self,
        *,
        retries: Annotated[int, Field(ge=0)] = 0,
        votes: Count = 1,
        pieces: Count = 12,
        actions: Count = 10,
    ) -> None:
        """Retry a run that was not accepted `retries` times, and count `votes` runs.

        A run has at most `pieces` pieces of work, each of at most `actions` actions.
        """
        self.retries, self.votes, self.pieces, self.actions = retries, votes, pieces, actions
        self.modules = [role for role in self.roles if role != "reviewer"]

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        while not session.over:
            run = await self._run(session, seen)
            if run.last is None or session.over:
                return
            seen = (await session.act(run.last[0], by=run.last[1])).observation.text

    async def _run(self, session: Session, seen: str) -> Run:
        """Do the task up to its last action, from what is seen now."""
        if self.retries == 0 and self.votes == 1:
            return await self._whole_run(session, None, seen)
        run = await self._chosen(session, seen)
        for action, by in run.steps:
            await session.act(action, by=by)
        return run

    async def _chosen(self, session: Session, seen: str) -> Run:
        """Return the first run with the most frequent last action."""
        runs = [await self._accepted(session, seen) for _ in range(self.votes)]
        counted = Counter(run.last[0] for run in runs if run.last is not None)
        winner = counted.most_common(1)[0][0] if counted else None
        return next(run for run in runs if (run.last and run.last[0]) == winner)

    async def _accepted(self, session: Session, seen: str) -> Run:
        """Return the first run that the reviewer accepts, or else the last one."""
        objection = ""
        for left in range(self.retries, -1, -1):
            async with session.trial() as trial:
                run = await self._whole_run(session, trial, seen + objection)
            if left == 0:
                break
            asked = [system(REVIEW), user(transcript(run.talk[1:]))]
            verdict = (await session.generate(asked, role="reviewer")).text.strip()
            if verdict.lower().startswith("yes"):
                break
            objection = OBJECTION + verdict
        return run

    async def _whole_run(self, session: Session, trial: Trial | None, seen: str) -> Run:
        """Run the task up to its last action: in the episode, or in a trial."""
        told = MAIN.format(", ".join(self.modules))
        run = Run([system(f"{session.instructions}\n\n{told}"), user(seen)])
        for _ in range(self.pieces):
            reply = await session.generate(run.talk)
            run.talk.append(reply.message)
            name, what = parsed(reply.text)
            if name == "finish":
                run.last = what, reply
                break
            report = UNREAD + told
            if name in self.modules:
                report = await self._piece(session, trial, run, name, what)
            run.talk.append(user(report))
            if (trial or session).over:
                break
        return run

    async def _piece(
        self, session: Session, trial: Trial | None, run: Run, name: str, what: str
    ) -> str:
        """Let a module do a piece of work; return its report."""
        told = MODULE.format(name)
        talk = [system(f"{session.instructions}\n\n{told}"), user(what)]
        for _ in range(self.actions):
            reply = await session.generate(talk, role=name)
            kind, said = parsed(reply.text)
            if kind == "report":
                return f"{name}: {said}"
            seen = UNREAD + told
            if kind == "action":
                done = await (trial.act(said) if trial else session.act(said, by=reply))
                run.steps.append((said, reply))
                seen = done.observation.text
            talk += [assistant(reply.text), user(seen)]
            if (trial or session).over:
                break
        return f"{name}: it came to no end."

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Give each action but the last to the first module, and accept every run."""
        told, asked = messages[0].text, messages[-1].text
        if told == REVIEW:
            return "yes"
        if MODULE.format(self.modules[0]) in told:
            return f"Action: {asked}" if len(messages) == 2 else "Report: done"
        if len(actions) == 1:
            return self.phrase(actions[0])
        return f"{self.modules[0]}: {actions[0].text}"

    def phrase(self, action: Action) -> str:
        return f"Finish: {action.text}"
