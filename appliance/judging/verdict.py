"""Rulings and the verdict: a pure function of the files in the bundle.

Nothing is accepted by default. Every criterion is applied to every case that it matches and
gives one ruling with a reason and, unless it is a pass, one next action. ACCEPTED needs a
pass from every required ruling that applies; one fail makes REJECTED; anything else is
INCONCLUSIVE. A criterion on health may not apply, where it says so itself and the vendor says that
the device cannot have what it asks for, and one on repeats where no qualified record says what a
healthy device gives; page 1 says so of both. The
four functional criteria (completed, honest clocks and no injected fault, correct, repeatable)
hold for every planned case, whether the criteria file names them or not. Where several rulings
stand against acceptance, the one of the highest precedence is named: integrity, correctness,
health, performance, then what is open.

One interruption per run is tolerated: the interrupted launch counts as made and is never made
again, because whoever may repeat a slow launch can choose his result. From the second
interruption on, the cases touched are inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from appliance.evidence import hidden_links
from appliance.evidence.budget import Budget
from appliance.evidence.case_results import case_result, common_clock, withheld
from appliance.evidence.determinism import Disagreement, between_devices, exchanged
from appliance.evidence.device_health import Scope
from appliance.evidence.disturbance import disturbance, users_by_device, why_unlisted
from appliance.evidence.journal_index import JournalIndex
from appliance.evidence.launches import CaseEvidence, LaunchEvidence, is_default_mode_bits
from appliance.evidence.qualification import find as find_record
from appliance.judging import (
    fabric,
    order_match,
    ratios,
    repeatability,
    variants,
)
from appliance.judging.functional import (
    MORE_MINUTES,
    POWER,
    RulingDraft,
    functional,
    health,
    inconclusive,
    injected,
    inventory,
    is_burn_in,
    load,
    never_began,
)
from appliance.judging.heating import heated
from appliance.judging.level_spread import score_row
from appliance.judging.limits import NO_RECORDS, RulingInputs, smallest_margin
from appliance.judging.performance import judged, pooled
from appliance.planning import coverage, sustained
from appliance.planning.criterion_scope import (
    CHANCE_KINDS,
    RATIO,
    is_pooled,
    limited_cases,
    matches,
    other_of,
)
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria, Criterion, CriterionKind
from appliance.records.journal import AttemptBegun, InterimAnalysis, Line
from appliance.records.order import Order
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.system import System
from appliance.records.verdict import (
    CaseResult,
    Reason,
    Ruling,
    Score,
    Straggler,
    Verdict,
    VerdictWord,
)
from appliance.statistics import score, stragglers

IMPLIED = (
    Criterion(id="completion", kind="completion", title="Every planned launch completed"),
    Criterion(id="integrity", kind="integrity", title="Clocks agree, nothing was injected"),
    Criterion(id="correctness", kind="numeric", title="Every check within its bound"),
    Criterion(id="repeatability", kind="determinism", title="Same inputs, same output"),
)
LOAD = Criterion(
    id="load",
    kind="health",
    title="Burnt in at full power",
    metric=POWER,
    at_least=0.97,
    if_absent="not_applicable",
)
"""What a burn-in is judged by beside the criteria, where a qualified record has the model."""
UNCOVERED = (
    "Judge a node that has what they need, agree on a suite without them, or name them under "
    "may_lack in the criteria."
)
TOO_GOOD = "Run again; if it stays, ask what was made ready for this suite alone."
INJECTED = "Run a suite of the appliance's own workloads."
UNJUDGED_REPEATS: Mapping[Reason, str] = {
    "unplanned": "not measured, in {cases}",
    "unqualified": "reported, not judged, in {cases}",
    "no_deterministic_form": "reported, not judged, in {cases}, which have no deterministic form",
}
"""Why repeats are not judged, and what page 1 says of it; the sentence names the first of each."""
EXCHANGED = "Keep the node's software unchanged while it is judged, and run again."
REPEATED = "Compare it with the run that it repeats."
CONVERTED = "Run bench on the device itself."
LACKS_ROOM = "the node lacks room"
"""What the scope says of cases that cannot be placed here; the plan has the reason of each."""
WITHIN_ALL = True, "decided: within every limit"
PRECEDENCE: Mapping[CriterionKind, int] = {
    "integrity": 0,
    "completion": 1,
    "numeric": 1,
    "exact": 1,
    "determinism": 1,
    "trajectory": 1,
    "collective": 1,
    "health": 2,
    "fabric": 2,
    "inventory": 2,
    "perf": 3,
    "tail": 3,
    "drift": 3,
}


def requirements(criteria: Criteria) -> tuple[Criterion, ...]:
    """The file's criteria and those functional ones that it leaves out for some case."""
    covered = {
        criterion.kind
        for criterion in criteria.criterion
        if criterion.required and criterion.cases == "*"
    }
    taken = {criterion.id for criterion in criteria.criterion}
    implied = (criterion for criterion in IMPLIED if criterion.kind not in covered)
    return (*criteria.criterion, *(_renamed(criterion, taken) for criterion in implied))


def of_plan(criteria: Criteria, plan: Plan) -> tuple[Criterion, ...]:
    """The requirements, and of a plan with a burn-in also its load, unless the file has one."""
    every = requirements(criteria)
    if not any(map(is_burn_in, plan.cases)) or any(one.metric == POWER for one in every):
        return every
    return (*every, _renamed(LOAD, {one.id for one in every}))


def _renamed(criterion: Criterion, taken: set[str]) -> Criterion:
    """An id of its own, where the file gave this one to something else."""
    name = criterion.id
    while name in taken:
        name = f"implied-{name}"
    return replace(criterion, id=name)


class Judge:
    """One run under judgement: takes the journal line by line, answers at any moment.

    The same lines give the same answers, whoever asks and wherever.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        criteria: Criteria,
        baselines: Baselines,
        peaks: Peaks,
        system: System,
        qualified: Qualified = NO_RECORDS,
        order: Order | None = None,
    ) -> None:
        self._inputs = RulingInputs(
            plan=plan,
            criteria=criteria,
            baselines=baselines,
            peaks=peaks,
            system=system,
            qualified=qualified,
            order=order,
        )
        self._requirements = of_plan(criteria, plan)
        self._order = order
        self._index = JournalIndex(plan, are_shown=False)
        for evidence in self._index.cases.values():
            evidence.margin = smallest_margin(evidence.case, criteria)
        self._against = tuple(_against(criteria, plan))
        self._analysed: dict[str, tuple[int, tuple[bool, str]]] = {}
        self._apart: Mapping[str, Disagreement] = {}

    def take(self, line: Line) -> None:
        """Add the next line of the journal."""
        event = line.event
        if isinstance(event, AttemptBegun):
            self._inputs = replace(self._inputs, attempt=event.attempt)
        if (
            isinstance(event, InterimAnalysis)
            and event.is_decided
            and event.case in self._index.cases
        ):
            self._check_decision(event.case)
        self._index.take(line)

    @property
    def budget(self) -> Budget:
        """What the run's time went to so far."""
        return self._index.budget.now()

    def interim_analysis(self, case: str) -> tuple[bool, str]:
        """Whether a case is decided by the launches so far, so that the rest need not be made.

        A fail is final. Where times are judged, so is an answer to every limit on them, at a
        planned interim analysis only: who looks more often finds a pass by chance.
        """
        evidence = self._index.cases[case]
        known = self._analysed.get(case)
        version = sum(self._index.cases[name].version for name in self._with(case))
        if known is None or known[0] != version:
            self._index.settle()
            known = version, self._interim_analysis(evidence)
            self._analysed[case] = known
        return self._after_stage(evidence, known[1])

    def verdict(self) -> Verdict:
        """All rulings of the run, and what they come to."""
        self._index.settle()
        plan, cases = self._inputs.plan, self._index.cases
        self._apart = self._disagreements()
        rulings = [*self._rulings(), *self._order_rulings(), *self._run_rulings()]
        return Verdict(
            run_id=plan.run_id,
            verdict=_word(rulings),
            decided_by=self._decided_by(rulings),
            scope=self._scope(rulings),
            num_interruptions=self._index.run.num_interruptions,
            num_made=sum(len(_made(evidence)) for evidence in cases.values()),
            num_failed=sum(
                _has_failed(launch) for evidence in cases.values() for launch in _made(evidence)
            ),
            rulings=tuple(rulings),
            cases=tuple(map(self._result, cases.values())),
            score=self._score(),
            stragglers=self._stragglers(),
        )

    def _disagreements(self) -> Mapping[str, Disagreement]:
        """By case: where its device contradicts itself, or others of its model.

        Only where a record shows what healthy ones give.
        """
        inputs = self._inputs
        known = [
            evidence
            for evidence in self._index.cases.values()
            if find_record(inputs.qualified, evidence.case, inputs.system)[0] is not None
        ]
        own = {one.case.id: repeatability.contradiction(one, inputs) for one in known}
        return {
            **between_devices(known, inputs.system),
            **{case: found for case, found in own.items() if found is not None},
        }

    def _scope(self, rulings: Sequence[Ruling]) -> str:
        """What was judged and what was not, in the sentences of page 1."""
        kinds = {item.id: item.kind for item in self._requirements}
        repeats = [one for one in rulings if kinds.get(one.criterion) == "determinism" and one.case]
        judged = {one.case for one in repeats if one.ruling != "not_applicable"}
        return (
            _scope(self._inputs, self._order, rulings, len(judged))
            + _within(self._inputs.plan, self._unreached())
            + _unobserved(rulings, self._inputs)
            + _unrepeated(repeats)
            + self._others()
        )

    def _unreached(self) -> frozenset[str]:
        """Names of the rows that waited for time that was left, of which there was none."""
        return frozenset(
            one.case.id.partition("@")[0]
            for one in self._index.cases.values()
            if one.case.waits and any(launch.had_no_time for launch in one.launches[:1])
        )

    # -------------------------------------------------------------- interim analyses

    def _check_decision(self, case: str) -> None:
        evidence = self._index.cases[case]
        if evidence.decision is None:
            is_decided, reason = self.interim_analysis(case)
            evidence.decision = (
                ""
                if is_decided
                else f"launches were left out, but the interim analysis says: {reason}"
            )

    def _interim_analysis(self, evidence: CaseEvidence) -> tuple[bool, str]:
        is_planned = evidence.num_made in evidence.interim_analyses
        on_times = list(self._on_times(evidence)) if is_planned else []
        others = [
            self._functional(criterion, evidence)
            for criterion in self._of_case(evidence)
            if criterion.kind not in CHANCE_KINDS
        ]
        for draft in (*others, *on_times):
            if draft.ruling == "fail":
                return True, f"decided: {draft.explanation}"
        if evidence.num_made < evidence.interim_analyses[0] and evidence.sessions > 1:
            last = evidence.sessions
            return False, f"open: nothing has failed; times are judged in session {last}"
        if not is_planned:
            return False, f"open: no interim analysis is planned after {evidence.num_made} launches"
        if not on_times:
            return False, "nothing has failed; performance is reported, not judged"
        for draft in on_times:
            if draft.ruling != "pass":
                return False, f"open: {draft.explanation}"
        return WITHIN_ALL

    def _after_stage(self, evidence: CaseEvidence, answer: tuple[bool, str]) -> tuple[bool, str]:
        """The answer of an analysis; a pass decides nothing before the sustained stage is over."""
        if answer != WITHIN_ALL:
            return answer
        plan, cases = self._inputs.plan, self._index.cases
        for device in evidence.case.all_devices:
            short = sustained.shortfall(
                self._inputs.criteria,
                plan.cases,
                protocol=plan.protocol,
                sessions=plan.sessions,
                counted=lambda case: cases[case.id].num_made,
                device=device,
            )
            if short:
                return False, f"open: {short}"
        return answer

    def _on_times(self, evidence: CaseEvidence) -> Iterator[RulingDraft]:
        """What is ruled of a case's times, and of times that are held against them."""
        for criterion in self._of_case(evidence):
            if criterion.kind in CHANCE_KINDS:
                yield self._judged(criterion, evidence)
        for criterion, subject, other in self._against:
            if other == evidence.case.id and criterion.required:
                yield self._judged(criterion, self._index.cases[subject])

    def _with(self, case: str) -> set[str]:
        """The case and those whose speed is held against its own, or its own against theirs."""
        pairs = [{subject, other} for _, subject, other in self._against]
        return {case}.union(*(pair for pair in pairs if case in pair))

    def _judged(self, criterion: Criterion, evidence: CaseEvidence) -> RulingDraft:
        if criterion.metric == RATIO:
            return ratios.judged(criterion, evidence.case, self._index.cases, self._inputs)
        return judged(criterion, evidence, self._inputs)

    def _functional(self, criterion: Criterion, evidence: CaseEvidence) -> RulingDraft:
        if criterion.kind == "determinism":
            return repeatability.judged(evidence, self._inputs)
        return functional(criterion, evidence, self._inputs)

    def _result(self, evidence: CaseEvidence) -> CaseResult:
        """What the case has shown, and its speed beside that of the cases that it belongs with."""
        cases = self._index.cases
        result = case_result(evidence, self._apart.get(evidence.case.id))
        if result.withheld:
            return result
        return replace(result, estimates=(*result.estimates, *ratios.estimates(evidence, cases)))

    def _of_case(self, evidence: CaseEvidence) -> Iterator[Criterion]:
        """Required criteria whose ruling is about this case alone."""
        for criterion in self._requirements:
            is_alone = criterion.kind not in ("inventory", "fabric") and not is_pooled(criterion)
            can_be = evidence.case.is_timed or criterion.kind not in CHANCE_KINDS
            if criterion.required and is_alone and can_be and matches(criterion, evidence.case.id):
                yield criterion

    # -------------------------------------------------------------- rulings

    def _rulings(self) -> Iterator[Ruling]:
        for criterion in self._requirements:
            cases = [
                evidence
                for evidence in self._index.cases.values()
                if matches(criterion, evidence.case.id)
                and (evidence.case.is_timed or criterion.kind not in CHANCE_KINDS)
            ]
            if criterion.kind == "inventory":
                yield _ruling(criterion, "", inventory(criterion, self._inputs.system))
            elif criterion.kind == "fabric":
                yield _ruling(criterion, "", fabric.ruling(criterion, cases, self._inputs))
            elif not cases:
                yield _unmatched(criterion)
            elif is_pooled(criterion):
                rule = heated if criterion.kind == "drift" else pooled
                yield _ruling(criterion, "", rule(criterion, cases, self._inputs))
            elif criterion.metric == POWER:
                yield _ruling(criterion, "", load(criterion, cases, self._inputs))
            elif criterion.kind == "health":
                scope: Scope = "run" if criterion.cases == "*" else "cases"
                yield _ruling(criterion, "", health(criterion, cases, self._inputs, scope))
            else:
                for evidence in cases:
                    yield _ruling(criterion, evidence.case.id, self._draft(criterion, evidence))

    def _draft(self, criterion: Criterion, evidence: CaseEvidence) -> RulingDraft:
        """The ruling on one case; of one that never began, why, and nothing else."""
        draft = (
            self._judged(criterion, evidence)
            if criterion.kind in CHANCE_KINDS
            else self._functional(criterion, evidence)
        )
        if criterion.kind == "determinism":
            draft = repeatability.agreed(draft, self._apart.get(evidence.case.id))
        if draft.ruling != "inconclusive":
            return draft
        return never_began(evidence, self._inputs.plan) or draft

    def _order_rulings(self) -> Iterator[Ruling]:
        """Whether the node is what was bought, line by line."""
        matched = order_match.match(self._order, self._inputs.system)
        for criterion, line in zip(order_match.requirements(self._order), matched, strict=True):
            yield _ruling(criterion, "", line.draft)

    def _run_rulings(self) -> Iterator[Ruling]:
        """What stands against the whole run, whatever its cases show."""
        first = {item.kind: item for item in reversed(self._requirements)}
        integrity = replace(first["integrity"], required=True)
        table: tuple[tuple[Criterion, Reason, Iterable[tuple[str, str]], str], ...] = (
            (first["completion"], "coverage", self._uncovered(for_time=False), UNCOVERED),
            (first["completion"], "coverage", self._uncovered(for_time=True), MORE_MINUTES),
            (integrity, "too_good", self._too_good(), TOO_GOOD),
            (integrity, "injected", self._injected(), INJECTED),
            (integrity, "disagreement", self._exchanged(), EXCHANGED),
            (integrity, "rerun", self._repeated(), REPEATED),
            (integrity, "converted", self._converted(), CONVERTED),
        )
        for criterion, reason, explanations, action in table:
            for case, explanation in explanations:
                yield _ruling(criterion, case, inconclusive(reason, explanation, action))

    def _uncovered(self, *, for_time: bool) -> Iterator[tuple[str, str]]:
        """Cases that are not planned, for want of time or of what the node has."""
        schedule = self._inputs.plan.schedule
        left_out = frozenset() if schedule is None else schedule.left_out
        every = coverage.gaps(self._inputs.plan, self._inputs.criteria)
        gaps = tuple(gap for gap in every if (gap.case in left_out) is for_time)
        if gaps:
            yield "", coverage.explained(gaps)

    def _too_good(self) -> Iterator[tuple[str, str]]:
        for contrast in variants.contrasts(self._index.cases, self._inputs):
            if contrast.is_disagreeing:
                yield contrast.variant, contrast.sentence

    def _injected(self) -> Iterator[tuple[str, str]]:
        plan = self._inputs.plan
        planned = (injected(case) for case in plan.cases)
        faults = [*plan.injectors, *self._index.run.injected, *filter(None, planned)]
        if faults:
            names = ", ".join(dict.fromkeys(faults))
            yield "", f"this run injects faults on purpose ({names}), so it accepts nothing"

    def _exchanged(self) -> Iterator[tuple[str, str]]:
        changed = exchanged(
            [one for item in self._index.cases.values() for one in item.all_launches],
            self._index.digests,
        )
        if changed:
            yield "", changed

    def _repeated(self) -> Iterator[tuple[str, str]]:
        name = self._inputs.plan.rerun_of
        if name:
            yield "", f"this run repeats {name} to settle a dispute, so it accepts nothing"

    def _converted(self) -> Iterator[tuple[str, str]]:
        version = self._inputs.plan.converted_from
        if version:
            yield "", f"these records were converted from bench {version}: they accept nothing"

    def _decided_by(self, rulings: Sequence[Ruling]) -> str:
        criteria = (*self._requirements, *order_match.requirements(self._order))
        kinds = {criterion.id: criterion.kind for criterion in criteria}
        against = [
            ruling
            for ruling in rulings
            if ruling.required and ruling.ruling not in ("pass", "not_applicable")
        ]
        if not against:
            return ""
        first = min(
            against,
            key=lambda ruling: (ruling.ruling != "fail", PRECEDENCE[kinds[ruling.criterion]]),
        )
        return f"{first.criterion} of {first.case}" if first.case else first.criterion

    # -------------------------------------------------------------- figures of the whole run

    def _others(self) -> str:
        """Who else used what was judged, and where that could not be seen."""
        system = self._inputs.system
        cases = tuple(self._index.cases.values())
        clauses = {
            one.case.all_devices: clause for one in cases if (clause := disturbance(one, system))
        }
        seen = users_by_device(cases)
        gaps = {
            device.id: gap
            for device in system.identity.devices
            if (gap := why_unlisted(seen.get(device.id, [])))
        }
        words = [f" Not alone: {clause}." for clause in clauses.values()]
        named = {gap: [name for name in gaps if gaps[name] == gap] for gap in gaps.values()}
        words += [
            f" The processes on {', '.join(names)} could not be listed: {gap}."
            for gap, names in named.items()
        ]
        return "".join(words)

    def _score(self) -> Score | None:
        timed = [
            evidence
            for evidence in self._index.cases.values()
            if evidence.case.is_timed and not evidence.case.variant
        ]
        made = {
            evidence.case.id: None
            if self._withheld(evidence)
            else score_row(evidence, self._inputs)
            for evidence in timed
        }
        rows = [row for row in made.values() if row is not None]
        left_out = tuple(case for case, row in made.items() if row is None)
        return score.suite_score(rows, left_out=left_out)

    def _withheld(self, evidence: CaseEvidence) -> str:
        return withheld(evidence, self._apart.get(evidence.case.id))

    def _stragglers(self) -> tuple[Straggler, ...]:
        by_name: dict[str, list[tuple[str, CaseEvidence]]] = {}
        for evidence in self._index.cases.values():
            is_of_one = len(evidence.case.all_devices) == 1
            if evidence.case.is_timed and is_of_one and not self._withheld(evidence):
                name, _, device = evidence.case.id.partition("@")
                by_name.setdefault(name, []).append((device, evidence))
        times: dict[str, dict[str, list[tuple[int, float]]]] = {}
        for name, cases in by_name.items():
            clock = common_clock(evidence for _, evidence in cases)
            for device, evidence in cases:
                times.setdefault(device, {})[name] = [
                    (launch.place, value)
                    for launch in evidence.counted
                    if launch.place is not None and (value := launch.location(clock)) is not None
                ]
        return stragglers.find(times)


def judge(
    *,
    plan: Plan,
    criteria: Criteria,
    lines: Sequence[Line],
    baselines: Baselines,
    peaks: Peaks,
    system: System,
    qualified: Qualified = NO_RECORDS,
    order: Order | None = None,
) -> Verdict:
    """All rulings of a run, and what they come to; the same for the same files, anywhere."""
    one = Judge(
        plan=plan,
        criteria=criteria,
        baselines=baselines,
        peaks=peaks,
        system=system,
        qualified=qualified,
        order=order,
    )
    for line in lines:
        one.take(line)
    return one.verdict()


def interim_analysis(
    *,
    plan: Plan,
    criteria: Criteria,
    lines: Sequence[Line],
    baselines: Baselines,
    peaks: Peaks,
    system: System,
    case: str,
    qualified: Qualified = NO_RECORDS,
) -> tuple[bool, str]:
    """Whether a case is decided by the lines so far; see `Judge.interim_analysis`."""
    one = Judge(
        plan=plan,
        criteria=criteria,
        baselines=baselines,
        peaks=peaks,
        system=system,
        qualified=qualified,
    )
    for line in lines:
        one.take(line)
    return one.interim_analysis(case)


# ------------------------------------------------------------------ rulings


def _against(criteria: Criteria, plan: Plan) -> Iterator[tuple[Criterion, str, str]]:
    """Criteria on a ratio, each with a case and the one that its speed is held against."""
    for criterion in criteria.criterion:
        if criterion.metric == RATIO:
            for case in plan.cases:
                is_meant = case.is_timed and matches(criterion, case.id)
                other = other_of(criterion, case, plan.cases) if is_meant else ""
                if not isinstance(other, str):
                    yield criterion, case.id, other.id


def _ruling(criterion: Criterion, case: str, draft: RulingDraft) -> Ruling:
    return Ruling(
        criterion=criterion.id,
        case=case,
        required=criterion.required,
        ruling=draft.ruling,
        reason=draft.reason,
        explanation=draft.explanation,
        action=draft.action,
        statistic=draft.statistic,
    )


def _unmatched(criterion: Criterion) -> Ruling:
    return _ruling(
        criterion,
        "",
        inconclusive(
            "coverage",
            f'no planned case that can be judged by it matches "{criterion.cases}"',
            "Plan a suite that has such a case, or correct the pattern in the criteria file.",
        ),
    )


# ------------------------------------------------------------------ what it comes to


def _word(rulings: Sequence[Ruling]) -> VerdictWord:
    words = [ruling.ruling for ruling in rulings if ruling.required]
    required = [word for word in words if word != "not_applicable"]
    if "fail" in required:
        return "REJECTED"
    if required and all(ruling == "pass" for ruling in required):
        return "ACCEPTED"
    return "INCONCLUSIVE"


def _scope(
    inputs: RulingInputs, order: Order | None, rulings: Sequence[Ruling], num_repeatable: int
) -> str:
    plan = inputs.plan
    num_limited = len(limited_cases(inputs.criteria, rulings))
    num_small = sum(case.small for case in plan.cases)
    words = [f"Judged: whether every planned case {_functions(num_repeatable, len(plan.cases))}"]
    if num_limited:
        words.append(
            f", and whether the limits of the criteria were met, which cover {num_limited} of "
            f"{len(plan.cases)} cases."
        )
    else:
        words.append(
            ". Performance was measured and is reported, but not judged: the criteria set no limit"
            + ("." if inputs.baselines.baseline else " and there is no baseline for this device.")
        )
    if order is not None:
        words.append(
            f" The node was compared with the order {order.name}, line by line ({len(order.line)})."
        )
    if num_small:
        words.append(f" {num_small} of {len(plan.cases)} cases are of reduced size.")
    left_out = frozenset() if plan.schedule is None else plan.schedule.left_out
    num_lacking = len({item.case for item in plan.not_planned} - left_out)
    if num_lacking:
        words.append(f" {num_lacking} of the suite's cases are not planned: {LACKS_ROOM}.")
    return "".join(words)


def _within(plan: Plan, unreached: frozenset[str]) -> str:
    """What of the suite was not run for want of time, by name; those `unreached` waited for it."""
    if plan.schedule is None:
        return ""
    rows, left_out = plan.schedule.rows, plan.schedule.left_out | unreached
    words = f" Planned within {plan.schedule.minutes} min"
    if not left_out:
        return f"{words}: every row of the suite, with as many launches as there was time for."
    names = ", ".join(row.name for row in rows if row.name in left_out)
    return (
        f"{words}: {len(left_out)} of {len(rows)} rows of the suite were not run, so nothing is "
        f"shown of them: {names}."
    )


def _functions(num_repeatable: int, num_cases: int) -> str:
    """What the functional criteria asked of the cases."""
    if num_repeatable == 0:
        return "completed and was correct"
    if num_repeatable == num_cases:
        return "completed, was correct and repeatable"
    return f"completed, was correct and, in {num_repeatable} of {num_cases}, repeatable"


def _unrepeated(repeats: Sequence[Ruling]) -> str:
    """Repeats that are not judged, and why; and those that differed once, for the buyer."""
    words = []
    for reason, what in UNJUDGED_REPEATS.items():
        of_reason = [one for one in repeats if one.reason == reason]
        if of_reason:
            why = of_reason[0].explanation.partition(";")[0]
            cases = f"{len(of_reason)} of {len(repeats)} cases"
            words.append(f" Repeatability is {what.format(cases=cases)}: {why}.")
    words += [
        f" Transient, left to the buyer: {one.case}: {one.explanation}."
        for one in repeats
        if one.reason == "transient"
    ]
    return "".join(words)


def _unobserved(rulings: Sequence[Ruling], inputs: RulingInputs) -> str:
    """What required criteria asked for and do not insist on, and nobody could see."""
    ids = {
        ruling.criterion
        for ruling in rulings
        if ruling.ruling == "not_applicable" and ruling.reason == "not_observed" and ruling.required
    }
    titles = [item.title for item in inputs.criteria.criterion if item.id in ids]
    unseen = f" Not observed, so not judged: {'; '.join(titles)}." if titles else ""
    is_hidden = any(ruling.reason == "not_shown" and ruling.required for ruling in rulings)
    return unseen + (f" {hidden_links.SENTENCE.capitalize()}." if is_hidden else "")


def _made(evidence: CaseEvidence) -> list[LaunchEvidence]:
    """Launches that were started, the untimed one among them."""
    return [launch for launch in evidence.all_launches if launch.mode is not None]


def _has_failed(launch: LaunchEvidence) -> bool:
    has_crashed = any(ended.outcome in ("crashed", "timed_out") for ended in launch.ends)
    return has_crashed or any(
        not (checked.check.is_within or is_default_mode_bits(checked)) for checked in launch.checks
    )
