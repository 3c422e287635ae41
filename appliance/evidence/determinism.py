"""Whether devices of one model gave the same bits in the deterministic phase, and by which files.

A check compares an output with its reference within a bound. This compares outputs with one
another, bit by bit, which sees what stays below every bound. A case has the same inputs on all
devices of the node, and the processes of its deterministic phase the same settings.

Where devices contradict one another, the one that gives an answer of its own in all of its
processes, against one that more than half of at least three devices share, is wrong; of two devices
nobody can say which. Other models may round in another order, so they are never compared. The
files that launches ran are compared too: one that changed under its path may be why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.evidence.baseline_key import suite_id
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
from appliance.evidence.repeats import repeats_of
from appliance.records.journal import Libraries, LibrariesMapped
from appliance.records.json import Parameters, to_json
from appliance.records.plan import Case
from appliance.records.system import System

_SHOWN = 3  # names in a sentence; of more their number is stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Outputs that should be the same and are not; `is_certain` where it shows who is wrong."""

    is_certain: bool
    explanation: str
    action: str


# ------------------------------------------------------------------ device to device


def between_devices(cases: Sequence[CaseEvidence], system: System) -> Mapping[str, Disagreement]:
    """By case: where its device gave other bits than others of its model in the node.

    Only of launches of one process, as else no device could be named. A device that contradicts
    itself has no answer, and neither has one whose repeats had other settings than the others'.
    """
    disagreements: dict[str, Disagreement] = {}
    for alike in groups(cases, system):
        if len({_settings(one) for one in alike}) > 1:
            continue  # the libraries were not asked for the same
        answers = {one.case.id: answer for one in alike if (answer := answer_of(one))}
        disagreements |= _voted(answers, {one.case.id: one.case.device for one in alike})
    return disagreements


def groups(cases: Sequence[CaseEvidence], system: System) -> list[list[CaseEvidence]]:
    """Cases that are the same but for the device, on devices of one model."""
    models = {device.id: (device.vendor, device.model) for device in system.identity.devices}
    alike: dict[object, list[CaseEvidence]] = {}
    for evidence in cases:
        case = evidence.case
        if case.ranks == 1 and case.device in models:
            alike.setdefault((_thing(case), models[case.device]), []).append(evidence)
    return list(alike.values())


def _thing(case: Case) -> tuple[str, str, int, bytes]:
    """What must be the same for two cases to have the same inputs and operators."""
    return suite_id(case), case.workload, case.version, to_json(case.parameters, Parameters)


def _settings(evidence: CaseEvidence) -> frozenset[tuple[str, str]]:
    """What the deterministic phase had set, in all of its processes."""
    records = (one for launch in evidence.repeats for one in launch.repeated)
    return frozenset(item for one in records for item in one.settings.items())


def answer_of(evidence: CaseEvidence) -> str:
    """The bits that all repeats of a case gave, as one text; empty where there is no one answer."""
    repeats = repeats_of(evidence)
    return "" if repeats.has_mismatch else " ".join(repeats.usual)


def _voted(answers: Mapping[str, str], devices: Mapping[str, str]) -> dict[str, Disagreement]:
    """Who stands against the others, where devices of one model gave several answers."""
    counts = Counter(answers.values())
    if len(counts) < 2:  # noqa: PLR2004 - several
        return {}
    usual, most = counts.most_common(1)[0]
    if 2 * most <= len(answers):  # of two devices that differ neither is more than half
        disagreement = _undecided([devices[name] for name in answers], len(counts))
        return dict.fromkeys(answers, disagreement)
    apart = [name for name, answer in answers.items() if answer != usual]
    shared = [name for name in apart if counts[answers[name]] > 1]
    return {
        name: _shared([devices[one] for one in shared], most)
        if name in shared
        else _alone(devices[name], most)
        for name in apart
    }


def _alone(device: str, num_others: int) -> Disagreement:
    return Disagreement(
        is_certain=True,
        explanation=f"{device} gave other bits for the same inputs than {num_others} devices of "
        "its model, which agree",
        action="Run the case again on this device, in another slot if you can; "
        "if it alone still differs, replace it.",
    )


def _shared(devices: Sequence[str], num_others: int) -> Disagreement:
    return Disagreement(
        is_certain=False,
        explanation=f"{_named('device', devices)} agree on other bits for the same inputs than "
        f"{num_others} devices of their model",
        action="Look for what these devices have in common (firmware, power limit, slot), "
        "make them alike and run again.",
    )


def _undecided(devices: Sequence[str], num_answers: int) -> Disagreement:
    return Disagreement(
        is_certain=False,
        explanation=f"{_named('device', devices)} are of one model and gave {num_answers} "
        "different outputs for the same inputs, and no majority says which is right",
        action="Run the case on more devices of this model, so that a majority can decide.",
    )


def _named(noun: str, names: Sequence[str]) -> str:
    """Names after their noun: "launch a", "devices a and b", "devices a, b, c and 5 more"."""
    rest = len(names) - _SHOWN
    shown = [*names[:_SHOWN], f"{rest} more"] if rest > 0 else list(names)
    if len(shown) == 1:
        return f"{noun} {shown[0]}"
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{plural} {', '.join(shown[:-1])} and {shown[-1]}"


# ------------------------------------------------------------------ libraries


def unlisted(evidence: CaseEvidence) -> str:
    """The completed untimed launch that did not say which files it ran, or nothing."""
    for launch in evidence.launches:
        is_silent = not any(libraries.files for libraries in launch.libraries)
        if launch.number == 0 and launch.is_completed and is_silent:
            return f"launch {launch.id} did not report which libraries it ran"
    return ""


def files_run(
    listed: Libraries | LibrariesMapped, digests: Mapping[str, str | None]
) -> Mapping[str, str | None]:
    """What a launch ran, by path with its sha256; None: unreadable.

    `digests` are those of files by identity; one that is yet to be hashed is left out.
    """
    if isinstance(listed, Libraries):
        return listed.files
    return {
        path: None if known is None else digests[known]
        for path, known in listed.files.items()
        if known is None or known in digests
    }


def exchanged(launches: Sequence[LaunchEvidence], digests: Mapping[str, str | None]) -> str:
    """A file that one launch ran and another found changed or gone under its path, or nothing.

    `digests` are those of files by identity.
    """
    first: dict[str, tuple[str, str | None]] = {}
    for launch in launches:
        for libraries in launch.libraries:
            for path, digest in files_run(libraries, digests).items():
                name, known = first.setdefault(path, (launch.id, digest))
                if digest != known:
                    return f"{path} is not the same file in launch {launch.id} as in {name}"
    return ""
