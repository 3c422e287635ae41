"""The program's options are those of options.txt: no new one appears by accident.

A setting belongs into a suite, criteria or an order first. Whoever means to add, rename or remove
an option changes the list in the same commit, and the reference of verbs with it.
"""

from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from appliance.cli.main import app

LISTED = Path(__file__).parent / "options.txt"


def described(command: object, words: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each parameter of each verb: an option by all of its names, or an argument."""
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from described(inner, (*words, name))
        return
    assert isinstance(command, TyperCommand)
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        names = parameter.opts if is_option else [str(parameter.name).upper()]
        yield " ".join((*words, *names))


def test_options_are_those_that_are_listed() -> None:
    lines = sorted(described(typer.main.get_command(app)))
    assert lines == LISTED.read_text().splitlines()
