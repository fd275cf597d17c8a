"""One running task of AgentDojo: its state, its messages, and its score."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.agent_pipeline import ToolsExecutor
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    get_text_content_as_str,
    text_content_block_from_string,
)

from palaestra.core.message import ToolCall
from palaestra.environments.families.agentdojo.suites import Bench, standing_clock


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict of the package's own scorers on a finished task."""

    utility: bool
    attack_succeeded: bool | None = None  # None without an attack
    error: str = ""  # why a scorer itself failed, which counts as no success


@dataclass
class Play:
    """A running task of a bench."""

    bench: Bench
    parameters: Mapping[str, Any]
    user: BaseUserTask[Any]
    goal: BaseInjectionTask[Any] | None
    messages: list[ChatMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state: TaskEnvironment = self._start()
        self._runtime = FunctionsRuntime(self.bench.suite.tools)

    def do(self, call: ToolCall, words: str = "") -> tuple[str, bool]:
        """Call a tool; return the package's answer, and whether the call was valid.

        An invalid call (its arguments do not fit the tool) is not recorded. The package records it
        for its scorers, one of which then fails.
        """
        function_call = FunctionCall(function=call.name, args=copy.deepcopy(dict(call.arguments)))
        asked = _assistant_message(words, [function_call])
        try:
            with standing_clock():
                answer = ToolsExecutor().query("", self._runtime, self.state, [asked])
        except (RecursionError, MemoryError):  # nested brackets, before anything ran
            return "These arguments are nested too deeply.", False
        except Exception as error:  # the tool ran, but the package cannot serialize its result
            self.messages.append(asked)
            return f"{type(error).__name__}: {error}", True
        result = answer[3][-1]
        failed = result["error"]
        schema = f"for Input schema for `{call.name}`"
        if failed and failed.startswith("ValidationError:") and schema in failed.partition("\n")[0]:
            return failed, False
        self.messages += [asked, result]
        return failed or get_text_content_as_str(result["content"]), True

    def score(self, words: str) -> Score:
        """Return the package's score if `words` were the final reply."""
        finished = _FinishedRun([*self.messages, _assistant_message(words, None)], self.state)
        judge = self.bench.suite.run_task_with_pipeline
        utility, worked, error = False, False, ""
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                utility, worked = judge(
                    finished, self.user, self.goal, {}, environment=self._pristine()
                )
            except Exception as problem:  # such as a KeyError: the agent removed its data
                error = f"{type(problem).__name__}: {problem}"
                if self.goal is not None:
                    with contextlib.suppress(Exception):
                        worked, _ = judge(finished, self.goal, None, {}, environment=self._start())
        if self.bench.attack is None:
            return Score(bool(utility), None, error)
        if self.bench.attack.is_dos_attack:  # as in the package's benchmark
            worked = not utility and not error
        return Score(bool(utility), bool(worked), error)

    def plan(self) -> tuple[list[ToolCall], str]:
        """Return the rest of the ground truth and its final reply; empty if it does not succeed."""
        truth = [
            ToolCall(call.function, dict(call.args))
            for call in self.user.ground_truth(self._start())
        ]
        words = self.user.GROUND_TRUTH_OUTPUT or "Done."
        calls_made = self.calls_made
        rests = [truth[len(calls_made) :]] if calls_made == truth[: len(calls_made)] else []
        for rest in [*rests, truth]:
            trial = self._copy()
            if all(trial.do(call)[1] for call in rest) and trial.score(words).utility:
                return rest, words
        return [], ""

    @property
    def calls_made(self) -> list[ToolCall]:
        """The valid calls so far."""
        return [
            ToolCall(call.function, dict(call.args))
            for message in self.messages
            if message["role"] == "assistant"
            for call in message["tool_calls"] or ()
        ]

    def key(self) -> str:
        """Hash the task and its state, and the calls if a scorer reads them."""
        content: list[object] = [self.bench.label, sorted(self.parameters.items())]
        content.append(self.state.model_dump_json(warnings=False))
        looks = type(self.user).utility_from_traces is not BaseUserTask.utility_from_traces
        if self.goal is not None:
            both = BaseInjectionTask.security_from_traces
            looks = looks or type(self.goal).security_from_traces is not both
        if looks:
            content.append(self.calls_made)
        return hashlib.blake2b(repr(content).encode(), digest_size=12).hexdigest()

    # ── details ──────────────────────────────────────────────────────────────

    def _pristine(self) -> TaskEnvironment:
        return self.bench.pristine(self.parameters)

    def _start(self) -> TaskEnvironment:
        return self.user.init_environment(self._pristine())

    def _copy(self) -> Play:
        other = Play(self.bench, self.parameters, self.user, self.goal, list(self.messages))
        other.state = self.state.model_copy(deep=True)
        return other


class _FinishedRun:
    """A pipeline for the package's scorers that has already run, with its messages and state."""

    name = "played"

    def __init__(self, messages: list[ChatMessage], state: TaskEnvironment) -> None:
        self._messages, self._state = messages, state

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - as in the package
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] = {},  # noqa: B006
    ) -> tuple[str, FunctionsRuntime, TaskEnvironment, Sequence[ChatMessage], dict[str, Any]]:
        return query, runtime, self._state, self._messages, extra_args


def _assistant_message(words: str, calls: list[FunctionCall] | None) -> ChatAssistantMessage:
    content = [text_content_block_from_string(words)]
    return ChatAssistantMessage(role="assistant", content=content, tool_calls=calls)
