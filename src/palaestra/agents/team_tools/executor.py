"""Executor: a member of a team that is no model, and runs a program with the tests of others.

It takes the last proposal that it reads as a program, and the last that others said as tests, and
runs the tests after the program in a sandbox. It accepts the program if none fails, and else says
which one and why. Source: Huang et al. 2023 (AgentCoder, its test executor).
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import Field

from palaestra.core.agent import Agent
from palaestra.core.session import Session
from palaestra.core.team_words import ACCEPT, PASS, WRONG, replies_in
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.interpreter import Interpreter

FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


class Said(NamedTuple):
    """A program, and tests of it; either may be empty."""

    program: str
    tests: str


class ExecutorAgent(Agent):
    """Runs the last program that was proposed, with the tests of others, without a model."""

    name = "executor"

    def __init__(
        self, *, sandbox: str = "auto", seconds: Annotated[float, Field(gt=0)] = 5.0
    ) -> None:
        """Run programs in a sandbox of the kind `sandbox`, each for at most `seconds`."""
        self.sandbox, self.seconds = sandbox, seconds

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen, tests = session.observation.text, ""
        while not session.over:
            said = said_in(seen)
            tests, reply = said.tests or tests, PASS
            if said.program:
                args = said.program, tests, self.sandbox, self.seconds
                reply = await asyncio.to_thread(verdict_on, *args)
            seen = (await session.act(reply)).observation.text


def said_in(text: str) -> Said:
    """Return the last proposal that a member sees as a program, and what asserts as its tests."""
    program, tests = "", []
    for reply in replies_in(text):
        fenced = FENCED.search(reply.text)
        code = fenced[1].strip() if fenced else reply.text
        if reply.proposes:
            program = code
        elif "assert" in code:
            tests.append(code)
    return Said(program, "\n".join(tests))


@lru_cache(maxsize=4096)
def verdict_on(program: str, tests: str, sandbox: str, seconds: float) -> str:
    """Return the reply about a program: accepted, or what is wrong with it or with the tests."""
    settings = interpreter.settings(sandbox, Limits(seconds=seconds))
    box = open_sandbox(sandbox, settings)
    python = Interpreter(box, seconds=seconds)
    try:
        for name, cell in (("program", program), ("tests", tests)):
            done = python.run(cell)
            if done.error is not None:
                last = done.error.strip().splitlines()
                where = next((line for line in last if "assert" in line), "").strip()
                return f"{WRONG}: the {name} ended with {last[-1]} {where}".rstrip()
    finally:
        python.close()
        box.close()
    return ACCEPT
