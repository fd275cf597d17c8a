"""Scoring of τ²-bench conversations by the package's own scorers, on its transcript format.

Airline and retail are solved if the final database equals the one after the task's reference
actions, and the agent told the user each piece of information that the task lists. Telecom is
solved if the assertions on the final state hold and, where the reward basis requires it, the
reference actions were made.

The package's functions decide, except for one comparison. Its `db_match` reads the whole database
from its file and hashes it twice per score (over a second). Here the differences from the initial
database are compared, which are equal exactly when those hashes are. The tests compare the verdicts
with the package's complete scorers.

Assertions in natural language need a judge model and are in no task's reward basis; like the
package, this module does not score them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ModelName,
)
from inspect_ai.scorer import CORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolCall as PackageCall
from inspect_ai.tool import ToolError
from inspect_ai.util import Store
from inspect_evals.tau2.common.agents import StoredAgentState
from inspect_evals.tau2.common.scorer import (
    evaluate_required_actions,
    find_unused_actions,
    get_messages_from_agent,
    score_communicated_info,
)
from inspect_evals.tau2.telecom.scorer import env_assertions

from palaestra.core.message import ToolCall
from palaestra.environments.families.tau2.desk import Desk, run_coroutine
from palaestra.environments.families.tau2.domain import AGENT

UNSCORED = ("calculate", "transfer_to_human_agents")  # skipped by `get_expected_db`


class Transcript:
    """The record of messages and calls in the format of the package's scorers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.user: list[ChatMessage] = list(desk.opening)  # the user's view
        self.agent: list[ChatMessage] = []

    def say(self, who: str, text: str) -> None:
        """Add a message of one side to the other."""
        mine, other = (self.agent, self.user) if who == AGENT else (self.user, self.agent)
        mine.append(ChatMessageAssistant(content=text))
        other.append(ChatMessageUser(content=text))

    def call(self, who: str, call: ToolCall, output: str) -> None:
        """Add a tool call with its output, which the other side does not see."""
        mine = self.agent if who == AGENT else self.user
        made = PackageCall(f"call_{len(mine)}", call.name, dict(call.arguments))
        mine.append(ChatMessageAssistant(content="", tool_calls=[made]))
        mine.append(ChatMessageTool(content=output, tool_call_id=made.id, function=call.name))

    def state(self) -> TaskState:
        return TaskState(
            model=ModelName("none/none"),
            sample_id=self._desk.task.id,
            epoch=1,
            input=list(self._desk.opening),
            messages=self.user,
            metadata=self._desk.sample.metadata,
        )

    def agent_state(self, _: str = "") -> StoredAgentState:
        return StoredAgentState(store=Store(), messages=self.agent)

    def missing_information(self) -> list[str]:
        """Return the information that the agent has not told the user yet."""
        messages = get_messages_from_agent(self.state())
        wanted = self._desk.criteria.communicate_info or []
        return [info for info in wanted if info.lower() not in messages]

    def missing_actions(self) -> list[str]:
        """Return the required reference actions that were not made yet."""
        if not needs_actions(self._desk):
            return []
        task = self._desk.task
        return [a.action_id for a in find_unused_actions(self.agent_state(), self.state(), task)]


def needs_actions(desk: Desk) -> bool:
    """Return whether the reference actions themselves are required, not only their effects."""
    return "ACTION" in desk.criteria.reward_basis


def solved(desk: Desk, transcript: Transcript) -> bool:
    """Return the benchmark's verdict on an episode that has ended."""
    state = transcript.state()
    if desk.domain == "telecom":
        required = evaluate_required_actions(True, transcript.agent_state)
        return _correct(desk, required, state) and _correct(desk, env_assertions(), state)
    right = desk.digest() == expected(desk.domain, desk.task.id)
    return right and _correct(desk, score_communicated_info(), state)


@lru_cache(maxsize=512)
def expected(domain: str, task: str) -> str:
    """Return the desk's digest after the reference actions of an airline or retail task."""
    desk = Desk(domain, task)
    for action in desk.criteria.actions or []:
        if action.name not in UNSCORED:
            try:
                desk.act(action.name, action.arguments)
            except ToolError:
                continue  # as in the package
    return desk.digest()


def reference(desk: Desk) -> Sequence[Any]:
    """Return the task's reference actions, of both sides."""
    return desk.criteria.actions or ()


def _correct(desk: Desk, scorer: Any, state: TaskState) -> bool:
    score = desk.inside(run_coroutine, scorer(state, Target("")))
    return bool(score.value == CORRECT)
