"""A policy with a router in files: its base, its adapters, and the clusters of its calls.

Beside the weights of a checkpoint, in which the agent's adapter is merged, the folder has
`router.json`, the base without adapters (`base`), and the adapters that act (`adapter`, and one
for each role and cluster in `adapters`). The policy acts by these: it replies as in its run, bit
for bit, where merged weights would round otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.models.call_router import CallRouter

ROUTER, BASE = "router.json", "base"
AGENT = "agent"  # the role whose adapter answers what fits no cluster


def is_routed(folder: Path) -> bool:
    """Return whether the policy in a folder has a router."""
    return (folder / ROUTER).is_file()


def place_of_adapter(role: str) -> str:
    """Return the folder of a role's or a cluster's adapter, within that of the policy."""
    return "adapter" if role == AGENT else f"adapters/{role}"


@dataclass(frozen=True, slots=True)
class RoutedFiles:
    """What `router.json` holds, and the folders that belong to it."""

    folder: Path
    router: CallRouter
    adapters: Mapping[str, Path | None]  # by role and cluster; None: the base alone

    @property
    def base(self) -> Path:
        """The checkpoint of the base, without adapters."""
        return self.folder / BASE

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the files of a policy with a router, but no weights.

        Raises:
            InputError: they cannot be read, or the policy has no form in files.
        """
        from palaestra.models.call_router import CallRouter  # and numpy

        try:
            document = json.loads((folder / ROUTER).read_text(encoding="utf-8"))
            router, roles = CallRouter.read(document), dict(document["adapters"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"The router in '{folder / ROUTER}' cannot be read ({error!r}); copy the folder "
                "again, or let `palaestra train --resume RUN` write it again."
            ) from error
        if not roles:
            raise InputError(
                f"The policy in '{folder}' has a router over adapters of experts, for which there "
                "is no form in files; test it within its run, by a stage that evaluates."
            )
        found = {
            role: folder / place_of_adapter(role) if has_one else None
            for role, has_one in roles.items()
        }
        return cls(folder, router, found)


def refuse_router(folder: Path) -> None:
    """Raise InputError if the policy in a folder, which is to be trained, has a router."""
    if not is_routed(folder):
        return
    files = RoutedFiles.read(folder)
    own = files.adapters[AGENT]
    general = f"{files.base}" if own is None else f"{files.base}?adapter={own}"
    raise InputError(
        f"The policy in '{folder}' has a router over adapters, with which no new run goes on; "
        f"begin with the model that answers what fits no cluster: '{general}'."
    )


def write_router(folder: Path, router: CallRouter, adapters: Mapping[str, bool]) -> None:
    """Write `router.json`.

    Args:
        folder: of the policy.
        router: of its calls.
        adapters: by role and cluster, whether it has an adapter, or acts by the base alone; empty
            if they have no form in files.
    """
    document = {**router.document(), "adapters": dict(adapters)}
    (folder / ROUTER).write_text(json.dumps(document) + "\n", encoding="utf-8")
