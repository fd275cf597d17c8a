"""Code as action: the agent writes Python, and tools are functions (CodeAct, Wang et al. 2024).

The ```python block of a reply runs in a sandboxed interpreter that persists for the episode. The
agent sees its printed output, the value of its last expression, and any traceback. `act("…")` and
one function per tool act in the environment immediately, in the order of the calls; control flow
and error handling are Python's.

With a library, a function whose reply also has a ```test block is kept once that test passes in a
fresh interpreter, and can be called in later episodes (DynaSaur, Alita; see `library.py`).
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from palaestra.agents.code.reply_format import FORMAT, KEEP, KNOWN, NO_CODE, NOW, block
from palaestra.agents.code.tool_functions import Calls
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault
from palaestra.core.message import system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.function_library import VERSION_COMMENT, Function, Library
from palaestra.sandbox.interpreter import Asked, Interpreter
from palaestra.sandbox.tested_functions import keep_tested


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
        """Run blocks in a sandbox of the kind `sandbox`, each for at most `seconds`.

        The time that the environment takes is not counted. The agent fails after `patience`
        replies in a row without an action. Functions are kept in the file `library`, if given.
        """
        self.sandbox, self.seconds, self.patience = sandbox, seconds, patience
        self.library = None if library is None else Library(library)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        instructions = self._instructions(session)
        settings = interpreter.settings(self.sandbox, Limits(seconds=self.seconds))
        box = await asyncio.to_thread(open_sandbox, self.sandbox, settings)
        python = Interpreter(box, seconds=self.seconds, seed=session.task.seed)
        try:
            known = self._known_functions(instructions)
            for function in known:
                await asyncio.to_thread(python.run, function.source)
            messages = [system(instructions), user(session.observation.text)]
            idle, offered = 0, session.tools
            while not session.over:
                reply = await session.generate(messages)
                before = len(session.steps)
                cell = block(reply.text, "python")
                seen = NO_CODE if cell is None else await self._run(session, python, cell, reply)
                if session.outcome is not None:
                    return
                if cell is not None and (test := block(reply.text, "test")) is not None:
                    fresh = Interpreter(box, seconds=self.seconds)
                    seen += "\n" + await asyncio.to_thread(
                        keep_tested, self.library, fresh, known, cell, test
                    )
                if session.tools != offered:
                    offered = session.tools
                    seen += NOW + Calls(offered).signatures
                messages += [reply.message, user(seen)]
                idle = 0 if len(session.steps) > before else idle + 1
                if idle >= self.patience:
                    detail = f"{idle} replies in a row did nothing in the world"
                    raise AgentFault("unparsed", detail)
        finally:
            python.close()
            box.close()

    def phrase(self, action: Action) -> str:
        code = Calls.code_for(action)
        return f"```python\n{code}\n```"

    async def _run(self, session: Session, python: Interpreter, cell: str, by: Generation) -> str:
        """Run the cell of a reply; execute its calls in the environment and return its output."""
        calls = Calls(session.tools)
        notices: list[str] = []  # beside the values of calls
        event = await asyncio.to_thread(python.begin, cell, calls.names)
        while isinstance(event, Asked):
            action = calls.action(event)
            if isinstance(action, str):
                event = await asyncio.to_thread(python.refuse, action)
                continue
            transition = await session.act(action, by=by)
            if session.over:
                return transition.observation.text
            value, rest = calls.value(event, transition.observation.text)
            notices += [rest] if rest else []
            known, calls = calls.names, Calls(session.tools)
            new = [name for name in calls.names if name not in known]
            event = await asyncio.to_thread(python.answer, value, new)
        return "\n".join([str(event), *notices])

    def _instructions(self, session: Session) -> str:
        """Return the instructions as they were at the beginning of the episode."""
        if session.first_recorded_call is not None:
            return session.first_recorded_call.messages[0].text
        calls = Calls(session.tools)
        instructions = f"{session.instructions}\n\n{FORMAT}{calls.signatures}"
        if self.library is None:
            return instructions
        lines = [function.signature for function in self.library.latest()]
        return instructions + KEEP + (KNOWN + "\n".join(lines) if lines else "")

    def _known_functions(self, instructions: str) -> list[Function]:
        if self.library is None:
            return []
        return self.library.with_versions(VERSION_COMMENT.findall(instructions.partition(KNOWN)[2]))
