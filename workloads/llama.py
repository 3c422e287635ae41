"""Llama decoding: greedy generation with a key-value cache, bound by memory at batch 1.

One step reads a prompt and generates `new_tokens` tokens, each from the cache of those before.
The check feeds the generated tokens to a decoder of its own in float64, which has no cache
(`parts/decoder.py`), and compares the logits of every generated position: a stale or misplaced
cache entry, a wrong rotation or mask and a product in a lower precision would each be seen.
Tokens must be the largest of the device's logits, and no worse in float64 than the logits'
bound leaves open.

Every sequence has its full length: the token that ends a sequence is barred, as serving does
below a least number of tokens, and one that appears all the same is counted. So is every missing
and every surplus token, and all that is generated is the units that the rate counts.

Weights are random, of the variance that keeps signals the same size through all layers, and
are drawn again for the reference: what the device holds of them is not believed.

`LOGITS` allows three to ten times what was measured on a processor at small size, with up to 32
layers and with a width of 1024: 10 roundings in float32 and 23 in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, LlamaForCausalLM

from appliance.records import Bound, Check, CheckKind, Scenario, Work
from workloads.contract import Artifacts, ParameterError, Target, Turn, Workload
from workloads.parts.decoder import Shape, decode
from workloads.parts.parameters import require_even_heads, require_positive
from workloads.parts.precision import compare_logits, dtype_named, on_host, rounding
from workloads.parts.size import count_parameters
from workloads.parts.weights import draw, fill

LOGITS = 80.0
THETA, EPSILON = 10_000.0, 1e-5
END = 2
"""Llama's token that ends a sequence."""


@dataclass(kw_only=True)
class State:
    """`bar` is added to logits before one is chosen: minus infinity for `END`, else zero."""

    model: LlamaForCausalLM
    prompts: list[torch.Tensor]
    bar: torch.Tensor
    turn: Turn
    seed: int
    artifacts: Artifacts


@dataclass(kw_only=True)
class Generated:
    """New tokens (sequence, position) and the logits (..., vocabulary) that chose them."""

    tokens: torch.Tensor
    logits: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Before:
    number: int
    prompt: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Llama(Workload[State, Generated]):
    summary: ClassVar[str] = "Llama-2-7B shape, greedy decoding with a key-value cache"
    version: ClassVar[int] = 2
    small: ClassVar[Mapping[str, bool | int | float | str]] = {
        "vocabulary": 1000,
        "hidden": 256,
        "intermediate": 688,
        "layers": 3,
        "heads": 4,
        "prompt": 32,
        "new_tokens": 24,
        "dtype": "float32",
    }
    bound_by: ClassVar[Bound] = "memory"
    data_pattern: ClassVar[str] = "uniformly random tokens"

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
        if self.vocabulary <= END + 1:
            message = f"vocabulary is {self.vocabulary}: give {END + 2} or more"
            raise ParameterError(message)
        require_even_heads(self.hidden, self.heads)
        dtype_named(self.dtype)

    @property
    def scenario(self) -> Scenario:
        return "single_stream" if self.batch == 1 else "offline"

    def work(self) -> Work:
        """Every pass reads all weights and the cache; the prompt is one pass for its tokens."""
        positions = self.prompt + self.new_tokens - 1
        projections = self.layers * self.hidden * (4 * self.hidden + 3 * self.intermediate)
        head = self.hidden * self.vocabulary
        attended = positions * (positions + 1) // 2
        flops = 2 * (projections * positions + head * self.new_tokens)
        flops += 4 * self.layers * self.hidden * attended
        cached = sum(range(self.prompt + 1, positions + 1))
        moved = (projections + head) * self.new_tokens
        moved += self.batch * 2 * self.layers * self.hidden * cached
        return Work(
            units=self.batch * self.new_tokens,
            unit="generated tokens",
            flops=self.batch * flops,
            bytes=moved * dtype_named(self.dtype).itemsize,
            precision=self.dtype,
        )

    def num_parameters(self) -> int:
        return count_parameters(lambda: LlamaForCausalLM(self._config()))

    def _config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            max_position_embeddings=max(4096, self.prompt + self.new_tokens),
            rms_norm_eps=EPSILON,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
        )

    def build(self, target: Target, seed: int) -> State:
        with target.device:
            model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                self._config(), dtype=dtype_named(self.dtype)
            ).eval()
        fill(model, seed)
        rng = torch.Generator().manual_seed(seed)
        shape = (self.batch, self.prompt)
        return State(
            model=model,
            prompts=[
                torch.randint(self.vocabulary, shape, generator=rng).to(target.device)
                for _ in range(self.num_inputs)
            ],
            bar=_bar(self.vocabulary).to(target.device, dtype_named(self.dtype)),
            turn=Turn(of=self.num_inputs),
            seed=seed,
            artifacts=target.artifacts,
        )

    @torch.no_grad()
    def step(self, state: State) -> Generated:
        read = state.prompts[state.turn.advance()]
        cache = DynamicCache(config=state.model.config)
        tokens, logits = [], []
        for _ in range(self.new_tokens):
            result = state.model(
                input_ids=read, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            logits.append(result.logits)
            read = (result.logits + state.bar).argmax(dim=-1)
            tokens.append(read)
        return Generated(tokens=torch.cat(tokens, dim=1), logits=torch.cat(logits, dim=1))

    def snapshot(self, state: State) -> Before:
        number = state.turn.number + 1
        return Before(number=number, prompt=state.prompts[number % state.turn.of].cpu().clone())

    def check(self, before: object, state: State, output: Generated) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        tokens, logits = output.tokens.cpu(), on_host(output.logits)
        shape = (self.batch, self.new_tokens)
        missing = abs(tokens.numel() - self.batch * self.new_tokens)
        if tokens.shape != shape or logits.shape != (*shape, self.vocabulary):
            missing = max(missing, 1)
        yield Check(name="tokens missing or too many", error=missing, bound=0.0, kind="exact")
        if missing:
            return  # nothing else can be compared
        yield _count("tokens that end a sequence too early", tokens == END)
        is_known = (tokens >= 0) & (tokens < self.vocabulary)
        yield _count("tokens outside the vocabulary", ~is_known)
        tokens = tokens.where(is_known, 0)
        bar = _bar(self.vocabulary)
        largest = (logits + bar).amax(2, keepdim=True)
        chosen = logits.gather(2, tokens[..., None])
        yield _count("tokens that are not the largest logit", ~(chosen >= largest))
        reference = self._reference(before, state, tokens)
        dtype = dtype_named(self.dtype)
        yield from compare_logits(output.logits, reference, growth=LOGITS, dtype=dtype)
        size = reference.square().mean().sqrt()
        best = (reference + bar).amax(2, keepdim=True)
        lost = best - reference.gather(2, tokens[..., None])
        is_worse = lost > 2 * LOGITS * rounding(dtype) * size
        yield _count("tokens that float64 would not choose", is_worse, "numeric")

    def _reference(self, before: Before, state: State, tokens: torch.Tensor) -> torch.Tensor:
        """Float64 logits of the generated positions, given the tokens before each.

        Those of the first step are made once per run; a launch that chose other tokens, where
        two logits all but tie, has them computed for its own.
        """
        if before.number > 0:
            return self._decode(before.prompt, tokens, state.seed)

        def make(path: Path) -> None:
            logits = self._decode(before.prompt, tokens, state.seed)
            torch.save({"tokens": tokens, "logits": logits}, path)

        kept = torch.load(state.artifacts.once("first_decode_float64.pt", make), weights_only=True)
        if not torch.equal(kept["tokens"], tokens):
            return self._decode(before.prompt, tokens, state.seed)
        logits: torch.Tensor = kept["logits"]
        return logits

    def _decode(self, prompt: torch.Tensor, tokens: torch.Tensor, seed: int) -> torch.Tensor:
        shape = Shape(
            vocabulary=self.vocabulary,
            hidden=self.hidden,
            intermediate=self.intermediate,
            layers=self.layers,
            heads=self.heads,
            epsilon=EPSILON,
            theta=THETA,
        )

        def weight(name: str, *sizes: int) -> torch.Tensor:
            return draw(name, sizes, seed).to(dtype_named(self.dtype)).double()

        sequence = torch.cat((prompt, tokens[:, :-1]), dim=1)
        return decode(shape, weight, sequence, first=self.prompt - 1)


def _bar(vocabulary: int) -> torch.Tensor:
    """Add this to logits, and the token that ends a sequence is never the largest."""
    return torch.zeros(vocabulary).index_fill_(0, torch.tensor(END), -torch.inf)


def _count(name: str, is_wrong: torch.Tensor, kind: CheckKind = "exact") -> Check:
    return Check(name=name, error=int(is_wrong.sum()), bound=0.0, kind=kind)


WORKLOAD = Llama
