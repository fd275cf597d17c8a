"""The report of a run as an SVG picture, as the terminal shows it.

python scripts/report_picture.py RUN docs/images/train.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from palaestra.evaluation.reports import report, report_files
from palaestra.store.run_folder import RunFolder


def main(folder: str, target: str) -> None:
    with RunFolder.read(Path(folder)) as run:
        shown = Path("runs") / run.path.name  # a path on the reader's machine, not on this one
        built = report.build(run.database, shown, model=shown / "final")
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    report_files.render(built, console)
    picture = console.export_svg(title="make train")
    # no remote fonts: a picture in a repository must not make requests
    Path(target).write_text(re.sub(r"@font-face\s*{.*?}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
