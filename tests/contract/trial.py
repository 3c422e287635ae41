"""One workload put to the proof: what its checks say of true, corrupted and stale output.

A `Trial` runs a workload at small size on the CPU as a launch would: build, first step,
later steps. Every function named for a virtue returns the faults that it found as
sentences, so that the contract test asserts an empty list for each real workload, and the
self-test a list that is not empty for a workload made to lack just that virtue.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args
from unittest import mock

import torch
from corruptions import (
    OF_BOOLEANS,
    OF_FLOATS,
    OF_INTEGERS,
    STALE_TAIL,
    drawn,
    flip,
    largest,
    moved,
    nudged,
    num_bits,
    place,
    scaled,
    stored_roundoff,
)
from leaves import (
    Leaf,
    Path_,
    bytes_of,
    copies,
    digest,
    fresh,
    frozen,
    identity,
    instances,
    is_floating,
    leaves,
    replaced,
)
from torch.utils._python_dispatch import TorchDispatchMode

from appliance.records.journal import Check
from appliance.records.workload import Bound
from appliance.vendors.cpu import Cpu
from appliance.worker import outputs
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.stem
    for path in (ROOT / "workloads").glob("*.py")
    if path.stem not in {"__init__", "contract"}
)
SEED, OTHER_SEED = 2**62 + 11, 2**61 + 7
NUM_STEPS = 3  # for a workload that does not say its own number
LOWER = {
    "float64": torch.float32,
    "float32": torch.bfloat16,
    "bfloat16": torch.float8_e4m3fn,
    "float16": torch.float8_e4m3fn,
}
PRECISIONS = {"", "float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8"}
FORBIDDEN_NAMES = {"print", "synchronize", "perf_counter", "monotonic", "time_ns", "sleep"}
FORBIDDEN_IN_STEP = {"item", "tolist", "cpu"}  # each waits for the device
CLOCKS = {"time", "datetime", "timeit"}
LEAST_WORDS = 4  # of a reason
PRODUCTS = {
    torch.ops.aten.mm,
    torch.ops.aten.addmm,
    torch.ops.aten.bmm,
    torch.ops.aten.baddbmm,
    torch.ops.aten.convolution_backward,
}
QUICKER: dict[str, dict[str, float]] = {
    "char_lm": {"num_steps": 60, "warmup": 10, "target_loss": 2.9},
    "host_stream": {"array_bytes": 2**20},
    "memory_bandwidth": {"array_bytes": 2**20},
    "op_float8": {"size": 5},
    "torchatari": {"num_envs": 2, "num_steps": 4, "hidden": 8},
}
"""Less than small has, where small trains for minutes, is judged a hundred times for half a second,
or fills memory beyond the caches: what a check says of a step depends neither on how many there
were nor on the length of an array."""

Kind = type[Workload[Any, Any]]


def load(name: str) -> Kind:
    """The workload class of the module `name`."""
    return importlib.import_module(f"workloads.{name}").WORKLOAD


def data_folder() -> Path | None:
    """Where data sets lie: BENCH_DATA, else beside the repository, else nowhere."""
    folder = Path(os.environ.get("BENCH_DATA", ROOT.parent / "shared" / "datasets"))
    return folder if folder.is_dir() else None


def lacking(workload: Workload[Any, Any]) -> list[str]:
    """What the workload needs and this machine's processor has not."""
    (device,) = Cpu().probe()
    return sorted(workload.needs - Cpu().features(device))


def missing_data(workload: Workload[Any, Any]) -> list[str]:
    folder = data_folder()
    return [name for name in workload.data if folder is None or not (folder / name).is_dir()]


# ------------------------------------------------------------------ a trial


@dataclass
class Moment:
    """One step of a trial with what a launch would hand to its check.

    `earlier`: by name, outputs of steps before, which a check must refuse.
    """

    name: str
    before: object
    state: Any
    output: Any
    earlier: dict[str, Any] = dataclasses.field(default_factory=dict)


def target(folder: Path, flops: float | None) -> Target:
    """What a launch would build with; it has the work from the plan."""
    return Target(
        device=torch.device("cpu"),
        flops=flops,
        artifacts=Artifacts(folder),
        onnx_providers=("CPUExecutionProvider",),
        data=data_folder(),
    )


PREVIOUS, FIRST = "the previous step's output", "the first step's output"


@dataclass
class Trial:
    """A workload and the folder for its artifacts, which belong to one seed as in a run.

    A workload may have `exempt_faults`, the faults by name that its check need not see, each with
    the reason; `say` is told of every one that was used.
    """

    workload: Workload[Any, Any]
    folder: Path
    say: Callable[[str], None] = print

    def build(self, seed: int = SEED) -> Any:
        return self.workload.build(self._target(seed), seed)

    def _target(self, seed: int) -> Target:
        if seed not in self._targets:
            self._targets[seed] = target(self.folder / str(seed), self._flops)
        return self._targets[seed]

    def __post_init__(self) -> None:
        self._flops = self.workload.work().flops
        self._targets: dict[int, Target] = {}
        self._first_digests: dict[int, list[str]] = {SEED: [], OTHER_SEED: []}

    def note_first(self, seed: int, output: str) -> None:
        """Keep the digest of a seed's first output, which `first_digests` need not make again."""
        self._first_digests[seed].append(output)

    def first_digests(self, seed: int, count: int) -> list[str]:
        """Digests of the first outputs of so many states built with one seed."""
        while len(self._first_digests[seed]) < count:
            self.note_first(seed, digest(self.first(seed).output))
        return self._first_digests[seed][:count]

    def moments(self) -> Iterator[Moment]:
        """The first step and the last; valid until the next is asked for."""
        state = self.build()
        num_steps = self.workload.steps or NUM_STEPS
        earlier: dict[str, Any] = {}
        for number in range(num_steps):
            is_shown = number in (0, num_steps - 1)
            before = self.workload.snapshot(state) if is_shown else None
            output = self.workload.step(state)
            if is_shown:
                name = "first" if number == 0 else "last"
                yield Moment(name, before, state, output, earlier)
            if number == num_steps - 2:
                earlier = {**earlier, PREVIOUS: frozen(output)}
            elif number == 0:
                earlier = {FIRST: frozen(output)}

    def first(
        self, seed: int = SEED, during: contextlib.AbstractContextManager[Any] | None = None
    ) -> Moment:
        """The first step; `during` is entered for it."""
        return self.next(self.build(seed), lambda _: during or contextlib.nullcontext())

    def next(
        self, state: Any, during: Callable[[Any], contextlib.AbstractContextManager[Any]]
    ) -> Moment:
        """The next step of a state, made while `during(state)` is entered."""
        before = self.workload.snapshot(state)
        with during(state):
            output = self.workload.step(state)
        return Moment("next", before, state, output)

    def checks(self, moment: Moment, output: Any = None) -> list[Check]:
        given = moment.output if output is None else output
        return list(self.workload.check(moment.before, moment.state, given))

    def is_rejected(self, moment: Moment, output: Any) -> bool:
        """True as soon as one check is not within its bound."""
        checks = self.workload.check(moment.before, moment.state, output)
        return any(not check.is_within for check in checks)

    def accepted(self, fault: str, where: str = "") -> list[str]:
        """What is to be said of a fault that no check rejected: nothing, if it is exempt."""
        reason = exempt_faults(type(self.workload)).get(fault)
        if reason is None:
            return [f"{where}{fault} was accepted"]
        self.say(f"exempt: {where}{fault}: {reason}")
        return []


FAULTS = {
    *OF_FLOATS,
    *OF_INTEGERS,
    *OF_BOOLEANS,
    STALE_TAIL,
    PREVIOUS,
    FIRST,
    "another seed's output",
    "highest bit flipped",
    "middle bit flipped",
    "lowest bit flipped",
    "scaled by twice what is detected",
    "a step in a lower precision",
    "a backward pass in a lower precision",
    "a lost update",
    "a skipped optimiser step",
    "a step on another input set",
}


def exempt_faults(kind: Kind) -> dict[str, str]:
    """Faults that a workload's check need not see, and why."""
    return dict(getattr(kind, "exempt_faults", {}))


# ------------------------------------------------------------------ virtues


def unlike_truth(checks: list[Check]) -> list[str]:
    """Checks that refuse the true output, or say too little of themselves."""
    faults = [
        f"{check.name}: error {check.error:.3g} over bound {check.bound:.3g}"
        for check in checks
        if not check.is_within
    ]
    if not checks:
        faults.append("no check at all")
    if len({check.name for check in checks}) < len(checks):
        faults.append("two checks of one name")
    return faults + [fault for check in checks for fault in undocumented(check)]


def undocumented(check: Check) -> list[str]:
    """What a check leaves unsaid: its name, a finite bound, what it would have caught."""
    faults = []
    if not check.name.strip():
        faults.append("a check without a name")
    if not (math.isfinite(check.bound) and check.bound >= 0):
        faults.append(f"{check.name}: bound {check.bound} is no limit")
    if check.kind == "exact" and check.bound != 0:
        faults.append(f"{check.name}: exact, and allows {check.bound}")
    if check.detects is None and check.bound != 0:
        faults.append(f"{check.name}: not exact, and does not say what it detects")
    if check.detects is not None:
        if not (math.isfinite(check.detects) and check.detects > 0):
            faults.append(f"{check.name}: detects {check.detects}")
        if not check.detects_what.strip():
            faults.append(f"{check.name}: detects {check.detects} of what?")
    return faults


def blind_to_corruption(trial: Trial, moment: Moment) -> list[str]:
    """Corruptions of a single leaf of the output that no check rejects."""
    result = leaves(moment.output)
    if not result:
        return ["the output has no tensor to judge"]
    return [
        fault
        for path, name, wrong in drawn(result, leaves(moment.earlier.get(PREVIOUS)))
        if not trial.is_rejected(moment, replaced(moment.output, path, wrong))
        for fault in trial.accepted(name, f"output{list(path)}: ")
    ]


def blind_to_staleness(trial: Trial, moment: Moment, other: Any) -> list[str]:
    """Output of another step or seed that no check rejects."""
    stale = {"another seed's output": other, **moment.earlier}
    return [
        fault
        for name, output in stale.items()
        if name != FIRST or digest(output) != digest(moment.output)  # inputs come round again
        if not trial.is_rejected(moment, output)
        for fault in trial.accepted(name)
    ]


PROBES = (1e-3, 1.0, 1e3)  # moves of one element, as multiples of itself
SCALED = 0.01
SEEN = 10.0  # times its bound and its healthy error, from which an error is the fault's alone
SURE = 2.0  # times what a check detects: its healthy error may hide the half of it


@dataclass
class Probe:
    """The checks of one moment that are asked many times; `healthy` is what they say of the truth.

    `checks` are all of them, of the true output.
    What is judged of a whole course (a trajectory) comes last in a check, costs the most and says
    little of one element: it is left out.
    """

    trial: Trial
    moment: Moment
    checks: dataclasses.InitVar[list[Check]]
    healthy: dict[str, Check] = dataclasses.field(init=False)

    def __post_init__(self, checks: list[Check]) -> None:
        self.healthy = {
            check.name: check
            for check in itertools.takewhile(lambda check: check.kind != "trajectory", checks)
        }

    def errors(self, path: Path_, wrong: Leaf) -> dict[str, Check]:
        """The same checks with one leaf of the output replaced."""
        moment = self.moment
        output = replaced(moment.output, path, wrong)
        result = self.trial.workload.check(moment.before, moment.state, output)
        checks = {c.name: c for c in itertools.islice(result, len(self.healthy))}
        return {name: check for name, check in checks.items() if name in self.healthy}

    def claims(self, path: Path_, wrong: Leaf, distance: float) -> dict[str, float]:
        """By check, the distance in the same direction that it claims to see for sure.

        A check whose error the fault dominates tells how far a unit of it is. An exact comparison
        of elements claims every distance: 0.
        """
        result = {}
        for name, check in self.errors(path, wrong).items():
            own = self.healthy[name]
            if check.detects is None:
                continue
            if check.bound == 0:
                if check.detects == 1 and not check.is_within and own.is_within:
                    result[name] = 0.0
            elif SEEN * max(check.bound, own.error) < check.error < math.inf:
                result[name] = SURE * check.detects * distance / check.error
        return result

    def least_move(self, path: Path_) -> float:
        """The smallest move of the leaf's largest element that a check claims to see, or inf."""
        leaf = leaves(self.moment.output)[path]
        where = place(leaf)
        claims: dict[str, float] = {}
        for by in PROBES:
            wrong, distance = moved(leaf, where, by)
            claims = {**self.claims(path, wrong, distance), **claims}  # the smallest probe tells
        return min(claims.values(), default=math.inf)

    def least_scale(self, path: Path_) -> float:
        """The smallest change of the leaf's scale that a check claims to see, or infinite."""
        wrong = scaled(leaves(self.moment.output)[path], 1 + SCALED)
        return min(self.claims(path, wrong, SCALED).values(), default=math.inf)


def blind_to_bits(probe: Probe, report: Callable[[str, object], None]) -> list[str]:
    """Flips of the highest, a middle and the lowest bit that checks claim to see, and do not.

    The highest is that of the exponent; the sign is a corruption of its own. Of the largest
    element of each field of the output; where no check claims anything, of the bits that leave
    no number.
    """
    trial, moment = probe.trial, probe.moment
    faults = []
    for path in largest(leaves(moment.output)):
        leaf = leaves(moment.output)[path]
        where, least = place(leaf), probe.least_move(path)
        flips = [flip(leaf, where, bit) for bit in range(num_bits(leaf) - 1)]
        seen = [bit for bit, (_, move) in enumerate(flips) if move >= least and move > 0]
        if not seen:
            continue
        report(f"{moment.name}: lowest bit of {'.'.join(path) or 'output'} that shows", seen[0])
        for name, bit in {
            "highest bit flipped": seen[-1],
            "middle bit flipped": seen[len(seen) // 2],
            "lowest bit flipped": seen[0],
        }.items():
            if not trial.is_rejected(moment, replaced(moment.output, path, flips[bit][0])):
                faults += trial.accepted(name, f"output{list(path)}, bit {bit}: ")
    return faults


def blind_to_scale(probe: Probe, report: Callable[[str, object], None]) -> list[str]:
    """Leaves scaled by twice what a check that looks at them detects, which no check rejects."""
    trial, moment = probe.trial, probe.moment
    faults = []
    for path in largest(leaves(moment.output)):
        leaf, least = leaves(moment.output)[path], probe.least_scale(path)
        if least == math.inf:
            continue
        report(f"{moment.name}: scale of {'.'.join(path) or 'output'} that shows", 1 + least)
        # A factor below the format's roundoff leaves what is stored as it was: no fault to see.
        least = max(least, stored_roundoff(leaf)) if least else least
        wrong = scaled(leaf, 1 + least) if least else nudged(leaf)
        if not trial.is_rejected(moment, replaced(moment.output, path, wrong)):
            where = f"output{list(path)} times 1 + {least:.3g}: "
            faults += trial.accepted("scaled by twice what is detected", where)
    return faults


def meddlesome(trial: Trial, moment: Moment) -> tuple[list[Check], list[str]]:
    """The checks of the true output; one that changes what it is given, or says two things."""
    given = {"snapshot": moment.before, "state": moment.state, "output": moment.output}
    before = {name: digest(value) for name, value in given.items()}
    if moment.name == "first":
        trial.note_first(SEED, before["output"])
    once, twice = trial.checks(moment), trial.checks(moment)
    changed = [name for name, value in given.items() if digest(value) != before[name]]
    faults = [f"check changed the {name}" for name in changed]
    return once, faults + (["two checks differ"] if repr(once) != repr(twice) else [])


def misjudged(trial: Trial, report: Callable[[str, object], None] = lambda *_: None) -> list[str]:
    """Every fault of the checks at the first and the last step; reports healthy margins.

    One pass for all of them, because the moments of a launch cannot be had again cheaply.
    """
    other = frozen(trial.first(OTHER_SEED).output)
    trial.note_first(OTHER_SEED, digest(other))
    result = []
    for moment in trial.moments():
        checks, faults = meddlesome(trial, moment)  # first, while the state is surely untouched
        faults += unlike_truth(checks)
        faults += blind_to_corruption(trial, moment)
        faults += blind_to_staleness(trial, moment, other)
        if moment.name == "last":
            probe = Probe(trial, moment, checks)
            faults += blind_to_bits(probe, report)
            faults += blind_to_scale(probe, report)
        result += [f"{moment.name}: {fault}" for fault in faults]
        for check in checks:
            if check.bound:
                report(f"{moment.name}: {check.name}: error over bound", check.error / check.bound)
    return result


def irreproducible(trial: Trial) -> list[str]:
    """Bits that change under one seed, or stay under two."""
    one, two = trial.first_digests(SEED, 2)
    (other,) = trial.first_digests(OTHER_SEED, 1)
    faults = []
    if trial.workload.is_repeatable and one != two:
        faults.append("one seed gave two outputs")
    if one == other:
        faults.append("two seeds gave one output")
    if not trial.workload.is_repeatable and not trial.workload.spread > 0:
        faults.append("not repeatable, and no measured spread")
    return faults


def _put(moment: Moment, values: dict[Path_, Leaf]) -> None:
    """Write values into the state, and into the output's copies of what is replaced."""
    result = leaves(moment.state)
    by_bits = {identity(result[path]): path for path in values}
    for path, leaf in leaves(moment.output).items():
        if (source := by_bits.get(identity(leaf))) is not None:
            moment.output = replaced(moment.output, path, fresh(values[source]))
    with torch.no_grad():
        for path, value in values.items():
            torch.as_tensor(result[path]).copy_(torch.as_tensor(value))


def blind_to_downgrade(trial: Trial) -> list[str]:
    """A step at the next lower precision, or its backward pass alone, that no check rejects.

    The step runs on a state whose floating-point tensors were rounded. Its output, and the
    change that it made to the state (a training step's update), are put before the check as
    if a device had made them of the true state.
    """
    lower = LOWER.get(str(getattr(trial.workload, "dtype", "float32")))
    if lower is None:
        return []
    true, rounded = trial.build(), trial.build()
    start = copies(true)
    before = trial.workload.snapshot(true)
    trial.workload.step(true)
    for leaf in leaves(rounded).values():
        if _is_wider(leaf, lower):
            _round(leaf, lower)
    rounded_start = copies(rounded)
    moment = Moment("first", before, rounded, trial.workload.step(rounded))
    produced = leaves(moment.output)
    outputs = {id(leaf) for leaf in produced.values()}
    inputs = {
        path: start[path] + (fresh(leaf) - rounded_start[path])
        for path, leaf in leaves(rounded).items()
        if path in start and _is_wider(leaf, lower) and id(leaf) not in outputs
    }
    _put(moment, inputs)
    faults = []
    if not trial.is_rejected(moment, moment.output):
        faults += trial.accepted("a step in a lower precision", f"{lower}: ")
    with LowerBackward(lower) as backward:
        moment = trial.first()
    if backward.num_products and not trial.is_rejected(moment, moment.output):
        faults += trial.accepted("a backward pass in a lower precision", f"{lower}: ")
    return faults


class _Rounded(TorchDispatchMode):
    """Rounds what goes into every product, scaled so that a narrow format can hold it."""

    def __init__(self, lower: torch.dtype) -> None:
        super().__init__()
        self.lower = lower
        self.num_products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func.overloadpacket in PRODUCTS:
            self.num_products += 1
            args = tuple(self._rounded(value) for value in args)
        return func(*args, **(kwargs or {}))

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        scale = value.abs().max().clamp(min=1e-30) / torch.finfo(torch.float8_e4m3fn).max
        return (value / scale).to(self.lower).to(value.dtype) * scale


class LowerBackward(contextlib.ExitStack):
    """While it is entered, every product of a backward pass is made in a lower precision."""

    def __init__(self, lower: torch.dtype) -> None:
        super().__init__()
        self._mode = _Rounded(lower)

    @property
    def num_products(self) -> int:
        return self._mode.num_products

    def __enter__(self) -> Self:
        super().__enter__()
        for name in ("backward", "grad"):
            real = getattr(torch.autograd, name)
            self.enter_context(mock.patch.object(torch.autograd, name, self._wrapped(real)))
        return self

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._mode:
                return real(*args, **kwargs)

        return run


def _is_wider(leaf: Leaf, lower: torch.dtype) -> bool:
    return is_floating(leaf) and torch.as_tensor(leaf).dtype.itemsize > lower.itemsize


def _round(leaf: Leaf, lower: torch.dtype) -> None:
    tensor = torch.as_tensor(leaf)
    limit = torch.finfo(lower).max
    with torch.no_grad():
        tensor.copy_(tensor.clamp(-limit, limit).to(lower).to(tensor.dtype))


def blind_to_lost_update(trial: Trial) -> list[str]:
    """A training step whose update of the weights was lost, and that no check rejects."""
    state = trial.build()
    start = copies(state)
    before = trial.workload.snapshot(state)
    moment = Moment("first", before, state, trial.workload.step(state))
    trained = {
        path: start[path]
        for path, leaf in leaves(state).items()
        if isinstance(leaf, torch.nn.Parameter) and bytes_of(leaf) != bytes_of(start[path])
    }
    if not trained:
        return []
    _put(moment, trained)
    if trial.is_rejected(moment, moment.output):
        return []
    return trial.accepted("a lost update")


@contextlib.contextmanager
def idle(state: Any) -> Iterator[None]:
    """Every optimiser of a state does nothing when it is asked for a step."""
    with contextlib.ExitStack() as stack:
        for optimizer in instances(state, torch.optim.Optimizer):
            stack.enter_context(mock.patch.object(optimizer, "step", return_value=None))
        yield


def blind_to_skipped_step(trial: Trial) -> list[str]:
    """An optimiser that is left out, in the first step or the second, and no check rejects it."""
    faults = []
    for name in ("first", "second"):
        state = trial.build()
        if not instances(state, torch.optim.Optimizer):
            return []
        if name == "second":
            trial.workload.step(state)
        moment = trial.next(state, idle)
        if not trial.is_rejected(moment, moment.output):
            faults += trial.accepted("a skipped optimiser step", f"{name} step: ")
    return faults


@contextlib.contextmanager
def wrong_input(state: Any) -> Iterator[None]:
    """The step takes another input set than its own."""
    cycles = instances(state, InputCycle)
    for cycle in cycles:
        cycle.number += 1
    yield
    for cycle in cycles:
        cycle.number -= 1


def blind_to_wrong_inputs(trial: Trial) -> list[str]:
    """A step on another input set than its own, which no check rejects."""
    state = trial.build()
    if all(cycle.of == 1 for cycle in instances(state, InputCycle)):
        return []
    moment = trial.next(state, wrong_input)
    if trial.is_rejected(moment, moment.output):
        return []
    return trial.accepted("a step on another input set")


def forgetful_of_its_first_input(trial: Trial) -> list[str]:
    """Input sets that come round again, of which `returns_to_first` does not tell a launch.

    What a workload gives of its own is believed. The contract's own answer needs a `cycle` at the
    state itself, of as many input sets as there are or a multiple, that counts the steps.
    """
    workload = trial.workload
    num_sets: int = getattr(workload, "num_inputs", 1)
    is_own = type(workload).returns_to_first is not Workload.returns_to_first
    if is_own or workload.steps is not None:
        return []
    state = trial.build()
    cycle = getattr(state, "cycle", None)
    if not isinstance(cycle, InputCycle):
        has_sets = num_sets > 1 or bool(instances(state, InputCycle))
        return ["its state keeps several input sets and has no `cycle`"] * has_sets
    faults = [f"cycle.of is {cycle.of}, of {num_sets} input sets"] * bool(cycle.of % num_sets)
    workload.step(state)
    faults += ["cycle does not count the steps"] * (cycle.number != 0)
    comes = workload.returns_to_first(state, cycle.of)
    is_early = workload.returns_to_first(state, cycle.of - 1)
    return faults + ["does not tell when the first input comes again"] * (
        cycle.of > 1 and (is_early or not comes)
    )


def changed_by_later_steps(trial: Trial) -> list[str]:
    """An output that may be checked after later steps (`checks_later`), and that these change.

    It is checked as a launch does: with the cycle of its inputs set back, and copied before the
    steps where they write over it.
    """
    if not trial.workload.checks_later:
        return []
    state = trial.build()
    moment = trial.next(state, lambda _: contextlib.nullcontext())
    if trial.workload.reuses_output:
        moment.output = outputs.mapped(moment.output, fresh)
    as_made = digest(moment.output)
    cycle = getattr(state, "cycle", None)
    number = None if cycle is None else cycle.number
    for _ in range(NUM_STEPS):
        trial.workload.step(state)
    if cycle is not None:
        cycle.number = number
    faults = ["later steps change an output that is checked after them"]
    faults *= digest(moment.output) != as_made
    outside = [one for one in trial.checks(moment) if not one.is_within]
    return faults + [f"checked after later steps, {one.name} is over bound" for one in outside]


def faults_of(trial: Trial) -> list[str]:
    """Everything that is asked of a workload at small size."""
    return [
        *misjudged(trial),
        *irreproducible(trial),
        *blind_to_downgrade(trial),
        *blind_to_lost_update(trial),
        *blind_to_skipped_step(trial),
        *blind_to_wrong_inputs(trial),
        *forgetful_of_its_first_input(trial),
        *changed_by_later_steps(trial),
        *uncounted(type(trial.workload)),
    ]


def uncounted(kind: Kind) -> list[str]:
    """Work that is not positive, or that does not grow from the small size to the full one."""
    small, full = kind(**kind.small).work(), kind().work()
    pairs = {
        "units": (small.units, full.units),
        "flops": (small.flops, full.flops),
        "bytes": (small.bytes, full.bytes),
    }
    faults = []
    for name, (low, high) in pairs.items():
        if (low is None) != (high is None):
            faults.append(f"{name} is counted at one size only")
        elif low is not None and high is not None and not 0 < low <= high < math.inf:
            faults.append(f"{name}: {low} at small size, {high} at full size")
    if all(low == high for low, high in pairs.values()) and kind.small:
        faults.append("no count grows with the size")
    faults += [
        f"{work.precision} is no number format"
        for work in (small, full)
        if work.precision not in PRECISIONS
    ]
    return faults


def unreasoned(kind: Kind) -> list[str]:
    """Exemptions from what is no fault, or for no reason."""
    faults = []
    for fault, reason in exempt_faults(kind).items():
        if fault not in FAULTS:
            faults.append(f"exempt from {fault}, which is no fault that is injected")
        if len(reason.split()) < LEAST_WORDS:
            faults.append(f"exempt from {fault}, and does not say why")
    return faults


def misdescribed(kind: Kind) -> list[str]:
    """A module or class that does not say what the plan and the report need."""
    module = importlib.import_module(kind.__module__)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    faults = []
    if len((module.__doc__ or "").strip()) < 80:
        faults.append("the module docstring does not say what a step is and what checks catch")
    if not getattr(kind, "summary", "").strip() or "\n" in kind.summary:
        faults.append("summary is one line of text")
    if not isinstance(getattr(kind, "version", None), int) or kind.version < 1:
        faults.append("version is a number from 1")
    if not kind.data_pattern.strip() or kind.data_pattern == Workload.data_pattern:
        faults.append("data_pattern does not say what the inputs are")
    if kind.bound_by not in get_args(Bound):
        faults.append(f"bound_by {kind.bound_by} has no margin")
    faults += unreasoned(kind)
    if kind.injector:
        faults.append(f"injects {kind.injector}, which workloads that measure do not")
    faults += [f"small sets {name}, no field" for name in kind.small if name not in fields]
    for name, field in fields.items():
        if type(field.default) not in (bool, int, float, str):
            faults.append(f"parameter {name} has no plain default")
        elif name in kind.small and type(kind.small[name]) is not type(field.default):
            faults.append(f"small gives {name} another type than its default")
    return faults


def clocked(source: str) -> list[str]:
    """Clocks, prints and synchronises in a module, waits for the device in its step."""
    tree = ast.parse(source)
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            faults += [f"imports {a.name}" for a in node.names if a.name in CLOCKS]
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            faults.append(f"imports {node.module}")
        faults += [f"calls {name}" for name in _called(node) if name in FORBIDDEN_NAMES]
        if isinstance(node, ast.FunctionDef) and node.name == "step":
            inside = {name for child in ast.walk(node) for name in _called(child)}
            faults += [f"step calls {name}" for name in sorted(inside & FORBIDDEN_IN_STEP)]
    return faults


def _called(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Name):
        return [node.func.id]
    return [node.func.attr] if isinstance(node.func, ast.Attribute) else []
