"""Environments whose actions run in a sandbox; `NAME@KIND` selects it (`terminal/count@unsafe`).

Without `@KIND`, the safest one that this machine can run is used. Any text is an action, and there
is one generated task per seed.
"""

from __future__ import annotations

from palaestra.core.environment import Spec
from palaestra.core.errors import UnknownName
from palaestra.environments.base import Adapter
from palaestra.sandbox.base import Sandbox
from palaestra.sandbox.factory import KINDS


class SandboxedEnvironment(Adapter, free_text=True):
    """An environment with a sandbox; subclasses open it with `_sandbox_kind`, and close it."""

    OVER = "The task is over."
    _sandbox: Sandbox | None = None

    def __init__(self, name: str = "") -> None:
        """Parse the name; nothing is started before the first reset."""
        super().__init__(name)
        self.kind, _, sandbox = name.partition("@")
        self._sandbox_kind = sandbox or "auto"
        self._solved = False

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec; raises UnknownName for an unknown name, or sandbox after the `@`."""
        plain, given, kind = name.partition("@")
        spec = super().spec_of(plain)
        if given and kind not in KINDS:
            raise UnknownName("sandbox", kind, KINDS)
        return spec.named(name)

    def __del__(self) -> None:
        self.close()
