"""Burn-in on a device that errs: once, twice, always, in a product, in memory, in the chain."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from support.builders import RUN, SEED, a_case, a_plan
from support.operators import Operators

from appliance.evidence.journal_index import index_of
from appliance.records.journal import Block, Check, Checked, Event, Line
from reports import burn_in as pages
from workloads.burn_in import FEWEST_TRIAL_ROUNDS, PERIODS, BurnIn, Output
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.parts.burning.formats import OF_PROCESSORS, Format, parsed
from workloads.parts.burning.lanes import Lane, Pace
from workloads.parts.burning.mismatches import Operands, Slot
from workloads.parts.burning.state import PHASES, Burnt, State
from workloads.parts.memory.chain import Chain, first_key, recompute
from workloads.parts.memory.digests import Scratch, digest
from workloads.parts.memory.memory_tests import TESTS, Memory
from workloads.parts.memory.planted_memory_faults import FaultyMemory, Flip, StuckBit

CPU = torch.device("cpu")
SMALL = {
    "size": 64,
    "chain_size": 16,
    "memory_bytes": 2**20,
    "lanes": 1,
    "formats": "bfloat16",
    "rounds": 1,
    "memory_parts": 1,
}
SIDE_128: dict[str, float | str] = {"size": 128, "memory_bytes": 2**23}
NUM_PRODUCTS = 12
LASTING, SINGLE = "mismatches, repeated or lasting", "a single mismatch that never came again"
true_multiply = BurnIn.multiply

pytestmark = pytest.mark.usefixtures("one_thread")


def burn_in(**changes: float | str) -> BurnIn:
    return BurnIn(**{**SMALL, **changes})  # type: ignore[arg-type]


def built(workload: BurnIn, folder: Path, seed: int = 7) -> State:
    return workload.build(Target(device=CPU, artifacts=Artifacts(folder)), seed)


def judged(workload: BurnIn, state: State, output: Output) -> dict[str, Check]:
    return {check.name: check for check in workload.check(None, state, output)}


def ran(workload: BurnIn, state: State, steps: int) -> dict[str, Check]:
    for _ in range(steps):
        output = workload.step(state)
    return judged(workload, state, output)


def outside(checks: dict[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if not check.is_within]


def flip_bit(out: torch.Tensor) -> None:
    out.view(torch.int16)[3, 5] ^= 1


@pytest.fixture
def errs_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the products whose numbers are given (from 0) go wrong in one way."""

    def install(
        is_wrong: Callable[[int], bool], spoil: Callable[[torch.Tensor], None] = flip_bit
    ) -> None:
        count = -1

        def multiply(
            self: BurnIn,
            form: Format,
            left: torch.Tensor,
            right: torch.Tensor,
            out: torch.Tensor,
        ) -> None:
            nonlocal count
            count += 1
            true_multiply(self, form, left, right, out)
            if is_wrong(count):
                spoil(out)

        monkeypatch.setattr(BurnIn, "multiply", multiply)

    return install


# ------------------------------------------------------------------ a healthy device


def test_healthy_device_is_within_every_bound_and_says_what_was_covered(tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    steps = len(PHASES) * 4
    checks = ran(workload, state, steps)
    assert outside(checks) == []
    reported = checks[pages.COVERED].detects_what
    assert (
        f"digested blocks: {steps * NUM_PRODUCTS} products in {steps} rounds, 6 shapes" in reported
    )
    assert f"chained blocks: {steps} links, " in reported
    assert "hot 24 rounds, cool 4 rounds, load in jumps 4 rounds" in reported
    assert [heading for heading, _ in pages.clauses(checks[pages.COVERED])] == [
        "Digested blocks",
        "Products by format",
        "References",
        "Operands",
        "In flight",
        "Chained blocks",
        "Memory under test",
        "Memory tests",
        "Memory covered",
        "Memory rate",
        "Phases",
        "Mismatches",
    ]


def test_all_of_the_memory_is_covered_by_products_and_by_every_test(tmp_path: Path) -> None:
    workload = burn_in(memory_parts=3)
    state = built(workload, tmp_path)
    untouched = 0x0123456789ABCDEF
    state.lanes[0].pool.fill_(untouched)
    checks = ran(workload, state, 2)
    assert not bool((state.lanes[0].pool == untouched).any())  # by addresses, at the second step
    reported = checks[LASTING].detects_what
    assert "memory covered: 100.0 % by one test at least, 0.0 % by all 9" in reported
    words = len(state.lanes[0].pool)
    assert f"memory tests: address {words:,} words {4 * 8 * words:,} bytes" in reported
    checks = ran(workload, state, 3 * len(PHASES))
    assert "100.0 % by one test at least, 100.0 % by all 9" in checks[LASTING].detects_what
    assert "none yet" not in checks[LASTING].detects_what


def test_covered_part_of_a_test_is_counted_not_assumed(tmp_path: Path) -> None:
    workload = burn_in(memory_parts=8)
    state = built(workload, tmp_path)
    checks = ran(workload, state, 4)  # none, all by addresses, a part by each of two steps
    words = len(state.lanes[0].pool)
    part = -(-words // 8)
    reported = checks[LASTING].detects_what
    # the cool step of the four tests over pauses instead
    assert f"march C- {part:,} words" in reported
    assert f"retention {part:,} words" in reported
    assert "none yet: random, walking ones" in reported


def test_tests_that_rest_come_in_cool_phases_alone(tmp_path: Path) -> None:
    state = built(burn_in(memory_parts=2), tmp_path)
    hot = {state.rotation.next(is_cool=False).test for _ in range(40)}
    cool = {state.rotation.next(is_cool=True).test for _ in range(40)}
    assert (hot | cool, hot & cool) == (set(TESTS), set())
    assert cool == {"retention"}


def test_pool_takes_the_memory_that_the_parameters_give(tmp_path: Path) -> None:
    state = built(burn_in(memory_bytes=2**22), tmp_path)
    assert 0.75 * 2**22 < len(state.lanes[0].pool) * 8 < 2**22


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"memory_bytes": 2**16}, "bytes of memory are too few for size 64: give"),
        ({"size": 100}, "give a multiple of 16"),
        ({"formats": "float31"}, "some of bfloat16, float16, tf32, float32, float8"),
        ({"formats": "float64,float64"}, "each once"),
        ({"formats": "int8"}, "size is 64: give a multiple of 128"),
        ({"memory_fraction": 1}, "give a share between 0 and 1"),
    ],
)
def test_parameters_that_cannot_run_are_refused(
    parameters: dict[str, int | str], sentence: str
) -> None:
    with pytest.raises(ParameterError, match=sentence):
        burn_in(**parameters)


def test_memory_that_the_refusal_asks_for_is_enough() -> None:
    with pytest.raises(ParameterError) as refused:
        burn_in(memory_bytes=2**16)
    least = str(refused.value).partition("give ")[2].partition(", or")[0]
    burn_in(memory_bytes=int(least.replace(",", "")))


# ------------------------------------------------------------------ a product that is wrong


def test_one_mismatch_that_never_comes_again_is_inconclusive(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    errs_in(lambda count: count == 3 * NUM_PRODUCTS + 1)
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 6)
    assert outside(checks) == [SINGLE]
    assert checks[SINGLE].if_outside == "inconclusive"
    reported = checks[LASTING].detects_what
    assert "mismatches: 1: product 64 x 64 x 64 of exact numbers in bfloat16, row 3, " in reported
    assert "wrong again in 0 of 100 repeats, step " in reported


def test_a_mismatch_says_its_step_lane_round_set_seed_and_time(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    errs_in(lambda count: count == 3 * NUM_PRODUCTS + 1)
    workload = burn_in()
    state = built(workload, tmp_path)
    before = datetime.now(UTC).replace(microsecond=0)
    reported = ran(workload, state, 6)[LASTING].detects_what
    found = re.search(
        r"step (\d+), lane (\d+), round (\d+) of its format, set (\d+) of (\d+), "
        r"operands of seed (\d+), seen at (\S+Z)",
        reported,
    )
    assert found is not None
    step, lane, number, own, sets, seed = map(int, found.groups()[:6])
    assert 1 <= step <= 6
    assert number == step  # one format, a round a step
    assert 1 <= lane <= workload.lanes
    assert sets == state.formats[0].num_sets
    assert own == (number - 1) % sets + 1
    assert seed == state.seed
    assert before <= datetime.fromisoformat(found[7]) <= datetime.now(UTC)


def test_mismatch_of_the_last_step_is_looked_at_too(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    errs_in(lambda count: count == 5 * NUM_PRODUCTS)
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 6)
    assert outside(checks) == [SINGLE]
    assert "of random numbers in bfloat16, row 3, column 5" in checks[LASTING].detects_what


def test_mismatch_in_an_earlier_round_of_a_step_is_located_where_it_lies(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    errs_in(lambda count: count == NUM_PRODUCTS + 1)
    workload = burn_in(rounds=8)
    checks = ran(workload, built(workload, tmp_path), 2)
    assert outside(checks) == [SINGLE]
    assert "row 3, column 5, 1 element: " in checks[LASTING].detects_what
    assert "at row 3, column 5" in checks[LASTING].detects_what


def test_two_mismatches_fail(errs_in: Callable[..., None], tmp_path: Path) -> None:
    state_repeats = 100  # made after the first, before the second
    errs_in(lambda count: count in (30, 60 + state_repeats))
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 8)
    assert outside(checks) == [LASTING]
    assert checks[LASTING].error == 2
    assert checks[LASTING].if_outside == "fail"


def test_mismatch_that_comes_again_fails(errs_in: Callable[..., None], tmp_path: Path) -> None:
    errs_in(lambda count: count >= 5 * NUM_PRODUCTS + 11)
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 6)
    assert outside(checks) == [LASTING]
    assert "wrong again in 100 of 100 repeats" in checks[LASTING].detects_what


def test_device_that_is_wrong_from_the_first_round_fails(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    """Random numbers have float64, integers the host's exact product."""
    errs_in(lambda count: count < NUM_PRODUCTS, lambda out: out.mul_(1.03))
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 1)
    assert outside(checks) == [
        "random numbers, sampled rows against float64",
        "random numbers, all rows, random projection",
        LASTING,
    ]


def test_product_that_was_not_written_is_seen_at_the_second_pass_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the pass before left lies elsewhere, so that it is not taken for the product."""
    workload = burn_in()
    state = built(workload, tmp_path)
    monkeypatch.setattr(BurnIn, "_test_memory", lambda *_: None)
    for _ in range(state.formats[0].num_sets):
        workload.step(state)
    assert state.num_wrong == 0
    monkeypatch.setattr(BurnIn, "multiply", lambda *_: None)
    workload.step(state)
    assert state.lanes[0].tallies[0].wrong.tolist() == [1] * NUM_PRODUCTS


@pytest.mark.parametrize("bit", [1, 1 << 14])
def test_damaged_operand_fails_and_is_named(bit: int, tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    workload.step(state)
    state.formats[0].operands["exact numbers"].pair[0].view(torch.int16)[0, 0] ^= bit
    checks = ran(workload, state, 2)
    assert outside(checks) == [LASTING]
    reported = checks[LASTING].detects_what
    assert "the left operand is not what it was" in reported
    assert "wrong again in 100 of 100" in reported
    place = "tile rows 0 to 0 and columns 0 to 0, 1 element"
    pattern = (
        r"left operand of exact numbers in bfloat16 is not what it was, .*?(\w{4}) for (\w{4}) "
    )
    found = re.search(pattern + "at row 0, column 0, digests", reported)
    assert found is not None, place
    assert int(found[1], 16) ^ int(found[2], 16) == bit
    assert f"operands of seed {state.seed}, seen at 2" in reported


@pytest.mark.parametrize("form", OF_PROCESSORS)
def test_operands_that_fade_while_products_run_are_seen_in_the_next_step(
    form: str, tmp_path: Path
) -> None:
    """Of any format, before a check reads them; the words are found beside those drawn anew."""
    workload = burn_in(formats=f"bfloat16,{form}" if form != "bfloat16" else form, **SIDE_128)
    state = built(workload, tmp_path)
    burnt = state.formats[-1]
    for _ in state.formats:
        workload.step(state)
    matrix = burnt.operands["random numbers"].pair[1]
    (matrix if matrix.is_contiguous() else matrix.T).view(torch.uint8)[5, 9] ^= 4
    for _ in range(len(state.formats) + 1):
        workload.step(state)
    (event,) = [one for one in state.events if one.where.startswith("right operand")]
    assert f"right operand of random numbers in {form} is not what it was" in event.where
    assert event.num_again == 100
    read, wanted = re.search(r"1 element: (\w+) for (\w+) at row", event.where).groups()  # type: ignore[union-attr]
    assert (int(read, 16) ^ int(wanted, 16)).bit_count() == 1


def test_operand_that_was_misread_once_is_a_single_mismatch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    workload.step(state)
    operands = state.formats[0].operands["exact numbers"]
    true_read = Operands.read_again

    def misread(self: Operands, scratch: Scratch) -> None:
        true_read(self, scratch)
        if self is operands and not self.wrong.any():
            self.wrong[0] += 1
            self.wrong_on_host.copy_(self.wrong)

    monkeypatch.setattr(Operands, "read_again", misread)
    checks = ran(workload, state, 2)
    assert [checks[name].error for name in (LASTING, SINGLE)] == [0, 1]
    assert "right when it was looked at" in checks[LASTING].detects_what


def test_digest_that_the_device_reports_falsely_is_seen(tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    output = workload.step(state)
    output.digests = output.digests + 1
    assert "the device's digests, recomputed by the host" in outside(
        judged(workload, state, output)
    )


def test_all_events_are_counted_where_few_are_looked_at(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    errs_in(lambda _: True)
    workload = burn_in()
    checks = ran(workload, built(workload, tmp_path), 2)
    assert checks[LASTING].error == 6 * 2  # the integers; the random ones agree in error
    assert len(checks[LASTING].detects_what) < 3_000


# ------------------------------------------------------------------ lanes and load


def test_every_lane_has_its_products_compared_and_its_mismatches_looked_at(
    errs_in: Callable[..., None], tmp_path: Path
) -> None:
    workload = burn_in(lanes=2, memory_bytes=2**21)
    state = built(workload, tmp_path)
    output = workload.step(state)
    assert len(output.products) == 2 * NUM_PRODUCTS
    assert outside(judged(workload, state, output)) == []
    errs_in(lambda count: count < 2 * NUM_PRODUCTS)  # the step alone, none of the repeats
    checks = ran(workload, state, 2)
    assert checks[LASTING].error == 2 * NUM_PRODUCTS
    assert state.counts(is_waiting=True) == [[[1] * NUM_PRODUCTS, [0]]] * 2
    assert "in flight: 2 products at once" in checks[LASTING].detects_what


def test_steps_and_phases_size_themselves_by_the_clock(tmp_path: Path) -> None:
    calls: list[object] = []

    def seconds(work: Callable[[], object]) -> float:
        calls.append(work())
        return 0.25  # a round

    workload = BurnIn(by_device=True, phase_seconds=30.0, formats="bfloat16", memory_bytes=2**28)
    assert workload.work().unit == "steps"
    state = workload.build(
        Target(device=CPU, artifacts=Artifacts(tmp_path), seconds=seconds), seed=7
    )
    assert len(calls) == 2  # a round of products, a test of memory
    assert not bool(state.lanes[0].pool.any())  # no trial product is left to pass for a real one
    assert (state.formats[0].slots[0].m, state.chain.size) == (1024, 256)
    assert (state.formats[0].hot_rounds, state.phase_steps) == (4, 30)
    assert state.rotation.parts > 1
    checks = ran(workload, state, 2)
    assert state.lanes[0].tallies[0].num_rounds == 1 + 4  # the first is proven as soon as it can be
    assert outside(checks) == []


def test_cool_phase_and_jumps_pause_for_the_seconds_that_they_say(tmp_path: Path) -> None:
    state = built(burn_in(), tmp_path)
    workload = BurnIn(by_device=True)
    (burnt,) = state.formats
    burnt.hot_rounds, burnt.product_seconds, state.num_steps = 8, 0.01, 1
    assert workload._pace(state, burnt, "hot") == Pace(rounds=8)
    assert workload._pace(state, burnt, "cool") == Pace(rounds=2, burst=12, pause=3 * 12 * 0.01)
    paces = []
    for state.num_steps in range(5, 5 + len(PERIODS)):
        paces.append(workload._pace(state, burnt, "load in jumps"))
    assert [pace.pause for pace in paces] == [0.01, 0.01, 0.05, 0.5, 5.0]
    assert [pace.burst for pace in paces] == [1, 1, 5, 50, 500]


def test_plain_loop_stands_beside_the_same_products_digested(tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    state.trial_steps = 1
    loads, units = [], []
    for _ in range(len(PHASES) + 2):
        phase = workload.phase(state)
        loads.append(phase.name)
        units.append(phase.units)
        output = workload.step(state)
    assert loads == [
        *("first products", "hot", "hot", "plain loop", "proven loop"),
        *("cool", "hot", "hot", "hot", "load in jumps"),
    ]
    made = [after - before for before, after in pairwise(units)]
    assert made[3] == made[4] == FEWEST_TRIAL_ROUNDS * NUM_PRODUCTS
    checks = judged(workload, state, output)
    assert outside(checks) == []
    bare = (FEWEST_TRIAL_ROUNDS - 1) * NUM_PRODUCTS
    reported = checks[pages.COVERED].detects_what
    assert f"plain loop: {bare} products beside those, held to nothing" in reported
    proven = state.num_products - bare
    assert f"digested blocks: {proven} products in {proven // NUM_PRODUCTS} rounds" in reported


@pytest.mark.parametrize("form", [one.name for one in parsed("all") if one.name in OF_PROCESSORS])
def test_what_a_round_overwrites_is_never_right(form: str, tmp_path: Path) -> None:
    """Neither a round of the pass before, nor a bare one behind which it is proven."""
    workload = burn_in(formats=form, size=128, memory_bytes=2**23)
    state = built(workload, tmp_path)
    (burnt,), (lane,) = state.formats, state.lanes
    for turn in range(NUM_PRODUCTS):
        lane.tallies[0].num_rounds = turn * burnt.num_sets
        workload._bare_rounds(burnt, lane, 0, 1)
        left = [digest(out, slot.weights) for slot, out in slots_of(burnt, lane)]
        for slot, out in slots_of(burnt, lane):
            pair = burnt.operands[slot.kind].corner(slot.m, slot.n, slot.k)
            workload.multiply(burnt.format, *pair, out)
        right = [digest(out, slot.weights) for slot, out in slots_of(burnt, lane)]
        assert not [
            i for i, pair in enumerate(zip(left, right, strict=True)) if torch.equal(*pair)
        ], turn


def slots_of(burnt: Burnt, lane: Lane) -> list[tuple[Slot, torch.Tensor]]:
    places = burnt.places(lane.pool, lane.tallies[0].num_rounds)
    return list(zip(burnt.slots, places, strict=True))


def test_hot_is_recorded_once_power_has_risen(tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    state.phase_steps = 4
    names = []
    for state.num_steps in range(8 * 4 + 6):
        names.append(state.load)
    assert names[:14] == ["first products", *["hot"] * 11, *["cool"] * 2]
    assert names[14:20] == [*["cool"] * 4, *["hot"] * 2]
    assert names[26:38] == [*["hot"] * 2, *["load in jumps"] * 6, *["hot"] * 4]


def test_digests_and_comparison_launch_three_kernels_a_product(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload = burn_in(size=128, memory_bytes=2**22)
    state = built(workload, tmp_path)
    rounds = 20
    state.lanes[0].tallies[0].give_rounds(rounds)
    with Operators() as seen:
        workload._rounds(state, state.lanes[0], 0, Pace(rounds=rounds), lambda: None)
    num_products = rounds * NUM_PRODUCTS
    assert seen.names.count("aten::mm.out") == num_products
    a_step = len(seen.names) - 4 * num_products
    assert 0 < a_step <= 8 + NUM_PRODUCTS  # of the first step, which keeps first products' digests


# ------------------------------------------------------------------ memory and chain


def test_wrong_word_of_memory_is_located_with_its_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Transient(BurnIn):
        def memory(self, words: torch.Tensor, first: int) -> Memory:
            return FaultyMemory(words=words, first=first, faults=[fault])

    fault = Flip(address=1_017, mask=1 << 9 | 1 << 40, at_store=1)
    workload = Transient(**SMALL)  # type: ignore[arg-type]
    checks = ran(workload, built(workload, tmp_path), 3)
    assert outside(checks) == [SINGLE]
    reported = checks[LASTING].detects_what
    read = 1_017 ^ (1 << 9 | 1 << 40)
    assert f"memory word 1,017, test address: {read:016x} for {1_017:016x}" in reported
    assert "flipped bits 9, 40, wrong again in 0 of 10 repeats" in reported
    del monkeypatch


def test_stuck_bit_of_memory_comes_again_and_fails(tmp_path: Path) -> None:
    class Stuck(BurnIn):
        def memory(self, words: torch.Tensor, first: int) -> Memory:
            return FaultyMemory(words=words, first=first, faults=[StuckBit(address=77, bit=63)])

    workload = Stuck(**SMALL)  # type: ignore[arg-type]
    checks = ran(workload, built(workload, tmp_path), 3)
    assert outside(checks) == [LASTING]
    assert "memory word 77, test address: 800000000000004d for" in checks[LASTING].detects_what


def test_device_that_skips_a_link_is_seen(tmp_path: Path) -> None:
    workload = burn_in(num_checked_links=64)
    state = built(workload, tmp_path)
    for _ in range(3):
        output = workload.step(state)
    state.keys[2] += 1
    checks = judged(workload, state, output)
    assert outside(checks) == [LASTING]  # the link before it, and the one that began from it
    reported = checks[LASTING].detects_what
    assert "link 1 of the chain" in reported
    assert re.search(
        r"operands of key \w{16}, led to \w{16} for \w{16}, no repeat is wrong", reported
    )


def test_link_that_is_wrong_again_is_located(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    true_link = Chain.link

    def link(self: Chain, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product, _ = true_link(self, key)
        flip_bit(product)
        return product, self.next_key(product)

    monkeypatch.setattr(Chain, "link", link)
    checks = ran(workload, state, 1)
    reported = checks[LASTING].detects_what
    assert re.search(
        r"link 0 of the chain, .*1 element: \w{4} for \w{4} at row 3, column 5", reported
    )
    assert "wrong again in 100 of 100 repeats, step 1, seen at 2" in reported


def test_verifier_recomputes_the_keys_of_a_run(tmp_path: Path) -> None:
    workload = burn_in()
    state = built(workload, tmp_path)
    for _ in range(4):
        workload.step(state)
    assert state.keys[:5].tolist() == recompute(16, "bfloat16", state.draw, 4)
    assert int(state.keys[0]) == first_key(state.draw)


# ------------------------------------------------------------------ on paper

DEVICE = "cpu:0"
COVERED = "wrong element or word; digested blocks: 24 products; mismatches: 0"


def lines_of(events: Sequence[Event]) -> tuple[Line, ...]:
    return tuple(
        Line(seq=seq, utc="2026-11-21T12:00:00Z", monotonic_ns=seq, prev="", event=event)
        for seq, event in enumerate(events)
    )


def events_of(seconds: float, *, mismatches: int = 0, launch: int = 1) -> list[Event]:
    name = f"burn_in@{DEVICE}/{launch}"
    covered = COVERED if not mismatches else COVERED.replace("mismatches: 0", "mismatches: 1: here")
    return [
        Block(
            launch=name,
            rank=0,
            index=0,
            first_step=0,
            wall_ns=(1,),
            event_ns=None,
            block_wall_ns=round(seconds * 1e9),
            block_raw_ns=1,
        ),
        Checked(
            launch=name,
            rank=0,
            phase="last",
            step=1,
            check=Check(
                name=LASTING,
                error=mismatches,
                bound=0,
                kind="exact",
                detects=1,
                detects_what=covered,
            ),
        ),
    ]


def page(events: Sequence[Event], workload: str = "burn_in") -> tuple[pages.BurnInSection, ...]:
    case = a_case("burn_in", device=DEVICE)
    plan = a_plan(case if workload == "burn_in" else a_case(workload))
    assert (plan.seed, plan.run_id) == (SEED, RUN)
    return pages.sections(index_of(plan, lines_of(events)))


def test_page_says_what_was_covered_and_what_a_clean_run_shows() -> None:
    (section,) = page(events_of(6 * 3600))
    reported = {row.label: row.value for row in section.rows}
    assert reported["Digested blocks"] == "24 products"
    assert reported["Mismatches"] == "0"
    assert section.shown == (
        "No mismatch in 6 h under test: a mismatch comes no more often than once in 2 h on "
        "average (MTBF at least T/3.0) with 95 % confidence; nothing is said of work and "
        "conditions that were not run."
    )


def test_page_of_minutes_says_them_and_claims_no_second_more() -> None:
    (section,) = page(events_of(47))
    assert section.shown.startswith(
        "No mismatch in 47 s under test: a mismatch comes no more often than once in 15 s on"
    )


def test_page_adds_up_segments_and_shows_what_the_last_one_covered() -> None:
    events = [event for launch in (1, 2, 3) for event in events_of(3600, launch=launch)]
    (section,) = page(events)
    reported = [(row.label, row.value, row.note) for row in section.rows]
    assert ("Products proven", "72 in 3 segments", "") in reported
    assert [row for row in reported if row[0] == "Digested blocks"] == [
        ("Digested blocks", "24 products", "segment 3")
    ]
    assert section.shown.startswith("No mismatch in 3 h under test")


def test_page_of_a_run_with_a_mismatch_claims_nothing() -> None:
    (section,) = page(events_of(3600, mismatches=1))
    assert "no bound is claimed" in section.shown
    assert {row.label: row.value for row in section.rows}["Mismatches"] == "1: here"


def test_page_claims_nothing_without_a_check_of_the_last_output() -> None:
    (section,) = page(events_of(3600)[:1])
    assert "no bound is claimed" in section.shown


def test_report_without_burn_in_has_no_such_section() -> None:
    assert page([], workload="gemm") == ()
