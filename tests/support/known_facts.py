"""The facts of a release that knows the workloads of a test's plan."""

from __future__ import annotations

from appliance.planning.workload_manifest import WorkloadFacts
from appliance.planning.workload_sizes import WorkloadSizes
from appliance.records.baseline import Peaks
from appliance.records.plan import Case, Plan
from appliance.records.qualified import Qualified
from appliance.records.workload import Resolved
from appliance.verification.facts import Facts, FactsFile
from appliance.verification.known_checks import CaseChecks, KnownCheck, WorkloadChecks

PHASES = ("first", "last", "sampled")
CHECKS = tuple(
    KnownCheck(name=f"{phase} output", bound=1e-5, is_always=False, spread=None) for phase in PHASES
)
"""The checks that tests' journals have, each of one phase."""


def facts_file(plan: Plan, *checks: KnownCheck) -> FactsFile:
    """What the plan says of its workloads, with these checks of each."""
    return FactsFile(
        bench_version=plan.bench_version,
        workload=tuple(map(_facts, plan.cases)),
        sizes=tuple(map(_sizes, plan.cases)),
        checks=tuple(
            WorkloadChecks(
                name=case.workload,
                version=case.version,
                cases=(CaseChecks(parameters=case.parameters, checks=checks),),
            )
            for case in plan.cases
        ),
        peaks=Peaks(peak=()),
        qualified=Qualified(record=()),
        ranges={"cpu": plan.ranges},
    )


def facts_of(plan: Plan, *checks: KnownCheck) -> Facts:
    """The same, as verify takes it."""
    return Facts(file=facts_file(plan, *(checks or CHECKS)))


def _facts(case: Case) -> WorkloadFacts:
    return WorkloadFacts(
        name=case.workload,
        version=case.version,
        domain="",
        parts=("torch",),
        libraries=case.libraries,
        summary=case.summary,
        data_pattern=case.data_pattern,
        is_timed=case.is_timed,
        is_repeatable=case.is_repeatable,
        alone=case.alone,
        bound_by=case.bound_by,
        injector=case.injector,
        needs=case.needs,
        data=(),
        parameters=case.parameters,
        small={},
        variants=(),
    )


def _sizes(case: Case) -> WorkloadSizes:
    resolved = Resolved(
        parameters={},
        work=case.work,
        num_parameters=case.num_parameters,
        steps=case.steps,
        scenario=case.scenario,
        ranks=case.ranks,
        evaluate_every=case.evaluate_every,
    )
    return WorkloadSizes(
        name=case.workload, version=case.version, is_by_rank=False, resolved=(resolved,)
    )
