"""The report of a run as an SVG picture, as the terminal shows it.

python scripts/report_picture.py RUN docs/images/train.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from palaestra.evaluation import presentation, report
from palaestra.store.run import RunFolder


def main(folder: str, target: str) -> None:
    with RunFolder.read(Path(folder)) as run:
        shown = Path("runs") / run.path.name  # a reader's own path, not this machine's
        built = report.build(run.database, shown, model=shown / "final")
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    presentation.render(built, console)
    picture = console.export_svg(title="make train")
    # no fonts from elsewhere: a picture in a repository should ask nobody for anything
    Path(target).write_text(re.sub(r"@font-face\s*{.*?}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
