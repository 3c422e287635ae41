"""Kinds of stress that run beside a burn-in's products, and a suite that asks for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.records.json import Parameters
    from appliance.records.plan import Plan
    from appliance.records.suite import Suite, SuiteCase

DISK, LINKS = "disk", "links"
KINDS: Mapping[str, str] = {
    "host": "memory and cores of the host",
    DISK: "writes and reads of a file, past the page cache",
    "copies": "copies to the device and back",
    LINKS: "copies, exchanges, gatherings and sums among devices",
}
"""What `stress` may name, in the order in which everything lists it."""
EVERY = "all"
PARAMETER, LAUNCHES = "stress", "stress_launches"
"""Parameters of a burn-in: its kinds, and the launches that share the host at once."""
BURN_IN = "burn_in"
NO_LINKS = "there are no links to load: one device is burnt in on this node"


def parsed(text: str) -> tuple[str, ...]:
    """The kinds that a comma-separated list names, in their order; every one for "all".

    Raises ValueError, with one sentence, for a name that is none or that comes twice.
    """
    if not text:
        return ()
    if text == EVERY:
        return tuple(KINDS)
    listed = [name.strip() for name in text.split(",")]
    for name in listed:
        if name not in KINDS or listed.count(name) > 1:
            raise ValueError(
                f'stress is "{text}": give {EVERY}, or some of {", ".join(KINDS)} by commas, '
                "each once"
            )
    return tuple(name for name in KINDS if name in listed)


def check_stress(text: str) -> None:
    """UsageError for what names no kind."""
    try:
        named = parsed(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    if not named:
        raise UsageError(f"--stress is empty: give {EVERY}, or some of {', '.join(KINDS)}")


def canonical(text: str | None) -> str:
    """The kinds of an option one by one, in their order; nothing where none was given."""
    if text is None:
        return ""
    check_stress(text)
    return ",".join(parsed(text))


def with_stress(suite: Suite, text: str, num_devices: int) -> Suite:
    """The suite with this stress beside its burn-in; as it is for an empty text.

    Each device has a launch of its own, so that many share the host's memory, cores and disk.
    Raises UsageError for a suite without a burn-in.
    """
    if not text:
        return suite
    if all(case.workload != BURN_IN for case in suite.case):
        raise UsageError(
            f"--stress is for a burn-in, and suite {suite.name} has none: name burn-in, "
            "burn-in-1h, soak-24h, soak-168h or a copy of one"
        )
    asked: Parameters = {PARAMETER: text, LAUNCHES: max(1, num_devices)}
    return replace(suite, case=tuple(_stressed(case, asked) for case in suite.case))


def _stressed(case: SuiteCase, asked: Parameters) -> SuiteCase:
    if case.workload != BURN_IN:
        return case
    return replace(case, parameters={**case.parameters, **asked})


def kinds_of(workload: str, parameters: Parameters) -> tuple[str, ...]:
    """The kinds of stress that a case asks for; none of what is no burn-in.

    Raises ValueError where its parameter names no kind.
    """
    if workload != BURN_IN:
        return ()
    launches = parameters.get(LAUNCHES, 1)
    return loaded(str(parameters.get(PARAMETER, "")), launches if isinstance(launches, int) else 1)


def loaded(text: str, launches: int) -> tuple[str, ...]:
    """The kinds that a list names and that so many launches at once can load.

    Links need two of them. Raises ValueError as `parsed` does.
    """
    return tuple(kind for kind in parsed(text) if kind != LINKS or launches > 1)


def unlinked(plan: Plan) -> tuple[str, ...]:
    """A sentence where a plan's stress names links and nothing has any; else none."""
    burnt = [case for case in plan.cases if case.workload == BURN_IN]
    named = {kind for case in burnt for kind in parsed(str(case.parameters.get(PARAMETER, "")))}
    is_loaded = any(LINKS in kinds_of(case.workload, case.parameters) for case in burnt)
    return (f"stress links: {NO_LINKS}",) if LINKS in named and not is_loaded else ()
