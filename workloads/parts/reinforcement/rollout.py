"""Responses of a policy to prompts, and what each of their tokens was worth.

A response is drawn token by token from the cache of those before. The noise that draws is made
before the step and added to the logits (`parts/drawing/gumbel.py`): so whoever knows the noise can
tell from logits in float64 which tokens may have been drawn. No token ends a response, so that all
have the same length and none of it is padding.

A frozen model gives each response a score; each token pays for what it is likelier now than it was
to the frozen model that the policy began as.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import DynamicCache, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification

from appliance.generator.maps import integers
from workloads.parts.drawing import gumbel
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.reinforcement.actor_critic import (
    ActorCritic,
    log_probs_of,
    logits_of,
    scores_of,
)


@dataclass(kw_only=True)
class Rollout:
    """`tokens` (rows, prompt and response), `logits` (rows, response, vocabulary).

    `scores` (rows,), all others (rows, response).
    """

    tokens: torch.Tensor
    logits: torch.Tensor
    log_probs: torch.Tensor
    reference_log_probs: torch.Tensor
    values: torch.Tensor
    scores: torch.Tensor
    rewards: torch.Tensor
    advantages: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a step further off is worth, and what a token pays for being likelier than it was."""

    discount: float
    trace: float
    penalty: float


def drawn_prompts(
    drawer: Drawer, name: str, *, rows: int, prompt: int, response: int, vocabulary: int
) -> dict[str, torch.Tensor]:
    """Uniformly random prompts, and noise (rows, response, vocabulary), where the drawer draws.

    `name` tells them from others of the drawer.
    """
    tokens, shape = integers(0, vocabulary - 1), (rows, prompt)
    return {
        "prompts": drawer.tensor(f"prompts {name}", tokens, torch.int64, shape),
        "noise": gumbel.noise(drawer, f"noise {name}", (rows, response, vocabulary)),
    }


@torch.no_grad()
def respond(
    policy: GPTNeoXForCausalLM, prompts: torch.Tensor, noise: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (rows, prompt and response) and the logits that drew those of the response."""
    cache = DynamicCache(config=policy.config)
    read, tokens, logits = prompts, [prompts], []
    for position in range(noise.shape[1]):
        output = policy(input_ids=read, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits.append(output.logits)
        read = noised(output.logits, noise[:, position : position + 1], temperature).argmax(dim=-1)
        tokens.append(read)
    return torch.cat(tokens, dim=1), torch.cat(logits, dim=1)


def noised(logits: torch.Tensor, noise: torch.Tensor, temperature: float) -> torch.Tensor:
    """Numbers of which the largest is drawn.

    By a product and a sum that are both rounded, so that every machine makes the same of the same.
    """
    return logits.to(noise.dtype) * (1 / temperature) + noise


@torch.no_grad()
def judged(
    model: ActorCritic,
    reference: GPTNeoXForCausalLM,
    reward: GPTNeoXForSequenceClassification,
    drawn: tuple[torch.Tensor, torch.Tensor],
    terms: Terms,
) -> Rollout:
    """What `respond` drew, with scores, penalties and advantages; in the dtype of each model."""
    tokens, logits = drawn
    own = tokens[:, -model.response :]
    log_probs = log_probs_of(logits, own, model.temperature)
    values = model.values(tokens)
    reference_logits = logits_of(reference, tokens, model.response)
    expected = log_probs_of(reference_logits, own, model.temperature)
    scores = scores_of(reward, tokens)[:, -1]
    rewards = -terms.penalty * (log_probs - expected)
    rewards[:, -1] += scores
    return Rollout(
        tokens=tokens,
        logits=logits,
        log_probs=log_probs,
        reference_log_probs=expected,
        values=values,
        scores=scores,
        rewards=rewards,
        advantages=_advantages(rewards, values, terms),
    )


def _advantages(rewards: torch.Tensor, values: torch.Tensor, terms: Terms) -> torch.Tensor:
    """Generalised advantages (Schulman et al., 2016); nothing follows the last token."""
    advantages, running = [], torch.zeros_like(rewards[:, 0])
    following = torch.zeros_like(running)
    for position in reversed(range(rewards.shape[1])):
        surprise = rewards[:, position] + terms.discount * following - values[:, position]
        running = surprise + terms.discount * terms.trace * running
        following = values[:, position]
        advantages.append(running)
    return torch.stack(advantages[::-1], dim=1)
