"""Whether the same step gave the same bits: in every launch, and on every device of one model.

A check compares an output with its reference within a bound. This compares outputs with one
another, bit by bit, which sees what stays below every bound. All launches of a case have the same
inputs, and so have the same case on other devices of the node; of workloads whose operators give
the same bits for the same inputs the digests of the first outputs must then be the same.

A device that contradicts itself is wrong somewhere. Where devices contradict one another, the one
that gives an answer of its own, against one that more than half of at least three devices share, is
wrong; of two devices nobody can say which. Other models may round in another order, so they are
never compared. The files that launches ran are compared too: one that changed under its path may
be why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.evidence.baseline_key import suite_id
from appliance.evidence.launches import CaseEvidence, LaunchEvidence
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


Output = tuple[int, str, int, str]
"""What a digest is of: rank, phase, step, and its name."""


# ------------------------------------------------------------------ run to run


def undigested(evidence: CaseEvidence) -> str:
    """The completed launch that lacks the digest of its first output, or nothing.

    Nothing too of a workload that is not proven to give the same bits twice.
    """
    if not evidence.case.is_repeatable:
        return ""
    for launch in evidence.launches:
        ranks = {digested.rank for digested in launch.digested if digested.phase == "first"}
        if launch.is_completed and not ranks.issuperset(range(evidence.case.ranks)):
            return f"launch {launch.id} has no digest of its first output"
    return ""


def run_to_run(evidence: CaseEvidence) -> Disagreement | None:
    """Launches of a case on its device that gave other bits than the others, or None."""
    for digests in _answers(evidence).values():
        counts = Counter(digest for _, digest in digests)
        if len(counts) > 1:
            usual = counts.most_common(1)[0][0]
            others = list(dict.fromkeys(name for name, digest in digests if digest != usual))
            return Disagreement(
                is_certain=True,
                explanation=f"{_named('launch', others)} gave other bits for the same inputs than "
                f"the others of {evidence.case.id}",
                action="Repeat the case on this device with nothing else running; "
                "if its launches still differ, replace the device.",
            )
    return None


def _answers(evidence: CaseEvidence) -> dict[Output, list[tuple[str, str]]]:
    """Launch and digest by what was digested; of a workload that need not repeat, nothing."""
    answers: dict[Output, list[tuple[str, str]]] = {}
    if evidence.case.is_repeatable:
        for launch in evidence.launches:
            for one in launch.digested:
                key = (one.rank, one.phase, one.step, one.what)
                answers.setdefault(key, []).append((launch.id, one.digest))
    return answers


# ------------------------------------------------------------------ device to device


def between_devices(cases: Sequence[CaseEvidence], system: System) -> Mapping[str, Disagreement]:
    """By case: where its device gave other bits than others of its model in the node.

    Only of launches of one process, as else no device could be named. A device that contradicts
    itself has no answer.
    """
    disagreements: dict[str, Disagreement] = {}
    for alike in groups(cases, system):
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


def answer_of(evidence: CaseEvidence) -> str:
    """All digests of a case as one text; empty where there is none or its launches differ."""
    by_output = {
        key: {digest for _, digest in digests} for key, digests in _answers(evidence).items()
    }
    if any(len(digests) > 1 for digests in by_output.values()):
        return ""
    return " ".join(
        f"{rank}/{phase}/{step}/{what}={digest}"
        for (rank, phase, step, what), (digest,) in sorted(by_output.items())
    )


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


def exchanged(launches: Sequence[LaunchEvidence]) -> str:
    """A file that one launch ran and another found changed or gone under its path, or nothing."""
    first: dict[str, tuple[str, str | None]] = {}
    for launch in launches:
        for libraries in launch.libraries:
            for path, digest in libraries.files.items():
                name, known = first.setdefault(path, (launch.id, digest))
                if digest != known:
                    return f"{path} is not the same file in launch {launch.id} as in {name}"
    return ""
