"""One training step: forward, loss, backward, optimiser.

In float32, or by automatic mixed precision over float32 weights. Its output is everything that it
made. A batch may be taken in equal micro-batches whose gradients are added up: the mean of their
losses is the loss of the whole batch if each has as many labels, which is for the workload to see
to. Float64 takes the batch at once, so one that was left out or counted twice shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from workloads.contract.failures import ParameterError
from workloads.parts.distributed import tensors
from workloads.parts.distributed.ranks import operation
from workloads.parts.distributed.tensors import local, whole
from workloads.parts.training.optimizers import Tensors
from workloads.parts.training.state import Trained, Training, gradient, moments_of, statistics_of


def train_step(state: Training) -> Trained:
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
    loss, logits = passes(state, runner, batch)
    state.optimizer.step()
    return outputs_of(state, loss, logits)


def outputs_of(state: Training, loss: torch.Tensor, logits: torch.Tensor) -> Trained:
    """Everything that a step made which has just ended, with this loss and these logits."""
    weights = state.trained
    return Trained(
        loss=loss.detach(),
        logits=logits.detach(),
        gradients={name: local(gradient(weight)) for name, weight in weights.items()},
        weights={name: local(weight.detach()) for name, weight in weights.items()},
        moments={
            name: {key: local(moment) for key, moment in moments.items()}
            for name, moments in moments_of(state).items()
        },
        statistics=statistics_of(state.model),
    )


def forward(
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


def passes(
    state: Training, runner: torch.nn.Module, batch: Tensors
) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave the gradients of a batch in the parameters; its loss and logits."""
    scale = state.loss_scale if state.dtype is torch.float16 else 1.0
    losses, logits = [], []
    for part in split(batch, state.micro_batches):
        loss, outcome = forward(state, runner, part, state.dtype)
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
    gradients = [gradient(weight) for weight in weights.values()]
    if not any(tensors.is_shared_out(own) for own in gradients):
        torch.nn.utils.clip_grad_norm_(weights.values(), most)
        return
    norms = [whole(torch.linalg.vector_norm(own)) for own in gradients]
    factor = (most / (torch.stack(norms).norm() + 1e-6)).clamp(max=1.0)
    for own in gradients:
        local(own).mul_(factor)


def split(
    batch: Mapping[str, torch.Tensor], micro_batches: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Give the parts of a batch one after the other, cut along the first dimension."""
    cut = {name: tensor.chunk(micro_batches) for name, tensor in batch.items()}
    for number in range(micro_batches):
        yield {name: pieces[number] for name, pieces in cut.items()}


def require_micro_batches(count: int, micro_batches: int) -> None:
    """Raise ParameterError unless `count` inputs can be cut into so many equal parts."""
    if micro_batches < 1 or count % micro_batches:
        message = f"accumulation is {micro_batches}: give a number that divides the {count} inputs"
        raise ParameterError(message)
