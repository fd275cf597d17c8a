"""Sandboxes by name: `auto` is the strongest kind that can run here, and never the unsafe one."""

from __future__ import annotations

from palaestra.core.errors import MissingSystemPart, UnknownName
from palaestra.sandbox.base import Sandbox, Settings
from palaestra.sandbox.bubblewrap import BubblewrapSandbox
from palaestra.sandbox.gvisor import GvisorSandbox
from palaestra.sandbox.unsafe import PlainSandbox
from palaestra.sandbox.wasm import WasmSandbox

KINDS: dict[str, type[Sandbox]] = {
    kind.name: kind for kind in (BubblewrapSandbox, GvisorSandbox, WasmSandbox, PlainSandbox)
}
"""Every kind by its name, the default first."""


def open_sandbox(kind: str = "auto", settings: Settings = Settings()) -> Sandbox:
    """Open a sandbox, ready for programs; close it when done.

    Args:
        kind: a name of `KINDS`, or `auto`.
        settings: what programs may use, see and reach.

    Raises:
        UnknownName: there is no such kind.
        MissingSystemPart: the kind, or with `auto` any that is safe, cannot run here.
        InputError: the kind cannot do what the settings ask for.
    """
    return kind_of(kind)(settings)


def kind_of(name: str) -> type[Sandbox]:
    """Return the kind of that name, or for `auto` the strongest one; raises like `open_sandbox`."""
    if name == "auto":
        return _best()
    if name not in KINDS:
        raise UnknownName("sandbox", name, ["auto", *KINDS])
    reason = KINDS[name].missing()
    if reason is not None:
        raise MissingSystemPart(f"The sandbox '{name}' cannot run here. {reason}")
    return KINDS[name]


def kinds() -> dict[str, str | None]:
    """Return each kind, with why it cannot run here and the remedy, or None if it can."""
    return {name: kind.missing() for name, kind in KINDS.items()}


def _best() -> type[Sandbox]:
    reasons = []
    for name, kind in KINDS.items():
        if name == PlainSandbox.name:
            continue
        reason = kind.missing()
        if reason is None:
            return kind
        reasons.append(f"{name}: {reason}")
    raise MissingSystemPart(
        f"No sandbox can run here. {' '.join(reasons)} For programs that you trust, the kind "
        f"'{PlainSandbox.name}' runs them as plain processes."
    )
