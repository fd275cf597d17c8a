"""The knob `library`: functions that agents kept in earlier tasks are tools of any environment.

Each function of the library (`sandbox.function_library`) is a tool with its docstring and a schema
from its signature, so every agent that calls tools can use it, and the gateway offers it by MCP.
A call makes no move: it runs in a sandbox and answers with the result. Where there are many
functions, the agent `toolbox` finds those that fit by words (BM25). Source: Zhang et al. 2025
(AgentOrchestra: a manager that creates, retrieves and reuses MCP tools).

The library must not change while a run uses it, so that its episodes can be repeated: what the
workers of a run keep in another file is a library of the next run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from palaestra.core.environment import Action, Environment, Observation, Spec, Transition
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import ACT, NotACall, Tool, parse_call
from palaestra.environments.base import refused
from palaestra.environments.wrappers.wrapper import Ending
from palaestra.sandbox.factory import KINDS, kind_of
from palaestra.sandbox.function_calls import call, warm_pool
from palaestra.sandbox.function_library import Function, Library
from palaestra.sandbox.function_schema import tool_of
from palaestra.sandbox.sandbox_pool import Pool

INTRODUCTION = (
    "Besides, you can call functions that were kept in earlier tasks. A call is your whole reply, "
    "makes no move, and answers with the result:"
)
SHOWN = 4000  # characters of a result that are shown from either end


class LibraryFunctions(Ending):
    """An environment with the functions of a library as tools, besides its own."""

    keyed = False  # calls share no state, so the future does not depend on them

    def __init__(self, inner: Environment, value: str) -> None:
        """Read the library; `value` is its file, or `FILE@KIND` with the kind of sandbox.

        Raises:
            InputError: the file is no library, or a function has the name of another tool.
        """
        super().__init__(inner, value)
        self._file, self._kind = _file_and_kind(value)
        self._functions = {one.name: one for one in _functions(self._file)}
        self._size = self._file.stat().st_size
        self._own = tuple(tool_of(function) for function in self._functions.values())
        for tool in (*inner.tools, ACT):
            if tool.name in self._functions:
                raise InputError(
                    f"The library '{self._file}' has a function '{tool.name}', and "
                    f"'{inner.spec.name or inner.spec.id}' has a tool of that name; keep the "
                    "function under another one."
                )
        self._pool: Pool | None = None  # opened by the first call

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        file, kind = _file_and_kind(value)
        _functions(file)
        kind_of(kind)
        return replace(spec, tools=True, typical_turns=2 * spec.typical_turns)

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return (*(self.inner.tools or (ACT,)), *self._own)

    @property
    def instructions(self) -> str:
        lines = [tool.signature.partition("\n")[0] for tool in self._own]
        return "\n".join([self.inner.instructions, INTRODUCTION, *lines])

    def reset(self, task: Task) -> Observation:
        if not self._file.exists() or self._file.stat().st_size != self._size:
            raise EnvironmentFault(
                "reset",
                f"the library '{self._file}' has changed since the run began; let agents keep "
                "functions in another file, and give it to the next run.",
            )
        return super().reset(task)

    def step(self, action: Action) -> Transition:
        own = action.call
        if own is not None and own.name == ACT.name and not self.inner.tools:
            return super().step(Action(str(own.arguments.get("action", ""))))
        try:
            asked = None if self.over else self._asked(action)
            return super().step(action) if asked is None else self._called(asked)
        except NotACall as reason:
            return refused(str(reason))

    def after_step(self, transition: Transition) -> Transition:
        self.over = transition.terminated or transition.truncated
        return super().after_step(transition)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._pool = None
        super().close()

    def _asked(self, action: Action) -> ToolCall | None:
        """Return the call of a function in an action; None: it is another action.

        Raises:
            NotACall: it is the call of a function, and its arguments cannot be read.
        """
        if action.call is not None:
            return action.call if action.call.name in self._functions else None
        written = re.fullmatch(r"\s*(\w+)\(.*\)\s*", action.text, re.DOTALL)
        if written is None or written[1] not in self._functions:
            return None
        return parse_call(action.text, self._own)

    def _called(self, asked: ToolCall) -> Transition:
        """Call a function; raises NotACall if the arguments do not fit it."""
        if self._pool is None:
            self._pool = warm_pool(self._kind)
        found = call([*self._functions.values()], asked, self._pool, seed=self.seed)
        text, version = found.text, self._functions[asked.name].version
        if found.failed:
            text = f"{asked.name} failed: {text.splitlines()[-1]}"
        if len(text) > 2 * SHOWN:
            left_out = f"… ({len(text) - 2 * SHOWN} characters left out) …"
            text = f"{text[:SHOWN]}\n{left_out}\n{text[-SHOWN:]}"
        info = {"function": asked.name, "version": version, "failed": found.failed}
        return Transition(Observation(text), info=info)


def _file_and_kind(value: str) -> tuple[Path, str]:
    """Return the file and the kind of sandbox that a value of the knob names."""
    file, at, kind = value.rpartition("@")
    if at and kind in KINDS:
        return Path(file).expanduser(), kind
    return Path(value).expanduser(), "auto"


def _functions(file: Path) -> list[Function]:
    """Return the newest versions in a library.

    Raises:
        InputError: there is no such file, it is no library, or it is empty.
    """
    if not file.is_file():
        raise InputError(f"There is no library '{file}'; name a file of `code?library=FILE`.")
    found = Library(file).latest()
    if not found:
        raise InputError(f"The library '{file}' holds no function; name another one.")
    return found
