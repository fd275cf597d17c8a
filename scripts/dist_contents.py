"""Checks that a wheel and an sdist contain every file of the package that git tracks.

python scripts/dist_contents.py dist/*.whl dist/*.tar.gz

C sources, recipes, templates and the viewer's files are read at run time: without this check, a
file that is missing from a wheel is noticed only after its installation.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tracked() -> set[str]:
    """Return the files of the package, with paths from `palaestra/` on."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/palaestra"], cwd=ROOT, capture_output=True, check=True
    )
    return {name.removeprefix("src/") for name in listed.stdout.decode().split("\0") if name}


def held(file: Path) -> set[str]:
    """Return the package's files in a distribution."""
    if file.suffix == ".whl":
        return set(zipfile.ZipFile(file).namelist())
    with tarfile.open(file) as archive:
        return {name.partition("/src/")[2] for name in archive.getnames()}


def main(files: list[Path]) -> int:
    wanted, faults = tracked(), 0
    for file in files:
        lacking = sorted(wanted - held(file))
        kinds = sorted({Path(name).suffix for name in wanted - set(lacking)})
        print(
            f"{file.name}: {len(wanted) - len(lacking)} of {len(wanted)} files ({' '.join(kinds)})"
        )
        for name in lacking:
            print(f"  lacks {name}")
        faults += bool(lacking)
    return int(faults > 0 or not files)


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]]))
