"""`palaestra new`: write a package for an agent or environment."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from palaestra.core.errors import InputError, UnknownName

EXAMPLE = "palaestra new environment packing"
KINDS = ("agent", "environment")
NEXT = {
    "agent": ("palaestra eval --agent NAME --env probe/memory-4 --model expert -n 8",),
    "environment": ("palaestra check-env NAME/easy", "palaestra play --env NAME/easy"),
}
TEMPLATES = Path(__file__).parent.parent / "templates"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument(
        "name", metavar="NAME", help="name of the package: lower case, as in Python"
    )
    parser.add_argument("--to", metavar="FOLDER", help="where to write it (default: ./NAME)")


def run(options: argparse.Namespace) -> int:
    if options.kind not in KINDS:
        raise UnknownName("kind of package", options.kind, KINDS)
    name = options.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(
            f"'{name}' cannot name a package; use lower-case letters, digits and underscores, "
            "starting with a letter."
        )
    _check_free(options.kind, name)
    folder = Path(options.to or name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' exists and is not an empty folder; name another with --to.")
    written = _write(TEMPLATES / options.kind, folder, name)
    print(f"Written to {folder}:")
    for path in written:
        print(f"  {path}")
    print("\nNext:")
    for command in (f"pip install -e {folder}", *NEXT[options.kind], f"pytest {folder}"):
        print(f"  {command.replace('NAME', name)}")
    return 0


def _check_free(kind: str, name: str) -> None:
    """Raise InputError if an agent or environment family has that name."""
    if kind == "agent":
        from palaestra.agents.registry import agents

        taken, what = name in agents(), "agent"
    else:
        from palaestra.environments.registry import families

        taken, what = name in families(), "environment family"
    if taken:
        raise InputError(f"The {what} '{name}' exists already; choose another name.")


def _write(template: Path, folder: Path, name: str) -> list[Path]:
    """Copy the template with the package's name in place of NAME; return the paths in order."""
    title = "".join(part.capitalize() for part in name.split("_"))
    written = []
    for source in sorted(template.rglob("*.txt")):
        relative = str(source.relative_to(template)).removesuffix(".txt").replace("NAME", name)
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text().replace("NAME", name).replace("TITLE", title))
        written.append(Path(relative))
    return written
