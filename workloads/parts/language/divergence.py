"""How far a language model's distributions are from exact ones, and what a format may cost.

Two models that were given the same text are compared token by token, so that what the text is
like cancels: the mean divergence, the ratio of the perplexities, and the tokens that each holds
the likeliest. A divergence goes with the square of an error, and no constant bounds it for every
model; so a processor that computes in the same format is the yardstick, and no vendor's device is.

In 16-bit formats the rounding of what is stored decides, and is the same everywhere: three times
the processor's divergence is allowed, and never more than what separates 16-bit weights from
8-bit ones in real models. In float32 the order of sums decides, and may differ: an error ratio
of 3 is allowed, which is 9 in the divergence, and no cap is needed but what the bound of the
logits leaves. With e the error of a logit, divergence is half the variance of e over the
distribution: at most half the square of the largest e.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from appliance.records.journal import Check
from workloads.parts.numerics.precision import on_host, rounding

CAP = 1e-3
"""Nat, for 16-bit formats: of the mean divergence, and of the mean log perplexity ratio."""
OTHER_TOPS, OTHER_TOPS_FLOAT32 = 0.015, 1e-3
"""Share of tokens whose likeliest successor may be another one."""
RATIO, RATIO_FLOAT32 = 3.0, 9.0
DEVIATIONS = 6.0
DECISIVE = 4.0
"""Times the largest error of the processor's logits: a lead that no rounding overturns."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Logits (text, position, vocabulary) of three engines for the same texts.

    `exact` is float64's, `processor` that of a processor in the dtype of `output`; `targets`
    (text, position) are the tokens that came next.
    """

    output: torch.Tensor
    exact: torch.Tensor
    processor: torch.Tensor
    targets: torch.Tensor
    dtype: torch.dtype


def divergence(logits: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence of each distribution from its exact one, in nat.

    Summed as q (d + exp(-d) - 1) with d = ln q - ln p, whose terms are never negative: the sum
    of q d loses to cancellation what float32 makes.
    """
    log_q = on_host(logits).log_softmax(dim=-1)
    distance = log_q - on_host(exact).log_softmax(dim=-1)
    return (log_q.exp() * (distance + torch.expm1(-distance))).sum(dim=-1)


def compare_distributions(compared: Comparison) -> Iterator[Check]:
    """Judge the divergence, the perplexity and the likeliest tokens."""
    exact, dtype = compared.exact, compared.dtype
    is_float32 = dtype is torch.float32
    yardstick = divergence(compared.processor, exact).mean().item()
    least = (rounding(dtype) * exact.square().mean().sqrt().item()) ** 2 / 2
    allowed = (RATIO_FLOAT32 if is_float32 else RATIO) * max(yardstick, least)
    bound = allowed if is_float32 else min(CAP, allowed)
    yield Check(
        name="mean divergence from float64",
        error=divergence(compared.output, exact).mean().item(),
        bound=bound,
        detects=bound,
        detects_what=f"nat a token; a processor in this format makes {yardstick:.2g}",
    )
    yield _compare_perplexities(compared, bound)
    yield from _compare_tops(compared)


def _compare_perplexities(compared: Comparison, divergence_bound: float) -> Check:
    """Paired, so that the text's own luck cancels.

    The variance of one token's term is twice the divergence, and its mean the divergence; terms
    of like contexts are alike, so that `DEVIATIONS` of their mean are allowed, under the cap.
    """
    terms = log_chances(compared.exact, compared.targets)
    terms = terms - log_chances(compared.output, compared.targets)
    bound = divergence_bound + DEVIATIONS * (2 * divergence_bound / terms.numel()) ** 0.5
    if compared.dtype is not torch.float32:
        bound = CAP
    return Check(
        name="mean log of the perplexity ratio",
        error=terms.mean().abs().item(),
        bound=bound,
        detects=bound,
        detects_what=f"relative change of the perplexity, of {terms.numel()} tokens",
    )


def log_chances(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log of the chance that each distribution gives to the token that came."""
    return on_host(logits).log_softmax(dim=-1).gather(-1, targets[..., None]).squeeze(-1)


def _compare_tops(compared: Comparison) -> Iterator[Check]:
    exact = compared.exact
    tops = on_host(compared.output).argmax(dim=-1)
    is_other = tops != exact.argmax(dim=-1)
    bound = OTHER_TOPS_FLOAT32 if compared.dtype is torch.float32 else OTHER_TOPS
    yield Check(
        name="share of tokens with another likeliest successor",
        error=is_other.double().mean().item(),
        bound=bound,
        detects=bound,
        detects_what=f"share of {tops.numel()} tokens",
    )
    first, second = exact.topk(2, dim=-1).values.unbind(dim=-1)
    lead = DECISIVE * (on_host(compared.processor) - exact).abs().max().item()
    yield Check(
        name="other likeliest successors where float64's lead is decisive",
        error=int((is_other & (first - second > lead)).sum()),
        bound=0.0,
        kind="exact",
        detects=lead,
        detects_what="lead in float64's logits from which one other token would have been seen",
    )
