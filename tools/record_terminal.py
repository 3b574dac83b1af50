"""``python tools/record_terminal.py OUT.svg COMMAND…``: run a command and draw what it says as an animated SVG.

The lines are those of a real run and appear in its rhythm, ten times as fast. The picture needs no script to play,
and shows everything at once where animations are switched off.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from textwrap import wrap

WIDTH = 92
FASTER = 10
_LINE, _LETTER, _MARGIN = 18, 7.83, 16
_STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre }
.dim { fill: #8b98ad } .command { fill: #ffffff; font-weight: bold } .speaker { fill: #8fc7ff; font-weight: bold }
@media (prefers-reduced-motion: no-preference) { text { opacity: 0; animation: show 0.2s forwards } }
@keyframes show { to { opacity: 1 } }
"""


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run ``command`` and return its lines of standard output with the seconds at which they came."""
    variables = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables, text=True) as process:
        assert process.stdout is not None
        lines = [(time.monotonic() - begun, line.rstrip("\n")) for line in process.stdout]
    if process.returncode:
        sys.exit(process.returncode)
    return lines


def choose_class(line: str) -> str:
    """Return the style of a line: prompt, speaker, small print or text."""
    if line.startswith("$ "):
        return "command"
    if line.endswith(("(AI user)", "(AI assistant)")):
        return "speaker"
    return "dim" if line.startswith(("─", "local ·", "why ", "idea ")) or " tokens" in line else ""


def draw(command: list[str], lines: list[tuple[float, str]]) -> str:
    """Return the SVG of the command and its lines."""
    shown = [(0.0, f"$ {shlex.join(command)}")]
    shown += [(at, part) for at, line in lines for part in wrap(line, WIDTH, drop_whitespace=False) or [""]]
    width, height = int(WIDTH * _LETTER) + 2 * _MARGIN, len(shown) * _LINE + 2 * _MARGIN
    texts = [
        f'<text x="{_MARGIN}" y="{_MARGIN + _LINE * row + 12}" class="{choose_class(line)}" '
        f'style="animation-delay:{at / FASTER:.2f}s">{escape(line)}</text>'
        for row, (at, line) in enumerate(shown)
        if line
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{escape(shlex.join(command))}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1d2430"/>',
            *texts,
            "</svg>\n",
        )
    )


def main() -> None:
    """Record the command and write its picture."""
    out, command = Path(sys.argv[1]), sys.argv[2:]
    out.write_text(draw(command, record(command)), "utf-8")


if __name__ == "__main__":
    main()
