"""`palaestra app`: check a blueprint of an app; print what agents read of it, or show its pages."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.environments.families.apps.app import App, Suite

EXAMPLE = "palaestra app bank"
GENERATED = "generated:"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "app", metavar="APP", help=f"bank, mail, …; {GENERATED}SEED; or a blueprint: a .toml file"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--openapi", action="store_true", help="print an OpenAPI 3.1 document instead, as JSON"
    )
    shown.add_argument(
        "--web", action="store_true", help="serve its pages on this machine instead, until Ctrl-C"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="with --web: of the rows and the look (default: 0)"
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help="with --web: of the pages (default: any free one)"
    )


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.families.apps.compiler.openapi import documentation, openapi

    app, suite = _app(options.app)
    if options.web:
        from palaestra.cli.app_pages import serve_pages

        serve_pages(app, suite, options.seed or 0, options.port or 0)
        return 0
    for name in ("seed", "port"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name} is for --web; add it, or leave --{name} out.")
    print(json.dumps(openapi(app), indent=2) if options.openapi else documentation(app))
    return 0


def _app(name: str) -> tuple[App, Suite]:
    """Return the app of a name or file, and a suite that has it.

    Raises:
        InputError: there is no such file or seed, or the blueprint contradicts itself.
        UnknownName: there is no such app.
    """
    from palaestra.environments.families.apps.app import App, Suite
    from palaestra.environments.families.apps.compiler.blueprint import parse
    from palaestra.environments.families.apps.generated import generated_app
    from palaestra.environments.families.apps.stock import (
        LIFE,
        OFFICE,
        stock_app,
        stock_suite,
    )

    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"The blueprint '{name}' cannot be read: {error}.") from None
        app = App(parse(text, name))
        others = [other for other in stock_suite().apps.values() if other.name != app.name]
        return app, Suite.of([*others, app])  # what it refers to must be there
    if name.startswith(GENERATED):
        seed = name.removeprefix(GENERATED)
        if not seed.isdecimal():
            raise InputError(f"'{seed}' is no seed of a generated app; write {GENERATED}3.")
        app = generated_app(int(seed))
        return app, Suite.of([stock_app("supervisor"), app])
    app = stock_app(name)
    return app, stock_suite(tuple(dict.fromkeys((*LIFE, *OFFICE, "user", name))))
