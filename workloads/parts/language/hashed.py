"""Reformer whose steps can be repeated: hashed attention and reversible layers without chance.

Two things of the library's Reformer cannot be followed. Its hashed attention draws the planes of
its hash anew at every call, from the device's own generator: here each layer has planes of its
own, drawn with its weights and kept, so that float64 hashes as the device did. Where a vector
lies between two buckets up to a rounding, float64 takes the device's (`parts/training`).

And its reversible layers, which keep no activation and make each anew in the backward pass, seed
the generators of the whole process, and make anew in float32 whatever the forward pass had
computed in. Here there is no dropout, so nothing is seeded, and what is made anew is computed in
the format in which it was first made. All else of the layers is the library's.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from transformers import ReformerConfig, ReformerForMaskedLM
from transformers.models.reformer.modeling_reformer import (
    LSHSelfAttention,
    ReformerBackwardOutput,
    ReformerLayer,
)

from workloads.parts.auditing.choices import Choice
from workloads.parts.numerics.initial import scaled


def reformer(config: ReformerConfig) -> ReformerForMaskedLM:
    """Return the model with weights and planes from torch's own generator.

    Embeddings are drawn as large as the library draws positions: at its 0.02 no token would
    show beside them. The head's bias stays as it is, since the library uses it nowhere.
    """
    model = ReformerForMaskedLM(config)
    scaled(model)
    torch.nn.init.normal_(model.reformer.embeddings.word_embeddings.weight)
    model.lm_head.bias.requires_grad_(requires_grad=False)
    layers: Any = model.reformer.encoder.layers
    for layer in layers:
        layer.__class__ = Repeatable
        attention = layer.attention.self_attention
        if isinstance(attention, LSHSelfAttention):
            attention.__class__ = FixedHashes
            attention.register_buffer("planes", _planes(config), persistent=False)
    return model


def _planes(config: Any) -> torch.Tensor:
    shape = (config.num_attention_heads, config.attention_head_size, config.num_hashes)
    return torch.randn(*shape, config.num_buckets // 2)


class FixedHashes(LSHSelfAttention):
    """Hashed attention whose planes (head, element, hash, half of the buckets) do not change."""

    planes: torch.Tensor
    choice: Choice | None = None

    def _hash_vectors(
        self, vectors: torch.Tensor, num_hashes: int, *_: object, **__: object
    ) -> torch.Tensor:
        """Buckets of vectors (input, head, position, element), hash after hash."""
        turned = torch.einsum("bmtd,mdhr->bmhtr", vectors.detach(), self.planes.to(vectors.dtype))
        sides = torch.cat([turned, -turned], dim=-1)
        buckets = torch.argmax(sides, dim=-1) if self.choice is None else self.choice.of(sides)
        numbered: torch.Tensor = buckets + self._first_of(num_hashes, vectors.device)
        return numbered.flatten(start_dim=2)

    def _first_of(self, num_hashes: int, device: torch.device) -> torch.Tensor:
        """Number of the first bucket of each hash (hash, 1)."""
        first: torch.Tensor = torch.arange(num_hashes, device=device)[:, None] * self.num_buckets
        return first

    def chosen(self, made: Any) -> torch.Tensor | None:
        """The buckets (input, head, hash, position) that a call found, numbered within a hash."""
        if made.buckets is None:
            return None
        buckets: torch.Tensor = made.buckets
        return buckets - self._first_of(buckets.shape[2], buckets.device)


class Repeatable(ReformerLayer):
    """A reversible layer that draws nothing, and goes back in the format in which it came."""

    def _init_attention_seed(self) -> None:
        """Draw no seed; called where the forward pass begins, whose format is kept."""
        kind = next(self.parameters()).device.type
        is_mixed = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        self.mixed = (kind, torch.get_autocast_dtype(kind)) if is_mixed else None

    def _init_feed_forward_seed(self) -> None:
        """Draw no seed."""

    def backward_pass(  # noqa: PLR0917 - the library's
        self,
        next_attn_output: torch.Tensor,
        hidden_states: torch.Tensor,
        grad_attn_output: torch.Tensor,
        grad_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        buckets: torch.Tensor | None = None,
    ) -> ReformerBackwardOutput:
        """Go from what the layer made to what it was given, with the gradients of both streams.

        The layer made Y1 = X1 + f(X2) and Y2 = X2 + g(Y1); so X2 is Y2 - g(Y1), X1 is Y1 - f(X2).
        """

        def mix(values: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.attention(
                hidden_states=values, attention_mask=attention_mask, buckets=buckets
            ).hidden_states
            return mixed

        fed, slope = self._back(self.feed_forward, next_attn_output, grad_hidden_states)
        grad_attn_output, hidden_states = grad_attn_output + slope, hidden_states - fed
        mixed, slope = self._back(mix, hidden_states, grad_attn_output)
        return ReformerBackwardOutput(
            attn_output=next_attn_output - mixed,
            hidden_states=hidden_states,
            grad_attn_output=grad_attn_output,
            grad_hidden_states=grad_hidden_states + slope,
        )

    def _back(self, make: Any, values: torch.Tensor, slope: torch.Tensor) -> tuple[Any, Any]:
        """Make anew what came of `values`, and the gradient of `values` given that of it."""
        inputs = values.detach().requires_grad_()
        mixed = torch.autocast(*self.mixed) if self.mixed else nullcontext()
        with torch.enable_grad(), mixed:
            outputs = make(inputs)
        torch.autograd.backward(outputs, slope.to(outputs.dtype))
        return outputs.detach(), inputs.grad
