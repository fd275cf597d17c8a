"""Code as action: the agent writes Python, and tools are functions (CodeAct, Wang et al. 2024).

A ```python block of a reply is run in an interpreter that persists for the episode, in a sandbox.
What it prints, its last expression and its traceback are what the agent sees next. `act("…")` and
one function for each tool act in the world, at once and in the order of the calls: loops,
conditions and error handling are the language's own.

With a library, a function whose reply also has a ```test block is kept once that test passes in a
fresh interpreter, and can be called in later episodes (DynaSaur, Alita; see `library.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.code.calls import Calls
from palaestra.agents.code.library import TELLS, Function, Library, checks, written
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault
from palaestra.core.message import assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.safety import interpreter
from palaestra.safety.interpreter import Asked, Done, Interpreter
from palaestra.safety.opening import open_sandbox
from palaestra.safety.sandbox import Limits

FORMAT = (
    "You act by writing Python. Reply with one block:\n```python\n…\n```\n"
    "It runs in an interpreter that keeps its variables, and you see what it prints, the value of "
    "its last expression, and errors. These functions act in the world, at once, and return what "
    "it answers:\n"
)
KEEP = (
    "\nTo keep a function for later tasks, define it in the python block and add a block that "
    "tests it by itself, where no world is:\n```test\nassert …\n```"
)
KNOWN = "\nFunctions that were kept; call them as they are:\n"
NOW = "\n\nThese functions act in the world now:\n"
NO_CODE = "There was no python block in your reply, so nothing was done."


class CodeAgent(Agent):
    """Writes Python that calls tools, in an interpreter that persists (CodeAct)."""

    name = "code"

    def __init__(
        self,
        *,
        sandbox: str = "auto",
        seconds: Annotated[float, Field(gt=0)] = 10.0,
        patience: Annotated[int, Field(ge=1)] = 8,
        library: str | None = None,
    ) -> None:
        """`seconds` is for a block, without the world's own time; `sandbox` a kind of those.

        An agent that does not act for `patience` replies in a row has failed. Functions are kept
        in the file `library`, where one is named.
        """
        self.sandbox, self.seconds, self.patience = sandbox, seconds, patience
        self.library = None if library is None else Library(library)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        told = self._told(session)
        settings = interpreter.settings(self.sandbox, Limits(seconds=self.seconds))
        box = await asyncio.to_thread(open_sandbox, self.sandbox, settings)
        python = Interpreter(box, seconds=self.seconds, seed=session.task.seed)
        try:
            known = self._known(told)
            for function in known:
                await asyncio.to_thread(python.run, function.source)
            talk = [system(told), user(session.observation.text)]
            idle, offered = 0, session.tools
            while not session.over:
                said = await session.generate(talk)
                before = len(session.steps)
                cell = block(said.text, "python")
                seen = NO_CODE if cell is None else await self._run(session, python, cell, said)
                if session.outcome is not None:
                    return
                if cell is not None and (test := block(said.text, "test")) is not None:
                    fresh = Interpreter(box, seconds=self.seconds)
                    seen += "\n" + await asyncio.to_thread(self._kept, fresh, known, cell, test)
                if session.tools != offered:
                    offered = session.tools
                    seen += NOW + Calls(offered).told
                talk += [assistant(said.text), user(seen)]
                idle = 0 if len(session.steps) > before else idle + 1
                if idle >= self.patience:
                    detail = f"{idle} replies in a row did nothing in the world"
                    raise AgentFault("unparsed", detail)
        finally:
            python.close()
            box.close()

    def phrase(self, action: Action) -> str:
        said = Calls.written(action)
        return f"```python\n{said}\n```"

    async def _run(self, session: Session, python: Interpreter, cell: str, by: Generation) -> str:
        """Run the cell of a reply; what it asks of the world is done, and answered."""
        calls = Calls(session.tools)
        event = await asyncio.to_thread(python.begin, cell, calls.names)
        while isinstance(event, Asked):
            action = calls.action(event)
            if isinstance(action, str):
                event = await asyncio.to_thread(python.refuse, action)
                continue
            transition = await session.act(action, by=by)
            if session.over:
                return transition.observation.text
            event = await asyncio.to_thread(python.answer, transition.observation.text)
        return str(event)

    def _told(self, session: Session) -> str:
        """The instructions, as they were at the beginning of the episode."""
        if session.begun is not None:
            return session.begun.messages[0].content
        calls = Calls(session.tools)
        told = f"{session.instructions}\n\n{FORMAT}{calls.told}"
        if self.library is None:
            return told
        lines = [function.told for function in self.library.latest()]
        return told + KEEP + (KNOWN + "\n".join(lines) if lines else "")

    def _known(self, told: str) -> list[Function]:
        if self.library is None:
            return []
        return self.library.those(TELLS.findall(told.partition(KNOWN)[2]))

    def _kept(self, fresh: Interpreter, known: Sequence[Function], cell: str, test: str) -> str:
        """Keep what the cell defines, if its test passes; says what became of it."""
        found = written(cell)
        if self.library is None or found is None:
            return "Nothing was kept: there is no library, or the block defines no function."
        name, source = found
        if not checks(test, name):
            return f"{name} was not kept: its test asserts nothing about it."
        try:
            for part in (*(function.source for function in known), source, test):
                done: Done = fresh.run(part)
                if done.error:
                    return f"{name} was not kept:\n{done.error}"
        finally:
            fresh.close()
        return f"Kept {name} as version {self.library.keep(name, source, test).version}."


def block(reply: str, kind: str) -> str | None:
    """What stands in the first fenced block of that kind, closed or not."""
    found = re.search(rf"```{kind}[^\S\n]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL)
    return found.group(1) if found else None
