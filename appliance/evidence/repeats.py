"""What the repeats of a case gave in the deterministic phase, and what the differences look like.

A repeat builds from the case's seed and makes the first step; its answer is the bits of all
tensors, of all ranks together. Processes give one each, and where one gave other bits than an
earlier process it repeats the same operands many times. What most of all repeats gave is the usual
answer; how many of those after a mismatch differ from it says how often the device errs, without
the one that raised the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.evidence.folding import Sampled
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.records.journal import Difference, MismatchExamined, Repeated
from appliance.records.json import sha256

FEW_ELEMENTS = 8
"""So many differing numbers or fewer are called few, whichever bits they differ in."""
_SHOWN = 3
_WITNESSES: Mapping[str, str] = {
    "temperature_celsius": "celsius",
    "hotspot_temperature_celsius": "celsius at the hottest place",
    "graphics_clock_hertz": "Hz",
}
"""Readings that are named beside a difference, with their units."""

Answer = tuple[str, ...]
"""Digests of the outputs of one repeat, by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """All repeats of a case: those that processes began with, and those after a mismatch.

    `first` has the answer of each launch that reported one, in the plan's order. `examined` are
    the answers of repeats that followed a mismatch. `usual` is the commonest answer of all.
    """

    first: Mapping[str, Answer] = field(default_factory=dict)
    examined: Sequence[Answer] = ()
    usual: Answer = ()
    operators: tuple[str, ...] = ()

    @property
    def has_mismatch(self) -> bool:
        return len(set(self.first.values()) | set(self.examined)) > 1

    @property
    def odd(self) -> list[str]:
        """Launches whose first answer is not the usual one."""
        return [launch for launch, answer in self.first.items() if answer != self.usual]

    @property
    def num_differing(self) -> int:
        """Repeats after a mismatch that did not give the usual answer."""
        return sum(answer != self.usual for answer in self.examined)


def digest_of(repeated: Repeated) -> str:
    """One digest for all tensors of an output, as `MismatchExamined.answers` has them."""
    return joint_digest(repeated.digests)


def joint_digest(digests: Mapping[str, str]) -> str:
    """SHA-256 over names and digests of all tensors, in the order of their names."""
    return sha256("".join(f"{name}\0{digests[name]}\0" for name in sorted(digests)).encode())


def repeats_of(evidence: CaseEvidence) -> Repeats:
    """The repeats of a case; of a launch that was made again, both."""
    ranks = range(evidence.case.ranks)
    first: dict[str, Answer] = {}
    examined: list[Answer] = []
    operators: dict[str, None] = {}
    for launch in evidence.repeats:
        made = _by_rank(launch.repeated)
        for number in range(min((len(made.get(rank, ())) for rank in ranks), default=0)):
            name = launch.id if number == 0 else f"{launch.id}, made again"
            first[name] = tuple(digest_of(made[rank][number]) for rank in ranks)
        operators |= dict.fromkeys(name for one in launch.repeated for name in one.operators)
        examined += _examined(launch, len(ranks))
    counts = Counter([*first.values(), *examined])
    usual = counts.most_common(1)[0][0] if counts else ()
    return Repeats(first=first, examined=examined, usual=usual, operators=tuple(operators))


def _by_rank(records: Sequence[Repeated]) -> dict[int, list[Repeated]]:
    by_rank: dict[int, list[Repeated]] = {}
    for one in records:
        by_rank.setdefault(one.rank, []).append(one)
    return by_rank


def _examined(launch: LaunchEvidence, num_ranks: int) -> list[Answer]:
    """Answers of the repeats after a mismatch, of all ranks together."""
    answers: dict[int, list[str]] = {rank: [] for rank in range(num_ranks)}
    for one in launch.examined:
        if one.rank in answers:
            answers[one.rank] += one.answers
    return list(zip(*answers.values(), strict=False))


def unreported(evidence: CaseEvidence) -> str:
    """The first planned repeat that did not report its bits, in one clause; or nothing."""
    for launch in evidence.repeats:
        if not {one.rank for one in launch.repeated} >= set(range(evidence.case.ranks)):
            ended = launch.ended
            why = ""
            if ended is not None:
                why = f" ({ended.outcome}{_because(ended.reason)})".replace("_", " ")
            return f"launch {launch.id} of the deterministic phase did not report its bits{why}"
    return ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


# ------------------------------------------------------------------ what a difference looks like


def described(evidence: CaseEvidence) -> str:
    """The evidence of a mismatch in words: who, which tensors, which bits, how warm; or nothing."""
    clauses = []
    repeats = repeats_of(evidence)
    if repeats.odd:
        clauses.append(f"{_named(repeats.odd)} gave other bits than the others")
    for launch in evidence.repeats:
        for one in launch.examined:
            clauses.append(_difference(launch, one))
            return "; ".join(clauses)
    return "; ".join(clauses)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    rest = len(names) - _SHOWN
    more = f" and {rest} more" if rest > 0 else ""
    return f"{'launch' if len(names) == 1 else 'launches'} {shown}{more}"


def _difference(launch: LaunchEvidence, one: MismatchExamined) -> str:
    place = f"first in {one.tensors[0]}" if one.tensors else "in no tensor"
    witness = _witness(launch)
    difference = one.difference
    if difference is None:
        return f"{place}; the bits that differed were given once and are gone{witness}"
    bits = [bit for bit, count in enumerate(difference.xor_bits) if count]
    ulp = "" if difference.largest_ulp is None else f", at most {difference.largest_ulp:,} ulp"
    span = f"bits {bits[0]} to {bits[-1]} of {len(difference.xor_bits)}" if bits else "no bit"
    share = f"{difference.num_bytes:,} of {difference.total_bytes:,} bytes differ"
    numbers = f"{difference.num_elements:,} of {difference.total_elements:,} numbers"
    places = ", ".join(map(str, difference.first_indices[:_SHOWN]))
    return (
        f"{share}, first in {difference.tensors[0]}: {numbers}, {span}{ulp}, first at "
        f"{places}; {points_to(difference)}{witness}"
    )


def points_to(difference: Difference) -> str:
    """What the differing bits point to: many low bits to order, all else to silent corruption."""
    low = sum(difference.xor_bits[: len(difference.xor_bits) // 2])
    is_many = difference.num_elements > FEW_ELEMENTS
    if is_many and difference.largest_ulp is not None and 2 * low > sum(difference.xor_bits):
        return "many low bits, which points to another order of sums"
    return "few numbers or high bits, which points to silent corruption"


def _witness(launch: LaunchEvidence) -> str:
    """Temperature and clock as last read in that launch, where the device reports them."""
    read: dict[str, tuple[str, float]] = {}
    for reading in launch.readings:
        read |= _witnesses(reading)
    values = [
        f"{device} at {value:.4g} {_WITNESSES[name]}" for name, (device, value) in read.items()
    ]
    return f" ({', '.join(values)})" if values else ""


def _witnesses(reading: Sampled) -> dict[str, tuple[str, float]]:
    return {
        name: (reading.device, float(value))
        for name, value in reading.values.items()
        if name in _WITNESSES and value is not None
    }
