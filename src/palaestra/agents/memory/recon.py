"""Reconnaissance: failed and successful attempts at a task are contrasted into a tool.

An episode is one attempt; the attempts are the repeats of a task, one after the other. Where all
attempts so far have failed, the role "scout" plays the next one. Once there are a failed and a
successful one, the role "writer" reads both and writes a Python function of the first observation,
with a test. It returns a list of actions (a code tool), a text (a hint), or None where it does not
apply. If its test passes, it is kept in the library at once, so this attempt already has it, and so
have the attempts at other tasks, and later runs with the same file.

Each episode begins by calling the library's functions on its first observation, in a sandbox. Hints
that they return are in the prompt, and so are tools with their actions; a reply that is the name of
a tool takes these actions.

Source: He et al. 2025 (Recon-Act): a team for reconnaissance, which compares trajectories and
manages tools, and a team that acts. There, people check tools; here, their tests do.
"""

from __future__ import annotations

import ast
import asyncio
import zlib
from collections import defaultdict
from collections.abc import Sequence

from palaestra.agents.code.reply_format import block
from palaestra.agents.memory.attempt_stories import Attempt, read_story, story_of
from palaestra.agents.numbered_plan import longer
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.message import Message, system, user
from palaestra.core.session import Session
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import Limits, Settings
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.function_library import Library
from palaestra.sandbox.interpreter import Interpreter
from palaestra.sandbox.tested_functions import keep_tested

SCOUT, WRITER = "scout", "writer"
WRITE = (
    "Two attempts at the same task follow; the first failed, the second succeeded. Find out what "
    "made the difference, and write a Python function for tasks of this kind. Its one argument is "
    "the first observation, as a text. It returns a list of actions, as texts, that solve the "
    "task; or a hint, as one text, if no rule gives the actions; or None for tasks of other kinds. "
    "Reply with a ```python block, and with a ```test block that asserts what the function returns "
    "for this task's first observation."
)
FAILED, SOLVED = "The attempt that failed:\n", "\n\nThe attempt that succeeded:\n"
TOOLS = "\n\nTools that fit this task; reply with a name to take all of its actions:"
HINTS = "\n\nHints from earlier tasks:"
SECONDS = 5.0  # for one function


class ReconAgent(Agent):
    """Contrasts failed and successful attempts, and keeps tested tools and hints (Recon-Act)."""

    name = "recon"
    roles = (SCOUT, WRITER)
    in_order = True

    def __init__(self, *, library: str, sandbox: str = "auto") -> None:
        """Keep functions in the file `library`; they run in a sandbox of the kind `sandbox`."""
        self.library, self.sandbox = Library(library), sandbox
        self._attempts: defaultdict[tuple[str, int], dict[int, Attempt]] = defaultdict(dict)

    def witness(self, episode: Episode) -> None:
        if not episode.outcome.scored or episode.observation is None:
            return
        wrote = any(call.role == WRITER for call in episode.calls)
        attempt = Attempt(episode.outcome.solved, story_of(episode), wrote)
        key = episode.key
        self._attempts[key.phase, key.group][key.member] = attempt

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        known = self._attempts[session.key.phase, session.key.group]
        before = [known[member] for member in sorted(known) if member < session.key.member]
        solved = [attempt for attempt in before if attempt.solved]
        failed = [attempt for attempt in before if not attempt.solved]
        if solved and failed and not any(attempt.wrote for attempt in before):
            await self._write(session, failed[-1], solved[-1])
        role = SCOUT if failed and not solved else "agent"
        first = session.observation.text
        found = {} if role == SCOUT else await asyncio.to_thread(self._returned, first)
        tools = {name: value for name, value in found.items() if isinstance(value, list)}
        hints = [f"- {value}" for value in found.values() if isinstance(value, str)]
        lines = [f"{name}: {actions}" for name, actions in tools.items()]
        told = "\n".join([TOOLS, *lines]) if lines else ""
        told += "\n".join([HINTS, *hints]) if hints else ""
        messages = [system(session.instructions + told), user(first)]
        while not session.over:
            reply = await session.generate(messages, role=role)
            said = reply.text.strip()
            for action in tools.get(said, [said]):
                done = await session.act(action, by=reply)
                if not done.valid or session.over:
                    break
            messages += [reply.message, user(done.observation.text)]

    async def _write(self, session: Session, failed: Attempt, solved: Attempt) -> None:
        """Ask for a function, and keep it if its test passes."""
        asked = [system(WRITE), user(f"{FAILED}{failed.story}{SOLVED}{solved.story}")]
        reply = await session.generate(asked, role=WRITER, sampling=longer(session))
        cell, test = block(reply.text, "python"), block(reply.text, "test")
        if cell is not None and test is not None:
            await asyncio.to_thread(self._keep, cell, test)

    def _keep(self, cell: str, test: str) -> None:
        box = open_sandbox(self.sandbox, self._settings)
        try:
            keep_tested(self.library, Interpreter(box, seconds=SECONDS), [], cell, test)
        finally:
            box.close()

    def _returned(self, first: str) -> dict[str, list[str] | str]:
        """Return the actions or the hint of each function that applies, the newest first."""
        functions = self.library.latest()[::-1]
        if not functions:
            return {}
        found: dict[str, list[str] | str] = {}
        box = open_sandbox(self.sandbox, self._settings)
        python = Interpreter(box, seconds=SECONDS)
        try:
            for function in functions:
                done = python.run(f"{function.source}\n\nrepr({function.name}({first!r}))")
                value = None if done.error else _literal(done.value or "None")
                if isinstance(value, str) or (
                    isinstance(value, list) and value and all(isinstance(one, str) for one in value)
                ):
                    found[function.name] = value
        finally:
            python.close()
            box.close()
        return found

    @property
    def _settings(self) -> Settings:
        return interpreter.settings(self.sandbox, Limits(seconds=60.0))

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Act by the plan; as the writer, give the actions that succeeded for that task alone."""
        if messages[0].text != WRITE:
            return self.phrase(actions[0])
        first, taken = read_story(messages[1].text.partition(SOLVED)[2])
        name = f"task_{zlib.crc32(first.encode()):08x}"
        source = f"def {name}(first):\n    return {taken!r} if first == {first!r} else None"
        return f"```python\n{source}\n```\n```test\nassert {name}({first!r}) == {taken!r}\n```"


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
