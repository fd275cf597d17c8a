"""Procedures: the agent walks a state machine; the model decides only within a state.

Sources: Ye et al. 2025 (SOP-Agent) for procedures as graphs whose branches the model answers and
whose nodes filter the actions; Routine (2025) for steps with values passed between them; AEGIS
(2025) for a finite state machine that lets only lawful actions through. Unlike SOP-Agent's, the
procedure is not written in pseudocode but in TOML: see `states.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from palaestra.agents.states import Edge, State, filled, load_procedure
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.errors import AgentFault
from palaestra.core.message import Message, assistant, system, user
from palaestra.core.model import Generation
from palaestra.core.session import Session

TRIES = 3  # replies until one is allowed


class ProcedureAgent(Agent):
    """A procedure in a file is walked as a state machine; the model acts within its states."""

    name = "procedure"
    roles = ("navigator",)

    def __init__(self, *, file: Path) -> None:
        """Work by the procedure in `file`.

        Raises:
            InputError: there is none, or it cannot work.
        """
        self.procedure = load_procedure(file)

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        procedure, seen = self.procedure, session.observation.text
        values, name = procedure.values(seen), procedure.start
        head = f"{session.instructions}\nYou work by a procedure: {procedure.title}"
        talk = [system(head)]
        while not session.over:
            name = await self._walk(session, name, seen, values)
            state = procedure.states[name]
            action, reply = filled(state.do, values), None
            if not action:
                talk.append(user(f"{seen}\n\n{_told(state, values)}".rstrip()))
                reply = await _allowed(session, talk, name, state)
                action = reply.text.strip()
            seen = (await session.act(action, by=reply)).observation.text
            values |= procedure.values(seen)

    async def _walk(self, session: Session, name: str, seen: str, values: dict[str, str]) -> str:
        """The state to act in: follow edges that hold, at most as many as there are states."""
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
        """Of a question: yes, if the state that it leads to allows the next action."""
        for name, state in self.procedure.states.items():
            for edge in state.next:
                if edge.ask and messages[-1].content.endswith(_question(name, edge)):
                    target = self.procedure.states[edge.to]
                    return "yes" if _does(target, actions[0].text) else "no"
        return self.phrase(actions[0])


def _question(name: str, edge: Edge) -> str:
    return f"(From '{name}' to '{edge.to}'.) Reply with yes or no."


def _does(state: State, action: str) -> bool:
    if not state.do:
        return state.allows(action)
    any_value = re.sub(r"\\\$\w+", ".+", re.escape(state.do))
    return re.fullmatch(any_value, action) is not None


def _told(state: State, values: dict[str, str]) -> str:
    lines = [filled(state.told, values)] if state.told else []
    if state.actions:
        lines.append(f"Allowed here: {_listed(state)}.")
    return "\n".join(lines)


def _listed(state: State) -> str:
    return ", ".join(pattern.pattern for pattern in state.actions)


async def _allowed(session: Session, talk: list[Message], name: str, state: State) -> Generation:
    """The model's action, asked for again while it is none of those of the state.

    Raises:
        AgentFault: no reply was.
    """
    for _ in range(TRIES):
        reply = await session.generate(talk)
        talk.append(assistant(reply.text))
        if state.allows(reply.text.strip()):
            return reply
        talk.append(user(f"That is not allowed here. Allowed: {_listed(state)}."))
    raise AgentFault("unlawful", f"{TRIES} replies in a row were not allowed in '{name}'")
