"""How long the launches of a plan took where they were observed before, to say so beside the plan.

What was observed on the same model with this very stack is meant; where there is nothing of it,
another stack's is borrowed and marked. It changes neither a plan nor a ruling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from appliance.evidence.qualification import stack
from appliance.records.plan import Case, Plan
from appliance.records.qualified import ObservedCase
from appliance.records.system import System
from appliance.storage.qualified_file import is_same_work


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Seconds of one launch of a case, as observed; `borrowed` names the stack if it is another."""

    seconds: float
    borrowed: str = ""


def expected(
    plan: Plan, system: System, observed: Sequence[ObservedCase]
) -> Mapping[str, Expected]:
    """What is known of the plan's cases, by their ids."""
    known = {case.id: _of_case(case, system, observed) for case in plan.cases}
    return {name: one for name, one in known.items() if one is not None}


def sentence(plan: Plan, known: Mapping[str, Expected]) -> str:
    """How many cases were observed, and how long their launches would take; empty for none."""
    if not known:
        return ""
    seconds = sum(known[case.id].seconds for case in plan.cases if case.id in known)
    borrowed = sorted({one.borrowed for one in known.values() if one.borrowed})
    num_borrowed = sum(bool(one.borrowed) for one in known.values())
    mark = f"; {num_borrowed} of them with {', '.join(borrowed)}" if borrowed else ""
    return (
        f"observed on this model before: a launch of {len(known)} of {len(plan.cases)} cases took "
        f"{seconds:.0f} s in all{mark}"
    )


def _of_case(case: Case, system: System, observed: Sequence[ObservedCase]) -> Expected | None:
    device = next((one for one in system.identity.devices if one.id == case.device), None)
    alike = (
        []
        if device is None
        else [
            one
            for one in observed
            if one.launch_seconds is not None and is_same_work(one, case, device.model)
        ]
    )
    if device is None or not alike:
        return None
    here = stack(system, device, case.libraries)
    own = [one for one in alike if dict(one.stack) == dict(here)]
    last = max(own or alike, key=lambda one: one.recorded_utc)
    borrowed = "" if own else f"torch {last.stack.get('torch', 'of an unknown version')}"
    return Expected(seconds=last.launch_seconds or 0.0, borrowed=borrowed)
