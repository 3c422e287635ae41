"""Writes docs/pictures/: page 1 of a report, and the terminal of the run that left it.

    scripts/write_pictures.py [SUITE]

It makes a real run of the suite (smoke) on this machine in a folder of its own and draws what came
of it, so both pictures are of one run and one version. Needs `pdftoppm` of poppler-utils. Run it
where nobody else uses the machine: page 1 says so if somebody does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402 - the script runs uninstalled
from rich.console import Console  # noqa: E402 - the same
from rich.terminal_theme import DIMMED_MONOKAI  # noqa: E402 - the same

from appliance.errors import ApplianceError, UsageError  # noqa: E402 - the same

PICTURES = ROOT / "docs" / "pictures"
PAGE, TERMINAL = PICTURES / "page-1.png", PICTURES / "terminal.svg"
DOTS_PER_INCH = 90
COLOURS = 32
WIDTH = 112
FIRST_LINES, LAST_LINES = 4, 26
MOST_BYTES = 150_000
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""The fonts that rich would have a viewer fetch; its own monospace one does."""


def run(folder: Path, suite: str) -> tuple[Path, str]:
    """The folder of a finished run, and what the terminal showed with the command ahead."""
    words = ["accept", "--suite", suite, "--out", "out"]
    command = [sys.executable, "-m", "appliance", *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": str(WIDTH)}
    done = subprocess.run(  # noqa: S603 - our own program
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    reports = sorted((folder / "out").glob("*/report.pdf"))
    if not reports:
        raise UsageError(f"the run left no report: {done.stderr.strip().splitlines()[-1:]}")
    shown = done.stderr.replace(f"{folder}/", "").replace(f"{sys.executable} -m appliance", "bench")
    return reports[0].parent, f"$ bench {' '.join(words)}\n{shown}"


def draw_page(report: Path, path: Path) -> None:
    """Page 1 as a PNG of few colours, which keeps it small."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "page"
        command = ["pdftoppm", "-png", "-r", str(DOTS_PER_INCH), "-f", "1", "-l", "1"]
        subprocess.run(  # noqa: S603 - a program of the system, by its name
            [*command, "-singlefile", str(report), str(target)], check=True
        )
        with Image.open(target.with_suffix(".png")) as image:
            image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def draw_terminal(text: str, path: Path) -> None:
    """The begin and the end of what a terminal showed, as an SVG that fetches nothing."""
    lines = text.rstrip().splitlines()
    if len(lines) > FIRST_LINES + LAST_LINES:
        lines = [*lines[:FIRST_LINES], "...", *lines[-LAST_LINES:]]
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, markup=False, highlight=False)
    drawn = console.export_svg(title="bench", theme=DIMMED_MONOKAI, unique_id="terminal")
    path.write_text("\n".join(line.rstrip() for line in FONT.sub("", drawn).splitlines()) + "\n")


def main() -> None:
    """Make the run and both pictures."""
    if shutil.which("pdftoppm") is None:
        raise UsageError("pdftoppm is missing: install poppler-utils")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run_folder, text = run(Path(folder), *(sys.argv[1:2] or ["smoke"]))
        draw_page(run_folder / "report.pdf", PAGE)
        draw_terminal(text, TERMINAL)
    for path in (PAGE, TERMINAL):
        if path.stat().st_size > MOST_BYTES:
            raise ApplianceError(f"{path} has {path.stat().st_size} bytes: draw it smaller")
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
