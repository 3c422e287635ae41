"""A language model scores fixed text; its distributions must agree with those of float64.

One step reads a batch of texts, every token of them given (teacher forcing), and returns the logits
of each next token and the token that the device holds the likeliest. Nothing is timed. Logits are
compared with a decoder of its own in float64 (`parts/language/decoder.py`); what they mean for text
by the mean divergence, the paired ratio of the perplexities and the share of likeliest tokens that
differ, against a processor that runs the same model in the same format
(`parts/language/divergence.py`). A product in a lower precision, quantised weights, a wrong
rotation or mask and texts in the wrong order would each be seen; one wrong token is seen by the
device's own logits.

With random weights every token would be all but equally likely, and the divergence of any two such
models next to nothing. So the model is first trained on the host, once per run and for some tens of
steps, on generated text that it must attend to predict (`parts/datasets/sentences.py`): a check
holds the float64 loss within `GAP` of the best that is possible, where an untrained one lies 2.3
nat above it. The weights are in the run's evidence by their digest, are rounded to the format that
is judged before either side gets them, and the reference reads them from the file.

Another engine (attention without a fused kernel, one text at a time) shows what healthy ones may
differ by (`calibration/llm_agreement.toml`). `LOGITS` allows more than three times the errors that
were seen, because they grow where a text is unlike what was learned.

In float32 everything is derived from the unit roundoff u: one rounding r is 9 u (`rounding`), the
divergence of errors of that size is r squared over 2 times the logits' mean square, and nine
times that (or nine times the processor's own) is allowed: about 4e-12 nat, 2e8 below the cap of
16 bits, so that one product in a lower precision anywhere is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.parts.datasets.sentences import Sentences
from workloads.parts.language.decoder import Shape, decode
from workloads.parts.language.divergence import Comparison, compare_distributions, log_chances
from workloads.parts.numerics.parameters import require_even_heads, require_positive
from workloads.parts.numerics.precision import compare_logits, dtype_named
from workloads.parts.numerics.size import count_inference_flops, count_parameters
from workloads.parts.numerics.weights import fill
from workloads.parts.training.optimizers import AdamW

LOGITS = 160.0
GAP = 1.0
THETA, EPSILON = 10_000.0, 1e-5
BATCH = 16
"""Texts of one training step."""
Tensors = Mapping[str, torch.Tensor]


@dataclass(kw_only=True)
class State:
    """`texts` stay on the host; `tokens` are all but the last of each, on the device."""

    model: torch.nn.Module
    texts: list[torch.Tensor]
    tokens: list[torch.Tensor]
    best: list[torch.Tensor]
    cycle: InputCycle
    weights: Path
    artifacts: Artifacts


@dataclass(kw_only=True)
class Scored:
    """Logits (text, position, vocabulary) and the likeliest tokens (text, position)."""

    logits: torch.Tensor
    tops: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class LlmAgreement(Workload[State, Scored]):
    """`texts` of `length` tokens are scored in one step, after `train_steps` of training."""

    summary: ClassVar[str] = "Language model scoring fixed text, distributions against float64"
    version: ClassVar[int] = 1
    domain: ClassVar[str] = "inference"
    small: ClassVar[Parameters] = {
        "vocabulary": 32,
        "hidden": 64,
        "intermediate": 128,
        "layers": 2,
        "texts": 128,
        "length": 64,
        "train_steps": 100,
    }
    is_timed: ClassVar[bool] = False
    data_pattern: ClassVar[str] = "generated text in which two tokens choose the next"

    vocabulary: int = 64
    hidden: int = 256
    intermediate: int = 688
    layers: int = 4
    heads: int = 4
    texts: int = 64
    length: int = 128
    train_steps: int = 120
    dtype: str = "bfloat16"
    num_inputs: int = 2

    def __post_init__(self) -> None:
        require_positive(self, "vocabulary", "hidden", "intermediate", "layers", "heads")
        require_positive(self, "texts", "length", "train_steps", "num_inputs")
        require_even_heads(self.hidden, self.heads)
        dtype_named(self.dtype)

    def work(self) -> Work:
        shapes = {"input_ids": (self.texts, self.length)}
        return Work(
            units=self.texts * self.length,
            unit="scored tokens",
            flops=count_inference_flops(self._model, shapes),
            precision=self.dtype,
        )

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            max_position_embeddings=self.length,
            rms_norm_eps=EPSILON,
            rope_parameters={"rope_type": "default", "rope_theta": THETA},
        )
        return LlamaForCausalLM(config)

    def build(self, target: Target, seed: int) -> State:
        language = Sentences(seed, self.vocabulary)
        texts = [language.draw(self.texts, self.length + 1) for _ in range(self.num_inputs)]
        weights = target.artifacts.once(
            "weights.pt", lambda path: torch.save(self._train(language, seed), path)
        )
        return State(
            model=self._load(weights).to(target.device),
            texts=texts,
            tokens=[some[:, :-1].to(target.device) for some in texts],
            best=[language.log_chances(some) for some in texts],
            cycle=InputCycle(of=self.num_inputs),
            weights=weights,
            artifacts=target.artifacts,
        )

    def _train(self, language: Sentences, seed: int) -> Tensors:
        """Weights in the format that is judged; trained on the host in float32."""
        model = self._model()
        fill(model, seed)
        rule = AdamW(learning_rate=0.08 * self.hidden**-0.5, warmup=10, steps=self.train_steps)
        optimizer = rule.make(model)
        for number in range(self.train_steps):
            for group in optimizer.param_groups:
                group["lr"] = rule.learning_rate_at(number)
            text = language.draw(BATCH, self.length + 1)
            logits = model(input_ids=text[:, :-1]).logits.flatten(0, 1)
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(logits, text[:, 1:].flatten()))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        dtype = dtype_named(self.dtype)
        return {name: weight.detach().to(dtype) for name, weight in model.named_parameters()}

    def _load(self, weights: Path) -> torch.nn.Module:
        """Build the model on the host with the weights of the file."""
        model: torch.nn.Module = self._model()
        model.to(dtype_named(self.dtype)).load_state_dict(torch.load(weights, weights_only=True))
        return model.eval()

    @torch.no_grad()
    def step(self, state: State) -> Scored:
        tokens = state.tokens[state.cycle.advance()]
        logits = state.model(input_ids=tokens, use_cache=False).logits
        return Scored(logits=logits, tops=logits.argmax(dim=-1))

    def check(self, before: object, state: State, output: Scored) -> Iterator[Check]:
        del before
        text = state.texts[state.cycle.index]
        shape = (self.texts, self.length)
        missing = int(output.tops.shape != shape) + int(
            output.logits.shape != (*shape, self.vocabulary)
        )
        yield Check(name="outputs of the wrong shape", error=missing, bound=0.0, kind="exact")
        if missing:
            return
        logits, tops = output.logits.detach().cpu(), output.tops.cpu()
        yield Check(
            name="tokens that are not the largest logit",
            error=_count_not_largest(logits, tops),
            bound=0.0,
            kind="exact",
        )
        exact, processor = self._references(state)
        loss = log_chances(exact, text[:, 1:]) - state.best[state.cycle.index]
        yield Check(
            name="loss in float64 over the best possible",
            error=-loss.mean().item(),
            bound=GAP,
            detects=GAP,
            detects_what="nat a token: a model that has not learned makes the other checks empty",
        )
        dtype = dtype_named(self.dtype)
        yield from compare_logits(logits, exact, unit_roundoffs=LOGITS, dtype=dtype)
        yield from compare_distributions(
            Comparison(
                output=logits, exact=exact, processor=processor, targets=text[:, 1:], dtype=dtype
            )
        )

    def _references(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the last step's texts in float64, and by a processor in the same format."""
        index = state.cycle.index

        def make(path: Path) -> None:
            tokens = state.texts[index][:, :-1]
            with torch.no_grad():
                processor = self._load(state.weights)(input_ids=tokens, use_cache=False).logits
            torch.save({"exact": self._exact(state.weights, tokens), "cpu": processor}, path)

        logits = torch.load(state.artifacts.once(f"logits-{index}.pt", make), weights_only=True)
        return logits["exact"], logits["cpu"]

    def _exact(self, weights: Path, tokens: torch.Tensor) -> torch.Tensor:
        shape = Shape(
            vocabulary=self.vocabulary,
            hidden=self.hidden,
            intermediate=self.intermediate,
            layers=self.layers,
            heads=self.heads,
            epsilon=EPSILON,
            theta=THETA,
        )
        tensors = torch.load(weights, weights_only=True)
        return decode(shape, lambda name, *_: tensors[name].double(), tokens, first=0)


def _count_not_largest(logits: torch.Tensor, tops: torch.Tensor) -> int:
    """Tokens outside of the vocabulary, or whose logit another one exceeds; NaN is never best."""
    is_known = (tops >= 0) & (tops < logits.shape[-1])
    chosen = logits.gather(-1, tops.where(is_known, 0)[..., None]).squeeze(-1)
    return int((~is_known | ~(chosen >= logits.amax(dim=-1))).sum())


WORKLOAD = LlmAgreement
