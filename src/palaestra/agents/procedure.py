"""Procedures: the agent follows a state machine; the model decides only within a state.

Sources: Ye et al. 2025 (SOP-Agent) for procedures as graphs, where the model answers the branching
questions and the nodes filter the actions; Routine (2025) for steps with values passed between
them; AEGIS (2025) for a finite state machine that admits only lawful actions. Procedures are
written in TOML (see `state_machine.py`), not in SOP-Agent's pseudocode.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from palaestra.agents.state_machine import Edge, State, filled, load_procedure
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session

TRIES = 3  # replies per turn before the agent fails


class ProcedureAgent(Agent):
    """Follows a procedure from a file as a state machine; the model acts within a state."""

    name = "procedure"
    roles = ("navigator",)

    def __init__(self, *, file: Path) -> None:
        """Load the procedure in `file`.

        Raises:
            InputError: the file is missing or the procedure is invalid.
        """
        self.procedure = load_procedure(file)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        procedure, seen = self.procedure, session.observation.text
        values, name = procedure.values(seen), procedure.start
        head = f"{session.instructions}\nYou work by a procedure: {procedure.title}"
        messages = [system(head)]
        while not session.over:
            name = await self._walk(session, name, seen, values)
            state = procedure.states[name]
            action, reply = filled(state.do, values), None
            if not action:
                messages.append(user(f"{seen}\n\n{_state_prompt(state, values)}".rstrip()))
                reply = await _allowed(session, messages, name, state)
                action = reply.text.strip()
            seen = (await session.act(action, by=reply)).observation.text
            values |= procedure.values(seen)

    async def _walk(self, session: Session, name: str, seen: str, values: dict[str, str]) -> str:
        """Return the state to act in: follow true edges, at most as many as there are states."""
        for _ in self.procedure.states:
            for edge in self.procedure.states[name].next:
                if edge.when:
                    holds = edge.when.search(seen) is not None
                else:
                    ask = f"{seen}\n\n{filled(edge.ask, values)}\n{_question(name, edge)}"
                    prompt = [system(session.instructions), user(ask)]
                    reply = await session.generate(prompt, role="navigator")
                    holds = reply.text.strip().lower().startswith("yes")
                if holds:
                    name = edge.to
                    break
            else:
                return name
        return name

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        """Answer a question with yes if the state that it leads to allows the next action."""
        for name, state in self.procedure.states.items():
            for edge in state.next:
                if edge.ask and messages[-1].text.endswith(_question(name, edge)):
                    target = self.procedure.states[edge.to]
                    return "yes" if _permits(target, actions[0].text) else "no"
        return self.phrase(actions[0])


def _question(name: str, edge: Edge) -> str:
    return f"(From '{name}' to '{edge.to}'.) Reply with yes or no."


def _permits(state: State, action: str) -> bool:
    if not state.do:
        return state.allows(action)
    any_value = re.sub(r"\\\$\w+", ".+", re.escape(state.do))
    return re.fullmatch(any_value, action) is not None


def _state_prompt(state: State, values: dict[str, str]) -> str:
    lines = [filled(state.prompt, values)] if state.prompt else []
    if state.actions:
        lines.append(f"Allowed here: {_listed(state)}.")
    return "\n".join(lines)


def _listed(state: State) -> str:
    return ", ".join(pattern.pattern for pattern in state.actions)


async def _allowed(
    session: Session, messages: list[Message], name: str, state: State
) -> Generation:
    """Return the model's reply; ask again while the state does not allow its action.

    Raises:
        AgentFault: none of `TRIES` replies was allowed.
    """
    for _ in range(TRIES):
        reply = await session.generate(messages)
        messages.append(assistant(reply.text))
        if state.allows(reply.text.strip()):
            return reply
        messages.append(user(f"That is not allowed here. Allowed: {_listed(state)}."))
    raise AgentFault("unlawful", f"{TRIES} replies in a row were not allowed in '{name}'")
