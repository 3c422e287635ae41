"""One workload put to the proof: what its checks say of true, corrupted and stale output.

A `Trial` runs a workload at small size on the CPU as a launch would: build, first step,
later steps. Every function named for a virtue returns the faults that it found as
sentences, so that the contract test asserts an empty list for each real workload, and the
self-test a list that is not empty for a workload made to lack just that virtue.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from appliance.records import Bound, Check
from workloads.contract import Artifacts, Target, Workload

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.stem
    for path in (ROOT / "workloads").glob("*.py")
    if path.stem not in {"__init__", "contract"}
)
SEED, OTHER_SEED = 2**62 + 11, 2**61 + 7
MANY = 4  # leaves of one field of an output, beyond which they are drawn
NOISE = 1e-3  # of the largest leaf of a field: below, a leaf is rounding alone
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

Leaf = torch.Tensor | np.ndarray
Path_ = tuple[str, ...]
Kind = type[Workload[Any, Any]]


def load(name: str) -> Kind:
    """The workload class of the module `name`."""
    return importlib.import_module(f"workloads.{name}").WORKLOAD


def data_folder() -> Path | None:
    """Where data sets lie: BENCH_DATA, else beside the repository, else nowhere."""
    folder = Path(os.environ.get("BENCH_DATA", ROOT.parent / "shared" / "datasets"))
    return folder if folder.is_dir() else None


def missing_data(workload: Workload[Any, Any]) -> list[str]:
    folder = data_folder()
    return [name for name in workload.data if folder is None or not (folder / name).is_dir()]


# ------------------------------------------------------------------ walking over tensors


def _children(node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, torch.nn.Module):
        yield from node.named_parameters()
        yield from node.named_buffers()
        yield from ((f"{name}.grad", p.grad) for name, p in node.named_parameters())
    elif isinstance(node, torch.optim.Optimizer):
        for number, value in enumerate(node.state.values()):
            yield str(number), value
    elif isinstance(node, dict):
        yield from ((str(key), value) for key, value in node.items())
    elif isinstance(node, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(node))
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        yield from ((f.name, getattr(node, f.name, None)) for f in dataclasses.fields(node))
    elif hasattr(node, "__dict__") and not isinstance(node, type) and not callable(node):
        yield from vars(node).items()


def leaves(
    node: object, path: Path_ = (), seen: dict[int, object] | None = None
) -> dict[Path_, Leaf]:
    """Every tensor and array that can be reached, by its path."""
    seen = {} if seen is None else seen
    if node is None or isinstance(node, str | bytes | int | float) or id(node) in seen:
        return {}
    seen[id(node)] = node  # kept, so that no other object takes its number
    if isinstance(node, torch.Tensor | np.ndarray):
        return {path: node}
    found: dict[Path_, Leaf] = {}
    for name, child in list(_children(node)):
        found |= leaves(child, (*path, name), seen)
    return found


def _bytes(leaf: Leaf) -> bytes:
    return _view(leaf).tobytes()


def _view(leaf: Leaf) -> np.ndarray:
    """The bytes of a leaf, without a copy where it lies in order already."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)


def digest(node: object) -> str:
    """Digest of the bits of every tensor that can be reached."""
    total = hashlib.sha256()
    for path, leaf in sorted(leaves(node).items()):
        total.update(repr((path, tuple(leaf.shape), str(leaf.dtype))).encode())
        total.update(_view(leaf))
    return total.hexdigest()


def _fresh(leaf: Leaf) -> Leaf:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf.copy()


def replaced(node: Any, path: Path_, leaf: Leaf) -> Any:
    """A copy of an output with one leaf replaced; the rest is shared."""
    if not path:
        return leaf
    head, rest = path[0], path[1:]
    if isinstance(node, dict):
        key = next(key for key in node if str(key) == head)
        return {**node, key: replaced(node[key], rest, leaf)}
    if isinstance(node, list | tuple):
        items = list(node)
        items[int(head)] = replaced(items[int(head)], rest, leaf)
        return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)
    return dataclasses.replace(node, **{head: replaced(getattr(node, head), rest, leaf)})


def frozen(output: Any) -> Any:
    """A copy of an output that later steps cannot write into."""
    for path, leaf in leaves(output).items():
        output = replaced(output, path, _fresh(leaf))
    return output


# ------------------------------------------------------------------ corruptions


def _is_floating(leaf: Leaf) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.is_floating_point()
    return np.issubdtype(leaf.dtype, np.floating)


def _one(true: torch.Tensor, value: float) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[wrong.numel() // 2] = value
    return wrong


def _row(true: torch.Tensor, factor: float) -> torch.Tensor | None:
    """The row with the largest element, multiplied; None where there are no rows."""
    if true.dim() < 2:
        return None
    wrong = true.clone()
    wrong[int(true.abs().argmax()) // (true.numel() // true.shape[0])] *= factor
    return wrong


def _flipped(true: torch.Tensor) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[int(true.abs().argmax())] *= -1
    return wrong


def _off_by_one(true: torch.Tensor) -> torch.Tensor:
    wrong = true.clone()
    wrong.reshape(-1)[wrong.numel() // 2] += 1
    return wrong


Spoil = Callable[[torch.Tensor], torch.Tensor | None]
OF_FLOATS: dict[str, Spoil] = {
    "all NaN": lambda true: torch.full_like(true, math.nan),
    "all Inf": lambda true: torch.full_like(true, math.inf),
    "one NaN": lambda true: _one(true, math.nan),
    "one Inf": lambda true: _one(true, math.inf),
    "zeros": torch.zeros_like,
    "scaled by 1.01": lambda true: true * 1.01,
    "sign of the largest element flipped": _flipped,
    "sign of one row flipped": lambda true: _row(true, -1),
    "one row lost": lambda true: _row(true, 0),
}
OF_INTEGERS: dict[str, Spoil] = {
    "zeros": torch.zeros_like,
    "one element off by one": _off_by_one,
    "all off by one": lambda true: true + 1,
}
OF_BOOLEANS: dict[str, Spoil] = {"negated": torch.logical_not}
OF_VALUE = set(OF_FLOATS) - {"all NaN", "all Inf", "one NaN", "one Inf"}


def kinds(leaf: Leaf) -> dict[str, Spoil]:
    """The ways in which a leaf of this type can be spoiled."""
    if torch.as_tensor(leaf).dtype == torch.bool:
        return OF_BOOLEANS
    return OF_FLOATS if _is_floating(leaf) else OF_INTEGERS


def spoiled(leaf: Leaf, name: str) -> Leaf | None:
    """A spoiled copy, or None if that way changes no value of this leaf."""
    true = torch.as_tensor(leaf).detach()
    wrong = kinds(leaf)[name](true)
    if wrong is None or torch.equal(wrong, true):
        return None
    return wrong if isinstance(leaf, torch.Tensor) else wrong.numpy()


def _norm(leaf: Leaf) -> float:
    tensor = torch.as_tensor(leaf).detach()
    floating = tensor if tensor.is_floating_point() else tensor.double()
    return torch.linalg.vector_norm(floating, dtype=torch.float64).item()


def drawn(found: dict[Path_, Leaf]) -> Iterator[tuple[Path_, str, Leaf]]:
    """Every corruption of every leaf; of a field with many leaves, one leaf per corruption.

    A model's gradients are hundreds of leaves that pass through the same lines of a check, so
    one is drawn for each way of spoiling. BENCH_EVERY_LEAF=1 leaves nothing out. A leaf that
    is nothing but rounding beside its siblings has no value that could be spoiled (the
    gradient of an attention's key bias, which is zero): it must be finite, no more.
    """
    fields: dict[str, list[Path_]] = {}
    for path in found:
        fields.setdefault(path[0] if path else "", []).append(path)
    draw = random.Random(SEED)  # noqa: S311 - a test's choice, no secret
    for paths in fields.values():
        norms = {path: _norm(found[path]) for path in paths}
        is_whole = len(paths) <= MANY or "BENCH_EVERY_LEAF" in os.environ
        done: set[str] = set()
        for path in draw.sample(paths, len(paths)):
            is_noise = norms[path] < NOISE * max(norms.values())
            for name in kinds(found[path]):
                if (name in OF_VALUE and is_noise) or (name in done and not is_whole):
                    continue
                wrong = spoiled(found[path], name)
                if wrong is not None:
                    done.add(name)
                    yield path, name, wrong


# ------------------------------------------------------------------ a trial


@dataclass
class Moment:
    """One step of a trial with what a launch would hand to its check."""

    name: str
    before: object
    state: Any
    output: Any
    previous: Any  # None at the first step


def target(folder: Path) -> Target:
    return Target(
        device=torch.device("cpu"),
        artifacts=Artifacts(folder),
        onnx_providers=("CPUExecutionProvider",),
        data=data_folder(),
    )


@dataclass
class Trial:
    """A workload and the folder for its artifacts, which belong to one seed as in a run."""

    workload: Workload[Any, Any]
    folder: Path

    def build(self, seed: int = SEED) -> Any:
        return self.workload.build(self._target(seed), seed)

    def _target(self, seed: int) -> Target:
        if seed not in self._targets:
            self._targets[seed] = target(self.folder / str(seed))
        return self._targets[seed]

    def __post_init__(self) -> None:
        self._targets: dict[int, Target] = {}

    def moments(self) -> Iterator[Moment]:
        """The first step and the last; valid until the next is asked for."""
        state = self.build()
        num_steps = self.workload.steps or NUM_STEPS
        previous = None
        for number in range(num_steps):
            is_shown = number in (0, num_steps - 1)
            before = self.workload.snapshot(state) if is_shown else None
            output = self.workload.step(state)
            if is_shown:
                name = "first" if number == 0 else "last"
                yield Moment(name, before, state, output, previous)
            if number in (0, num_steps - 2):
                previous = frozen(output)

    def first(self, seed: int = SEED) -> Moment:
        state = self.build(seed)
        before = self.workload.snapshot(state)
        return Moment("first", before, state, self.workload.step(state), None)

    def checks(self, moment: Moment, output: Any = None) -> list[Check]:
        given = moment.output if output is None else output
        return list(self.workload.check(moment.before, moment.state, given))

    def is_rejected(self, moment: Moment, output: Any) -> bool:
        """True as soon as one check is not within its bound."""
        checks = self.workload.check(moment.before, moment.state, output)
        return any(not check.is_within for check in checks)


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
    found = leaves(moment.output)
    if not found:
        return ["the output has no tensor to judge"]
    return [
        f"output{list(path)}: {name} was accepted"
        for path, name, wrong in drawn(found)
        if not trial.is_rejected(moment, replaced(moment.output, path, wrong))
    ]


def blind_to_staleness(trial: Trial, moment: Moment, other: Any) -> list[str]:
    """Output of another step or seed that no check rejects."""
    stale = {"another seed's output": other, "the previous step's output": moment.previous}
    return [
        f"{name} was accepted"
        for name, output in stale.items()
        if output is not None and not trial.is_rejected(moment, output)
    ]


def meddlesome(trial: Trial, moment: Moment) -> tuple[list[Check], list[str]]:
    """The checks of the true output; one that changes what it is given, or says two things."""
    given = {"snapshot": moment.before, "state": moment.state, "output": moment.output}
    before = {name: digest(value) for name, value in given.items()}
    once, twice = trial.checks(moment), trial.checks(moment)
    changed = [name for name, value in given.items() if digest(value) != before[name]]
    faults = [f"check changed the {name}" for name in changed]
    return once, faults + (["two checks differ"] if repr(once) != repr(twice) else [])


def misjudged(trial: Trial, report: Callable[[str, object], None] = lambda *_: None) -> list[str]:
    """Every fault of the checks at the first and the last step; reports healthy margins.

    One pass for all of them, because the moments of a launch cannot be had again cheaply.
    """
    other = frozen(trial.first(OTHER_SEED).output)
    found = []
    for moment in trial.moments():
        checks, faults = meddlesome(trial, moment)  # first, while the state is surely untouched
        faults += unlike_truth(checks)
        faults += blind_to_corruption(trial, moment)
        faults += blind_to_staleness(trial, moment, other)
        found += [f"{moment.name}: {fault}" for fault in faults]
        for check in checks:
            if check.bound:
                report(f"{moment.name}: {check.name}: error over bound", check.error / check.bound)
    return found


def irreproducible(trial: Trial) -> list[str]:
    """Bits that change under one seed, or stay under two."""
    one, two, other = (digest(trial.first(seed).output) for seed in (SEED, SEED, OTHER_SEED))
    faults = []
    if trial.workload.is_repeatable and one != two:
        faults.append("one seed gave two outputs")
    if one == other:
        faults.append("two seeds gave one output")
    if not trial.workload.is_repeatable and not trial.workload.spread > 0:
        faults.append("not repeatable, and no measured spread")
    return faults


def _identity(leaf: Leaf) -> str:
    return f"{tuple(leaf.shape)} {leaf.dtype} {hashlib.sha256(_view(leaf)).hexdigest()}"


def _copies(node: object) -> dict[Path_, Leaf]:
    return {path: _fresh(leaf) for path, leaf in leaves(node).items()}


def _put(moment: Moment, values: dict[Path_, Leaf]) -> None:
    """Write values into the state, and into the output's copies of what is replaced."""
    found = leaves(moment.state)
    by_bits = {_identity(found[path]): path for path in values}
    for path, leaf in leaves(moment.output).items():
        if (source := by_bits.get(_identity(leaf))) is not None:
            moment.output = replaced(moment.output, path, _fresh(values[source]))
    with torch.no_grad():
        for path, value in values.items():
            torch.as_tensor(found[path]).copy_(torch.as_tensor(value))


def blind_to_downgrade(trial: Trial) -> list[str]:
    """A step at the next lower precision that no check rejects.

    The step runs on a state whose floating-point tensors were rounded. Its output, and the
    change that it made to the state (a training step's update), are put before the check as
    if a device had made them of the true state.
    """
    lower = LOWER[str(getattr(trial.workload, "dtype", "float32"))]
    true, rounded = trial.build(), trial.build()
    start = _copies(true)
    before = trial.workload.snapshot(true)
    trial.workload.step(true)
    for leaf in leaves(rounded).values():
        if _is_floating(leaf):
            _round(leaf, lower)
    rounded_start = _copies(rounded)
    moment = Moment("first", before, rounded, trial.workload.step(rounded), None)
    values: dict[Path_, Leaf] = {}
    for path, leaf in leaves(rounded).items():
        if path in start and _is_floating(leaf):
            values[path] = start[path] + (_fresh(leaf) - rounded_start[path])
    outputs = {id(leaf) for leaf in leaves(moment.output).values()}
    inputs = {p: v for p, v in values.items() if id(leaves(rounded)[p]) not in outputs}
    _put(moment, inputs)
    return [] if trial.is_rejected(moment, moment.output) else [f"a step in {lower} was accepted"]


def _round(leaf: Leaf, lower: torch.dtype) -> None:
    tensor = torch.as_tensor(leaf)
    limit = torch.finfo(lower).max
    with torch.no_grad():
        tensor.copy_(tensor.clamp(-limit, limit).to(lower).to(tensor.dtype))


def blind_to_lost_update(trial: Trial) -> list[str]:
    """A training step whose update of the weights was lost, and that no check rejects."""
    state = trial.build()
    start = _copies(state)
    before = trial.workload.snapshot(state)
    moment = Moment("first", before, state, trial.workload.step(state), None)
    trained = {
        path: start[path]
        for path, leaf in leaves(state).items()
        if isinstance(leaf, torch.nn.Parameter) and _bytes(leaf) != _bytes(start[path])
    }
    if not trained:
        return []
    _put(moment, trained)
    return [] if trial.is_rejected(moment, moment.output) else ["a lost update was accepted"]


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
