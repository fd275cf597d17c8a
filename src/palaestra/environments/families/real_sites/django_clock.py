"""Time and chance of what Django writes: those of the world whose request it answers.

Django's applications read the clock and draw keys in many places. `install` replaces the names by
which they do so; without a world that is served they have their usual meaning.
"""

from __future__ import annotations

import datetime
import random
import sys
import time
import uuid
from importlib import import_module
from types import ModuleType
from typing import Any

from palaestra.environments.families.real_sites.request_clock import now, served

CLOCKS = (
    ("django.core.signing", "time"),
    ("django.contrib.auth.tokens", "datetime"),
    ("django.db.models.fields", "datetime"),
    ("django.template.defaulttags", "datetime"),
    ("django.utils.timesince", "datetime"),
    ("oscar.apps.payment.forms", "date"),
    ("oscar.views.generic", "time"),
)
"""Modules that ask for the time by other ways than Django's own function, and by what name."""

PACKAGES = ("django", "oscar", "machina", "wagtail")


def install() -> None:
    """Replace the clock and the source of random numbers; before Django's applications load."""
    from django.utils import crypto, timezone

    timezone.now = now  # many import the function by its name
    crypto.secrets = _Chance()


def install_in_applications() -> None:
    """Replace them where Django's function is not used; after the applications are loaded."""
    from django.apps import apps

    for name, attribute in CLOCKS:
        module = import_module(name)
        setattr(module, attribute, _STANDS_FOR[getattr(module, attribute)])
    for name, loaded in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and getattr(loaded, "uuid", None) is uuid:
            loaded.uuid = _Identifiers("uuid")  # type: ignore[attr-defined]
    for model in apps.get_models():
        for field in model._meta.fields:
            if field.default is uuid.uuid4:
                field.default = _uuid4
                vars(field).pop("_get_default", None)  # it is cached


def _uuid4() -> uuid.UUID:
    found = served.get()
    return (
        uuid.uuid4() if found is None else uuid.UUID(int=found.random.getrandbits(128), version=4)
    )


class _Chance(random.SystemRandom):
    """Stands for the module `secrets`: a world's random numbers, else the system's."""

    def random(self) -> float:
        found = served.get()
        return super().random() if found is None else found.random.random()

    def getrandbits(self, k: int, /) -> int:
        found = served.get()
        return super().getrandbits(k) if found is None else found.random.getrandbits(k)

    def __getattr__(self, name: str) -> Any:
        import secrets

        return getattr(secrets, name)


class _Identifiers(ModuleType):
    """Stands for the module `uuid`."""

    uuid4 = staticmethod(_uuid4)

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)


class _TimeModule(ModuleType):
    """Stands for the module `time`."""

    @staticmethod
    def time() -> float:
        return now().timestamp()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _DateType(type):
    """The type of what stands for `date` and `datetime`: it makes and knows real ones."""

    real: type

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls.real(*args, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)


class _Date(metaclass=_DateType):
    real = datetime.date

    @classmethod
    def today(cls) -> datetime.date:
        return now().date()


class _DateTime(metaclass=_DateType):
    real = datetime.datetime

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return now().astimezone(tz) if tz else now().replace(tzinfo=None)


class _DateModule(ModuleType):
    """Stands for the module `datetime`."""

    date, datetime = _Date, _DateTime

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


_STANDS_FOR: dict[Any, Any] = {
    time: _TimeModule("time"),
    datetime: _DateModule("datetime"),
    datetime.date: _Date,
    datetime.datetime: _DateTime,
}
