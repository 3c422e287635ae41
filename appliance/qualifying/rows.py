"""The rows of a qualification, by what they are worth: the suites that its stages are planned by.

A row is a workload with its parameters. `small` are all workloads at their reduced sizes, each
with the inputs of two seeds; `full` are the cases of the large suites; the control is a few small
rows in pairs of a forked and a fresh launch. Within each the workloads of the suite `acceptance`
come first, then those of `extended`, then all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.errors import UsageError
from appliance.planning.workload_manifest import WorkloadFacts
from appliance.records.suite import Protocol, Suite, SuiteCase
from appliance.scheduling import launch_kinds
from appliance.storage.toml_file import did_you_mean

SEED = "-seed"
"""Stands in a small case's id before the number of its seed."""
SEEDS = (1, 2)
CONTROL = ("gemm", "resnet50", "bert", "memory_bandwidth")
"""Workloads whose small rows are made in pairs: products, a network of convolutions,
a transformer, and memory."""
SMALL_SECONDS, SMALL_MEMORY_GIB = 90.0, 16.0
"""Limits of one launch of a small row; the longest takes a fifth of that on two cores."""
FULL_SECONDS = 180.0
LONGEST = 10.0**7

SMALL = Protocol(
    mode="forked",
    calibration_seconds=0.05,
    warmup_steps=1,
    warmup_seconds=0.0,
    blocks=1,
    block_steps=5,
    block_seconds=0.2,
    interim_analyses=(3,),  # none is ever due, as two launches are made: nothing is judged here
    last_checks="all",
    repeats=3,
)
FULL = replace(SMALL, warmup_steps=3, block_steps=10, block_seconds=1.0, calibration_seconds=0.1)
PAIRS = replace(
    SMALL,
    warmup_steps=3,
    warmup_seconds=0.2,
    block_steps=10,
    block_seconds=0.5,
    interim_analyses=(2 * launch_kinds.rule().pairs + 1,),
    last_checks="one",
    repeats=0,
    fresh_every=2,
)
"""Launches with an even number are fresh. One more than are made is judged, so that none is."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """What rows are made of: facts of all workloads, and the suites, the most valuable first.

    `reduced` is the suite that has every workload at small size, `large` those of full sizes.
    """

    manifest: Mapping[str, WorkloadFacts]
    reduced: Suite
    large: Sequence[Suite]

    def rank(self, workload: str) -> int:
        """Where the large suites name the workload first; those that they do not come last."""
        names = [item.workload for suite in self.large for item in suite.case]
        return names.index(workload) if workload in names else len(names)


def small(shipped: Shipped, chosen: Collection[str], data: Collection[str]) -> Suite:
    """Every workload at small size, with each seed; jobs of several ranks come last.

    `chosen` are the workloads that are wanted, all where it is empty; `data` the data sets there.
    """
    named = [item for item in shipped.reduced.case if _is_chosen(item.workload, chosen)]
    known = {item.workload for item in named}
    named += [
        _unlisted(facts)
        for facts in shipped.manifest.values()
        if facts.name not in known
        and _is_chosen(facts.name, chosen)
        and not facts.injector
        and set(facts.data) <= set(data)
    ]
    ordered = sorted(named, key=lambda one: (one.scope == "job", shipped.rank(one.workload)))
    limited = [_limited(item, SMALL_SECONDS, SMALL_MEMORY_GIB) for item in ordered]
    return _suite("qualify-small", SMALL, [_seeded(one, seed) for seed in SEEDS for one in limited])


def full(shipped: Shipped, chosen: Collection[str]) -> Suite:
    """The cases of the large suites in their order, each once."""
    by_id: dict[str, SuiteCase] = {}
    for suite in shipped.large:
        for item in suite.case:
            if _is_chosen(item.workload, chosen):
                by_id.setdefault(item.id, replace(item, variants=False))
    limited = [_limited(item, FULL_SECONDS, item.memory_limit_gib) for item in by_id.values()]
    return _suite("qualify-full", FULL, limited)


def control(shipped: Shipped, chosen: Collection[str]) -> Suite:
    """A few small rows in pairs of a forked and a fresh launch, with the first seed's inputs."""
    suite = small(shipped, chosen, ())
    names = {f"{name}{SEED}{SEEDS[0]}" for name in _control_ids(shipped)}
    return _suite("qualify-pairs", PAIRS, [item for item in suite.case if item.id in names])


def check_names(shipped: Shipped, chosen: Iterable[str]) -> None:
    """UsageError for a workload that is not shipped."""
    for name in chosen:
        if name not in shipped.manifest:
            hint = did_you_mean(name, shipped.manifest)
            raise UsageError(f'there is no workload "{name}"{hint}')


def lacking_data(
    shipped: Shipped, chosen: Collection[str], data: Collection[str]
) -> dict[str, str]:
    """Workloads that are left out because a data set is not here, with the sentence."""
    listed = {item.workload for item in shipped.reduced.case}
    return {
        facts.name: f"needs the data set {missing[0]}: `bench data fetch {missing[0]} --to FOLDER`"
        for facts in shipped.manifest.values()
        if facts.name not in listed
        and _is_chosen(facts.name, chosen)
        and (missing := sorted(set(facts.data) - set(data)))
    }


def row_of(case_id: str) -> tuple[str, int]:
    """The row of a case, and the number of its seed: ("bert", 2) of "bert-seed2@cpu:0"."""
    name, _, number = case_id.partition("@")[0].partition(SEED)
    return name, int(number or SEEDS[0])


def _control_ids(shipped: Shipped) -> set[str]:
    """The first case of each workload of the control, by its id in the suite of all."""
    first: dict[str, str] = {}
    for item in shipped.reduced.case:
        first.setdefault(item.workload, item.id)
    return {first[name] for name in CONTROL if name in first}


def _is_chosen(workload: str, chosen: Collection[str]) -> bool:
    return not chosen or workload in chosen


def _unlisted(facts: WorkloadFacts) -> SuiteCase:
    """A workload that no shipped suite has at small size, as those that read a data set."""
    return SuiteCase(
        id=facts.name,
        workload=facts.name,
        small=True,
        expected_seconds=5.0,
        reference_seconds=5.0,
        time_limit_seconds=SMALL_SECONDS,
        memory_limit_gib=SMALL_MEMORY_GIB,
    )


def _limited(item: SuiteCase, seconds: float, gib: float) -> SuiteCase:
    return replace(
        item,
        time_limit_seconds=min(item.time_limit_seconds, seconds),
        memory_limit_gib=min(item.memory_limit_gib, gib),
        variants=False,
    )


def _seeded(item: SuiteCase, seed: int) -> SuiteCase:
    return replace(item, id=f"{item.id}{SEED}{seed}")


def _suite(name: str, protocol: Protocol, cases: Sequence[SuiteCase]) -> Suite:
    return Suite(
        name=name,
        version=1,
        summary="Rows of a qualification",
        time_limit_seconds=LONGEST,
        protocol=protocol,
        case=tuple(cases),
    )
