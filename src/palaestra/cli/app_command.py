"""`palaestra app`: check a blueprint of an app, and print the documentation that agents read."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.environments.families.apps.app import App

EXAMPLE = "palaestra app bank"
GENERATED = "generated:"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "app", metavar="APP", help=f"bank, mail, …; {GENERATED}SEED; or a blueprint: a .toml file"
    )
    parser.add_argument(
        "--openapi", action="store_true", help="print an OpenAPI 3.1 document instead, as JSON"
    )


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.families.apps.compiler.openapi import documentation, openapi

    app = _app(options.app)
    print(json.dumps(openapi(app), indent=2) if options.openapi else documentation(app))
    return 0


def _app(name: str) -> App:
    """Return the app of a name or file.

    Raises:
        InputError: there is no such file or seed, or the blueprint contradicts itself.
        UnknownName: there is no such app.
    """
    from palaestra.environments.families.apps.app import App, Suite
    from palaestra.environments.families.apps.compiler.blueprint import parse
    from palaestra.environments.families.apps.generated import generated_app
    from palaestra.environments.families.apps.stock import stock_app, stock_suite

    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The blueprint '{name}' cannot be read: {error}.") from None
        app = App(parse(text, name))
        others = [other for other in stock_suite().apps.values() if other.name != app.name]
        Suite.of([*others, app])  # what it refers to must be there
        return app
    if name.startswith(GENERATED):
        seed = name.removeprefix(GENERATED)
        if not seed.isdecimal():
            raise InputError(f"'{seed}' is no seed of a generated app; write {GENERATED}3.")
        return generated_app(int(seed))
    return stock_app(name)
