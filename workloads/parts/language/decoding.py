"""Greedy decoding of a Llama with a key-value cache, and its check; a workload gives the shape.

One step reads a prompt and generates `new_tokens` tokens, each from the cache of those before. The
check feeds the generated tokens to a decoder of its own in float64, which has no cache
(`parts/language/decoder.py`), and compares the logits of every generated position: a stale or
misplaced cache entry, a wrong rotation or mask and a product in a lower precision would each be
seen. Tokens must be the largest of the device's logits, and no worse in float64 than the logits'
bound leaves open.

A model of `LARGE` weights that computes in 16 bits is followed in float32 and not in float64, all
layers and all positions of it: that takes half of the time, and its roundings are a thousandth of
the device's or less. What they add up to in a layer is known: one layer, which seed and step draw,
is made in float64 as well, from what it was given in float32, and the two are compared.

Every sequence has its full length: the tokens that end a sequence are barred, as serving does
below a least number of tokens, and one that appears all the same is counted. So is every missing
and every surplus token, and all that is generated is the units that the rate counts.

Prompts and weights are drawn on the device (`parts/drawing/weights.py`), weights of the variance
that keeps signals the same size through all layers. Both are drawn again for the reference: what
the device holds of them is not believed.

`LOGITS` allows three to ten times what was measured of Llama 2's shape on a processor at small
size, with up to 32 layers and with a width of 1024: 10 roundings in float32 and 23 in bfloat16.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM

from appliance.generator.maps import integers
from appliance.records.journal import Check
from appliance.records.suite import Scenario
from appliance.records.workload import Bound, Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.auditing.selection import draw_number
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws, Wanted
from workloads.parts.drawing.weights import fill, weight
from workloads.parts.language.decoder import Shape, Stretch, decode, layer, layer_name
from workloads.parts.language.generated import (
    Generated,
    Tensors,
    bar,
    compare_choices,
    generate,
    known,
)
from workloads.parts.language.generation import Asked, Before, Generation
from workloads.parts.numerics.parameters import require_even_heads, require_positive
from workloads.parts.numerics.precision import compare_logits, dtype_named, rounding
from workloads.parts.numerics.size import count_parameters
from workloads.parts.numerics.threads import on_few_threads

LOGITS = 80.0
EPSILON = 1e-5
"""Of every normalisation."""
LARGE = 1_000_000_000
"""Weights from which on the reference of a model in 16 bits is made in float32."""
OWN_ERROR = 16.0
"""Roundings of float32 that a layer of the reference may be off."""
FEWEST_TOKENS = 8
"""That a brief step generates, beside what its prompt takes."""


@dataclass(kw_only=True)
class State(Asked):
    """`requests` are prompts (sequence, position)."""

    model: LlamaForCausalLM


@dataclass(frozen=True, kw_only=True)
class Decoding(Generation[State]):
    """A subclass says which tokens end a sequence, how positions turn, and what prompts are."""

    bound_by: ClassVar[Bound] = "memory"
    reference_name: ClassVar[str] = "first_decode_float64.pt"

    vocabulary: int = 32_000
    hidden: int = 4096
    intermediate: int = 11_008
    layers: int = 32
    heads: int = 32
    batch: int = 1
    prompt: int = 128
    new_tokens: int = 256
    dtype: str = "bfloat16"
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(self, "vocabulary", "hidden", "intermediate", "layers", "heads")
        require_positive(self, "batch", "prompt", "new_tokens", "num_inputs")
        require_even_heads(self.hidden, self.heads)
        dtype_named(self.dtype)

    @property
    @abstractmethod
    def theta(self) -> float:
        """Base of the rotations' frequencies."""

    @property
    def key_heads(self) -> int:
        """Heads of keys and values, each of which as many queries share."""
        return self.heads

    @property
    def stretch(self) -> Stretch | None:
        """How positions beyond those of training are reached, if they are."""
        return None

    def prompts(self, drawer: Drawer, index: int) -> torch.Tensor:
        """Draw the tokens (sequence, position) of an input set, where the drawer draws."""
        return drawer.tensor(*self.wanted(index))

    def wanted(self, index: int) -> Wanted:
        """The tokens that are drawn for an input set, uniform."""
        below, length = self.uniform
        shape = (self.batch, length)
        return f"prompts {index}", integers(0, below - 1), torch.int64, shape

    @property
    def uniform(self) -> tuple[int, int]:
        """Below what number the drawn tokens of a prompt are, and how many of each sequence."""
        return self.vocabulary, self.prompt

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.batch, self.new_tokens, self.vocabulary)

    @property
    def scenario(self) -> Scenario:
        return "single_stream" if self.batch == 1 else "offline"

    def work(self) -> Work:
        """Every pass reads all weights and the cache; the prompt is one pass for its tokens."""
        positions = self.prompt + self.new_tokens - 1
        narrow, projections = self._narrow, self._projections
        head = self.hidden * self.vocabulary
        attended = positions * (positions + 1) // 2
        flops = 2 * (projections * positions + head * self.new_tokens)
        flops += 4 * self.layers * self.hidden * attended
        cached = sum(range(self.prompt + 1, positions + 1))
        moved = (projections + head) * self.new_tokens
        moved += self.batch * 2 * self.layers * narrow * cached
        return Work(
            units=self.batch * self.new_tokens,
            unit="generated tokens",
            flops=self.batch * flops,
            bytes=moved * dtype_named(self.dtype).itemsize,
            precision=self.dtype,
        )

    @property
    def _narrow(self) -> int:
        """Width of the keys of all heads."""
        return self.key_heads * (self.hidden // self.heads)

    @property
    def _projections(self) -> int:
        """Weights of all layers' matrices."""
        width = 2 * self.hidden + 2 * self._narrow + 3 * self.intermediate
        return self.layers * self.hidden * width

    @property
    def reference_dtype(self) -> torch.dtype:
        """The format in which the reference is made."""
        is_long = self._projections + self.hidden * self.vocabulary >= LARGE
        is_short = dtype_named(self.dtype) is not torch.float32
        return torch.float32 if is_long and is_short else torch.float64

    def num_parameters(self) -> int:
        return count_parameters(lambda: LlamaForCausalLM(self._config()))

    def _config(self) -> LlamaConfig:
        rotations: dict[str, float | int | str] = {"rope_type": "default", "rope_theta": self.theta}
        if self.stretch is not None:
            rotations |= {
                "rope_type": "llama3",
                "factor": self.stretch.factor,
                "low_freq_factor": self.stretch.low,
                "high_freq_factor": self.stretch.high,
                "original_max_position_embeddings": self.stretch.original,
            }
        return LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_heads,
            max_position_embeddings=self._positions,
            rms_norm_eps=EPSILON,
            rope_parameters=rotations,
        )

    @property
    def _positions(self) -> int:
        """Most that the model is made for."""
        trained = 4096 if self.stretch is None else int(16 * self.stretch.original)
        return max(trained, self.prompt + self.new_tokens)

    def build(self, target: Target, seed: int) -> State:
        with target.device:
            model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                self._config(), dtype=dtype_named(self.dtype)
            ).eval()
        draws = Draws(target=target, seed=seed)
        draws.expect(self.wanted(index) for index in range(self.num_inputs))
        fill(model, draws)
        return State(
            model=model,
            requests=[self.prompts(draws, index) for index in range(self.num_inputs)],
            bar=bar(self.vocabulary, self.ends).to(target.device, dtype_named(self.dtype)),
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
            artifacts=target.artifacts,
        )

    @torch.no_grad()
    def step(self, state: State) -> Generated:
        prompt = state.requests[state.cycle.advance()]
        cache = DynamicCache(config=state.model.config)

        def forward(read: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = state.model(
                input_ids=read, past_key_values=cache, use_cache=True, logits_to_keep=1
            ).logits
            return logits

        return generate(forward, prompt, state.bar, self.new_tokens)

    def briefly(self, share: float) -> tuple[Self, str]:
        count = max(math.ceil(share * self.new_tokens), min(self.new_tokens, FEWEST_TOKENS))
        words = f"generates {count:,} of the {self.new_tokens:,} tokens after the same prompts"
        return replace(self, new_tokens=count), words

    def request(self, state: State, index: int) -> torch.Tensor:
        return self.prompts(HostDraws(seed=state.seed), index)

    def compare(self, before: Before, state: State, output: Generated) -> Iterator[Check]:
        size = sum(weight.nbytes for weight in state.model.parameters())
        with on_few_threads(size):
            yield from self._compare(before, state, output)

    def _compare(self, before: Before, state: State, output: Generated) -> Iterator[Check]:
        tokens = known(output.tokens, self.vocabulary)
        make = partial(self._decode, before, tokens, state.seed)
        made = self.reference(before, state, tokens, make)
        reference, dtype = made["logits"], dtype_named(self.dtype)
        against = str(self.reference_dtype).removeprefix("torch.")
        if "own_error" in made:
            yield self._check_own(made["own_error"].item(), self._drawn(before, state.seed))
        yield from compare_logits(
            output.logits, reference, unit_roundoffs=LOGITS, dtype=dtype, against=against
        )
        yield from compare_choices(
            tokens, reference, self.ends, unit_roundoffs=LOGITS, dtype=dtype, against=against
        )

    def _check_own(self, error: float, layer: int) -> Check:
        """How far the reference's drawn layer in float32 is off, over its norm."""
        bound = OWN_ERROR * rounding(torch.float32)
        return Check(
            name="a layer of the reference against float64",
            error=error,
            bound=bound,
            detects=bound,
            detects_what=f"error of layer {layer} of {self.layers} over the norm of what it adds: "
            "the reference is made in float32, and a layer that seed and step draw in float64 too",
        )

    def _drawn(self, before: Before, seed: int) -> int:
        """The layer that is made in float64 too."""
        return draw_number(seed + before.number, "layer", self.layers)

    def _decode(self, before: Before, tokens: torch.Tensor, seed: int) -> Tensors:
        """Logits of the generated positions, given the tokens before each.

        And `own_error` of the drawn layer, where they are not made in float64.
        """
        shape = self._shape()
        sequence = torch.cat((before.request, tokens[:, :-1]), dim=1)
        drawn = partial(self._weight, HostDraws(seed=seed), self.reference_dtype)
        if self.reference_dtype is torch.float64:
            return {"logits": decode(shape, drawn, sequence, first=self.prompt - 1)}
        errors = []

        def compare(name: str, given: torch.Tensor, made: torch.Tensor) -> None:
            if name == layer_name(self._drawn(before, seed)):
                exact = partial(self._weight, HostDraws(seed=seed), torch.float64)
                errors.append(_own_error(layer(shape, exact, given.double(), name), given, made))

        logits = decode(shape, drawn, sequence, first=self.prompt - 1, watch=compare)
        return {"logits": logits, "own_error": errors[0]}

    def _weight(
        self, drawer: HostDraws, reference: torch.dtype, name: str, *sizes: int
    ) -> torch.Tensor:
        """A weight as the device has it, in the format of the reference."""
        return weight(drawer, name, sizes, dtype_named(self.dtype)).to(reference)

    def _shape(self) -> Shape:
        return Shape(
            vocabulary=self.vocabulary,
            hidden=self.hidden,
            intermediate=self.intermediate,
            layers=self.layers,
            heads=self.heads,
            epsilon=EPSILON,
            theta=self.theta,
            shared_heads=self.key_heads,
            stretch=self.stretch,
        )


def _own_error(exact: torch.Tensor, given: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Norm of a layer's error over that of what it adds to what it was given."""
    error: torch.Tensor = (made.double() - exact).norm() / (exact - given.double()).norm()
    return error
