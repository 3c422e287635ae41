"""TOML files read strictly: an unknown key or a wrong type is one sentence with the fix.

What a person names may be another's: TOML's parser reads it in a confined child, which answers with
JSON, and that alone is read here. Files of this package are read in place.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ValidationError

from appliance.errors import UsageError
from appliance.ipc import confined_reader
from appliance.records.json import adapter
from appliance.storage import input_file, limits

ROOT = Path(__file__).parents[2]
R = TypeVar("R")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """' (did you mean "x"?)' for a near miss among `choices`, else the choices themselves."""
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f' (did you mean "{near[0]}"?)'
    return f" (there are: {', '.join(known)})" if known else ""


def parse(kind: type[R], data: bytes, name: str) -> R:
    """One record from TOML; UsageError names the file, the line or the key, and the fix.

    What Python's parser would need gigabytes for is refused before it sees it.
    """
    if len(data) > limits.TOML:
        size = limits.size_words(limits.TOML)
        raise UsageError(f"{name} has more than {size}, which no such file has")
    return parse_json(kind, _confined_text(data, name), name)


def parse_own(kind: type[R], data: bytes, name: str) -> R:
    """As `parse`, of a file of this package."""
    return parse_json(kind, _json_text(data, name), name)


@lru_cache(maxsize=64)
def _confined_text(data: bytes, name: str) -> bytes:
    """The file as JSON, from a child that may die of it; a run reads its criteria several times."""
    return confined_reader.content(name, lambda: _json_text(data, name).encode())


def _json_text(data: bytes, name: str) -> str:
    try:
        content = data.decode("utf-8-sig")  # editors may put a mark before the text
        _check_depth(content, name)
        table = tomllib.loads(content)
        # A date is no value of any record: as a table it is refused wherever it stands.
        return json.dumps(table, default=lambda date: {"date": str(date)})
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not TOML: it is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise UsageError(f"{name} has a number of thousands of digits: write it shorter") from None
    except RecursionError:
        raise UsageError(f"{name} is not TOML that can be read: it is nested too deep") from None


_TOKEN = re.compile(
    r"""
    (?P<text>\"{3}(?:[^"\\]|\\.|"(?!""))*+"{3,5} | '{3}(?:[^']|'(?!''))*+'{3,5})
    | (?P<part>"(?:[^"\\\n]|\\.)*+" | '[^'\n]*+' | [A-Za-z0-9_-]++)
    | (?P<space>[ \t]++ | \#[^\n]*+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""What TOML is made of; a quote that is `other` begins a string without an end."""


def _check_depth(content: str, name: str) -> None:
    """UsageError for keys of more parts, or more brackets in each other, than any file of ours.

    A string without an end ends the look too: what stands behind it no parser reads.
    """
    dots = nesting = 0
    for token in _TOKEN.finditer(content):
        kind, sign = token.lastgroup, token.group()
        if kind == "space":
            continue
        if sign in {'"', "'"}:
            return
        dots = dots + 1 if sign == "." else dots if kind == "part" else 0
        nesting = max(0, nesting + (sign in {"[", "{"}) - (sign in {"]", "}"}))
        if dots >= limits.TOML_KEY_PARTS or nesting > limits.TOML_NESTING:
            raise UsageError(
                f"{name} has a key of too many parts, or is nested too deep: line "
                f"{content.count(chr(10), 0, token.start()) + 1}"
            )


def parse_json(kind: type[R], data: bytes | str, name: str) -> R:
    """One record from JSON, strictly."""
    try:
        record: R = adapter(kind).validate_json(data)
    except ValidationError as error:
        faults = _telling(error.errors(include_url=False))
        sentence = "; ".join(_sentence(kind, fault) for fault in faults)
        raise UsageError(f"{name}: {sentence}") from None
    return record


def _telling(faults: Sequence[Any]) -> list[Any]:
    """The first fault; where that is a missing key, also an unknown one that may be meant."""
    unknown = [one for one in faults if one["type"] == "unexpected_keyword_argument"]
    return [faults[0], *unknown[:1]] if faults[0]["type"] == "missing" else [faults[0]]


def find(what: str, name_or_path: str, folder: Path) -> tuple[Path, bytes]:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        path = folder / f"{name_or_path}.toml"
        if not path.is_file():
            hint = did_you_mean(name_or_path, (file.stem for file in folder.glob("*.toml")))
            raise UsageError(f'there is no {what} called "{name_or_path}"{hint}')
    return path, input_file.read(path, what=f"{what} file")


MUST_BE = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "mapping_type": "a table",
    "dict_type": "a table",
    "dataclass_type": "a table",
}


WHOLE = ""  # the place of a fault of the whole file, which no key has
OF_SEVERAL_TYPES = {"parameters": (2, ""), "value": (1, ", or a list of them")}
"""Keys behind which a fault names a type: how many parts of its place are the file's own."""


def _sentence(kind: type[object], fault: Any) -> str:
    """What is wrong with a file, in the words of the file and none of the reader's."""
    place: tuple[str | int, ...] = fault["loc"] or (WHOLE,)
    while len(place) > 1 and isinstance(place[-1], str) and "[" in place[-1]:
        place = place[:-1]  # one of the types that a value may have
    *parents, last = place
    for key, (depth, more) in OF_SEVERAL_TYPES.items():
        if key in parents:  # what follows the name is one of the types that it may have
            *parents, last = place[: place.index(key) + depth]
            return f"{_key(parents, last)} must be a finite number, a text, true or false{more}"
    if fault["type"] == "unexpected_keyword_argument":
        return f"unknown {_key(parents, last)}{did_you_mean(str(last), _keys(kind, parents))}"
    if fault["type"] == "missing":
        return f"{_key(parents, last)} is missing"
    if fault["type"] == "literal_error":
        choices = re.findall("'([^']*)'", fault["ctx"]["expected"])
        hint = did_you_mean(str(fault["input"]), choices)
        return f'{_key(parents, last)} cannot be "{fault["input"]}"{hint}'
    wanted = MUST_BE.get(fault["type"])
    if last == "within_of_baseline":
        wanted = 'a number like 0.03, or "class"'
    if wanted is None:
        what = "this is no such file" if last == WHOLE else f"{_key(parents, last)} is wrong"
        return f"{what}: {fault['msg'].lower()}"
    return f"{_key(parents, last)} must be {wanted}"


def _key(parents: Sequence[object], last: object) -> str:
    """'key "mode" of protocol', 'key "id" of case 3'; people count from one."""
    name = f'key "{last}"' if isinstance(last, str) else f"item {_from_one(last)}"
    return f"{name} of {' '.join(map(_from_one, parents))}" if parents else name


def _from_one(part: object) -> str:
    return str(part + 1) if isinstance(part, int) else str(part)


def _keys(kind: Any, parents: Sequence[object]) -> list[str]:
    """Names of the keys that may stand at this place of a record."""
    for part in parents:
        if isinstance(part, str):
            hint = get_type_hints(kind)[part]
            kind = next(iter(get_args(hint)), hint)  # of a tuple, what it holds
    return [field.name for field in fields(kind)] if is_dataclass(kind) else []


def unique(name: str, what: str, ids: Sequence[str]) -> None:
    twice = sorted({item for item in ids if ids.count(item) > 1})
    if twice:
        raise UsageError(f'{name}: the {what} "{twice[0]}" stands there twice; rename one')


def positive(name: str, key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f'{name}: key "{key}" is {value}; it must be a positive number')
