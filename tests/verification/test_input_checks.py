"""Recorded inputs against the generator: what a launch drew, found wrong, or would not say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builders import chain
from support.bundles import Draft, healthy, sealed

from appliance.challenge.window import inputs_seed
from appliance.errors import EvidenceError
from appliance.generator.drawing import Drawn, checksum
from appliance.generator.maps import NORMAL, integers, normal
from appliance.generator.words import FILE, sampled_digest
from appliance.planning.plan import case_seed
from appliance.records.journal import (
    Artifact,
    Check,
    Checked,
    DrawnInput,
    Event,
    InputsDrawn,
    Started,
)
from appliance.signing.keys import development_key
from appliance.verification.input_checks import check_inputs
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification, verify

CASE = "gemm@cpu:0"
TIMED = f"{CASE}/2"
PLAN = healthy().plan


def inputs() -> tuple[DrawnInput, ...]:
    """What launches of the case draw: a small tensor, and one that is sampled."""
    case = next(one for one in PLAN.cases if one.id == CASE)
    seed = case_seed(inputs_seed(PLAN, ()), case)
    drawn = [
        Drawn(seed, "left 0", NORMAL, "bfloat16", (64, 32)),
        Drawn(seed, "right 0", integers(-127, 127), "int8", (4096, 4096)),
    ]
    return tuple(
        DrawnInput(
            name=one.name,
            values=str(one.values),
            dtype=one.dtype,
            shape=one.shape,
            checksum=checksum(one),
        )
        for one in drawn
    )


INPUTS = inputs()
KINDS = tuple(
    replace(INPUTS[0], name=f"layer {number}", values=str(normal(0.0, 1 / (number + 2))))
    for number in range(65)
)


def with_inputs(
    draft: Draft, wrong: Sequence[DrawnInput] = INPUTS, num_wrong: float | None = 0
) -> Draft:
    """Each launch of the case reports its inputs; one launch the `wrong` ones, and so many."""

    def reported(event: Event) -> list[Event]:
        if not isinstance(event, Started) or not event.launch.startswith(f"{CASE}/"):
            return [event]
        is_odd = event.launch == TIMED
        said = tuple(wrong) if is_odd else INPUTS
        record = InputsDrawn(launch=event.launch, rank=event.rank, inputs=said)
        number = num_wrong if is_odd else 0
        check = Check(name="inputs as drawn", error=number or 0, bound=0, kind="exact")
        checked = Checked(launch=event.launch, rank=event.rank, phase="first", step=0, check=check)
        return [event, record, *([checked] if number is not None else [])]

    return draft.with_events(lambda events: [one for event in events for one in reported(event)])


def fault(wrong: Sequence[DrawnInput], num_wrong: float | None = 0) -> str:
    draft = with_inputs(healthy(), wrong, num_wrong)
    with pytest.raises(EvidenceError) as caught:
        check_inputs(PLAN, chain(draft.events))
    return str(caught.value)


def changed(**values: Any) -> tuple[DrawnInput, ...]:
    return (replace(INPUTS[0], **values), *INPUTS[1:])


OTHER = changed(checksum=(INPUTS[0].checksum + 2) % 2**63)


def test_inputs_are_made_again_from_the_seed() -> None:
    lines = chain(with_inputs(healthy()).events)
    assert check_inputs(PLAN, lines) == "; 2 drawn inputs made again from their seeds"


def test_a_run_without_drawn_inputs_says_nothing_of_them() -> None:
    assert check_inputs(PLAN, chain(healthy().events)) == ""


def test_a_forged_checksum_is_a_fault() -> None:
    assert fault(OTHER).endswith(
        f'input "left 0" is not what the seed of launch {TIMED} draws, and its check found 0 of '
        "them wrong"
    )


def test_a_check_of_inputs_that_no_launch_recorded_is_a_fault() -> None:
    events = [one for one in with_inputs(healthy()).events if not isinstance(one, InputsDrawn)]
    with pytest.raises(EvidenceError, match="checked its inputs and did not record them"):
        check_inputs(PLAN, chain(events))


def test_a_device_that_drew_wrong_inputs_and_said_so_is_sound_evidence() -> None:
    lines = chain(with_inputs(healthy(), OTHER, num_wrong=1).events)
    assert check_inputs(PLAN, lines)


# ------------------------------------------------------------------ files of words

FILE_BYTES = 2**26
DISK = replace(
    PLAN,
    cases=tuple(
        replace(one, parameters={**one.parameters, "file_bytes": FILE_BYTES})
        if one.id == CASE
        else one
        for one in PLAN.cases
    ),
)


def a_file(launch: str = TIMED, **changed: Any) -> Artifact:
    case = next(one for one in DISK.cases if one.id == CASE)
    record = Artifact(
        launch=launch,
        rank=0,
        name=FILE,
        sha256=sampled_digest(case_seed(inputs_seed(DISK, ()), case), FILE_BYTES),
        size_bytes=FILE_BYTES,
        is_made=False,
    )
    return replace(record, **changed)


def test_a_file_with_the_words_of_its_seed_is_sound() -> None:
    assert check_inputs(DISK, chain([*healthy().events, a_file()])) == ""


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (a_file(sha256="0" * 64), f"launch {TIMED} read a file that is not of the case's seed"),
        (a_file(size_bytes=FILE_BYTES // 2), "read a file that is not of the case's seed"),
        (a_file("bert@cpu:0/1"), "launch bert@cpu:0/1 reads a file, and its case has none"),
    ],
)
def test_a_file_of_other_words_is_a_fault(record: Artifact, sentence: str) -> None:
    with pytest.raises(EvidenceError, match=sentence):
        check_inputs(DISK, chain([*healthy().events, record]))


FORGERIES = {
    "a check that accuses right inputs": (INPUTS, 1.0, "all inputs are what the seed"),
    "a check that is no number": (INPUTS, float("nan"), "its check found nan"),
    "inputs without a check": (INPUTS, None, "drew inputs and did not check them"),
    "fewer inputs than other launches": (INPUTS[:1], 0.0, "drew other inputs"),
    "another shape": (changed(shape=(32, 64)), 0.0, "drew other inputs"),
    "an unknown map": (changed(values="gamma"), 0.0, "nothing can draw"),
    "an unknown format": (changed(dtype="int3"), 0.0, "nothing can draw"),
    "an endless shape": (changed(shape=(2**40, 2**40)), 0.0, "nothing can draw"),
    "a negative shape": (changed(shape=(-4, -4)), 0.0, "nothing can draw"),
    "too many kinds": (KINDS, 0.0, "inputs of more than 64 kinds"),
    "one input twice": ((INPUTS[0], INPUTS[0]), 0.0, "draws an input twice"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_records_of_inputs_are_faults(name: str) -> None:
    wrong, num_wrong, sentence = FORGERIES[name]
    assert sentence in fault(wrong, num_wrong)


def test_a_whole_bundle_with_a_forged_input_is_refused(tmp_path: Path) -> None:
    key = development_key()

    def verified(draft: Draft, folder: str) -> Verification:
        return verify(sealed(tmp_path / folder, draft, key), Terms(allow_development=True))

    sound = verified(with_inputs(healthy()), "sound")
    forged = verified(with_inputs(healthy(), OTHER), "forged")
    assert (sound.exit_code, sound.faults) == (0, ())
    assert forged.exit_code == 4
    assert "is not what the seed" in forged.faults[0]
