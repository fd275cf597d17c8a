"""The context parameters of Gymnasium's classic control problems: reading and setting them.

The choice is CARL's (Benjamins et al. 2023): the physics, with the names of the environments' own
attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PARAMETERS: dict[str, tuple[str, ...]] = {
    "Acrobot": ("LINK_LENGTH_1", "LINK_LENGTH_2", "LINK_MASS_1", "LINK_MASS_2"),
    "CartPole": ("gravity", "masscart", "masspole", "length", "force_mag", "tau"),
    "MountainCar": ("gravity", "force", "goal_position"),
    "MountainCarContinuous": ("power", "goal_position"),
    "Pendulum": ("g", "m", "l", "max_torque"),
}


def parameters(id: str, env: Any) -> dict[str, float]:
    """Return the current context parameters of an environment."""
    known = PARAMETERS.get(id.rpartition("-v")[0], ())
    return {name: float(getattr(env.unwrapped, name)) for name in known}


def change(env: Any, values: Mapping[str, float]) -> None:
    """Set context parameters of an environment, and the values derived from them."""
    inner = env.unwrapped
    for name, value in values.items():
        setattr(inner, name, value)
    if hasattr(inner, "polemass_length"):  # of CartPole
        inner.total_mass = inner.masspole + inner.masscart
        inner.polemass_length = inner.masspole * inner.length
