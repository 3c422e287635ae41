"""How command lines are read: help, settings for what they leave out, sentences on faults.

Of the option parser only what its commands offer is used, so that any of its versions will do.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from appliance.cli import help_texts
from appliance.cli.output import NAME, continued, in_lines, say
from appliance.errors import UsageError
from appliance.version import VERSION

HELP_OPTIONS = ("-h", "--help")
CONTEXT = {"help_option_names": list(HELP_OPTIONS)}
WITH_SETTINGS = {"accept", "run", "plan", "start", "doctor"}
"""Verbs whose options settings may stand for."""
GOES_ON = {"--resume", "--from"}
BEHIND_VERBS = {"--json", "--quiet", "--allow-dev", "--trust", "--out", "--vendor", "--suite"}
"""Options of verbs, which some people write before them."""
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
    "valid boolean": "true or false",
}
"""What an option takes, by what the parser says of a value that it refuses."""
INSTALL = "--install-completion"
INSTALLED = (
    *(".bash_completions/bench.sh", ".zfunc/_bench", ".config/fish/completions/bench.fish"),
)
"""Files below the home folder that the option parser writes, one a shell."""
COMPLETES = b"=complete_"
"""What each of them has."""
RANGE = re.compile(r"(?:(?P<least>[0-9.]+)<=)?x(?:<=(?P<most>[0-9.]+)|>=(?P<at_least>[0-9.]+))")
"""How the parser writes which numbers an option takes."""
WHOLE = "\u2011"
"""Stands for a hyphen while lines are filled: none ends there."""
NAME_WIDTH = 30
"""Columns of names at most."""
EXAMPLE_WIDTH = 38
"""Columns of a short example, beside which its meaning stands."""


def in_words(text: str) -> str:
    """A part of a help text with types and ranges as words."""
    for name, word in TYPES.items():
        text = text.replace(name, word)
    return RANGE.sub(_range_words, text)


def _range_words(match: re.Match[str]) -> str:
    least, most = match["least"] or match["at_least"], match["most"]
    return " ".join(filter(None, (least and f"from {least}", most and f"to {most}")))


def is_argument(parameter: Any) -> bool:
    """Whether it stands on a command line without a name."""
    return bool(parameter.param_type_name == "argument")


def argument_word(parameter: Any) -> str:
    """What help calls an argument: RUN, or RUN... where there may be several."""
    word = parameter.metavar or str(parameter.name).upper()
    return word + ("" if parameter.nargs == 1 else "...")


def _usage(parameter: Any) -> str:
    word = argument_word(parameter)
    return word if parameter.required else f"[{word}]"


class Help:
    """How help is written: as wide as the terminal, and without a word that is cut."""

    help: str | None

    def get_help(self: Any, ctx: Any) -> str:
        """The help of a verb, or of several."""
        formatter = ctx.make_formatter()
        formatter.width = min(formatter.width, shutil.get_terminal_size().columns - 1)
        self.format_help(ctx, formatter)
        return str(formatter.getvalue()).rstrip("\n").replace(WHOLE, "-")

    def get_short_help_str(self, _limit: int = 0) -> str:
        """The first paragraph of what the verb does, whole: for lists and completion."""
        text = inspect.cleandoc(self.help or "")
        return " ".join(text.partition("\n\n")[0].split())

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        """What the verb does."""
        formatter.write_paragraph()
        with formatter.indentation():
            text = inspect.cleandoc(self.help or "")
            formatter.write_text(_whole(text))


def _whole(text: str) -> str:
    """A text whose words no line ends inside of, until WHOLE is a hyphen again."""
    return text.replace("-", WHOLE)


def _section(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Names with their meanings, in two columns."""
    if rows:
        with formatter.section(title):
            whole = [(_whole(name), _whole(meaning)) for name, meaning in rows]
            formatter.write_dl(whole, col_max=min(NAME_WIDTH, formatter.width // 2 - 2))


class Verb(Help, TyperCommand):
    """One verb: settings stand for options that its command line leaves out."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The command line, read; UsageError for settings that are wrong, and for two values."""
        if set(HELP_OPTIONS).isdisjoint(args):
            self._check(args)
        extra = {**extra, "default_map": dict(self._defaults(args))}
        return super().make_context(info_name, args, parent, **extra)

    def _check(self, args: Sequence[str]) -> None:
        """UsageError for an option that is given two values, and for a word that is empty."""
        options = {name: one for one in self.params if not is_argument(one) for name in one.opts}
        seen: set[str] = set()
        words = iter(args)
        for word in words:
            name, equals, _ = word.partition("=")
            one = options.get(name)
            if word == "":
                raise UsageError(
                    f'{self.name}: a word of the command line is empty (""): give what belongs '
                    "there, or leave it out"
                )
            if word == "--":
                return
            if one is None or getattr(one, "is_flag", False):
                continue
            if one.name in seen and not getattr(one, "multiple", False):
                raise UsageError(f"{self.name}: {name} is given twice: leave one of the two out")
            seen.add(str(one.name))
            if not equals:
                next(words, None)

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

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What may stand behind the verb."""
        arguments = filter(is_argument, self.get_params(ctx))
        return ["[OPTIONS]", *map(_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options, with types in words."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            name, meaning = one.get_help_record(ctx) or ("", "")
            if is_argument(one):
                rows["Arguments"].append((argument_word(one), in_words(meaning)))
            elif name:
                rows["Options"].append((in_words(name), in_words(meaning)))
        for title, records in rows.items():
            _section(formatter, title, records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Command lines to copy, and what the exit codes mean."""
        name = ctx.command_path.partition(" ")[2]
        if name not in help_texts.EXAMPLES:
            return
        with formatter.section("Examples"):
            for line, meaning in help_texts.EXAMPLES[name]:
                formatter.write(_example(line, meaning, formatter.width))
        _section(formatter, "Exit codes", list(help_texts.exit_codes(name)))


def _example(line: str, meaning: str, width: int) -> str:
    """A line of a help with its meaning, below it where there is no room; both whole."""
    short = f"  {line:{EXAMPLE_WIDTH}}  {meaning}\n"
    if len(line) <= EXAMPLE_WIDTH and len(short) <= width:
        return short
    below = textwrap.indent(in_lines(meaning, width - 6), "      ")
    return f"  {continued(line, width - 2)}\n{below}\n"


class Verbs(Help, TyperGroup):
    """Several verbs; without any of them it shows its help, which is no error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left for the verb."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every verb with the whole of its summary."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str()) for name, one in commands if one]
        _section(formatter, "Commands", rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Where to go on."""
        formatter.write_paragraph()
        text = f"`{ctx.command_path} VERB -h` has options, examples and exit codes."
        formatter.write_text(_whole(text))


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


def check_completion(words: Sequence[str]) -> None:
    """UsageError where completion would be written over a file that bench did not write."""
    if INSTALL not in words:
        return
    for name in INSTALLED:
        path = Path.home() / name
        with suppress(OSError):
            if path.exists() and COMPLETES not in path.read_bytes():
                raise UsageError(
                    f"{path} is of something else than bench: move it away, or copy what "
                    f"`{NAME} --show-completion` prints"
                )


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
    parameter = getattr(error, "param", None)
    rest = path.partition(" ")[2]
    begin = f"{rest}: " if rest else ""
    if lone := re.fullmatch(r"Option '([^']*)' requires an argument\.", message):
        what, rest = _lone(lone[1])
    elif option:
        what = f"{rest or NAME} has no option {option}{_elsewhere(option, rest, names)}"
    elif unknown := re.match(r"No such command '([^']*)'", message):
        what = f'there is no verb "{unknown[1]}"{_meant(unknown[1], names)}'
    elif parameter is not None and message.startswith("Missing"):
        what = f"{rest or 'it'} needs {_word(parameter)}{_about(parameter)}"
    elif extra := re.fullmatch(r"Got unexpected extra argument\S* \((.*)\)", message):
        what = f"{rest} takes no {extra[1]!r} here"
    elif number := _number(parameter, message):
        what = f"{begin}{number}"
    else:
        what = f"{begin}{message[:1].lower()}{message[1:]}".rstrip(".")
    return f"{what}; `{' '.join(filter(None, (NAME, rest, '-h')))}` shows what there is"


def _lone(option: str) -> tuple[str, str]:
    """What is wrong with an option that ends a command line, and the verb that it is of."""
    rest = " ".join(takewhile(lambda word: not word.startswith("-"), sys.argv[1:3]))
    return f"{option} needs a value behind it", rest.partition(" ")[0]


def _elsewhere(option: str, verb: str, names: tuple[str, ...]) -> str:
    """Where an unknown option may belong: behind the verb; else what may have been meant."""
    if not verb and option in BEHIND_VERBS:
        return f": it stands behind the verb, as in `{NAME} verify RUN {option}`"
    return _meant(option, names)


def _number(option: Any, message: str) -> str | None:
    """What an option of a number takes, with its help on it; None for any other fault."""
    kind = next((words for text, words in NUMBERS.items() if text in message), None)
    if kind is None or not getattr(option, "opts", None):
        return None
    least, most = getattr(option, "min", None), getattr(option, "max", None)
    limits = (
        f" {word} {limit:g}" for word, limit in (("from", least), ("to", most)) if limit is not None
    )
    return f"{option.opts[0]} takes {kind}{''.join(limits)}{_about(option)}"


def _word(parameter: Any) -> str:
    """How a parameter is written on a command line."""
    return argument_word(parameter) if is_argument(parameter) else str(parameter.opts[0])


def _about(parameter: Any) -> str:
    """What the help says of a parameter, shortly and in brackets."""
    about = (getattr(parameter, "help", None) or "").partition("; ")[0].rstrip(".")
    return f" ({about})" if about else ""


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
