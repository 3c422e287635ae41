"""Writes docs/reference/cli.md and the man page: every verb with its arguments and options.

`make generate` runs it; a test compares what it would write with what is there.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import typer  # noqa: E402 - the script runs uninstalled

from appliance.cli.help_texts import EXAMPLES, exit_codes  # noqa: E402 - the same
from appliance.cli.main import app  # noqa: E402 - the same
from appliance.cli.program import argument_word, in_words, is_argument  # noqa: E402 - the same
from appliance.storage.settings_file import PREFIX, VARIABLES  # noqa: E402 - the same

PAGE = ROOT / "docs" / "reference" / "cli.md"
MAN = ROOT / "docs" / "reference" / "bench.1"
ENVIRONMENT = ROOT / "docs" / "reference" / "environment.md"
HEAD = """\
# The command line

Written by `make generate` from the program itself. Text for people goes to stderr; with `--json`
one JSON document goes to stdout. [verbs.md](verbs.md) has the exit codes,
[environment.md](environment.md) the variables, and
what a file `bench.toml` may set. Every verb has `-h`; `bench --version` prints the version, and
`bench --install-completion` completes verbs and options in the shell that it is called from.
"""


def verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name, in the program's order."""
    if hasattr(command, "commands"):
        for word, inner in command.commands.items():
            yield from verbs(inner, f"{name} {word}")
    else:
        yield name, command


def section(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    pieces = " ".join(command.collect_usage_pieces(context))
    text = " ".join((command.help or "").split())
    rows = "".join(_row(*record) for record in _records(command, context))
    table = f"\n| argument or option | meaning |\n|---|---|\n{rows}" if rows else ""
    verb = name.partition(" ")[2]
    examples = "".join(f"    {line}  # {meaning}\n" for line, meaning in EXAMPLES[verb])
    end = f"\n{examples}\n{_exit_codes(verb)}\n"
    return f"\n## `{name}`\n\n{text}\n\n    {name} {pieces}\n{table}{end}"


def _row(names: str, meaning: str) -> str:
    """A pipe in a text would end its cell."""
    return f"| `{names}` | {' '.join(meaning.split()).replace('|', '/')} |\n"


def _records(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Names and meanings of what may stand on a verb's line; an argument's name is enough."""
    for one in command.params:
        record = one.get_help_record(context) if one.name != "help" else None
        if record is not None:
            names = argument_word(one) if is_argument(one) else in_words(record[0])
            yield names, in_words(record[1])


def page() -> str:
    command = typer.main.get_command(app)
    return HEAD + "".join(section(name, one) for name, one in verbs(command, "bench"))


MAN_HEAD = r""".\" Written by `make generate` from the program itself.
.TH BENCH 1 "" "bench"
.SH NAME
bench \- hardware acceptance for AI nodes: probe, run, judge, and sign a report
.SH SYNOPSIS
.B bench
.I VERB
[OPTIONS]
.SH DESCRIPTION
Text for people goes to stderr; with \-\-json one JSON document goes to stdout.
Exit codes: 0 accepted or done, 1 rejected, 2 usage or configuration,
3 inconclusive, 4 evidence does not verify, 5 the appliance itself failed,
130 interrupted.
"""
MAN_END = r"""\
.SH FILES
.TP
.B bench.toml
Options that a folder sets; bench/bench.toml in XDG_CONFIG_HOME (~/.config)
has those of a person.
.TP
.B out/<run id>
The folder of a run: plan, journal, verdict, pages and signatures.
.SH ENVIRONMENT
"""


def man_page() -> str:
    """The same as a man page."""
    command = typer.main.get_command(app)
    sections = "".join(_man_section(name, one) for name, one in verbs(command, "bench"))
    return MAN_HEAD + sections + MAN_END + "".join(_man_variables())


def _man_variables() -> Iterator[str]:
    """The variables of people, from the page that has all of them."""
    text = ENVIRONMENT.read_text().partition("\n## Settings")[0]
    for names, meaning in re.findall(r"^\| (`.*?) \| (.*) \|$", text, re.MULTILINE):
        yield f".TP\n.B {_roff(names.replace('`', ''))}\n{_roff_lines(meaning.replace('`', ''))}\n"
    for name in VARIABLES:
        variable = f"{PREFIX}{name.upper()}"
        yield f".TP\n.B {variable}\nFor {_roff('--' + name)} where it is not given.\n"


def _man_section(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    pieces = " ".join(command.collect_usage_pieces(context))
    text = " ".join((command.help or "").split())
    rows = "".join(
        f".TP\n.B {_roff(names)}\n{_roff_lines(meaning)}\n"
        for names, meaning in _records(command, context)
    )
    verb = name.partition(" ")[2]
    head = f".SH {_roff(name.upper())}\n.B {_roff(f'{name} {pieces}')}\n.PP\n{_roff_lines(text)}\n"
    examples = "".join(
        f".TP\n.B {_roff(line)}\n{_roff_lines(meaning)}\n" for line, meaning in EXAMPLES[verb]
    )
    return f"{head}{rows}{examples}.PP\n{_roff_lines(_exit_codes(verb))}\n"


def _exit_codes(verb: str) -> str:
    codes = "; ".join(f"{code} {meaning}" for code, meaning in exit_codes(verb))
    return f"Exit codes: {codes}."


def _roff(text: str) -> str:
    """A text without what man would take for a request or for a hyphen to break at."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _roff_lines(text: str) -> str:
    """The same in lines of a source that is read, none of which begins with a request."""
    lines = textwrap.wrap(" ".join(text.split()), 72, break_on_hyphens=False)
    return "\n".join(map(_roff, lines))


def main() -> None:
    """Write both anew."""
    PAGE.write_text(page())
    MAN.write_text(man_page())


if __name__ == "__main__":
    main()
