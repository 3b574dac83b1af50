"""``python -m tools.draw_progress``: draw the progress display of a run for docs/gallery.md.

The run is real, its models are scripted; the picture is the display when half of the conversations have ended.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from bactrian.cli.view.progress_view import draw_progress
from bactrian.runs.progress import ProgressSnapshot
from tools.photograph_reports import make_run

PICTURE = Path(__file__).parent.parent / "docs/images/progress.svg"
WIDTH = 92
DELAY = 0.25


def main() -> None:
    """Generate sixty conversations, and draw their progress at half of the way."""
    seen: list[ProgressSnapshot] = []
    with tempfile.TemporaryDirectory() as scratch:
        make_run(Path(scratch) / "helpers.db", 0.4, delay=DELAY, budget=1.0, on_progress=seen.append)
    half = next(now for now in seen if 2 * now.done >= now.total)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(draw_progress(half, WIDTH))
    drawn = console.export_svg(title="bactrian generate", theme=DIMMED_MONOKAI, unique_id="progress")
    # rich names a font on a server; a picture of the documentation asks nobody for anything.
    PICTURE.write_text(re.sub(r"\s*@font-face \{.*?\n    \}", "", drawn, flags=re.DOTALL), "utf-8")


if __name__ == "__main__":
    main()
