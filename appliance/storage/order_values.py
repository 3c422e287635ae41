"""Whether what was found is what was asked for: numbers with units, versions, texts, patterns.

Numbers are compared exactly, in the SI unit: the decimal that a person wrote is not rounded first,
so 64 GiB is 64 GiB and never 64 GB. Two texts are ordered only as versions: numbers parted by dots
("580.65.06"), compared part by part from the left, where a part that one of them lacks counts as
0 (580.65 is 580.65.0, and 6.10 comes after 6.9). Any other text has no order, and is compared by
"==", "in" or "matches" alone.

A pattern is a regular expression that must match the whole text. Python's engine can take years
over a hostile one, so a pattern may hold few repetitions and alternatives, no repetition of a
group, and no look-around: what is left takes a second at most on the longest text (measured).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction

from appliance.records.json import Scalar
from appliance.records.order import OrderOperator
from appliance.storage.toml_file import did_you_mean
from appliance.storage.units import FACT_UNITS, UNITS

Value = Scalar | tuple[Scalar, ...]

MOST_VALUES = 100  # of a list
LONGEST_VALUE = 200  # characters, of a pattern too
LONGEST_TEXT = 100  # characters of what a pattern is held against
MOST_REPEATS = 3
MOST_ALTERNATIVES = 8
VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,15}", re.ASCII)
_TOKEN = re.compile(
    r"\\[AbBdDsSwWZ.\\+*?()\[\]{}|^$/ -]"  # a class, a border, or a sign as it stands
    r"|\[\^?\]?(?:\\[dDsSwW\]\[\\^-]|[^\]\[\\])*\]"
    r"|\((?:\?:)?"
    r"|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}\??"
    r"|[*+?]\??"
    r"|[)|.^$]"
    r"|[^\\\[\](){}|*+?.^$]"
)
_DECIMAL_BYTES = frozenset(("kB", "MB", "GB", "TB"))
"""Units that an order may be in, beside which a report has the binary one."""
_WORDS = {">=": "at least", "<=": "at most", "==": "", "in": "one of", "matches": "a match of"}


# ------------------------------------------------------------------ what can be asked


def fault(operator: OrderOperator, value: Value, unit: str) -> str:
    """Why nothing can be compared with this value, as a clause, or nothing."""
    if isinstance(value, tuple) != (operator == "in"):
        wanted = "a list" if operator == "in" else 'one value (a list goes with op "in")'
        return f'has the op "{operator}", which takes {wanted}'
    several = value if isinstance(value, tuple) else (value,)
    return _list_fault(several) or _unit_fault(several[0], unit) or _operand_fault(operator, value)


def _list_fault(several: tuple[Scalar, ...]) -> str:
    if not several:
        return 'has an empty list for "value", which nothing is in'
    if len(several) > MOST_VALUES or any(len(str(one)) > LONGEST_VALUE for one in several):
        return f"has more than {MOST_VALUES} values, or one of more than {LONGEST_VALUE} characters"
    if len({kind(one) for one in several}) > 1:
        return 'mixes numbers, texts, true and false in "value"'
    return ""


def _unit_fault(value: Scalar, unit: str) -> str:
    if unit and unit not in UNITS:
        return f'has the unknown unit "{unit}"{did_you_mean(unit, UNITS)}'
    if unit and kind(value) != "a number":
        return f'has the unit "{unit}" for {kind(value)}: leave the unit out'
    return ""


def _operand_fault(operator: OrderOperator, value: Value) -> str:
    if operator == "matches":
        if not isinstance(value, str):
            return 'has the op "matches", which takes a pattern in quotation marks'
        return pattern_fault(value)
    if operator in (">=", "<=") and isinstance(value, bool):
        return f'compares true or false by "{operator}": use "=="'
    if operator in (">=", "<=") and isinstance(value, str) and not VERSION.fullmatch(value):
        return (
            f'compares "{value}" by "{operator}", and only numbers and versions (numbers parted by '
            'dots, "580.65.06") have an order: use "==", "in" or "matches"'
        )
    return ""


def pattern_fault(pattern: str) -> str:
    """Why a pattern is refused, as a clause, or nothing."""
    tokens = list(_tokens(pattern))
    if not 0 < len(pattern) <= LONGEST_VALUE:
        return f"has a pattern that is empty or longer than {LONGEST_VALUE} characters"
    if "" in tokens:
        rest = pattern[sum(map(len, tokens)) :][:20]
        return f'has the pattern "{pattern}", of which this part is not taken: "{rest}"'
    repeats = [place for place, token in enumerate(tokens) if token[0] in "*+?{"]
    if any(place and tokens[place - 1] in ("(", "(?:", ")") for place in repeats):
        return (
            f'repeats a group or looks around in the pattern "{pattern}": repeat single '
            "characters or classes"
        )
    if len(repeats) > MOST_REPEATS or tokens.count("|") > MOST_ALTERNATIVES:
        return (
            f"has a pattern with more than {MOST_REPEATS} repetitions (*, +, ?, {{}}) or "
            f'{MOST_ALTERNATIVES} alternatives (|): write several lines, or use "in"'
        )
    return _compilation_fault(pattern)


def _compilation_fault(pattern: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, FutureWarning) as error:
        return f'has the pattern "{pattern}", which is no regular expression ({error})'
    return ""


def _tokens(pattern: str) -> Iterator[str]:
    """The parts of a pattern; an empty one last where it goes on with what is not taken."""
    place = 0
    while place < len(pattern):
        matched = _TOKEN.match(pattern, place)
        yield "" if matched is None else matched[0]
        if matched is None:
            return
        place = matched.end()


# ------------------------------------------------------------------ what is compared


def mismatch(actual: Scalar, actual_unit: str, value: Value, unit: str) -> str:
    """Why a value that was found cannot be compared with what is asked, as a clause, or nothing."""
    wanted = value[0] if isinstance(value, tuple) else value
    if kind(actual) != kind(wanted):
        clause = (
            f"is {kind(actual)} ({shown(actual, actual_unit)}), and the order has {kind(wanted)}"
        )
        return f"{clause}: write it in quotation marks" if isinstance(actual, str) else clause
    return unit_fault(actual_unit, unit)


def unit_fault(actual_unit: str, unit: str) -> str:
    """Why a unit does not suit a field, as a clause, or nothing."""
    own = FACT_UNITS.get(actual_unit, actual_unit)
    if own == (UNITS[unit][0] if unit in UNITS else unit):
        return ""
    if not own:
        return f'has no unit, and the order writes it in "{unit}": leave the unit out'
    units = [name for name, (standard, _) in UNITS.items() if standard == own] or [own]
    usage = f'the order writes it in "{unit}"' if unit else "the order names no unit"
    return f"is in {own}, and {usage}: use {', '.join(units)}"


def holds(
    operator: OrderOperator, actual: Scalar, actual_unit: str, value: Value, unit: str
) -> bool | None:
    """Whether what was found is as asked; None where the two have no order or are of two kinds."""
    if mismatch(actual, actual_unit, value, unit):
        return None
    if isinstance(value, tuple):
        return any(_equal(actual, one, unit) for one in value)
    if operator == "==":
        return _equal(actual, value, unit)
    if operator == "matches":
        is_short = isinstance(actual, str) and len(actual) <= LONGEST_TEXT
        return bool(re.fullmatch(str(value), str(actual))) if is_short else None
    if isinstance(actual, str):
        return _ordered(operator, version(actual), version(str(value)))
    return _ordered(operator, (exact(actual),), (amount(value, unit),))


def _equal(actual: Scalar, wanted: Scalar, unit: str) -> bool:
    if isinstance(actual, int | float) and not isinstance(actual, bool):
        return exact(actual) == amount(wanted, unit)
    return actual == wanted


def _ordered(
    operator: OrderOperator,
    actual: tuple[Fraction, ...] | None,
    wanted: tuple[Fraction, ...] | None,
) -> bool | None:
    if actual is None or wanted is None:
        return None
    length = max(len(actual), len(wanted))
    left, right = (side + (Fraction(),) * (length - len(side)) for side in (actual, wanted))
    return left >= right if operator == ">=" else left <= right


def version(text: str) -> tuple[Fraction, ...] | None:
    """The parts of a version; None for a text that is none."""
    if not VERSION.fullmatch(text):
        return None
    return tuple(Fraction(part) for part in text.split("."))


def amount(value: Scalar, unit: str) -> Fraction:
    """A number in the SI unit, exactly as it was written."""
    return exact(value) * exact(UNITS[unit][1] if unit in UNITS else 1)


def exact(value: Scalar) -> Fraction:
    """The decimal that a number is written as."""
    return Fraction(repr(value))


# ------------------------------------------------------------------ in words


def kind(value: Scalar) -> str:
    """What a value is, for a sentence."""
    if isinstance(value, bool):
        return "true or false"
    return "a text" if isinstance(value, str) else "a number"


def requirement(operator: OrderOperator, value: Value, unit: str) -> str:
    """What is asked for: "at least 64 GiB", "one of A, B"."""
    several = value if isinstance(value, tuple) else (value,)
    text = ", ".join(plain(one) for one in several)
    return " ".join(filter(None, (_WORDS[operator], text, unit)))


def shown(value: Scalar, own_unit: str, unit: str = "") -> str:
    """What was found, in the unit of the order where it has one and the field's own else."""
    if unit in UNITS and kind(value) == "a number" and not unit_fault(own_unit, unit):
        written = f"{plain(float(exact(value) / exact(UNITS[unit][1])))} {unit}"
        binary = _binary(float(exact(value))) if unit in _DECIMAL_BYTES else ""
        return f"{binary} = {written}" if binary else written
    return " ".join(filter(None, (plain(value), FACT_UNITS.get(own_unit, own_unit))))


def _binary(num_bytes: float) -> str:
    """A size in the binary unit that suits it, as the rest of a report writes sizes."""
    fitting = (unit for unit in ("TiB", "GiB", "MiB") if num_bytes >= UNITS[unit][1])
    unit = next(fitting, "")
    return f"{num_bytes / UNITS[unit][1]:.4g} {unit}" if unit else ""


def plain(value: Scalar) -> str:
    """A value as a person writes it; thirteen digits of a number that is not whole."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.13g}"  # noqa: PLR2004 - above, an exponent reads better
