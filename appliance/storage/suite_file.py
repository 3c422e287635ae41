"""Suites: workloads/suites/NAME.toml, read and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

from appliance.errors import UsageError
from appliance.records.json import sha256
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.storage.toml_file import ROOT, find, parse, parse_own, positive, unique
from appliance.storage.units import LARGEST_INT

SUITES = ROOT / "workloads" / "suites"
CASE_ID = re.compile(r"\w[\w.-]{0,79}", re.ASCII)  # "@", "/" part it from device and launch
MOST_LAUNCHES = 10_000  # of a case; a plan names each
LEAST_REPEATS, MOST_REPEATS = 3, 100  # processes of the deterministic phase
MEMORY_CLASSES = (16, 24, 48, 80, 141, 192)  # GiB by which a suite may give parameters


def list_suites() -> tuple[str, ...]:
    """Names of the suites that are shipped."""
    return tuple(sorted(path.stem for path in SUITES.glob("*.toml")))


def load_suite(name_or_path: str) -> tuple[Suite, bytes]:
    """A suite and the bytes that it was read from, whose digest the plan keeps."""
    path, data = find("suite", name_or_path, SUITES)
    suite = (parse_own if path.parent == SUITES else parse)(Suite, data, path.name)
    _check_suite(suite, path.name)
    return suite, data


@cache
def digests() -> Mapping[str, str]:
    """The sha256 of each shipped suite's file, by its name."""
    return {path.stem: sha256(path.read_bytes()) for path in sorted(SUITES.glob("*.toml"))}


def _check_suite(suite: Suite, name: str) -> None:
    if not suite.case:
        raise UsageError(f"{name} plans nothing: it needs at least one [[case]]")
    unique(name, "case", [case.id for case in suite.case])
    check_protocol(suite.protocol, name)
    if suite.protocol.fresh_every:
        raise UsageError(
            f'{name}: key "fresh_every" of protocol is of `bench qualify` alone, as launches that '
            "are judged are of one kind: leave it out"
        )
    positive(name, "time_limit_seconds", suite.time_limit_seconds)
    for case in suite.case:
        _check_case(case, f'{name}, case "{case.id}"')


def check_protocol(protocol: Protocol, name: str) -> None:
    """UsageError, which begins with `name`, for a protocol by which nothing can be measured."""
    counts = protocol.interim_analyses
    if not counts or list(counts) != sorted(set(counts)) or counts[0] < 1:
        raise UsageError(f'{name}: key "interim_analyses" of protocol must rise from 1 or more')
    if counts[-1] > MOST_LAUNCHES:
        raise UsageError(
            f'{name}: key "interim_analyses" of protocol ends at {counts[-1]} launches; end at '
            f"{MOST_LAUNCHES} or fewer"
        )
    if min(protocol.blocks, protocol.block_steps) < 1:
        raise UsageError(f"{name}: a launch needs at least one block of one step")
    for key in ("warmup_steps", "warmup_seconds"):
        value = getattr(protocol, key)
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f'{name}: key "{key}" of protocol must be 0 or more')
    if protocol.repeats != 0 and not LEAST_REPEATS <= protocol.repeats <= MOST_REPEATS:
        raise UsageError(
            f'{name}: key "repeats" of protocol must be {LEAST_REPEATS} to {MOST_REPEATS}, or 0 '
            "for no deterministic phase"
        )
    positive(name, "calibration_seconds", protocol.calibration_seconds)
    positive(name, "block_seconds", protocol.block_seconds)


def _check_case(case: SuiteCase, name: str) -> None:
    if not CASE_ID.fullmatch(case.id):
        raise UsageError(
            f"{name}: an id may have letters, digits, dot, dash and underscore, 80 in all"
        )
    keys = ("expected_seconds", "reference_seconds", "time_limit_seconds", "memory_limit_gib")
    for key in keys:
        positive(name, key, getattr(case, key))
    if not (math.isfinite(case.weight) and case.weight >= 0):
        raise UsageError(f'{name}: key "weight" is {case.weight}; it must be 0 or more')
    _check_place(case, name)
    if case.launches is not None and case.launches < 1:
        raise UsageError(f"{name} must have at least 1 launch")
    for parameters in (case.parameters, *(one.parameters for one in case.memory)):
        for key, value in parameters.items():
            if not isinstance(value, str) and abs(value) > LARGEST_INT:
                raise UsageError(
                    f'{name}: parameter "{key}" is beyond 2**53; give a smaller number'
                )


def _check_place(case: SuiteCase, name: str) -> None:
    """What the case asks of the node can be asked."""
    for key in ("num_devices", "num_nodes", "agents"):
        if getattr(case, key) < 1:
            raise UsageError(f'{name}: key "{key}" must be 1 or more')
    if case.agents > 1 and case.scope != "job":
        raise UsageError(f"{name} has {case.agents} agents, of which only a job has several")
    classes = [one.gib for one in case.memory]
    if classes != sorted(set(classes)) or not set(classes) <= set(MEMORY_CLASSES):
        known = ", ".join(map(str, MEMORY_CLASSES))
        raise UsageError(f"{name}: its memory classes must rise and be among {known} GiB")
