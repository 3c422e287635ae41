"""Whether the inputs that launches recorded are those of their seeds: drawn again, without torch.

A launch records of each tensor that it drew a number that sums it up as it lay on the device. The
generator makes the same number of the seed alone: of all launches, of every tensor up to 65,536
elements whole and of a larger one as many, which takes a millisecond. All launches of a case have
one seed, so each tensor is made once. A number that differs is a fault of the device, which the
launch must have found itself: it checks its inputs before its first step. Where it did not, the
record was written by somebody else.

A file of words that a case's launches share is held to the seed by its size and by the pages of it
that the seed draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from appliance.challenge.window import inputs_seed
from appliance.errors import EvidenceError
from appliance.generator import drawing, maps
from appliance.generator.drawing import Drawn
from appliance.generator.formats import num_bytes
from appliance.generator.words import FILE, PAGE, sampled_digest
from appliance.planning.plan import case_seed
from appliance.records.journal import (
    Artifact,
    Checked,
    DrawnInput,
    InputsDrawn,
    LaunchEnded,
    LaunchStarted,
    Line,
    Started,
)
from appliance.records.plan import Case, Plan

MOST_ELEMENTS = 2**48
MOST_INPUTS = 4096
MOST_MAPS = 64
"""Of one launch; a table of a map takes as long as twenty inputs."""
CHECK = "inputs as drawn"
"""Name of the check that a launch makes of its inputs."""

Names = tuple[tuple[str, str, str, tuple[int, ...]], ...]


@dataclass(kw_only=True)
class _Rank:
    """What one rank of a launch, as it was last started, said of its inputs."""

    drawn: InputsDrawn | None = None
    num_wrong: float | None = None
    is_stepped: bool = False

    @property
    def names(self) -> Names:
        """What was drawn, without what it was summed up to."""
        inputs = () if self.drawn is None else self.drawn.inputs
        return tuple((one.name, one.values, one.dtype, tuple(one.shape)) for one in inputs)


@dataclass(kw_only=True)
class _Launch:
    case: Case
    ranks: dict[int, _Rank] = field(default_factory=dict)

    def of(self, rank: int) -> _Rank:
        return self.ranks.setdefault(rank, _Rank())


def check_inputs(plan: Plan, lines: Sequence[Line]) -> str:
    """How many inputs were drawn again, as the end of a sentence; nothing where none was recorded.

    Raises EvidenceError at the first launch whose record contradicts the generator, the launch's
    own check, or another launch of its case.
    """
    seed = inputs_seed(plan, lines)
    launches = _gathered(plan, lines)
    made: set[Drawn] = set()
    for name, launch in launches.items():
        for one in launch.ranks.values():
            if one.drawn is None and one.num_wrong is not None:
                raise EvidenceError(
                    f"journal.jsonl: launch {name} checked its inputs and did not record them"
                )
            if one.drawn is None:
                continue
            drawn = _parsed(one.drawn, case_seed(seed, launch.case))
            pairs = zip(one.drawn.inputs, drawn, strict=True)
            wrong = [said for said, real in pairs if said.checksum != drawing.checksum(real)]
            _compare(name, one, wrong)
            made.update(drawn)
    _check_alike(launches)
    _check_files(plan, lines, seed)
    return f"; {len(made)} drawn inputs made again from their seeds" if made else ""


def _check_files(plan: Plan, lines: Sequence[Line], seed: str) -> None:
    """EvidenceError unless the files that launches wrote or read have the words of their seeds."""
    cases = {case.id: case for case in plan.cases}
    of_launch = {launch.id: cases[launch.case] for launch in plan.launches}
    files = (line.event for line in lines if isinstance(line.event, Artifact))
    for event in files:
        case = of_launch.get(event.launch)
        if event.name != FILE or case is None:
            continue
        size = case.parameters.get("file_bytes")
        if not isinstance(size, int) or size < PAGE or size % PAGE:
            raise EvidenceError(
                f"journal.jsonl: launch {event.launch} reads a file, and its case has none"
            )
        wanted = (size, sampled_digest(case_seed(seed, case), size))
        if (event.size_bytes, event.sha256) != wanted:
            raise EvidenceError(
                f"journal.jsonl: launch {event.launch} read a file that is not of the case's seed"
            )


def _gathered(plan: Plan, lines: Sequence[Line]) -> Mapping[str, _Launch]:
    """What each launch that measures said of its inputs; of one that was made again, the last."""
    cases = {case.id: case for case in plan.cases}
    planned = {one.id: cases[one.case] for one in plan.launches if not one.is_repeat}
    launches: dict[str, _Launch] = {}
    for event in (line.event for line in lines):
        match event:
            case LaunchStarted() if event.launch in planned:
                launches[event.launch] = _Launch(case=planned[event.launch])
            case InputsDrawn() if event.launch in launches:
                launches[event.launch].of(event.rank).drawn = event
            case Checked() if event.launch in launches and event.check.name == CHECK:
                launches[event.launch].of(event.rank).num_wrong = event.check.error
            case Started() if event.launch in launches:
                launches[event.launch].of(event.rank).is_stepped = True
            case LaunchEnded() if event.launch in launches and event.outcome != "completed":
                del launches[event.launch]
            case _:
                pass
    return launches


def _parsed(record: InputsDrawn, seed: int) -> list[Drawn]:
    """What the generator is asked for; EvidenceError for what no launch can draw."""
    drawn = [_one(record.launch, said, seed) for said in record.inputs]
    if len(drawn) > MOST_INPUTS or len({one.name for one in drawn}) < len(drawn):
        raise EvidenceError(f"journal.jsonl: launch {record.launch} draws an input twice")
    if len({one.values for one in drawn}) > MOST_MAPS:
        raise EvidenceError(
            f"journal.jsonl: launch {record.launch} draws inputs of more than {MOST_MAPS} kinds"
        )
    return drawn


def _one(launch: str, said: DrawnInput, seed: int) -> Drawn:
    try:
        values = maps.parse(said.values)
        drawn = Drawn(seed, said.name, values, said.dtype, tuple(said.shape))
        is_possible = num_bytes(said.dtype) > 0 and min(said.shape, default=1) > 0
    except (KeyError, ValueError):
        is_possible = False
    if not is_possible or prod(said.shape) > MOST_ELEMENTS:
        raise EvidenceError(f"journal.jsonl: launch {launch} draws an input that nothing can draw")
    return drawn


def _compare(name: str, one: _Rank, wrong: Sequence[DrawnInput]) -> None:
    """The launch must have found what is wrong, no more and no less."""
    if one.num_wrong is None:
        raise EvidenceError(f"journal.jsonl: launch {name} drew inputs and did not check them")
    if one.num_wrong != len(wrong):
        first = f'input "{wrong[0].name}" is not' if wrong else "all inputs are"
        raise EvidenceError(
            f"journal.jsonl: {first} what the seed of launch {name} draws, and its check found "
            f"{one.num_wrong:g} of them wrong"
        )


def _check_alike(launches: Mapping[str, _Launch]) -> None:
    """EvidenceError where one launch of a case drew what another did not, or says nothing of it."""
    first: dict[tuple[str, int], tuple[str, Names]] = {}
    for name, rank, one in _stepped(launches):
        key = launches[name].case.id, rank
        other, names = first.setdefault(key, (name, one.names))
        if names != one.names:
            raise EvidenceError(
                f"journal.jsonl: launches {other} and {name} of one case drew other inputs"
            )


def _stepped(launches: Mapping[str, _Launch]) -> Iterator[tuple[str, int, _Rank]]:
    for name, launch in launches.items():
        for rank, one in launch.ranks.items():
            if one.is_stepped:
                yield name, rank, one
