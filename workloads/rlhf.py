"""RLHF: a language model answers, is scored, and learns to score better.

A step draws responses of a GPT-NeoX policy to prompts, with a key-value cache; scores them by a
frozen reward model, less a penalty for leaving the frozen model that it began as; and makes several
updates of policy and value model by proximal policy optimisation with AdamW. All four are of the
shape of Pythia-1B; the value model begins as the reward model. Its unit is a token of a response:
prompts are not counted, and as no token ends a response there is no padding.

First weights, prompts and the noise that draws tokens are drawn on the device; the frozen models
are held to what learns, as it was when the generator had drawn it. Tokens, all log-probabilities,
scores and values are held to float64 without a cache; rewards, advantages, losses and all updates
to their formulas; the gradients of the first and the last update to float64
(`parts/reinforcement/feedback.py`). A stale response, a swapped reward, a penalty of the wrong
sign, a value model that stands still, half a batch and a lower precision would each be seen.

A step of more operations than float64 follows in its time is sampled: the models are recomputed on
`FOLLOWED` drawn responses, and the first and the last update run once more with every module held
to float64 alone. Each check says with what probability a fault of one response alone is seen.

`ERROR_BOUNDS` allows three times what was measured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.contract.workload import Workload
from workloads.parts.auditing.sampling import Plan, Sampling, beyond, never
from workloads.parts.distributed.sharding import num_batches, require_parallel
from workloads.parts.drawing.drawn import Drawer, Draws
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.numerics import initial
from workloads.parts.numerics.parameters import require_choice, require_positive
from workloads.parts.numerics.precision import dtype_named
from workloads.parts.numerics.size import count_parameters
from workloads.parts.reinforcement import feedback
from workloads.parts.reinforcement.actor_critic import ActorCritic
from workloads.parts.reinforcement.feedback import Before, Learned, PolicyErrorBounds
from workloads.parts.reinforcement.rollout import Terms, drawn_prompts, judged, respond
from workloads.parts.training.bounds import ErrorBounds
from workloads.parts.training.inputs import DrawnInputs, DrawnSets, Tensors, of_rank
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Model, Training, begin_training, seeded
from workloads.parts.training.step import train_step

ERROR_BOUNDS = PolicyErrorBounds(logits=40, scores=40, gradients=16)
ACTIVATIONS = ("gelu", "silu")
FOLLOWED = 2
"""Responses that float64 follows through all models, of a step too long for all."""
ROTATED = 4
"""Of so many numbers of a head, one is rotated, and these in pairs."""


@dataclass(kw_only=True)
class State:
    """`inputs` are the prompts and the noise; the batches of the training are minibatches."""

    training: Training
    model: ActorCritic
    reference: GPTNeoXForCausalLM
    reward: GPTNeoXForSequenceClassification
    inputs: DrawnSets
    checksums: Mapping[str, int]
    cycle: InputCycle
    seed: int


@dataclass(frozen=True, kw_only=True)
class Rlhf(Workload[State, Learned]):
    """`batch` responses are learned `epochs` times, in `minibatches` each.

    `discount`, `trace`, `clip`, `value_weight` and `penalty` are those of the algorithm;
    `temperature` divides the logits. `batch_change` and `extra_layers` are added to `batch` and
    `layers`.
    """

    summary: ClassVar[str] = "RLHF by proximal policy optimisation, Pythia-1B"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "batch": 8,
        "prompt": 8,
        "response": 8,
        "vocabulary": 256,
        "hidden": 64,
        "intermediate": 256,
        "layers": 2,
        "heads": 4,
        "epochs": 2,
        "minibatches": 2,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "random prompts, and responses that the policy draws"
    domain: ClassVar[str] = "reinforcement learning from human feedback"
    variants: ClassVar[Mapping[str, Parameters]] = {
        "two prompts less": {"batch_change": -2},
        "one layer more": {"extra_layers": 1},
        "silu": {"activation": "silu"},
        "three epochs": {"epochs": 3},
        "dearer to leave": {"penalty": 0.2},
    }

    batch: int = 64
    prompt: int = 64
    response: int = 53
    vocabulary: int = 50_304
    hidden: int = 2048
    intermediate: int = 8192
    layers: int = 16
    heads: int = 8
    activation: str = "gelu"
    epochs: int = 4
    minibatches: int = 1
    temperature: float = 0.7
    discount: float = 1.0
    trace: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.1
    penalty: float = 0.05
    learning_rate: float = 3e-6
    dtype: str = "bfloat16"
    batch_change: int = 0
    extra_layers: int = 0
    num_inputs: int = 2
    ranks: int = 1
    parallel: str = "none"

    def __post_init__(self) -> None:
        require_positive(self, "batch", "prompt", "response", "vocabulary", "hidden", "layers")
        require_positive(self, "intermediate", "heads", "epochs", "minibatches", "num_inputs")
        if self.hidden % (2 * ROTATED * self.heads):
            message = f"hidden is {self.hidden}: give a multiple of {2 * ROTATED} times heads"
            raise ParameterError(f"{message}, {2 * ROTATED * self.heads}")
        if self._rows < 1 or self._rows % self.minibatches:
            message = f"minibatches is {self.minibatches}: give a divisor of {self._rows},"
            raise ParameterError(f"{message} the responses of a step")
        if self._rows // self.minibatches * self.response < 2:  # noqa: PLR2004 - to have a spread
            raise ParameterError(f"response is {self.response}: give 2 tokens a minibatch or more")
        for name in ("temperature", "clip", "learning_rate"):
            if not 0 < getattr(self, name) < np.inf:
                raise ParameterError(f"{name} is {getattr(self, name)}: give more than 0")
        for name in ("discount", "trace", "value_weight", "penalty"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ParameterError(f"{name} is {getattr(self, name)}: give 0 or more")
        require_choice("activation", self.activation, ACTIVATIONS)
        dtype_named(self.dtype)
        require_parallel(self.ranks, self.parallel)
        if self.parallel not in {"none", "ddp"}:
            raise ParameterError(f"parallel is {self.parallel}: give ddp, or none to train alone")

    @property
    def _rows(self) -> int:
        return self.batch + self.batch_change

    @property
    def updates(self) -> int:
        """Updates of one step."""
        return self.epochs * self.minibatches

    @property
    def terms(self) -> Terms:
        return Terms(discount=self.discount, trace=self.trace, penalty=self.penalty)

    @property
    def rule(self) -> AdamW:
        return AdamW(learning_rate=self.learning_rate, decay=0.0)

    # ------------------------------------------------------------------ size

    def work(self) -> Work:
        """Response tokens; drawing them, what they were worth, and the updates."""
        batches, length = num_batches(self.ranks, self.parallel), self.prompt + self.response
        both = self._pass_flops(length - 1, self._head) + self._pass_flops(length - 1, length - 1)
        # Reference and value are one pass each, of an epoch three, and the reward sees the end too.
        flops = (1 + 3 * self.epochs) * both + self._pass_flops(length, length)
        return Work(
            units=batches * self._rows * self.response,
            unit="response tokens",
            flops=batches * (flops + self._drawing_flops()),
            precision=self.dtype,
        )

    @property
    def _head(self) -> int:
        """Rows of the matrix that makes logits, times the positions that have them."""
        return self.vocabulary * self.response

    def _products(self, positions: int) -> int:
        """Operations of all linear layers but a model's last."""
        layers = self.layers + self.extra_layers
        return 2 * layers * self.hidden * (4 * self.hidden + 2 * self.intermediate) * positions

    def _pass_flops(self, length: int, head: int) -> int:
        """One pass over a whole batch, without a cache."""
        attended = 4 * (self.layers + self.extra_layers) * self.hidden * length**2
        return self._rows * (self._products(length) + attended + 2 * self.hidden * head)

    def _drawing_flops(self) -> int:
        """The prompt in one pass, then a token at a time over the cache of those before."""
        positions = self.prompt + self.response - 1
        seen = self.prompt**2 + sum(range(self.prompt + 1, positions + 1))
        attended = 4 * (self.layers + self.extra_layers) * self.hidden * seen
        return self._rows * (self._products(positions) + attended + 2 * self.hidden * self._head)

    def num_parameters(self) -> int:
        """Of policy and value model, and of the two frozen ones, which are as large."""
        return 2 * count_parameters(self._model)

    # ------------------------------------------------------------------ models

    def _config(self) -> GPTNeoXConfig:
        sizes: dict[str, Any] = {"rotary_pct": 1 / ROTATED, "num_labels": 1}  # of no declared type
        return GPTNeoXConfig(
            **sizes,
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers + self.extra_layers,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate,
            hidden_act=self.activation,
            max_position_embeddings=max(2048, self.prompt + self.response),
            attention_dropout=0.0,
            hidden_dropout=0.0,
        )

    def _model(self) -> ActorCritic:
        return ActorCritic(
            GPTNeoXForCausalLM(self._config()),
            GPTNeoXForSequenceClassification(self._config()),
            response=self.response,
            temperature=self.temperature,
            clip=self.clip,
            value_weight=self.value_weight,
        )

    def _scaled(self) -> ActorCritic:
        model = self._model()
        initial.scaled(model)
        return model

    def build(self, target: Target, seed: int) -> State:
        dtype = dtype_named(self.dtype)
        draws = Draws(target=target, seed=seed)
        model = seeded(seed, lambda: initialized(self._scaled, draws, target.device)).train()
        reference, reward = _frozen(model.policy, dtype), _frozen(model.value, dtype)
        checksums = feedback.frozen_checksums(
            {"reference": model.policy, "reward": model.value}, dtype
        )
        for frozen in (reference, reward):
            torch.nn.Module.to(frozen, target.device)
        state = begin_training(
            target,
            seed=seed,
            make=lambda *_: model,
            rule=self.rule,
            inputs=DrawnInputs(draw=self.draw),
            num_inputs=self.num_inputs,
            ranks=self.ranks,
            parallel=self.parallel,
            dtype=dtype,
            error_bounds=ErrorBounds(loss=0, logits=0, gradients=0),
            result=lambda result: result,
        )
        assert isinstance(state.batches, DrawnSets)  # noqa: S101 - what begin drew
        inputs = state.batches
        state.batches, state.cycle = [], InputCycle(of=self.updates)
        return State(
            training=state,
            model=model,
            reference=reference,
            reward=reward,
            inputs=inputs,
            checksums=checksums,
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
        )

    def draw(self, drawer: Drawer, rank: int) -> Callable[[int], Tensors]:
        """What makes input sets of a rank where the drawer draws."""

        def batch(index: int) -> Tensors:
            return drawn_prompts(
                drawer,
                of_rank(str(index), rank),
                rows=self._rows,
                prompt=self.prompt,
                response=self.response,
                vocabulary=self.vocabulary,
            )

        return batch

    # ------------------------------------------------------------------ the step

    def order(self, seed: int, number: int) -> torch.Tensor:
        """Rows of the minibatches of one step, (updates, rows)."""
        rng = np.random.default_rng((seed, number))
        orders = np.stack([rng.permutation(self._rows) for _ in range(self.epochs)])
        return torch.from_numpy(orders.reshape(self.updates, -1))

    def step(self, state: State) -> Learned:
        inputs = state.inputs[state.cycle.advance()]
        dtype = dtype_named(self.dtype)
        kind = inputs["prompts"].device.type
        with torch.autocast(kind, dtype=dtype, enabled=dtype is not torch.float32):
            drawn = respond(
                state.model.policy, inputs["prompts"], inputs["noise"], self.temperature
            )
            rollout = judged(state.model, state.reference, state.reward, drawn, self.terms)
        names = ("tokens", "log_probs", "values", "advantages")
        order = self.order(state.seed, state.cycle.number).to(rollout.tokens.device)
        state.training.batches = [
            {name: getattr(rollout, name)[rows] for name in names} for rows in order
        ]
        losses, policy_outputs = [], []
        gradients: dict[str, list[torch.Tensor]] = {}
        place = state.seed + state.cycle.number
        for _ in range(self.updates):
            update = train_step(state.training)
            losses.append(update.loss)
            policy_outputs.append(update.logits)
            for name, slope in update.gradients.items():
                gradients.setdefault(name, []).append(feedback.sampled_elements(slope, place))
        return Learned(
            rollout=rollout,
            losses=torch.stack(losses),
            policy_outputs=torch.stack(policy_outputs),
            gradients={name: torch.stack(slopes) for name, slopes in gradients.items()},
            weights=update.weights,
            mean={name: one["exp_avg"] for name, one in update.moments.items() if one},
            square={name: one["exp_avg_sq"] for name, one in update.moments.items() if one},
        )

    def snapshot(self, state: State) -> Before:
        def copied(key: str) -> dict[str, torch.Tensor]:
            moments = state.training.optimizer.state
            return {
                name: moments.get(weight, {}).get(key, torch.zeros_like(weight)).cpu().clone()
                for name, weight in state.training.trained.items()
            }

        number = state.cycle.number + 1
        weights = state.training.trained
        return Before(
            number=number,
            inputs=state.inputs.again(number % state.cycle.of),
            weights={name: weight.detach().cpu().clone() for name, weight in weights.items()},
            mean=copied("exp_avg"),
            square=copied("exp_avg_sq"),
            frozen=feedback.frozen_checksums(
                {"reference": state.reference, "reward": state.reward}
            ),
        )

    def check(self, before: object, state: State, output: Learned) -> Iterator[Check]:
        assert isinstance(before, Before)  # noqa: S101 - what snapshot returned
        return feedback.check(
            feedback.Subject(
                before=before,
                output=output,
                model=state.model,
                reference=state.reference,
                reward=state.reward,
                inputs=state.inputs,
                checksums=state.checksums,
                order=self.order(state.seed, before.number),
                rule=self.rule,
                terms=self.terms,
                dtype=dtype_named(self.dtype),
                error_bounds=ERROR_BOUNDS,
                seed=state.seed,
                peers=state.training.peers,
                training=state.training,
                plan=self._plan(state.seed)(None),
                followed=FOLLOWED,
            )
        )

    def _plan(self, seed: int) -> Plan:
        """How long steps are sampled; among ranks each follows the whole of its own."""
        if self.ranks > 1:
            return never
        sampled = Sampling(seed=seed, batch=self._rows // self.minibatches)
        return beyond("products", lambda: self.work().flops, sampled)


def _frozen(model: Model, dtype: torch.dtype) -> Model:
    """A copy that learns nothing, in the given dtype."""
    frozen = copy.deepcopy(model).requires_grad_(requires_grad=False)
    torch.nn.Module.to(frozen, dtype)
    return frozen


WORKLOAD = Rlhf
