"""Real time in an environment whose time is virtual: for pages with video, among others."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from palaestra.core.environment import Capability, Environment, Spec
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.rare_capabilities import Timed
from palaestra.environments.wrappers.wrapper import Wrapper

LOST = {Capability.SNAPSHOT, Capability.STATE_KEY}
"""What an environment no longer has: no state comes back by the same actions, and none twice."""


class RealClock(Wrapper):
    """A wrapper in which time passes as on a clock, so that no episode repeats exactly."""

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        assert isinstance(inner, Timed)
        inner.use_real_time()

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        if not spec.virtual_time:
            raise InputError(
                f"clock={value} is for environments with a clock of their own, such as pages in a "
                f"browser, and '{spec.name or spec.id}' has none; leave the knob out."
            )
        has = spec.capabilities - LOST
        return replace(spec, capabilities=has, deterministic=False, virtual_time=False)

    def state_key(self) -> str:
        self._undeclared(Capability.STATE_KEY)

    def snapshot(self) -> bytes:
        self._passed()

    def restore(self, snapshot: bytes) -> None:
        self._passed()

    def _passed(self) -> NoReturn:
        raise CapabilityMissing(
            f"'{self.spec.id}' with clock=real has no snapshots, because the same actions at other "
            "moments lead elsewhere; leave clock=real out."
        )
