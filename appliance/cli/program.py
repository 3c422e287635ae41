"""How command lines are read: help, settings for what they leave out, sentences on faults.

Of the option parser only what its commands offer is used, so that any of its versions will do.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from appliance.cli.output import NAME, say
from appliance.version import VERSION

HELP_OPTIONS = ("-h", "--help")
CONTEXT = {"help_option_names": list(HELP_OPTIONS)}
WITH_SETTINGS = {"accept", "run", "plan", "start", "doctor"}
"""Verbs whose options settings may stand for."""
GOES_ON = {"--resume", "--from"}
QUICKLY = {"suite", "minutes", "hours"}
"""What --quick says in their place."""
FIXED = {"suite", "vendor", "minutes", "hours", "stress", "sessions", "pause"}
"""Options that a run which goes on has already."""
TYPES = {
    "<str>": "TEXT",
    "<int>": "COUNT",
    "<float>": "NUMBER",
    "<int range>": "COUNT",
    "<float range>": "NUMBER",
    "<path>": "PATH",
    "<file>": "PATH",
    "<list[str]>": "TEXT...",
    "<list[Path]>": "PATH...",
}
NUMBERS = {
    "valid integer": "an integer",
    "valid number": "a number",
    "valid float": "a number",
    "greater than": "a number",
    "less than": "a number",
    "in the range": "a number",
}
"""What an option takes, by what the parser says of a value that it refuses."""


def in_words(text: str, *, is_aligned: bool = False) -> str:
    """A help text with the types of options as words; `is_aligned` leaves its columns."""
    for name, word in TYPES.items():
        text = text.replace(name, word.ljust(len(name)) if is_aligned else word)
    return text


class Verb(TyperCommand):
    """One verb: settings stand for options that its command line leaves out."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The command line, read; UsageError for settings that are wrong."""
        extra = {**extra, "default_map": dict(self._defaults(args))}
        return super().make_context(info_name, args, parent, **extra)

    def _defaults(self, args: list[str]) -> Iterator[tuple[str, object]]:
        if self.name not in WITH_SETTINGS or not set(HELP_OPTIONS).isdisjoint(args):
            return
        from appliance.storage import settings_file

        own = {parameter.name: parameter.opts for parameter in self.params}
        is_going_on = any(word.partition("=")[0] in GOES_ON for word in args)
        settings = settings_file.settings(os.environ, Path.cwd())
        is_quiet = "quiet" in settings or not {"--json", "--quiet"}.isdisjoint(args)
        for name, one in settings.items():
            option = own.get(name, ())
            is_given = any(word.partition("=")[0] in option for word in args)
            is_fixed = (is_going_on and name in FIXED) or ("--quick" in args and name in QUICKLY)
            if not option or is_given or is_fixed:
                continue
            if not is_quiet:
                say(f"bench: {option[0]} {one.value} is set by {one.source}")
            yield name, one.value

    def get_help(self, ctx: Any) -> str:
        """The help, with types in words."""
        return in_words(super().get_help(ctx), is_aligned=True)


class Verbs(TyperGroup):
    """Several verbs; without any of them it shows its help, which is no error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left for the verb."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


def help_text(root: Any, words: Sequence[str]) -> str | None:
    """The help that verbs and nothing but `--help` ask for; None for any other command line.

    Reading a command line loads what converts values, which takes longer than all of the help.
    """
    *verbs, last = words or ("",)
    if last not in HELP_OPTIONS:
        return None
    command = root
    names = list(HELP_OPTIONS)
    context = typer.Context(command, info_name=NAME, help_option_names=names)
    for verb in verbs:
        command = getattr(command, "commands", {}).get(verb)
        if command is None:
            return None
        context = typer.Context(command, info_name=verb, parent=context, help_option_names=names)
    return str(command.get_help(context))


def version(*, wanted: bool) -> None:
    """Print the version and end, where it is asked for."""
    if wanted:
        typer.echo(f"{NAME} {VERSION}")
        raise typer.Exit(0)


def sentence(error: Exception) -> str:
    """What is wrong with a command line, what may have been meant, and where help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else NAME
    form = getattr(error, "format_message", None)
    message = str(form() if callable(form) else error)
    names = () if context is None else tuple(_names(context))
    option = getattr(error, "option_name", "")
    rest = path.partition(" ")[2]
    begin = f"{rest}: " if rest else ""
    if option:
        what = f"{rest or 'it'} has no option {option}{_meant(option, names)}"
    elif unknown := re.match(r"No such command '([^']*)'", message):
        what = f'there is no verb "{unknown[1]}"{_meant(unknown[1], names)}'
    elif number := _number(getattr(error, "param", None), message):
        what = f"{begin}{number}"
    else:
        what = f"{begin}{message[:1].lower()}{message[1:]}".rstrip(".")
    return f"{what}; `{' '.join(filter(None, (NAME, rest, '-h')))}` shows what there is"


def _number(option: Any, message: str) -> str | None:
    """What an option of a number takes, with its help on it; None for any other fault."""
    kind = next((words for text, words in NUMBERS.items() if text in message), None)
    if kind is None or not getattr(option, "opts", None):
        return None
    least, most = getattr(option, "min", None), getattr(option, "max", None)
    limits = (
        f" {word} {limit:g}" for word, limit in (("from", least), ("to", most)) if limit is not None
    )
    about = (getattr(option, "help", None) or "").partition("; ")[0].rstrip(".")
    return f"{option.opts[0]} takes {kind}{''.join(limits)}" + (f" ({about})" if about else "")


def _names(context: Any) -> Iterator[str]:
    """What may stand at this place of a command line: its verbs, or its options."""
    commands: Mapping[str, object] = getattr(context.command, "commands", {})
    yield from commands
    for parameter in context.command.params:
        yield from (name for name in parameter.opts if name.startswith("-"))


def _meant(word: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def wants_json() -> bool:
    """Whether the command line asks for JSON, even where it cannot be read."""
    return "--json" in sys.argv[1:]
