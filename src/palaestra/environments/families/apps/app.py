"""An app: a blueprint and its verbs, compiled to APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError
from palaestra.environments.families.apps.compiler import tables
from palaestra.environments.families.apps.compiler.api import Api
from palaestra.environments.families.apps.compiler.blueprint import Blueprint, columns
from palaestra.environments.families.apps.compiler.endpoints import Endpoints
from palaestra.environments.families.apps.compiler.login import login
from palaestra.environments.families.apps.compiler.verbs import Verb
from palaestra.environments.families.apps.state import Template

if TYPE_CHECKING:
    from palaestra.environments.families.apps.histories.scene import Scene


@dataclass(frozen=True, eq=False)
class App:
    """One service."""

    blueprint: Blueprint
    verbs: tuple[Verb, ...] = ()
    history: Callable[[Scene], None] | None = None
    """Writes its rows of earlier days; without it, they are drawn by the types of the fields."""

    @property
    def name(self) -> str:
        return self.blueprint.app

    @cached_property
    def apis(self) -> Mapping[str, Api]:
        """All that it offers, by name: verbs first, since they are what it is for.

        Raises:
            InputError: a verb has the name of an endpoint, or `seconds` names no API.
        """
        endpoints = [
            api
            for entity in self.blueprint.entities
            for api in Endpoints(self.blueprint, entity).apis()
        ]
        found: dict[str, Api] = {}
        signing_in = [login(self.blueprint)] if self.blueprint.private else []
        for api in [*(verb.api(self.name) for verb in self.verbs), *endpoints, *signing_in]:
            if api.name in found:
                raise InputError(
                    f"The app '{self.name}' has two APIs named '{api.name}'; rename the verb, or "
                    "leave out the endpoint in its entity's `endpoints`."
                )
            found[api.name] = api
        for name in self.blueprint.seconds:
            if name not in found:
                raise InputError(
                    f"The app '{self.name}' declares how many seconds '{name}' takes, which is no "
                    f"API of it; choose from: {', '.join(found)}."
                )
        return found


@dataclass(frozen=True, eq=False)
class Suite:
    """Apps that share one world."""

    apps: Mapping[str, App]

    @classmethod
    def of(cls, apps: Iterable[App]) -> Suite:
        """Return the suite of some apps.

        Raises:
            InputError: two apps have one name, or an entity refers to one of a missing app.
        """
        listed = list(apps)
        suite = cls({app.name: app for app in listed})
        if len(suite.apps) < len(listed):
            raise InputError("Two apps have the same name; rename one of them.")
        known = columns(suite.blueprints)
        for app in listed:
            for entity, field, target in app.blueprint.references:
                if target not in known:
                    raise InputError(
                        f"'{field}' of '{app.name}.{entity}' refers to '{target}', which no app "
                        "has; add its app."
                    )
        return suite

    @cached_property
    def blueprints(self) -> dict[str, Blueprint]:
        return {name: app.blueprint for name, app in self.apps.items()}

    @cached_property
    def apis(self) -> dict[str, Api]:
        """All APIs, by `app.name`."""
        return {api.full_name: api for app in self.apps.values() for api in app.apis.values()}

    def empty(self) -> Template:
        """Return a world without rows."""
        return Template.of(columns(self.blueprints), tables.statements(self.blueprints))
