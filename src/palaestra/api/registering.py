"""Processes that reply in an evaluation: where they register, and for which roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palaestra.agents.memory.retrieval import best
from palaestra.core.errors import InputError, MissingPackage
from palaestra.environments.registry import spec
from palaestra.environments.teams.team_knob import names_of, teams_in
from palaestra.environments.wrappers.knobs import split
from palaestra.evaluation.running.evaluation_plan import Plan
from palaestra.models.registry import REGISTERED

if TYPE_CHECKING:
    from palaestra.gateway.registration_desk import Desk


@dataclass(frozen=True, slots=True)
class Registration:
    """Where processes register, and how long a run waits for them."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    public: str | None = None  # the address to print, if there is a proxy in front
    heartbeat: float = 5.0  # seconds in which a process shows that it is alive
    patience: float = 60.0  # seconds that a question waits for a process to be there


def check_registration(
    plan: Plan, registration: Registration | None, name: Callable[[str], str]
) -> None:
    """Raise InputError if no process could register or be waited for; `name` spells options."""
    if registration is None:
        return
    if REGISTERED not in plan.models:
        raise InputError(
            f"No role has the model '{REGISTERED}', so no process can register; set "
            f'model = "{REGISTERED}" for a member in the team\'s file, or {name("roles")} '
            f"NAME={REGISTERED}."
        )
    for option in ("heartbeat", "patience"):
        seconds = getattr(registration, option)
        if not 0 < seconds < float("inf"):
            raise InputError(f"{name(option)} of {seconds:g} is no time; give seconds above 0.")


@asynccontextmanager
async def opened(plan: Plan, registration: Registration | None) -> AsyncIterator[Desk]:
    """Let processes register for the roles of a plan whose model is `REGISTERED`."""
    try:
        from palaestra.gateway.registration import desk_opened
    except ImportError as error:
        raise MissingPackage(
            f"Registering needs the Python package '{error.name}', which is not installed; "
            "install it with: pip install 'palaestra[serving]'."
        ) from error
    given = registration or Registration()
    roles, places = roles_of(plan)
    async with desk_opened(
        roles,
        _nearest,
        places=places,
        host=given.host,
        port=given.port,
        public=given.public,
        heartbeat=given.heartbeat,
        patience=given.patience,
    ) as desk:
        yield desk


def roles_of(plan: Plan) -> tuple[dict[str, str], list[str]]:
    """Return the roles that processes reply for, and which of them are free places of a team.

    Each role has its instructions in a team's file.
    """
    found: dict[str, str] = {}
    places: dict[str, None] = {}
    for cell in plan.cells:
        id, knobs = split(cell.environment)
        instructions: dict[str, str] = {}
        free: set[str] = set()
        if "team" in knobs:
            facts = spec(id)
            for player, team in teams_in(facts, knobs["team"]).items():
                for member, name in names_of(facts, player, team).items():
                    instructions[name] = team.players[member].instructions
                    free |= {name} if member in team.places else set()
        for role, model in {"agent": cell.model, **cell.roles}.items():
            if model == REGISTERED:
                found[role] = instructions.get(role, "")
                places.update({role: None} if role in free else {})
    return found, [*places]


def _nearest(capability: str, texts: Sequence[str]) -> int | None:
    """Return the index of the text that fits best, by BM25; None if none shares a word."""
    return next(iter(best(capability, texts, 1)), None)
