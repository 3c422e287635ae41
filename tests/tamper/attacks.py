"""Each kind of attack that is known, what came of it at first, and what comes of it today.

Of what the owner of a key forges, and of what is changed without the key, today's result is counted
from the fixtures of this folder, of which each names its attack. Other attacks are on whoever reads
or writes a run: there a sentence says it, and the tests that hold it are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tamper.forgeries import FORGERIES, OPEN
from tamper.pages import HTML, PDF, REFUSED
from tamper.tamperings import TAMPERINGS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "what-verify-proves.md"
BEGIN = "<!-- attacks: written by scripts/write_attacks.py -->\n"
END = "<!-- attacks: end -->\n"
HEAD = "| | attack | at first | today | held by |\n|---:|---|---|---|---|\n"
WITHOUT_KEY = 6


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A kind of attack by its number; `today` and `tests` are of what no fixture here shows."""

    number: int
    title: str
    at_first: str
    today: str = ""
    tests: tuple[str, ...] = ()


ATTACKS = (
    Attack(
        number=1,
        title="dotted keys in TOML that take gigabytes",
        at_first="6 GB, 32 s, before any signature",
        today="refused by its depth, and parsed in a child",
        tests=("test_hostile_paths.py", "test_confined_files.py"),
    ),
    Attack(
        number=2,
        title="a link under a name that is written, a run's name that leads out of its folder",
        at_first="the file that it leads to was overwritten",
        today="replaced, or refused; nothing outside is written, read, removed or given away",
        tests=("test_run_folder.py", "test_links.py", "test_race.py"),
    ),
    Attack(
        number=3,
        title="a PDF of 127 bytes with 2,000,000,000 objects",
        at_first="hung",
        today="refused in a child with limits, in 60 MB and three times its size",
        tests=("test_hostile_paths.py",),
    ),
    Attack(
        number=4,
        title="200,000 lines, five sparse files of 1 GiB, unsigned or signed anew",
        at_first="105 s, 5.2 GB",
        today="the signature comes first; then caps by name, 256 MiB in all, memory and time of a "
        "child",
        tests=("test_hostile_paths.py", "test_large_bundles.py", "test_fuzz.py"),
    ),
    Attack(
        number=5,
        title="a FIFO, a socket, a device as the path; line breaks, bidirectional marks in names",
        at_first="hung; lines of their own in the output",
        today="refused without opening it; shown as `[U+202E]` on one line",
        tests=("test_hostile_paths.py", "test_foreign_text.py", "test_hostile.py"),
    ),
    Attack(
        number=WITHOUT_KEY,
        title="any byte, line, page or attachment changed without the key",
        at_first="refused",
    ),
    Attack(
        number=7,
        title="pages that say another thing than the verdict, with the key",
        at_first="accepted",
        today=f"with `--pages` {len(HTML)} of {len(HTML)} other report.html refused, as they are "
        "written again; "
        f"of {len(PDF)} other report.pdf {len(REFUSED)} refused and {len(PDF) - len(REFUSED)} `not "
        "compared`, as one that other fonts or libraries laid out",
        tests=("test_written_pages.py",),
    ),
    Attack(
        number=8,
        title="peak figures and operations of one's own, also under another version of bench",
        at_first="peak figures times 1000 were accepted",
    ),
    Attack(
        number=9,
        title="a run made before, under a seed drawn afterwards",
        at_first="accepted",
    ),
    Attack(
        number=10,
        title="bounds of 10^9, checks left out",
        at_first="accepted",
    ),
    Attack(
        number=11,
        title="a suite by its digest alone, or another one under a known name",
        at_first="only the claim was compared",
    ),
    Attack(
        number=12,
        title="clocks, copies of fast blocks, blocks and counters left out",
        at_first="accepted",
    ),
    Attack(
        number=13,
        title="texts of one's own",
        at_first="accepted",
    ),
    Attack(
        number=14,
        title="records that contradict each other, or are in another form",
        at_first="refused",
    ),
    Attack(
        number=15,
        title="another device by its name",
        at_first="accepted",
    ),
    Attack(
        number=16,
        title="a journal that contradicts its plan, given to whoever goes on with it or signs it",
        at_first="exit code 5, or rendered and signed",
        today="one sentence, before anything is written",
        tests=("test_hostile_journals.py",),
    ),
    Attack(
        number=17,
        title="pages with scripts, actions, forms, frames, or another policy for the browser, with "
        "the key",
        at_first="accepted, but for a script in report.html",
        today="refused",
        tests=("test_passive_pdf.py", "test_html_attachments.py"),
    ),
    Attack(
        number=18,
        title="a zip of which programs unpack different files, or elsewhere: something before or "
        "between those of its list, two that overlap, other names and sizes than its list has, a "
        "folder that is `..` or the root",
        at_first="accepted",
        today="refused",
        tests=("test_hostile_paths.py", "test_archives.py"),
    ),
    Attack(
        number=19,
        title="a record that leaves its reader without memory, so that it waits for itself",
        at_first="9 minutes, without any time of a processor",
        today="given up after 2 s",
        tests=("test_confined_child.py",),
    ),
    Attack(
        number=20,
        title="`--facts` with an empty file; a large run that does not verify, given to a verb "
        "that goes on with it",
        at_first="taken for the facts of this release; 723 MB",
        today="refused; nothing of it but the verdict is handed over",
        tests=("test_hostile_paths.py", "test_large_bundles.py"),
    ),
    Attack(
        number=21,
        title="certificates with an extension twice or of version 9; with a critical extension "
        "that nobody judges; for servers alone",
        at_first="exit code 5; accepted; accepted",
        today="refused",
        tests=("test_odd_certificates.py",),
    ),
    Attack(
        number=22,
        title="the folder of a collection with links, FIFOs, tables of another form, a statement "
        "that leaves tables out; bundles in folders without an end; a list of 30 million nodes",
        at_first="the end of another file cut off, tables written elsewhere, waited for ever, exit "
        "code 5, parsed before their digests were compared",
        today="one sentence, before anything is written or parsed",
        tests=("test_hostile_collections.py", "test_planned_fleets.py"),
    ),
)


def results(number: int) -> str:
    """What comes of the fixtures of an attack: how many are refused by which checks, or pass."""
    if number == WITHOUT_KEY:
        return f"{len(TAMPERINGS)} of {len(TAMPERINGS)} refused"
    defects = [one for one in FORGERIES.values() if one.attack == number]
    checks = Counter(f"{one.check}: {one.reason}" for one in defects if one.check)
    not_compared = sum(not one.check for one in defects)
    still = sorted(name for name, one in OPEN.items() if one.attack == number)
    parts = [f"{sum(checks.values())} refused ({_counted(checks)})"] if checks else []
    if not_compared:
        parts.append(f"{not_compared} `not compared`, exit code 3 with an expectation")
    if still:
        names = ", ".join(name.replace("_", " ") for name in still)
        parts.append(f"{len(still)} open ({names})")
    return "; ".join(parts)


def _counted(checks: Counter[str]) -> str:
    return ", ".join(f"{number} by {check}" for check, number in sorted(checks.items()))


def _held_by(attack: Attack) -> str:
    if attack.tests:
        return ", ".join(f"`{name}`" for name in attack.tests)
    if attack.number == WITHOUT_KEY:
        return "`test_tamperings.py`, `test_fuzz.py`"
    return "`test_forgeries.py`" if results(attack.number) else "open"


def _rows() -> Iterator[str]:
    for one in ATTACKS:
        today = one.today or results(one.number)
        yield f"| {one.number} | {one.title} | {one.at_first} | {today} | {_held_by(one)} |\n"


def table() -> str:
    """The table of the page, as Markdown."""
    return HEAD + "".join(_rows())


def page(text: str) -> str:
    """The page with the table in the place that it has there."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"
