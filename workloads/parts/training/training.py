"""One training step that can be followed in float64: what it made, and whether that is right.

A step is forward, loss, backward and optimiser, in float32 or by automatic mixed precision over
float32 weights. Its output is everything that it made, and it is judged in two halves. The new
weights and moments are held to the optimiser's formula in float64, fed with the gradients that
the device reported: about ten roundings of float32, whatever the model. Loss, logits, gradients
and running statistics are held to the same step in float64 on the host, from copies of what it
started from; their bounds are multiples of one rounding (`Growth`), measured by each workload.
The float64 result of the first step is made once per run and read by its launches.

Where a network has rectifiers or maxima, the check repeats the device's forward pass, untimed,
and float64 follows on the sides of zero that it took (`parts/training`): then the gradients are
as smooth as those of any network, and a backward pass alone in a lower precision shows. If the
repeated pass does not give the step's logits to the bit, its sides may not be those of the step:
a switched unit must then be allowed for, and the check says that it detects no less.

Parameters without `requires_grad` (a frozen encoder, what an adapter sits on) have no gradient and
no update, in the step as in float64, and must keep every bit. A teacher that follows the student by
averages belongs outside of `model`. Input sets are held against the checksums that they had when
they were generated (`parts/numerics/inputs.py`), so that a step is not followed from a spoiled
batch.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from appliance.records.journal import Check
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.parts.distributed import rank_checks, sharding, tensors
from workloads.parts.distributed.ranks import operation
from workloads.parts.distributed.tensors import local, rejoined, whole
from workloads.parts.numerics import low_memory
from workloads.parts.numerics.checksums import checksum, checksum_all
from workloads.parts.numerics.inputs import InputSets, placed
from workloads.parts.numerics.precision import compare_logits, on_host, rounding, unit_roundoff
from workloads.parts.training import audit, branch_points, rules
from workloads.parts.training.accumulation import split
from workloads.parts.training.dropout import generator_of
from workloads.parts.training.optimizers import Optimizer, Tensors, Updated

Model = TypeVar("Model", bound=torch.nn.Module)

_ROUNDINGS = 16
"""Unit roundoffs of the weights' format allowed in one updated element: ten happen in float32."""
_FLOOR, _FLOOR_OF_SUMS = 0.01, 0.03
"""Share of the whole gradient's norm below which one tensor's own norm is no yardstick.

The gradient of an attention's key bias is zero but for rounding: relative to itself it is all
error. The gradients of biases and scales are sums over all places, whose terms may all but
cancel: the first normalisations of ConvNeXt and FocalNet in bfloat16 had gradients of 0.03 and
0.01 of the whole, off by 0.0023 and 0.0010 of it, three times as far as any matrix's, each
relative to its own and a hundredth of the whole."""
_FEW_ROWS = 2
"""Rows of a matrix that sums as much as a bias does: the embedding of BERT's two kinds of text."""
SWITCHED, BRANCH_POINTS = 0.1, 8.0
"""What units that switch may do to a gradient: one alone, and as a share of very many.

Allowed only where the device's forward pass does not give the same bits twice.

A unit switches if it lies within the error of zero, so their share goes with a rounding, and
the gradient's relative error with its root. ResNet-50 in bfloat16 was seen at 4.2 roots; in
float32, where one or no unit switches, at 0.013 at most in 26 steps of 4 images."""
_SMALLEST = 1e-30
"""Added to sizes, so that zero, and what a device flushes to zero, may stand beside zero."""
_CONVERGED = 2
"""Errors of the loss that a gradient may show, relative to a loss below 1.

What is learnt by heart has a loss, and a gradient that goes with it, that are the difference of
large numbers, made in float32."""
_LANES = 8
"""Sums side by side that a softmax may make of its exponentials at least.

Each addition to one that stands near 1 may lose half a bit, and those of nearly equal terms lose
it in the same direction. With 16 sums side by side the gradient of a logit was seen to err by 9
unit roundoffs of 1 among 10 classes, by 35 among 1000 and by 1600 among 32000, whose lanes make
1, 62 and 2000 additions. At a loss of 0.017 ResNet-50 in float32 (1000 classes) so had gradients
off by 1.1e-4, of which 2e-6 was not the softmax's, and a loss off by 1.5e-6."""
GRADIENTS = "gradients against float64"
_LOSS_SCALE = 1024.0
"""For float16 alone, whose smallest normal number is 6e-5; a power of two rounds nothing."""


class Batches(Protocol):
    """Inputs of steps, by index: keyword arguments of the model, on the device."""

    def __getitem__(self, index: int, /) -> Tensors: ...


@dataclass(frozen=True, kw_only=True)
class ErrorBounds:
    """Roundings of the dtype that a healthy step may be off, for each kind of result.

    `has_branch_points`: the network has rectifiers or maxima, so that a rounding now and then
    switches one unit's gradient on or off, which no multiple of a rounding bounds. `branch_points`:
    roundings by which an input of theirs may be off, in units of its root mean square.
    `recomputes`: the backward pass comes to branch points as well, since it makes anew what was not
    kept. `scale`: roundings of a factor common to all logits, more than one where they are few.
    `converged_loss`: the loss from which on the gradient's errors grow, with the root of how far it
    has fallen below: the texts of a batch then pull in different directions, and what they leave is
    small beside each.
    """

    loss: float
    logits: float
    gradients: float
    statistics: float | None = None
    has_branch_points: bool = False
    branch_points: float = 100
    recomputes: bool = False
    scale: float = 1.0
    converged_loss: float = 0.0

    def bound_loss(self, dtype: torch.dtype, loss: float, classes: int) -> float:
        """Largest error of a loss that is this in float64, relative to itself or to 1."""
        converged = max(0.0, 1 - abs(loss))
        return max(self.loss * rounding(dtype), converged * _softmax(classes))

    def bound_gradients(
        self, dtype: torch.dtype, loss: float, logits: torch.Tensor, *, is_followed: bool
    ) -> float:
        """Largest relative error of one tensor's gradient at this exact loss, of these logits.

        `is_followed`: float64 took the sides of the branch points that the device took. A rounding
        of a logit changes what is left of a learnt loss by a factor, so that the largest counts as
        a whole: ResNet-50 in bfloat16 at a loss of 0.005 and logits to 22.8 erred by 14.6
        roundings, 14.1 of them those of its logits.
        """
        converged, largest = max(0.0, 1 - abs(loss)), logits.abs().max().item()
        smooth = (self.gradients + converged * largest) * rounding(dtype)
        if loss:
            smooth *= max(1.0, math.sqrt(self.converged_loss / abs(loss)))
            errors = _CONVERGED * self.loss * rounding(torch.float32)
            smooth += converged / abs(loss) * max(errors, _softmax(logits.shape[-1]))
        if is_followed or not self.has_branch_points:
            return smooth
        return smooth + SWITCHED + BRANCH_POINTS * math.sqrt(rounding(dtype))


def _softmax(classes: int) -> float:
    """Largest error of a probability near 1, and of its logarithm, in float32; see `_LANES`."""
    return (16 + classes / _LANES) * unit_roundoff(torch.float32)


def loss_and_logits(result: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What is judged of a forward pass that names it so."""
    return result.loss, result.logits


@dataclass(kw_only=True)
class Training:
    """A model in training; `result` gives loss and logits of what its forward pass returns.

    `clip` is the largest norm of the whole gradient, or None. `checksums` are those of the input
    sets as generated: those that `batches` brings (`inputs.placed`), else of a list as it is given;
    None where batches are made as they are asked for, whose workload holds them to the host's.
    `limits` are of the rules that a healthy training keeps; `peers` the ranks that train with this
    one. `audit`: the layers that float64 follows instead of the whole, for a model too large.
    `micro_batches`: passes of a step, each over an equal part of its batch
    (`parts/training/accumulation.py`).
    """

    model: torch.nn.Module
    rule: Optimizer
    optimizer: torch.optim.Optimizer
    batches: Batches
    cycle: InputCycle
    dtype: torch.dtype
    error_bounds: ErrorBounds
    artifacts: Artifacts
    clip: float | None = None
    limits: rules.Limits = field(default_factory=rules.Limits)
    micro_batches: int = 1
    result: Callable[[Any], tuple[torch.Tensor, torch.Tensor]] = loss_and_logits
    peers: sharding.Peers | None = None
    audit: audit.Audit | None = None
    checksums: list[int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.batches, InputSets):
            self.checksums = self.batches.checksums
        elif isinstance(self.batches, list | tuple):
            self.checksums = [checksum_all(batch) for batch in self.batches]

    @property
    def trained(self) -> dict[str, torch.Tensor]:
        """Parameters that learn, by name; one that is tied to another counts once."""
        return dict(_learning(self.model))

    @property
    def frozen(self) -> dict[str, torch.Tensor]:
        """Parameters that stay as they are, by name."""
        return {name: p for name, p in self.model.named_parameters() if not p.requires_grad}


@dataclass(kw_only=True)
class Trained:
    """Everything that a step made. Weights, moments and statistics are those of the model."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors


@dataclass(frozen=True, kw_only=True)
class Before:
    """Copies on the host of what the next step starts from; of what is frozen, the checksums.

    Tensors that are shared out are whole, or this rank's part of them if the training has an audit.
    """

    number: int
    batch: Tensors
    weights: Tensors
    moments: Mapping[str, Tensors]
    statistics: Tensors
    noise: torch.Tensor | None
    frozen: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What float64 makes of a step before its optimiser; rounded to float32 but for the loss.

    `choices` is the digest of the sides of the branch points that it took from the device,
    `switched` how far the furthest that float64 would not have taken lies from its branch point.
    `shares` (ranks, elements) samples the gradients of every rank's own batch, where there are
    several ranks.
    """

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: Tensors
    statistics: Tensors
    choices: str
    switched: float
    shares: torch.Tensor | None


def seeded(seed: int, make: Callable[[], Model]) -> Model:
    """Build with torch's own generator seeded on the host, and put that back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def begin(
    target: Target,
    *,
    seed: int,
    make: Callable[[], torch.nn.Module],
    rule: Optimizer,
    generate: Callable[[int], Iterable[Tensors]],
    num_inputs: int,
    ranks: int = 1,
    parallel: str = "none",
    layout: torch.memory_format = torch.preserve_format,
    **fields: Any,
) -> Training:
    """A training alone or among ranks (`parts/distributed`), with its inputs as generated.

    `make` builds the model, `generate(seed)` its `num_inputs` input sets or more; `fields` are
    other fields of Training.
    """

    def plain() -> torch.nn.Module:
        return seeded(seed, make).train()

    def of_rank(rank: int) -> Iterable[Tensors]:
        return generate(sharding.seed_of(seed, rank))

    model = plain()
    if parallel != "fsdp":  # which brings layer after layer to the device, and keeps a share of it
        model = model.to(target.device)
    if layout is not torch.preserve_format:
        model = model.to(device=target.device, memory_format=layout)  # type: ignore[call-overload]
    peers = None
    if ranks > 1:
        peers = sharding.joined(target, parallel, model, plain, of_rank)
    own = of_rank(0 if peers is None else peers.own)
    return Training(
        model=model,
        rule=rule,
        optimizer=rule.make(model),
        batches=placed(itertools.islice(own, num_inputs), target.device, layout),
        cycle=InputCycle(of=num_inputs),
        artifacts=target.artifacts,
        peers=peers,
        **fields,
    )


# ------------------------------------------------------------------ the step


def step(state: Training) -> Trained:
    """Train on the next batch."""
    batch = state.batches[state.cycle.advance()]
    for group in state.optimizer.param_groups:
        group["lr"] = state.rule.learning_rate_at(state.cycle.number)
    state.optimizer.zero_grad(set_to_none=True)
    if state.peers is None:
        return _made(state, state.model, batch)
    with operation(f"step {state.cycle.number} ({state.peers.parallel})"):
        return _made(state, state.peers.runner, batch)


def _made(state: Training, runner: torch.nn.Module, batch: Tensors) -> Trained:
    """Forward through `runner`, backward, update; of tensors shared out, this rank's part."""
    loss, logits = _passes(state, runner, batch)
    state.optimizer.step()
    return made(state, loss, logits)


def made(state: Training, loss: torch.Tensor, logits: torch.Tensor) -> Trained:
    """Everything that a step made which has just ended, with this loss and these logits."""
    weights = state.trained
    return Trained(
        loss=loss.detach(),
        logits=logits.detach(),
        gradients={name: local(gradient(weight)) for name, weight in weights.items()},
        weights={name: local(weight.detach()) for name, weight in weights.items()},
        moments={
            name: {key: local(moment) for key, moment in moments.items()}
            for name, moments in _moments(state).items()
        },
        statistics=_statistics(state.model),
    )


def _forward(
    state: Training, model: torch.nn.Module, batch: Tensors, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and logits of the model of the training, or of a copy, in the given dtype."""
    kind = next(iter(batch.values())).device.type
    if dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(kind, dtype=dtype):
            result = model(**batch)
    else:
        result = model(**batch)
    return state.result(result)


def _passes(
    state: Training, runner: torch.nn.Module, batch: Tensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave the gradients of a batch in the parameters; its loss and logits."""
    scale = _LOSS_SCALE if state.dtype is torch.float16 else 1.0
    losses, logits = [], []
    for part in split(batch, state.micro_batches):
        loss, outcome = _forward(state, runner, part, state.dtype)
        torch.autograd.backward(loss * (scale / state.micro_batches))
        losses.append(loss.detach())
        logits.append(outcome.detach())
    _finish(state, scale)
    return torch.stack(losses).mean(), torch.cat(logits) if state.micro_batches > 1 else logits[0]


def _finish(state: Training, scale: float) -> None:
    """Take the scale out of the gradients, and clip them."""
    if scale != 1.0:
        for parameter in state.trained.values():
            gradient(parameter).div_(scale)
    if state.clip is not None:
        _clip(state.trained, state.clip)


def _clip(weights: Tensors, most: float) -> None:
    """As `clip_grad_norm_`, also where some gradients are shared out among ranks and some not."""
    slopes = [gradient(weight) for weight in weights.values()]
    if not any(tensors.is_shared_out(slope) for slope in slopes):
        torch.nn.utils.clip_grad_norm_(weights.values(), most)
        return
    norms = [whole(torch.linalg.vector_norm(slope)) for slope in slopes]
    factor = (most / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
    for slope in slopes:
        local(slope).mul_(factor)


def gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Gradient of a parameter; raises if the backward pass did not reach it."""
    if parameter.grad is None:
        message = f"the backward pass left a parameter of shape {tuple(parameter.shape)} out"
        raise RuntimeError(message)
    return parameter.grad


def _moments(state: Training) -> dict[str, dict[str, torch.Tensor]]:
    """By parameter, the optimiser's tensors; its step counter is no moment."""
    return {
        name: {
            key: value
            for key, value in state.optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and key != "step"
        }
        for name, parameter in state.trained.items()
    }


def _statistics(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Running statistics: the buffers that belong to the model's state."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


# ------------------------------------------------------------------ what float64 makes of it


def snapshot(state: Training) -> Before:
    """Copy to the host what the next step starts from."""
    number = state.cycle.number + 1
    generator = generator_of(state.model)
    held = _whole if state.audit is None else _local
    return Before(
        number=number,
        batch=_copied(state.batches[number % state.cycle.of]),
        weights=_copied(held(state.trained)),
        moments={name: _copied(held(moments)) for name, moments in _moments(state).items()},
        statistics=_copied(_statistics(state.model)),
        noise=None if generator is None else generator.get_state(),
        frozen=_checksums(state.frozen),
    )


def _whole(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: whole(tensor.detach()) for name, tensor in tensors.items()}


def _local(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: local(tensor.detach()) for name, tensor in tensors.items()}


def _copied(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _checksums(tensors: Tensors) -> dict[str, int]:
    return {name: checksum(local(tensor)) for name, tensor in tensors.items()}


def _repeated(before: Before, state: Training) -> tuple[branch_points.Choices, torch.Tensor]:
    """The device's forward pass once more: the branches that it takes, and its logits.

    Ready for a backward pass, as in the step: without one, another kernel may be chosen.
    """
    return _repeated_on(before, state, before.batch)


def _repeated_on(
    before: Before, state: Training, inputs: Tensors
) -> tuple[branch_points.Choices, torch.Tensor]:
    """On the inputs of this rank or of another one."""
    device = next(state.model.parameters()).device
    model = _at_start(before, _plain(state).to(device))
    batch = {name: tensor.to(device, copy=True) for name, tensor in inputs.items()}
    with branch_points.Recorded() as recorded:
        loss, logits = _forward(state, model, batch, state.dtype)
        if state.error_bounds.recomputes:
            branch_points.go_back(loss)
    return recorded.choices, logits.detach()


def _plain(state: Training) -> torch.nn.Module:
    """A copy of the model, whole on every rank; what it learns is to be put into it."""
    return copy.deepcopy(state.model) if state.peers is None else state.peers.make()


def _reference(before: Before, state: Training, choices: branch_points.Choices) -> Reference:
    """Float64 result of the step; that of the first is made once per run.

    A device that took other sides at the first step than the one that made the file has the
    result computed for its own.
    """
    if before.number > 0:
        return _compute(before, state, choices)

    def make(path: Path) -> None:
        torch.save(vars(_compute(before, state, choices)), path)

    rank = "" if state.peers is None else f"_rank_{state.peers.ranks.rank}"
    path = state.artifacts.once(f"first_step_float64{rank}.pt", make)
    reference = Reference(**torch.load(path, weights_only=True))
    if reference.choices != branch_points.digest(choices):
        return _compute(before, state, choices)
    return reference


def _compute(before: Before, state: Training, choices: branch_points.Choices) -> Reference:
    """Follow the step on the inputs of this rank, and of all ranks that have some."""
    if state.peers is None:
        return _clipped(_follow(before, state, before.batch, choices), state)
    made = []
    for rank in state.peers.sharers:
        batch = state.peers.batch(rank, before.number % state.cycle.of)
        taken = choices
        if state.error_bounds.has_branch_points and rank != state.peers.own:
            taken, _ = _repeated_on(before, state, batch)
        made.append(_follow(before, state, batch, taken))
    own = made[state.peers.own]
    average = {
        name: torch.stack([one.gradients[name] for one in made]).mean(0) for name in own.gradients
    }
    shares = torch.stack([rank_checks.sampled(one.gradients) for one in made])
    switched = max(one.switched for one in made)
    return _clipped(replace(own, gradients=average, shares=shares, switched=switched), state)


def _follow(
    before: Before, state: Training, inputs: Tensors, choices: branch_points.Choices
) -> Reference:
    """Forward and backward pass in float64 on the host; the gradients are float64 and whole."""
    model = _at_start(before, _plain(state).cpu().double())
    # Branches are noted in the order of a single pass.
    if not state.error_bounds.has_branch_points:
        low_memory.spare(model)
    batch = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in inputs.items()
    }
    imposed = branch_points.Imposed(choices)
    if state.error_bounds.has_branch_points:
        with imposed:
            loss, logits = _forward(state, model, batch, torch.float64)
            if state.error_bounds.recomputes:
                branch_points.go_back(loss)
    else:
        loss, logits = _forward(state, model, batch, torch.float64)
    if not state.error_bounds.recomputes:
        torch.autograd.backward(loss)
    return Reference(
        loss=loss.detach(),
        logits=logits.detach().float(),
        gradients={name: gradient(p) for name, p in _learning(model)},
        statistics={} if state.error_bounds.statistics is None else _copied(_statistics(model)),
        choices=branch_points.digest(choices),
        switched=imposed.close(),
        shares=None,
    )


def _clipped(made: Reference, state: Training) -> Reference:
    """With the gradients cut to the largest norm and rounded to float32."""
    factor = 1.0
    if state.clip is not None:
        norms = [torch.linalg.vector_norm(slope) for slope in made.gradients.values()]
        factor = min(1.0, state.clip / (torch.stack(norms).norm().item() + 1e-6))
    return replace(
        made,
        gradients={name: (slope * factor).float() for name, slope in made.gradients.items()},
        shares=None if made.shares is None else made.shares * factor,
    )


def _learning(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def _at_start(before: Before, model: torch.nn.Module) -> torch.nn.Module:
    """The given copy of the model, as it was when the step began."""
    model.train()
    with torch.no_grad():
        for name, parameter in _learning(model):
            local(parameter).copy_(before.weights[name])
        for name, buffer in _statistics(model).items():
            buffer.copy_(before.statistics[name])
    generator = generator_of(model)
    if generator is not None and before.noise is not None:
        generator.set_state(before.noise)
    return model


# ------------------------------------------------------------------ the judgement


def check(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    """Judge everything that the step made; the cheap checks first."""
    if state.peers is None:
        return _judged(before, state, output)
    # The ranks ask each other in between: none may stop at a check where another goes on.
    judged = _judged_among if state.audit is None else _judged_in_shares
    return iter(list(judged(before, state, state.peers, output)))


def _judged_among(
    before: Before, state: Training, peers: sharding.Peers, output: Trained
) -> Iterator[Check]:
    rank_checks.tell(peers, output.logits)
    together = _rejoined(state, output)
    found = list(_judged(before, state, together))
    yield from found
    errors = [check.error for check in found if check.name == GRADIENTS]
    yield from rank_checks.check_inputs(peers, before.batch, before.number % state.cycle.of)
    frozen = {name: tensor for name, tensor in state.frozen.items() if local(tensor) is tensor}
    weights = {**together.weights, **frozen}
    yield from rank_checks.check_weights(peers, weights, errors[0] if errors else math.inf)


def _judged_in_shares(
    before: Before, state: Training, peers: sharding.Peers, output: Trained
) -> Iterator[Check]:
    """As `_judged_among` where no rank can hold all of the model; each judges what it holds."""
    yield from _judged(before, state, output)
    yield from rank_checks.check_inputs(peers, before.batch, before.number % state.cycle.of)
    both = {**state.trained, **state.frozen}
    replicated = {name: one.detach() for name, one in both.items() if local(one) is one}
    # Without the whole in float64 there is no nearest rank: the first one is the measure.
    yield from rank_checks.check_weights(peers, {**replicated, **_gathered_ends(state)}, 0.0)


def _gathered_ends(state: Training) -> dict[str, torch.Tensor]:
    """The ends of a model that are shared out, as this rank gathers them; all must get the same."""
    plan, found = state.audit, {}
    for path in () if plan is None else plan.ends:
        for name, weight in state.model.get_submodule(path).named_parameters():
            if tensors.is_shared_out(weight):
                found[f"{path}.{name}"] = whole(weight.detach()).cpu()
    return found


def _rejoined(state: Training, output: Trained) -> Trained:
    """The output with all of every tensor that is shared out."""
    like = state.trained
    slopes = {name: gradient(weight) for name, weight in like.items()}
    return replace(
        output,
        gradients={name: rejoined(g, slopes[name]) for name, g in output.gradients.items()},
        weights={name: rejoined(w, like[name]) for name, w in output.weights.items()},
        moments={
            name: {key: rejoined(moment, like[name]) for key, moment in moments.items()}
            for name, moments in output.moments.items()
        },
    )


def _judged(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    yield from _check_kept(before, state)
    yield _check_learning(before, state, output)
    yield from _check_rules(before, state, output)
    yield from _check_update(before, state, output)
    if state.audit is not None:
        yield from _audited(before, state, state.audit, output)
        return
    choices, is_followed = _choices(before, state, output)
    yield from rules.check_units(choices, state.limits)
    reference = _reference(before, state, choices)
    if output.logits.shape != reference.logits.shape:
        yield _other_shape(output.logits, reference.logits)
        return
    exact, classes = reference.loss.item(), reference.logits.shape[-1]
    bound = state.error_bounds.bound_loss(state.dtype, exact, classes)
    yield _check_loss(output.loss, reference.loss, bound)
    yield from compare_logits(
        output.logits,
        reference.logits,
        unit_roundoffs=state.error_bounds.logits,
        dtype=state.dtype,
        scale=state.error_bounds.scale,
    )
    if state.error_bounds.has_branch_points:
        yield _check_branch_points(
            reference.switched, state.error_bounds.branch_points * rounding(state.dtype)
        )
    bound = state.error_bounds.bound_gradients(
        state.dtype, exact, reference.logits, is_followed=is_followed
    )
    yield _check_gradients(output.gradients, reference.gradients, bound)
    if reference.shares is not None and len(reference.shares) > 1:
        given = rank_checks.sampled(output.gradients)
        yield from rank_checks.check_shares(given, reference.shares, bound)
    if state.error_bounds.statistics is not None:
        bound = state.error_bounds.statistics * rounding(state.dtype)
        yield from _check_statistics(output, reference, bound)


def _choices(
    before: Before, state: Training, output: Trained
) -> tuple[branch_points.Choices, bool]:
    """The sides of the branch points for float64 to follow, and whether they are surely the step's.

    Equal bits of all logits come of equal activations.
    """
    if not state.error_bounds.has_branch_points:
        return (), True
    choices, logits = _repeated(before, state)
    is_same = bool(choices) and torch.equal(logits, output.logits)
    return choices, is_same and _are_others_followed(before, state)


def _are_others_followed(before: Before, state: Training) -> bool:
    """Whether the other ranks' logits are those that this rank's device makes of their inputs."""
    if state.peers is None:
        return True
    told = [
        (state.peers.batch(rank, before.number % state.cycle.of), state.peers.logits[rank])
        for rank in state.peers.sharers
        if rank != state.peers.own
    ]
    return all(checksum(_repeated_on(before, state, batch)[1]) == one for batch, one in told)


def _audited(
    before: Before, state: Training, plan: audit.Audit, output: Trained
) -> Iterator[Check]:
    """Run the step again, and its first part with layers watched; leave the state as it was."""
    drawn = plan.drawn(state.model, before.number)
    runner = state.model if state.peers is None else state.peers.runner
    batch = state.batches[before.number % state.cycle.of]
    after = _copied(_local(state.trained))
    with _put_back(state, after):
        _at_start(before, state.model)
        state.model.zero_grad(set_to_none=True)
        again = _passes(state, runner, batch)
        slopes = _copied(_local(_slopes(state)))
        _at_start(before, state.model)
        state.model.zero_grad(set_to_none=True)
        made = _watched(state, runner, [*drawn, *plan.ends], batch)
    yield audit.check_same(
        "loss and logits of the step run again",
        [
            (output.loss, again[0]),
            (output.logits, again[1]),
            (output.logits[: len(made.logits)], made.logits),
        ],
    )
    pairs = [(output.gradients[name].cpu(), slope) for name, slope in slopes.items()]
    yield audit.check_same("gradients of the step run again", pairs)
    covered = plan.covering(state.model, drawn)
    peers = state.peers
    average = (lambda own: own) if peers is None else partial(rank_checks.average, peers)
    found = audit.follow(plan, made, average)
    yield from audit.checks(plan, found, state.dtype, covered)
    if peers is not None and len(peers.sharers) > 1:
        given = rank_checks.sampled({name: made.gradients[name] for name in found.own})
        own = torch.cat([sample for _, sample in sorted(found.own.items())])
        exact = rank_checks.of_all(peers, own)[: len(peers.sharers)]
        bound = plan.gradients * rounding(state.dtype)
        yield from rank_checks.check_shares(given, exact, bound)


def _slopes(state: Training) -> dict[str, torch.Tensor]:
    return {name: gradient(weight).detach() for name, weight in state.trained.items()}


def _watched(
    state: Training, runner: torch.nn.Module, names: list[str], batch: Tensors
) -> audit.Watched:
    """One pass over the first part of a batch, forward and backward."""
    part = next(iter(split(batch, state.micro_batches)))
    layers = {name: state.model.get_submodule(name) for name in names}
    with audit.Watch(layers=layers) as watch:
        loss, logits = _forward(state, runner, part, state.dtype)
        torch.autograd.backward(loss)
    watched = tuple(f"{name}." for name in names)
    weights = {n: p for n, p in state.model.named_parameters() if n.startswith(watched)}
    return audit.Watched(
        batch=part,
        loss=loss.detach(),
        logits=logits.detach(),
        gradients=_gathered({n: gradient(p) for n, p in weights.items() if p.requires_grad}),
        weights=_gathered(weights),
        seen=watch.seen,
    )


def _gathered(tensors: Tensors) -> dict[str, torch.Tensor]:
    """All of each tensor on the host, gathered one after the other."""
    return {name: whole(tensor.detach()).cpu().clone() for name, tensor in tensors.items()}


@contextmanager
def _put_back(state: Training, after: Tensors) -> Iterator[None]:
    """Restore weights, gradients, statistics and noise to what they were."""
    slopes = {name: gradient(weight) for name, weight in state.trained.items()}
    statistics = _copied(_statistics(state.model))
    generator = generator_of(state.model)
    noise = None if generator is None else generator.get_state()
    try:
        yield
    finally:
        with torch.no_grad():
            for name, weight in state.trained.items():
                local(weight).copy_(after[name])
                weight.grad = slopes[name]
            for name, buffer in _statistics(state.model).items():
                buffer.copy_(statistics[name])
        if generator is not None and noise is not None:
            generator.set_state(noise)


def _check_kept(before: Before, state: Training) -> Iterator[Check]:
    """What the step must not have changed: its inputs, and what is frozen."""
    if state.checksums is not None:
        expected = state.checksums[before.number % state.cycle.of]
        used = (before.batch, state.batches[before.number % state.cycle.of])
        changed = sum(checksum_all(batch) != expected for batch in used)
        yield Check(name="inputs as generated", error=changed, bound=0.0, kind="exact")
    if before.frozen:
        after = _checksums(state.frozen)
        changed = sum(after.get(name) != told for name, told in before.frozen.items())
        yield Check(name="frozen tensors that changed", error=changed, bound=0.0, kind="exact")


def _check_learning(before: Before, state: Training, output: Trained) -> Check:
    """A model that stands still agrees with itself; so what stands still is counted.

    Of what is shared out, one rank's part may have no gradient: its words were not in the batch.
    """
    moving = [
        (
            bool(output.gradients[name].any()),
            not torch.equal(output.weights[name].cpu(), weight),
        )
        for name, weight in before.weights.items()
    ]
    if state.audit is not None and state.peers is not None:
        own = [int(flag) for pair in moving for flag in pair]
        flags = torch.tensor(state.peers.ranks.all_gathered(own, state.peers.device))
        somewhere = flags.any(0).reshape(-1, 2).tolist()
        moving = [
            tuple(joined) if tensors.is_shared_out(state.trained[name]) else alone
            for name, alone, joined in zip(before.weights, moving, somewhere, strict=True)
        ]
    still = sum(not all(one) for one in moving)
    name = "tensors without a gradient or a change"
    return Check(name=name, error=still, bound=0.0, kind="exact")


def _check_rules(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    found = {
        name: _facts_of(
            (weight, before.moments[name]),
            output.gradients[name],
            (output.weights[name], output.moments[name]),
        )
        for name, weight in before.weights.items()
    }
    if state.audit is not None and state.peers is not None:
        found = _facts_of_all(state, state.peers, found)
    others = (output.loss, output.logits, *output.statistics.values())
    yield from rules.check(found, others)
    yield from rules.check_sizes(found, state.limits)


def _other_shape(output: torch.Tensor, reference: torch.Tensor) -> Check:
    """A step on a part of its batch, say; nothing else of it can be compared."""
    shapes = " for ".join(str(tuple(tensor.shape)) for tensor in (output, reference))
    return Check(
        name="logits against float64",
        error=math.inf,
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what=f"dimension of another size: {shapes}",
    )


def _facts_of_all(
    state: Training, peers: sharding.Peers, found: Mapping[str, rules.Facts]
) -> dict[str, rules.Facts]:
    """The facts of the whole of each tensor that is shared out, of the parts of all ranks."""
    own = torch.tensor([rules.numbers_of(one) for one in found.values()], dtype=torch.float64)
    parts = rank_checks.of_all(peers, own.flatten()).reshape(-1, *own.shape)
    return {
        name: rules.joined(one, parts[:, number])
        if tensors.is_shared_out(state.trained[name])
        else one
        for number, (name, one) in enumerate(found.items())
    }


def _facts_of(
    start: tuple[torch.Tensor, Tensors],
    slope: torch.Tensor,
    end: tuple[torch.Tensor, Tensors],
) -> rules.Facts:
    """See `rules.facts`."""
    return rules.facts(start, slope, end)


def _check_update(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    errors = [
        _update_errors(
            state.rule,
            before.number,
            (weight, before.moments[name]),
            output.gradients[name],
            (output.weights[name], output.moments[name]),
        )
        for name, weight in before.weights.items()
        if weight.numel()  # a rank's part of a small tensor may be nothing
    ]
    bound = _ROUNDINGS * max(unit_roundoff(weight.dtype) for weight in before.weights.values())
    for index, kind in enumerate(("weights", "moments")):
        yield Check(
            name=f"updated {kind}, given the gradients",
            error=_largest([pair[index] for pair in errors]),
            bound=bound,
            detects=bound,
            detects_what="error of one element, relative to the terms that make it",
        )


def _update_errors(
    rule: Optimizer,
    number: int,
    start: tuple[torch.Tensor, Tensors],
    slope: torch.Tensor,
    end: tuple[torch.Tensor, Tensors],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest errors of one weight and of its moments; `start` and `end` are of these two."""
    moments = {key: on_host(moment) for key, moment in start[1].items()}
    updated = dict(rule.update(on_host(start[0]), on_host(slope), moments, number))
    weight = _distance(end[0], updated.pop("weight"))
    others = [_distance(end[1].get(key), exact) for key, exact in updated.items()]
    return weight, torch.stack(others).max() if others else torch.zeros(())


def _distance(actual: torch.Tensor | None, exact: Updated) -> torch.Tensor:
    """A moment that the optimiser has not made is zero, as before its first step."""
    distance = exact.value if actual is None else on_host(actual) - exact.value
    return (distance.abs() / exact.size.add_(_SMALLEST)).max()


def _check_loss(output: torch.Tensor, reference: torch.Tensor, bound: float) -> Check:
    """Relative to one nat at least: a loss near zero is the difference of large numbers."""
    error = (on_host(output) - reference).abs() / reference.abs().clamp(min=1.0)
    return Check(
        name="loss against float64",
        error=error.item(),
        bound=bound,
        detects=bound,
        detects_what="error of the loss, relative to itself or to 1 if that is more",
    )


def _check_branch_points(switched: float, bound: float) -> Check:
    return Check(
        name="units on the other side of a branch point",
        error=switched,
        bound=bound,
        detects=bound,
        detects_what=(
            "distance of one from its branch point, in units of its layer's root mean square"
        ),
    )


def _check_gradients(output: Tensors, reference: Tensors, bound: float) -> Check:
    norms = {name: _distance_of(None, exact) for name, exact in reference.items()}
    total = torch.stack(list(norms.values())).norm()
    errors = [
        _distance_of(output[name], exact) / (norms[name] + _floor(exact) * total)
        for name, exact in reference.items()
    ]
    return Check(
        name=GRADIENTS,
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one tensor's gradient, relative to its norm",
    )


def _floor(exact: torch.Tensor) -> float:
    if exact.numel() == 1:
        return 1.0  # all of a batch added up: what is left may be nought while each term is not
    is_sum = exact.dim() <= 1 or len(exact) <= _FEW_ROWS
    return _FLOOR_OF_SUMS if is_sum else _FLOOR


def _distance_of(output: torch.Tensor | None, exact: torch.Tensor) -> torch.Tensor:
    """Norm of the difference, or of the exact tensor alone."""
    distance = exact.double() if output is None else on_host(output) - exact
    norm: torch.Tensor = torch.linalg.vector_norm(distance)
    return norm


def _check_statistics(output: Trained, reference: Reference, bound: float) -> Iterator[Check]:
    pairs = [(output.statistics[name], exact) for name, exact in reference.statistics.items()]
    errors = [
        (on_host(actual) - exact).abs().max() / exact.abs().max()
        for actual, exact in pairs
        if exact.is_floating_point()
    ]
    yield Check(
        name="running statistics against float64",
        error=_largest(errors),
        bound=bound,
        detects=bound,
        detects_what="error of one channel, relative to the largest of its layer",
    )
    counters = [pair for pair in pairs if not pair[1].is_floating_point()]
    wrong = sum(not torch.equal(actual.cpu(), exact) for actual, exact in counters)
    name = "counters of the running statistics"
    yield Check(name=name, error=wrong, bound=0.0, kind="exact")


def _largest(errors: list[torch.Tensor]) -> float:
    """Largest error; NaN if there is one, which Python's max would hide."""
    return torch.stack(errors).max().item()
