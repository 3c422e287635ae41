"""How many healthy nodes of a fleet will be rejected wrongly, and what retests change of that.

A risk that is small for one node is not for a fleet: at 1 % a node, 10,000 healthy nodes give 100
rejections. Who rejects a node only after it was rejected in k retests too has the risk to the power
of k + 1 where the noise of the runs is independent. Each further run is also one more chance for a
bad node to pass, so the risk of a wrong pass can come to as many times `alpha_pass` as there are
runs.
"""

from __future__ import annotations

import math

from appliance.challenge.campaign import FleetRisk, RetestRule
from appliance.errors import UsageError
from appliance.records.criteria import Criteria

MOST_RETESTS = 5


def fleet_risk(
    criteria: Criteria,
    num_nodes: int,
    retest: RetestRule,
    retries: int,
    *,
    rejection: float | None = None,
    most_expected: float | None = None,
) -> FleetRisk:
    """The risks of a campaign over so many nodes.

    `rejection` is the risk of a wrong rejection in one run, as a fraction, where the buyer knows it
    better than `alpha_fail`. Raises UsageError where more healthy nodes are expected to be rejected
    than `most_expected`, with the number of retests that is enough.
    """
    risk = criteria.alpha_fail if rejection is None else rejection
    _check_numbers(risk, most_expected)
    after = risk ** (retest.retests + 1)
    runs = 1 + retest.retests + retries
    if most_expected is not None and num_nodes * after > most_expected:
        raise UsageError(_too_many(num_nodes, risk, retest, most_expected))
    return FleetRisk(
        num_nodes=num_nodes,
        rejection=risk,
        expected=num_nodes * risk,
        after_retests=after,
        expected_after=num_nodes * after,
        acceptance=min(1.0, runs * criteria.alpha_pass),
        most_expected=most_expected,
    )


def sentences(risk: FleetRisk, retest: RetestRule) -> tuple[str, ...]:
    """The risks as a person reads them."""
    first = (
        f"{risk.num_nodes} healthy nodes: at most {risk.expected:.3g} rejected wrongly by one run "
        f"each ({risk.rejection:.3g} a node)"
    )
    wrong = f"a node at a limit passes it wrongly with a risk of at most {risk.acceptance:.3g}"
    if not retest.retests:
        return first, f"no retests: the first rejection stands; {wrong}"
    times = "once" if retest.retests == 1 else f"{retest.retests} times"
    again = (
        f"a rejected node runs again {times}, in {retest.sessions} sessions: at most "
        f"{risk.expected_after:.3g} healthy nodes rejected in all their runs; {wrong}"
    )
    return first, again


def _check_numbers(risk: float, most_expected: float | None) -> None:
    if not (math.isfinite(risk) and 0 < risk < 1):
        raise UsageError(
            f"the risk of a wrong rejection is {risk:g}: give more than 0, less than 1"
        )
    if most_expected is not None and not (math.isfinite(most_expected) and most_expected > 0):
        raise UsageError(f"most_expected is {most_expected:g}: give a number of nodes above 0")


def _too_many(num_nodes: int, risk: float, retest: RetestRule, most: float) -> str:
    retests = next(
        (count for count in range(MOST_RETESTS + 1) if num_nodes * risk ** (count + 1) <= most),
        None,
    )
    fix = (
        f"more than {MOST_RETESTS} retests would be wanted"
        if retests is None
        else (f"{retests} retests are enough")
    )
    return (
        f"of {num_nodes} healthy nodes {num_nodes * risk ** (retest.retests + 1):.3g} would be "
        f"rejected wrongly after {retest.retests} retests, and at most {most:g} may be: {fix}"
    )
