"""What pairs of launches say of a baseline: whether forked launches are as fresh ones are.

`bench baseline create` makes no launches. It takes the pairs of the qualified record of the same
workload, version and model (`bench qualify` makes them), and says which cases have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from appliance.records.qualified import ObservedCase
from appliance.scheduling import launch_kinds
from appliance.verbs.baselines.measurements import Measured

_SHOWN = {
    "equivalent": "forked launches are as fresh ones within the margin",
    "different": "forked launches differ from fresh ones: compare it with one kind of launch alone",
    "undecided": "the pairs show neither that forked launches are as fresh ones nor a difference",
    None: "the rule says nothing of it, as of every processor and of few pairs",
}


def sentences(measured: Sequence[Measured], observed: Sequence[ObservedCase]) -> Iterator[str]:
    """One sentence for each workload on each model, and one of all that have no pairs."""
    lacking: list[str] = []
    for workload, version, model in dict.fromkeys(map(_own, measured)):
        pairs = [
            one
            for one in observed
            if (one.workload, one.version, one.model) == (workload, version, model)
            and launch_kinds.ratio_of(one) is not None
        ]
        if not pairs:
            lacking.append(f"{workload} on {model}")
        for one in pairs:
            yield (
                f"{workload} on {model}, by the pairs of its qualified record: "
                f"{launch_kinds.interval_words(one)}; {_SHOWN[launch_kinds.ruling(one)]}"
            )
    if lacking:
        yield (
            f"no pairs of forked and fresh launches are known of {', '.join(lacking)}: "
            "`bench qualify` makes them"
        )


def _own(item: Measured) -> tuple[str, int, str]:
    return item.case.workload, item.case.version, item.key.model
