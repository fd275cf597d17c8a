"""A conversation along one path of a procedure, in which every turn is checked.

The user answers what they are asked, and each tool is a stub that returns the path's outcome. A
turn is right if it does what the step says: it asks for the thing by its name, calls the tool with
what the user said, or says the words. The first wrong turn ends the conversation, which is solved
only if every turn was right (ALMITA); progress is the share of right turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.message import ToolCall
from palaestra.core.task import Task
from palaestra.core.tool import NotACall, Tool, checked, parse_call
from palaestra.environments.base import Adapter, hashed
from palaestra.environments.families.synthesised.procedures import Path, Procedure, Step

RULES = (
    "You help a user by a written procedure. Reply with one message to the user, or with one tool "
    'call, such as find_order(order_number="…"). Follow the steps in their order.'
)
REFUSALS = ("", "I cannot do that.", "I hand this over to a person.")


class ProcedureDesk(Adapter, capabilities={"state_key", "oracle", "progress"}, tools=True):
    """A user, and a procedure that says how to help them."""

    OVER = "The conversation is over."

    def __init__(self, procedure: Procedure, path: Path, slots: Mapping[str, str]) -> None:
        """Make the conversation along a path; `slots` is what the user answers."""
        super().__init__()
        self._place(procedure, path, slots)

    def _place(self, procedure: Procedure, path: Path, slots: Mapping[str, str]) -> None:
        """Let this conversation be the one that the next reset begins."""
        self._procedure, self._slots = procedure, slots
        self._steps = [(procedure.steps[number], outcome) for number, outcome in path]
        self.tools = tuple(dict.fromkeys(map(_tool, _calls(procedure))))
        self._at = 0  # right turns so far

    @property
    def instructions(self) -> str:
        return RULES

    def _begin(self, task: Task) -> Observation:
        self._at = 0
        listed = "\n".join(tool.signature for tool in self.tools)
        return Observation(
            f"{self._heading}\nTools:\n{listed}\n"
            f"User: Hello, I need help: {self._procedure.title.lower()}."
        )

    @property
    def _heading(self) -> str:
        return f"Procedure: {self._procedure.text}"

    def _act(self, action: Action) -> Transition:
        step, outcome = self._steps[self._at]
        if not self._right(step, action):
            end = Observation("The user leaves: this was not what the procedure says.")
            return Transition(end, terminated=True, success=False)
        self._at += 1
        if step.says:
            return Transition(Observation("Bye."), reward=1.0, terminated=True, success=True)
        if step.asks:
            return Transition(Observation(f"User: The {step.asks} is {self._slots[step.asks]}."))
        return Transition(Observation(outcome))

    def _right(self, step: Step, action: Action) -> bool:
        try:
            call = (
                parse_call(action.text, self.tools)
                if action.call is None
                else checked(action.call, self.tools)
            )
        except NotACall:
            said = " ".join(action.text.casefold().split())
            return (step.asks or step.says).casefold() in said if not step.calls else False
        return (call.name, dict(call.arguments)) == (step.calls, self._arguments(step))

    def _arguments(self, step: Step) -> dict[str, str]:
        return {_name(slot): self._slots[slot] for slot in step.slots}

    def state_key(self) -> str:
        return hashed(self._current().id, self._at, self._over)

    def progress(self) -> float:
        return self._at / len(self._steps)

    def oracle(self) -> Sequence[Action]:
        """Return the rest of the right turns; empty after the end."""
        return [] if self._over else [self._action(step) for step, _ in self._steps[self._at :]]

    def _action(self, step: Step) -> Action:
        if step.calls:
            call = ToolCall(step.calls, self._arguments(step))
            return Action(str(call), call)
        return Action(f"What is the {step.asks}?" if step.asks else step.says)


def rejected(desk: ProcedureDesk, task: Task, others: Sequence[ProcedureDesk]) -> str | None:
    """Return why a conversation must not be used; None if it passes the gate.

    Its reference solves it; saying nothing, a refusal and a hand-over do not, nor does the
    reference of another conversation: another path, or other things that the user said.
    """
    if not _solved(desk, task, _reference(desk, task)):
        return "the reference does not solve it"
    if any(_solved(desk, task, [Action(words)]) for words in REFUSALS):
        return "doing nothing solves it"
    for other in others:
        theirs = _reference(other, task)
        if theirs != _reference(desk, task) and _solved(desk, task, theirs):
            return "the reference of another conversation solves it"
    return None


def _reference(desk: ProcedureDesk, task: Task) -> Sequence[Action]:
    desk.reset(task)
    return desk.oracle()


def _solved(desk: ProcedureDesk, task: Task, actions: Sequence[Action]) -> bool:
    desk.reset(task)
    last = [desk.step(action) for action in actions]
    return any(transition.success for transition in last)


def _calls(procedure: Procedure) -> list[Step]:
    return [step for step in procedure.steps.values() if step.calls]


def _name(slot: str) -> str:
    return slot.replace(" ", "_")


def _tool(step: Step) -> Tool:
    names = [_name(slot) for slot in step.slots]
    properties = {name: {"type": "string"} for name in names}
    schema = {"type": "object", "properties": properties, "required": names}
    return Tool(step.calls, f"Do the step {step.calls.replace('_', ' ')}.", schema)
