"""Whether a training step is right: everything that it made, the cheap checks first.

Where the device's repeated forward pass does not give the step's logits to the bit, its branches
may not be those of the step: a switched unit is then allowed for, and the check says that it
detects no less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

import torch

from appliance.records.journal import Check
from workloads.parts.distributed import rank_checks, sharding, tensors
from workloads.parts.distributed.tensors import local, rejoined, whole
from workloads.parts.numerics.checksums import checksum, checksum_all
from workloads.parts.numerics.host_copies import small_on_host
from workloads.parts.numerics.precision import compare_logits, rounding
from workloads.parts.numerics.threads import on_few_threads
from workloads.parts.training import (
    branch_points,
    comparisons,
    layer_checks,
    reference,
    rules,
    sampled_checks,
)
from workloads.parts.training.inputs import DrawnSets
from workloads.parts.training.state import (
    Before,
    Trained,
    Training,
    checksums_of,
    gradient,
    named_of,
    with_named,
)


def check_step(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    """Judge everything that the step made; the cheap checks first.

    Beside an accelerator on as many threads of the host as what is judged is worth. Processors
    that are judged themselves keep theirs: with others they add up a step that is run again in
    another order.
    """
    is_apart = next(state.model.parameters()).device.type != "cpu"
    with on_few_threads(_num_bytes(before, output)) if is_apart else nullcontext():
        if state.peers is None:
            yield from _judged(before, state, output)
            return
        # The ranks ask each other in between: none may stop at a check where another goes on.
        judged = _judged_among if state.audit is None else _judged_in_shares
        yield from list(judged(before, state, state.peers, output))


def _num_bytes(before: Before, output: Trained) -> int:
    """Of the inputs and of all that the step made."""
    tensors = (*before.batch.values(), *named_of(output).values())
    return sum(int(tensor.nbytes) for tensor in tensors)


# ------------------------------------------------------------------ on one rank


def _judged(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    output = with_named(output, small_on_host(named_of(output)))
    yield from _check_unchanged(before, state)
    tensors = comparisons.examine_once(before, state, output)
    facts = {name: one.facts for name, one in tensors.items()}
    if state.audit is not None and state.peers is not None:
        facts = _facts_of_all(state, state.peers, facts)
    yield _check_learning(facts)
    yield from _check_rules(state, output, facts)
    yield from comparisons.check_update(before, tensors)
    sampling = state.sampling(state.flops)
    if sampling is not None:
        yield from sampled_checks.check_sampled(before, state, sampling, output)
    elif state.audit is None:
        yield from _against_float64(before, state, output)
    else:
        yield from layer_checks.check_layers(before, state, state.audit, output)


def _against_float64(before: Before, state: Training, output: Trained) -> Iterator[Check]:
    choices, is_followed = _choices(before, state, output)
    yield from rules.check_units(choices, state.limits)
    exact = reference.reference_of(before, state, choices)
    if output.logits.shape != exact.logits.shape:
        yield comparisons.other_shape(output.logits, exact.logits)
        return
    yield from _check_forward(state, output, exact)
    bound = state.error_bounds.bound_gradients(
        state.dtype, exact.loss.item(), exact.logits, is_followed=is_followed
    )
    yield comparisons.check_gradients(output.gradients, exact.gradients, bound)
    if exact.shares is not None and len(exact.shares) > 1:
        sampled = rank_checks.sampled(output.gradients)
        yield from rank_checks.check_shares(sampled, exact.shares, bound)
    if state.error_bounds.statistics is not None:
        bound = state.error_bounds.statistics * rounding(state.dtype)
        yield from comparisons.check_statistics(output, exact, bound)


def _check_forward(state: Training, output: Trained, exact: reference.Reference) -> Iterator[Check]:
    """Loss, logits, and the branches that float64 was made to take."""
    bounds, classes = state.error_bounds, exact.logits.shape[-1]
    bound = bounds.bound_loss(state.dtype, exact.loss.item(), classes)
    yield comparisons.check_loss(output.loss, exact.loss, bound)
    yield from compare_logits(
        output.logits,
        exact.logits,
        unit_roundoffs=bounds.logits,
        dtype=state.dtype,
        scale=bounds.scale,
    )
    if bounds.has_branch_points:
        bound = bounds.branch_points * rounding(state.dtype)
        yield comparisons.check_branch_points(exact.switched, bound)


def _choices(
    before: Before, state: Training, output: Trained
) -> tuple[branch_points.Choices, bool]:
    """The sides of the branch points for float64 to follow, and whether they are surely the step's.

    Equal bits of all logits come of equal activations.
    """
    if not state.error_bounds.has_branch_points:
        return (), True
    choices, logits = reference.repeated(before, state)
    is_same = bool(choices) and torch.equal(logits.cpu(), output.logits.cpu())
    return choices, is_same and _are_others_followed(before, state)


def _are_others_followed(before: Before, state: Training) -> bool:
    """Whether the other ranks' logits are those that this rank's device makes of their inputs."""
    if state.peers is None:
        return True
    expected = [
        (state.peers.batch(rank, before.number % state.cycle.of), state.peers.logits[rank])
        for rank in state.peers.sharers
        if rank != state.peers.own
    ]
    return all(
        checksum(reference.repeated_on(before, state, batch)[1]) == logits
        for batch, logits in expected
    )


def _check_unchanged(before: Before, state: Training) -> Iterator[Check]:
    """What the step must not have changed: its inputs, and what is frozen."""
    yield from _check_batch(before, state)
    if before.frozen:
        after = checksums_of(state.frozen)
        changed = sum(after.get(name) != checksum for name, checksum in before.frozen.items())
        yield Check(name="frozen tensors that changed", error=changed, bound=0.0, kind="exact")


def _check_batch(before: Before, state: Training) -> Iterator[Check]:
    """The bits of the batch: of a drawn one after the step, of another one before it too."""
    index = before.number % state.cycle.of
    if isinstance(state.batches, DrawnSets):
        expected, used = checksum_all(before.batch), [state.batches[index]]
    elif state.checksums is not None:
        expected, used = state.checksums[index], [before.batch, state.batches[index]]
    else:
        return
    changed = sum(checksum_all(batch) != expected for batch in used)
    yield Check(name="inputs as generated", error=changed, bound=0.0, kind="exact")


def _check_learning(facts: Mapping[str, rules.Facts]) -> Check:
    """A model that stands still agrees with itself; so what stands still is counted."""
    still = sum(not (one.has_gradient and one.has_changed) for one in facts.values())
    name = "tensors without a gradient or a change"
    return Check(name=name, error=still, bound=0.0, kind="exact")


def _check_rules(
    state: Training, output: Trained, facts: Mapping[str, rules.Facts]
) -> Iterator[Check]:
    others = (output.loss, output.logits, *output.statistics.values())
    yield from rules.check(facts, others)
    yield from rules.check_sizes(facts, state.limits)


def _facts_of_all(
    state: Training, peers: sharding.Peers, facts: Mapping[str, rules.Facts]
) -> dict[str, rules.Facts]:
    """The facts of the whole of each tensor that is shared out, of the parts of all ranks.

    One rank's part may have no gradient, say: its words were not drawn.
    """
    own = torch.tensor([rules.numbers_of(one) for one in facts.values()], dtype=torch.float64)
    parts = rank_checks.of_all(peers, own.flatten()).reshape(-1, *own.shape)
    return {
        name: rules.joined(one, parts[:, number])
        if tensors.is_shared_out(state.trained[name])
        else one
        for number, (name, one) in enumerate(facts.items())
    }


# ------------------------------------------------------------------ among ranks


def _judged_among(
    before: Before, state: Training, peers: sharding.Peers, output: Trained
) -> Iterator[Check]:
    rank_checks.share_logits(peers, output.logits)
    together = _rejoined(state, output)
    checks = list(_judged(before, state, together))
    yield from checks
    errors = [check.error for check in checks if check.name == comparisons.GRADIENTS]
    index = before.number % state.cycle.of
    yield from rank_checks.check_inputs(peers, state.batches[index], index)
    frozen = {name: tensor for name, tensor in state.frozen.items() if local(tensor) is tensor}
    weights = {**together.weights, **frozen}
    yield from rank_checks.check_weights(peers, weights, errors[0] if errors else math.inf)


def _judged_in_shares(
    before: Before, state: Training, peers: sharding.Peers, output: Trained
) -> Iterator[Check]:
    """As `_judged_among` where no rank can hold all of the model; each judges what it holds."""
    yield from _judged(before, state, output)
    index = before.number % state.cycle.of
    yield from rank_checks.check_inputs(peers, state.batches[index], index)
    both = {**state.trained, **state.frozen}
    replicated = {name: one.detach() for name, one in both.items() if local(one) is one}
    # Without the whole in float64 there is no nearest rank: the first one is the measure.
    yield from rank_checks.check_weights(peers, {**replicated, **_gathered_ends(state)}, 0.0)


def _gathered_ends(state: Training) -> dict[str, torch.Tensor]:
    """The ends of a model that are shared out, as this rank gathers them; all must get the same."""
    plan, ends = state.audit, {}
    for path in () if plan is None else plan.ends:
        for name, weight in state.model.get_submodule(path).named_parameters():
            if tensors.is_shared_out(weight):
                ends[f"{path}.{name}"] = whole(weight.detach()).cpu()
    return ends


def _rejoined(state: Training, output: Trained) -> Trained:
    """The output with all of every tensor that is shared out."""
    like = state.trained
    gradients = {name: gradient(weight) for name, weight in like.items()}
    return replace(
        output,
        gradients={name: rejoined(g, gradients[name]) for name, g in output.gradients.items()},
        weights={name: rejoined(w, like[name]) for name, w in output.weights.items()},
        moments={
            name: {key: rejoined(moment, like[name]) for key, moment in moments.items()}
            for name, moments in output.moments.items()
        },
    )
