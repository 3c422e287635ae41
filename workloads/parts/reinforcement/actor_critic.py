"""A policy and a value model of one language model's kind, and the loss of both.

The loss is that of proximal policy optimisation (Schulman et al., 2017) over the tokens of
responses: ratios of probabilities and values are clipped about what they were when the response was
drawn, and advantages are put to mean nought and variance one. This is what is timed; the same in
float64 is `parts/reinforcement/reinforcement.py`.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import GPTNeoXForCausalLM, GPTNeoXForSequenceClassification

_LEAST_SPREAD = 1e-8


class Forgetful:
    """In the place of a cache: keeps nothing.

    Without a cache, the library looks at its positions to find out whether texts are packed, and
    waits for the device in every pass.
    """

    is_sliding = (False,)
    is_compileable = False

    def get_seq_length(self, layer: int = 0) -> int:
        del layer
        return 0

    def get_query_offset(self, layer: int = 0) -> int:
        del layer
        return 0

    def get_mask_sizes(self, length: int, layer: int) -> tuple[int, int]:
        """Keys that are seen, and where they begin."""
        del layer
        return length, 0

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        del layer
        return keys, values


def logits_of(policy: GPTNeoXForCausalLM, tokens: torch.Tensor, response: int) -> torch.Tensor:
    """Logits (rows, response, vocabulary) that draw the last `response` tokens."""
    seen = tokens[:, :-1]
    output = policy(
        input_ids=seen, past_key_values=Forgetful(), use_cache=False, logits_to_keep=response
    )
    logits: torch.Tensor = output.logits
    return logits


def log_probs_of(logits: torch.Tensor, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
    """Log-probabilities (rows, positions) of the tokens that were drawn, in float32 at least."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shares = (precise * (1 / temperature)).log_softmax(dim=-1)
    return shares.gather(-1, tokens[..., None])[..., 0]


def scores_of(model: GPTNeoXForSequenceClassification, tokens: torch.Tensor) -> torch.Tensor:
    """What a model says after each token, (rows, positions), in float32 at least."""
    output = model.gpt_neox(input_ids=tokens, past_key_values=Forgetful(), use_cache=False)
    scores: torch.Tensor = model.score(output.last_hidden_state)[..., 0]
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


class ActorCritic(nn.Module):
    """The two that learn. Responses are the last `response` tokens of a row."""

    def __init__(
        self,
        policy: GPTNeoXForCausalLM,
        value: GPTNeoXForSequenceClassification,
        *,
        response: int,
        temperature: float,
        clip: float,
        value_weight: float,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.value = value
        self.response = response
        self.temperature = temperature
        self.clip = clip
        self.value_weight = value_weight

    def heads(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities of the response's tokens, and the value of what each follows."""
        logits = logits_of(self.policy, tokens, self.response)
        log_probs = log_probs_of(logits, tokens[:, -self.response :], self.temperature)
        return log_probs, self.values(tokens)

    def values(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the response is worth before each of its tokens."""
        return scores_of(self.value, tokens[:, :-1])[:, -self.response :]

    def forward(
        self,
        tokens: torch.Tensor,
        log_probs: torch.Tensor,
        values: torch.Tensor,
        advantages: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss, and what the two now say: (rows, response, 2).

        `log_probs`, `values` and `advantages` (rows, response) are those of the rollout.
        """
        now, worth = self.heads(tokens)
        gain = (advantages - advantages.mean()) / (advantages.std() + _LEAST_SPREAD)
        ratio = (now - log_probs).exp()
        held = ratio.clamp(1 - self.clip, 1 + self.clip)
        policy = torch.maximum(-gain * ratio, -gain * held).mean()
        returns = advantages + values
        near = values + (worth - values).clamp(-self.clip, self.clip)
        wrong = torch.maximum((worth - returns).square(), (near - returns).square())
        loss = policy + self.value_weight * 0.5 * wrong.mean()
        return loss, torch.stack((now, worth), dim=-1)
