"""The checks of a step whose reference would take too long: every module, on drawn rows.

The step is run once more, untimed, from its snapshot, with all calls of modules watched. Its loss,
logits and gradients must be the step's, within roundings: then what was seen is what the step did.
Each call is held to float64 alone (`parts/auditing`), from what it was given on the device: its
outputs and the gradients that it sends, for the drawn inputs of the batch; the gradients of its
weights, over the whole batch, for drawn channels. The loss is made again of what the model called.

A module that is wrong for every input and channel is found in every step. What is wrong for one
input alone is found with the probability that it is drawn, which each check says; so is a wrong
gradient of one row of a weight. Weights that stand in a module beside others have their gradients
followed in one drawn module of a step. The update of every weight is held to its formula as in any
training.

What float64 makes of the first step is kept by a case's untimed launch, with the fingerprint of
every bit that it was made of. A launch that saw the same bits reads it; one that saw others, as
where kernels sum in another order each time, follows its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.utils._pytree import tree_flatten

from appliance.records.journal import Check
from workloads.contract.target import Artifacts
from workloads.parts.auditing import layers, replay, room
from workloads.parts.auditing.calls import Call, Passing, Watch
from workloads.parts.auditing.channels import Draws, first_names, is_batch_norm
from workloads.parts.auditing.choices import chooses
from workloads.parts.auditing.errors import Errors, Kind
from workloads.parts.auditing.fingerprint import fingerprint
from workloads.parts.auditing.following import Following
from workloads.parts.auditing.sampling import Sampling
from workloads.parts.auditing.selection import Rows, draw_name, draw_rows, is_drawn
from workloads.parts.auditing.weights import Sums
from workloads.parts.distributed import rank_checks
from workloads.parts.distributed.tensors import local, whole
from workloads.parts.numerics.precision import compare_logits, on_host, rounding
from workloads.parts.training import comparisons
from workloads.parts.training.layer_checks import put_back, with_room
from workloads.parts.training.state import (
    Before,
    Trained,
    Training,
    gradient,
    learning,
    restore,
)
from workloads.parts.training.step import forward

OUTPUTS, GRADIENTS, WEIGHTS = (
    f"{what} of modules on drawn rows against float64"
    for what in ("outputs", "gradients", "weights' gradients")
)
AGAIN = "gradients of the step run again"
KEPT = "first_step_sampled.pt"
MOST_KEPT = 2**23
"""Logits that are kept in float64, 64 MiB: more take longer to write and to read than they save."""


@dataclass(frozen=True, kw_only=True)
class Exact:
    """What float64 made of a step: how far its calls are off, its loss and logits, statistics."""

    errors: Errors
    results: tuple[torch.Tensor, torch.Tensor]
    statistics: layers.Statistics


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the step made when it was run again: gradients before they are scaled and cut."""

    loss: torch.Tensor
    logits: torch.Tensor
    gradients: dict[str, torch.Tensor]
    errors: Errors
    exact: tuple[torch.Tensor, torch.Tensor]
    statistics: layers.Statistics


def check_sampled(
    before: Before, state: Training, plan: Sampling, output: Trained
) -> Iterator[Check]:
    """Run the step again with its modules watched; leave the state as it was."""
    rows = draw_rows(plan.seed + before.number, plan.batch, plan.inputs, plan.counted, plan.whole)

    def again() -> Watched:
        restore(before, state.model)
        state.model.zero_grad(set_to_none=True)
        return run_again(before, state, plan, rows, is_kept=True)

    with put_back(state) as copies:
        seen = with_room(state, output, copies, again)
    if seen is None:
        yield room.unjudged()
        return
    yield from _check_again(state, output, seen)
    yield from _check_forward(state, output, seen)
    yield from check_followed(state, plan, rows, seen)
    if chooses(state.model):
        bound = state.error_bounds.branch_points * rounding(state.dtype)
        yield comparisons.check_branch_points(seen.errors.switched, bound)
    if state.error_bounds.statistics is not None:
        yield from _check_statistics(before, state, output, seen.statistics)


def run_again(
    before: Before, state: Training, plan: Sampling, rows: Rows, *, is_kept: bool = False
) -> Watched:
    """Run a step from its snapshot with all modules watched, and hold each call to float64.

    It leaves the snapshot's weights in the model, and the gradients of the step. `is_kept`: what
    float64 makes of the first step may be kept for launches that see the same.
    """
    runner = state.model if state.peers is None else state.peers.runner
    device = next(state.model.parameters()).device
    batch = {name: tensor.to(device, copy=True) for name, tensor in before.batch.items()}
    names = {id(weight): name for name, weight in learning(state.model)}
    seed = plan.seed + before.number
    scale = state.loss_scale if state.dtype is torch.float16 else 1.0
    drawn = draw_name(seed, _with_own_weights(state.model))
    whole_paths = frozenset({""} if drawn is None else {"", drawn})
    draws = Draws(seed=seed, names=first_names(state.model), is_alone=state.peers is None)
    with Watch(model=state.model, rows=rows, draws=draws, whole=whole_paths) as watch:
        loss, logits = forward(state, runner, batch, state.dtype)
        watch.go_back(recomputes=state.error_bounds.recomputes)
        torch.autograd.backward(loss * scale)
    watch.join()
    gradients = {name: gradient(weight).detach() for name, weight in state.trained.items()}
    root = _root(state.model, before.batch, watch.calls)
    average: Callable[[torch.Tensor], torch.Tensor] = lambda own: own  # noqa: E731
    if state.peers is not None:
        average = partial(rank_checks.average, state.peers)

    def follow() -> Exact:
        errors, sums = Errors(average=average), Sums(names=names)
        following = Following(
            rows=rows,
            whole=whole_paths,
            errors=errors,
            sums=sums,
            is_replayed=lambda path: is_drawn(seed, path, plan.replayed),
            rounded=state.dtype if plan.tries_roundings else None,
        )
        following.follow(watch.calls)
        exact, own = replay.follow_model(root, dict(before.batch), state.result, errors, scale)
        following.add_own(root, own)
        sums.compare({n: one.pick(whole(gradients[n])) for n, one in sums.of.items()}, errors)
        return Exact(errors=errors, results=exact, statistics=following.statistics)

    def seen() -> str:
        buffers = dict(state.model.named_buffers())
        weights = {name: one.detach() for name, one in state.model.named_parameters()}
        results = {"loss": loss.detach(), "logits": logits.detach()}
        tensors = (dict(before.batch), weights, buffers, gradients, results)
        return fingerprint(watch.calls, tensors, plan, rows, seed, scale, str(state.dtype), drawn)

    is_shared = is_kept and before.number == 0 and state.peers is None
    is_shared &= logits.numel() <= MOST_KEPT
    exact = _once(state.artifacts, seen, follow, average) if is_shared else follow()
    return Watched(
        loss=loss.detach(),
        logits=logits.detach(),
        gradients={name: _unscaled(local(one), scale) for name, one in gradients.items()},
        errors=exact.errors,
        exact=exact.results,
        statistics=exact.statistics,
    )


def _unscaled(gradient: torch.Tensor, scale: float) -> torch.Tensor:
    return gradient if scale == 1.0 else gradient / scale


def _once(
    artifacts: Artifacts,
    seen: Callable[[], str],
    follow: Callable[[], Exact],
    average: Callable[[torch.Tensor], torch.Tensor],
) -> Exact:
    """What the untimed launch made of the step, if it saw the bits that this launch has."""
    made: list[Exact] = []

    def make(path: Path) -> None:
        own = seen()
        made.append(follow())
        errors = made[0].errors
        torch.save(
            {
                "seen": own,
                "largest": errors.largest,
                "where": errors.where,
                "followed": sorted(errors.followed),
                "num_results": errors.num_results,
                "switched": errors.switched,
                "results": made[0].results,
                "statistics": made[0].statistics,
            },
            path,
        )

    path = artifacts.once(KEPT, make)
    if made:
        return made[0]
    kept = torch.load(path, weights_only=True)
    if kept["seen"] != seen():
        return follow()
    errors = Errors(
        average=average,
        largest=kept["largest"],
        where=kept["where"],
        followed=set(kept["followed"]),
        num_results=kept["num_results"],
        switched=kept["switched"],
    )
    return Exact(errors=errors, results=kept["results"], statistics=kept["statistics"])


def _with_own_weights(model: torch.nn.Module) -> list[str]:
    """Paths of modules with weights that no channels are known of.

    Of a list of weights, which is never called, the module that has it.
    """
    draws = Draws(seed=0, names={})
    lists = (torch.nn.ParameterList, torch.nn.ParameterDict)
    return [
        path.rpartition(".")[0] if isinstance(module, lists) else path
        for path, module in model.named_modules()
        if path
        and any(one.requires_grad for one in module.parameters(recurse=False))
        and draws.of(module, path) is None
    ]


def _root(model: torch.nn.Module, batch: object, calls: list[Call]) -> Call:
    values, spec = tree_flatten(batch)
    given = Passing(values=values, spec=spec)
    return Call(path="", module=model, given=given, is_whole=True, children=calls)


# ------------------------------------------------------------------ what is judged


def _check_again(state: Training, output: Trained, seen: Watched) -> Iterator[Check]:
    """That what was watched is the step: equal bits, or within what two healthy steps differ by."""
    bounds = state.error_bounds
    factor = 1.0
    if state.clip is not None:
        norms = torch.stack([one.norm() for one in seen.gradients.values()])
        factor = min(1.0, state.clip / (norms.norm().item() + 1e-6))
    is_same = torch.equal(seen.logits.cpu(), output.logits.cpu())
    bound = bounds.bound_gradients(
        state.dtype, seen.exact[0].item(), seen.exact[1], is_followed=is_same
    )
    again = {name: on_host(one) * factor for name, one in seen.gradients.items()}
    yield comparisons.check_gradients(output.gradients, again, bound, name=AGAIN)


def _check_forward(state: Training, output: Trained, seen: Watched) -> Iterator[Check]:
    """Loss and logits, made in float64 of what the model called."""
    loss, logits = seen.exact
    if output.logits.shape != logits.shape:
        yield comparisons.other_shape(output.logits, logits)
        return
    bounds = state.error_bounds
    bound = bounds.bound_loss(state.dtype, loss.item(), logits.shape[-1])
    yield comparisons.check_loss(output.loss, loss, bound)
    yield from compare_logits(
        output.logits,
        logits,
        unit_roundoffs=bounds.logits,
        dtype=state.dtype,
        scale=bounds.scale,
    )


def check_followed(state: Training, plan: Sampling, rows: Rows, seen: Watched) -> Iterator[Check]:
    """Judge the modules of a step that was run again on these rows."""
    errors, unit = seen.errors, rounding(state.dtype) * state.error_bounds.unit
    missing = sorted(set(state.trained) - errors.followed)
    drawn = f"{len(rows.drawn)} of {rows.batch} inputs were drawn"
    covered = {
        "outputs": f"{drawn}: what is wrong for one alone is found with probability "
        f"{rows.share:.3g}, what is wrong for all in every step"
        + ("" if plan.replayed == 1 else f", between layers with probability {plan.replayed:.3g}"),
        "weights": f"of {len(errors.followed)} weights some rows and columns; {len(missing)} others"
        " were held to the step run again alone",
    }
    covered["gradients"] = covered["outputs"]
    kinds: tuple[tuple[Kind, str, float], ...] = (
        ("outputs", OUTPUTS, plan.outputs),
        ("gradients", GRADIENTS, plan.gradients),
        ("weights", WEIGHTS, plan.weights),
    )
    for kind, name, bound in kinds:
        yield Check(
            name=name,
            error=errors.largest.get(kind, float("inf")),
            bound=bound * unit,
            detects=bound * unit,
            detects_what=f"error of one result, relative to its norm (the furthest: "
            f"{errors.where.get(kind, 'none was followed')}); {covered[kind]}",
        )


def _check_statistics(
    before: Before, state: Training, output: Trained, found: layers.Statistics
) -> Iterator[Check]:
    """Running statistics of the drawn channels, from the batch's in float64."""
    exact = {}
    actual = {}
    for path, (channels, (mean, variance)) in found.items():
        module = state.model.get_submodule(path)
        if not is_batch_norm(module):
            continue
        share = float(module.momentum)  # type: ignore[arg-type]
        for name, new in (("running_mean", mean), ("running_var", variance)):
            key = f"{path}.{name}"
            old = before.statistics[key][channels].double()
            exact[key] = (1 - share) * old + share * new
            actual[key] = output.statistics[key].cpu()[channels]
        key = f"{path}.num_batches_tracked"
        exact[key] = before.statistics[key] + 1
        actual[key] = output.statistics[key]
    bound = (state.error_bounds.statistics or 0.0) * rounding(state.dtype)
    yield from comparisons.check_statistics_of(actual, exact, bound)
