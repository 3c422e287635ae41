"""Judges a step of RLHF: responses, what they were worth, and the updates.

On the host, in float64, by models without a cache: the tokens that the device drew are fed to the
policy, the value model and both frozen models as they were when the step began. A token must be
the largest of the device's own noised logits, and no worse in float64 than the logits' bound leaves
open. Rewards, advantages and losses are recomputed from what the device reported of their terms, so
that nothing but a few roundings of float32 is allowed.

A step makes many updates. Each is followed by Adam's formula from its gradients, from the snapshot
to what the step left (`parts/reinforcement/reinforcement.py`). Of the first and the last, the
networks are recomputed in float64, and the gradients: the loss tells what each of the device's
numbers contributes, and float64 carries that back through the networks. The last begins with the
weights that the step left, less the move that their moments make. Where a tensor is large,
gradients and updates are of elements at even distances, from a place that the seed draws; all else
is of all elements.

Of a step too long for that, the rollout is recomputed for drawn responses alone, and the two
updates are run once more on the device with all modules watched, each of which is held to float64
alone (`parts/training/sampled_checks.py`). A layer that is wrong for every response is found in
every step; what is wrong for one alone with the probability that it is drawn.

Among ranks, each judges its own responses, and the average gradient by what all of them drew.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from transformers import GPTNeoXForCausalLM, GPTNeoXForSequenceClassification

from appliance.records.journal import Check
from workloads.parts.auditing import room
from workloads.parts.auditing.sampling import Sampling
from workloads.parts.auditing.selection import draw_rows
from workloads.parts.distributed import rank_checks
from workloads.parts.distributed.sharding import Peers
from workloads.parts.numerics.checksums import checksum, checksum_all
from workloads.parts.numerics.host_copies import copies_on_host
from workloads.parts.numerics.precision import compare_logits, on_host, rounding
from workloads.parts.reinforcement import reinforcement
from workloads.parts.reinforcement.actor_critic import (
    ActorCritic,
    log_probs_of,
    logits_of,
    scores_of,
)
from workloads.parts.reinforcement.reinforcement import (
    ROUNDING,
    Adam,
    Array,
    Followed,
    Surrogate,
    compared,
    counted,
)
from workloads.parts.reinforcement.rollout import Rollout, Terms, noised
from workloads.parts.training import rules, sampled_checks
from workloads.parts.training.inputs import DrawnSets
from workloads.parts.training.layer_checks import put_back, with_room
from workloads.parts.training.optimizers import AdamW
from workloads.parts.training.state import Before as UpdateBefore
from workloads.parts.training.state import Training, restore, statistics_of

Tensors = Mapping[str, torch.Tensor]
NUM_FOLLOWED = 2**15
"""Elements of one tensor that are followed through all updates, about."""
_ROWS = 8  # of a batch that float64 takes through a network at once
_FLOOR = 0.01
"""Share of the whole gradient's norm below which one tensor's own norm is no yardstick."""
_GIVEN, _ADVANTAGES, _LOSS = 32.0, 64.0, 64.0
"""Roundings of float32 of what is made of reported numbers alone."""


@dataclass(frozen=True, kw_only=True)
class PolicyErrorBounds:
    """Roundings of the dtype that a healthy network may be off, of each kind of result.

    Logits, and values and scores, in units of their root mean square.
    """

    logits: float
    scores: float
    gradients: float


@dataclass(kw_only=True)
class Learned:
    """Everything that a step made.

    Of every update: `losses` (updates,), the networks' `policy_outputs` (updates, rows, response,
    2), and of each weight `gradients` (updates, elements) at `places`.
    """

    rollout: Rollout
    losses: torch.Tensor
    policy_outputs: torch.Tensor
    gradients: Tensors
    weights: Tensors
    mean: Tensors
    square: Tensors

    @property
    def loss(self) -> torch.Tensor:
        """Mean of all updates, for who follows the training."""
        return self.losses.mean()


@dataclass(frozen=True, kw_only=True)
class Before:
    """What the next step starts from, on the host; of what is frozen, the checksums.

    `inputs` are drawn again, all others copied.
    """

    number: int
    inputs: Tensors
    weights: Tensors
    mean: Tensors
    square: Tensors
    frozen: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is to be judged. `order` (updates, rows) are the minibatches' rows.

    `checksums` are those of the first weights, as the frozen tensors must have them; `model` is
    copied, never changed but while an update is run again. `plan` says how the updates of a long
    step are sampled, of which so many responses are `followed`; None if float64 follows the whole.
    """

    before: Before
    output: Learned
    model: ActorCritic
    reference: GPTNeoXForCausalLM
    reward: GPTNeoXForSequenceClassification
    inputs: DrawnSets
    checksums: Mapping[str, int]
    order: torch.Tensor
    rule: AdamW
    terms: Terms
    dtype: torch.dtype
    error_bounds: PolicyErrorBounds
    seed: int
    peers: Peers | None
    training: Training
    plan: Sampling | None = None
    followed: int = 0


def places(numel: int, seed: int) -> slice:
    """Elements of a flat tensor that are followed through all updates of a step."""
    stride = (numel - 1) // NUM_FOLLOWED + 1
    return slice(seed % stride, None, stride)


def sampled_elements(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """A flat copy of the elements at `places`."""
    return tensor.detach().reshape(-1)[places(tensor.numel(), seed)].clone()


def frozen_checksums(
    models: Mapping[str, torch.nn.Module], dtype: torch.dtype | None = None
) -> dict[str, int]:
    """Checksums of all parameters of models, rounded to `dtype`, by the model's name and theirs."""
    return {
        f"{role}.{name}": checksum(weight if dtype is None else weight.to(dtype))
        for role, model in models.items()
        for name, weight in model.named_parameters()
    }


def check(subject: Subject) -> Iterator[Check]:
    """Judge everything that the step made; the cheap checks first."""
    judge = _Judge(subject)
    if subject.peers is None:
        return judge.checks()
    # The ranks ask each other in between: none may stop at a check where another goes on.
    return iter(list(judge.checks_among(subject.peers)))


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A rank's data on the host; `policy_outputs`: of its first and last update."""

    tokens: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    policy_outputs: torch.Tensor


@dataclass
class _Judge:
    subject: Subject
    drawn: list[_Drawn] = field(init=False)

    def __post_init__(self) -> None:
        self._rollout = {
            name: tensor.detach().cpu()
            for name, tensor in vars(self.subject.output.rollout).items()
        }
        self._updates, self._rows = self.subject.order.shape
        self._response = self.subject.model.response
        self.drawn = [self._own()]
        self._seen = self._rows_seen()

    def _rows_seen(self) -> torch.Tensor:
        """The responses that float64 follows through all models."""
        count, subject = len(self._rollout["tokens"]), self.subject
        if subject.plan is None:
            return torch.arange(count)
        drawn = draw_rows(subject.plan.seed + subject.before.number, count, subject.followed).drawn
        return torch.tensor(drawn)

    def _of_seen(self, name: str) -> torch.Tensor:
        seen: torch.Tensor = self._rollout[name][self._seen]
        return seen

    # -------------------------------------------------------------- which checks

    def checks(self) -> Iterator[Check]:
        with np.errstate(all="ignore"):  # what is not a number is not within its bound
            yield from self._unchanged()
            wrong = self._misshapen()
            yield counted("response tokens missing or too many", wrong)
            if not wrong:  # else nothing can be compared
                yield from self._judged()

    def _judged(self) -> Iterator[Check]:
        tokens = self._rollout["tokens"]
        is_known = (tokens >= 0) & (tokens < self._vocabulary)
        yield counted("tokens outside the vocabulary", int((~is_known).sum()))
        yield self._prompts()
        yield from self._finite()
        yield from self._formulas()
        yield from self._updated()
        if bool(is_known.all()):
            yield from self._drew()
            yield from self._converged()

    def checks_among(self, peers: Peers) -> Iterator[Check]:
        """As `checks`, with what the ranks tell each other before and after."""
        is_whole = not self._misshapen()
        answers = peers.ranks.all_gathered([int(is_whole)], peers.device)
        if all(one for (one,) in answers):
            self.drawn = self._of_all(peers)
        checks = list(self.checks())
        yield from checks
        errors = [check.error for check in checks if check.name.startswith("gradients")]
        index = self.subject.before.number % len(self.subject.inputs)
        yield from rank_checks.check_inputs(peers, self.subject.inputs[index], index)
        worst = max(errors) if errors and not any(map(math.isnan, errors)) else math.inf
        yield from rank_checks.check_weights(peers, self.subject.output.weights, worst)

    # -------------------------------------------------------------- what ranks tell each other

    def _own(self) -> _Drawn:
        names = ("tokens", "log_probs", "values", "advantages")
        policy_outputs = self.subject.output.policy_outputs.detach().cpu()
        return _Drawn(
            **{name: self._rollout[name] for name in names}, policy_outputs=policy_outputs[[0, -1]]
        )

    def _of_all(self, peers: Peers) -> list[_Drawn]:
        own = vars(self.drawn[0])
        by_rank: list[dict[str, torch.Tensor]] = [{} for _ in range(peers.ranks.size)]
        for name, tensor in own.items():
            words = tensor.contiguous().view(-1)
            words = words if words.dtype is torch.int64 else words.float().view(torch.int32)
            for rank, gathered in enumerate(peers.ranks.all_gathered(words.tolist(), peers.device)):
                received = torch.tensor(gathered, dtype=words.dtype)
                received = received if words.dtype is torch.int64 else received.view(torch.float32)
                by_rank[rank][name] = received.view(tensor.shape)
        return [_Drawn(**one) for one in by_rank]

    # -------------------------------------------------------------- what must be as it was

    def _unchanged(self) -> Iterator[Check]:
        before, inputs = self.subject.before, self.subject.inputs
        index = before.number % len(inputs)
        changed = checksum_all(inputs[index]) != checksum_all(before.inputs)
        yield counted("inputs as generated", int(changed))
        after = frozen_checksums(
            {"reference": self.subject.reference, "reward": self.subject.reward}
        )
        checksums = self.subject.checksums
        wrong = {
            name for name in checksums if not checksums[name] == before.frozen[name] == after[name]
        }
        yield counted("frozen tensors that changed", len(wrong))

    @property
    def _vocabulary(self) -> int:
        return int(self.subject.model.policy.config.vocab_size)

    def _misshapen(self) -> float:
        """Tokens too few or too many; infinite if it is not of tokens that there are too few."""
        prompts, noise = (self.subject.before.inputs[name] for name in ("prompts", "noise"))
        rows, response = noise.shape[:2]
        length, plain = prompts.shape[1], (rows, response)
        shapes = dict.fromkeys(self._rollout, plain) | {
            "tokens": (rows, length + response),
            "logits": (*plain, self._vocabulary),
            "scores": (rows,),
        }
        output = self.subject.output
        missing = abs(self._rollout["tokens"].numel() - rows * (length + response))
        alike = all(self._rollout[name].shape == shape for name, shape in shapes.items())
        alike &= output.policy_outputs.shape == (self._updates, self._rows, response, 2)
        alike &= output.losses.shape == (self._updates,)
        return float(missing) if missing or alike else math.inf

    def _prompts(self) -> Check:
        prompts = self.subject.before.inputs["prompts"]
        own = self._rollout["tokens"][:, : prompts.shape[1]]
        return counted("prompt tokens that are not the input's", int((own != prompts).sum()))

    def _finite(self) -> Iterator[Check]:
        output = self.subject.output
        parts = [output.losses, output.policy_outputs, *vars(output.rollout).values()]
        for name in ("gradients", "weights", "mean", "square"):
            parts += getattr(output, name).values()
        broken = sum(rules.num_broken(part) for part in parts)
        yield counted("values that are not finite", broken)

    # -------------------------------------------------------------- formulas of reported numbers

    def _formulas(self) -> Iterator[Check]:
        rollout = {
            name: on_host(tensor) for name, tensor in self._rollout.items() if name != "tokens"
        }
        own = self._rollout["tokens"][:, -self._response :].clamp(0, self._vocabulary - 1)
        logits, warmth = rollout["logits"], self.subject.model.temperature
        exact = log_probs_of(logits, own, warmth)
        yield compared(
            "log-probabilities, given the logits",
            rollout["log_probs"].numpy(),
            exact.numpy(),
            _GIVEN * ROUNDING,
            "error of one, relative to itself or to the largest logit",
            exact.abs().maximum(logits.abs().amax(-1) / warmth).numpy(),
        )
        yield self._rewards(rollout)
        yield self._advantages(rollout)
        yield self._losses()

    def _rewards(self, rollout: Tensors) -> Check:
        penalty = self.subject.terms.penalty
        exact = -penalty * (rollout["log_probs"] - rollout["reference_log_probs"])
        exact[:, -1] += rollout["scores"]
        sizes = penalty * (rollout["log_probs"].abs() + rollout["reference_log_probs"].abs())
        sizes[:, -1] += rollout["scores"].abs()
        what = "error of one reward, relative to the terms that make it"
        bound = _GIVEN * ROUNDING
        actual = rollout["rewards"].numpy()
        name = "rewards, given scores and log-probabilities"
        return compared(name, actual, exact.numpy(), bound, what, sizes.numpy())

    def _advantages(self, rollout: Tensors) -> Check:
        rewards, values = rollout["rewards"].T.numpy(), rollout["values"].T.numpy()
        ends = np.zeros_like(rewards)
        ends[-1] = 1
        exact = reinforcement.advantages(
            rewards,
            np.concatenate([values, values[:1]]),  # the last row follows an end
            ends,
            np.zeros_like(ends),
            discount=self.subject.terms.discount,
            trace=self.subject.terms.trace,
            unroll=len(rewards),
        )
        size = np.abs(values).max() + np.abs(rewards).max()
        return compared(
            "advantages, given rewards and values",
            rollout["advantages"].T.numpy(),
            exact,
            _ADVANTAGES * ROUNDING,
            "error of one advantage, relative to itself or to the largest value and reward",
            np.maximum(np.abs(exact), size),
        )

    def _surrogate(self, drawn: _Drawn, rows: torch.Tensor) -> Surrogate:
        """The loss of one minibatch, with its tokens in one row."""
        inputs = {
            name: getattr(drawn, name)[rows].double().flatten()
            for name in ("log_probs", "values", "advantages")
        }
        model = self.subject.model
        return Surrogate(
            **inputs,
            clip=model.clip,
            value_clip=model.clip,
            value_weight=model.value_weight,
            entropy_weight=0.0,
            correction=1,
        )

    def _loss(
        self, drawn: _Drawn, rows: torch.Tensor, policy_outputs: torch.Tensor
    ) -> torch.Tensor:
        """In float64, of what the networks said, (rows, response, 2)."""
        now, worth = policy_outputs.flatten(0, 1).unbind(-1)
        return self._surrogate(drawn, rows).loss(now, worth, torch.zeros_like(now), 0.0)

    def _losses(self) -> Check:
        policy_outputs = on_host(self.subject.output.policy_outputs)
        exact = torch.stack(
            [
                self._loss(self.drawn[self._rank], rows, one)
                for rows, one in zip(self.subject.order, policy_outputs, strict=True)
            ]
        )
        return compared(
            "losses, given what the networks said",
            on_host(self.subject.output.losses).numpy(),
            exact.numpy(),
            _LOSS * ROUNDING,
            "error of one update's loss, relative to itself or to 1 if that is more",
            exact.abs().clamp(min=1.0).numpy(),
        )

    @property
    def _rank(self) -> int:
        peers = self.subject.peers
        return 0 if peers is None or len(self.drawn) == 1 else peers.own

    # -------------------------------------------------------------- updates by the formula

    def _updated(self) -> Iterator[Check]:
        before, output = self.subject.before, self.subject.output
        start = self._followed(before.number * self._updates, before)
        end = self._followed(0, output)
        gradients = {name: on_host(part).numpy() for name, part in output.gradients.items()}
        sizes = {name: (self._updates, len(part)) for name, part in start.weights.items()}
        if {name: part.shape for name, part in gradients.items()} != sizes:
            yield counted("gradients missing or too many", math.inf)
            return
        by_update = [
            {name: part[number] for name, part in gradients.items()}
            for number in range(self._updates)
        ]
        yield reinforcement.check_learning(start.weights, end.weights, by_update)
        rule = Adam(
            learning_rate=self.subject.rule.learning_rate,
            epsilon=self.subject.rule.epsilon,
            betas=self.subject.rule.betas,
        )
        *_, exact = rule.follow(start, by_update)
        yield from reinforcement.check_updates(exact, end, self._updates)

    def _followed(self, number: int, source: Before | Learned) -> Followed:
        parts = ("weights", "mean", "square")
        return Followed.begin(number, *(self._elements(getattr(source, name)) for name in parts))

    def _elements(self, tensors: Tensors) -> dict[str, Array]:
        """The elements that are followed, of all tensors."""
        seed = self.subject.seed + self.subject.before.number
        return {
            name: on_host(sampled_elements(tensor, seed)).numpy()
            for name, tensor in tensors.items()
        }

    # -------------------------------------------------------------- networks in float64

    def _drew(self) -> Iterator[Check]:
        """The rollout, by the weights that the step began with."""
        for check in self._rollout_checks():
            yield self._stating(check)

    def _stating(self, check: Check) -> Check:
        """The check, with the chance that a fault is in what it follows, if that is not all."""
        rows = len(self._rollout["tokens"])
        if len(self._seen) == rows or check.kind == "exact":
            return check
        count = len(self._seen)
        chance = (
            f"{count} of {rows} responses were drawn: what is wrong for one alone is found with "
            f"probability {count / rows:.3g}, what is wrong for all in every step"
        )
        what = "; ".join(filter(None, (check.detects_what, chance)))
        return replace(check, detects_what=what)

    def _rollout_checks(self) -> Iterator[Check]:
        subject, tokens = self.subject, self._of_seen("tokens")
        model = _loaded(subject.model, subject.before.weights)
        logits = _by_rows(lambda rows: logits_of(model.policy, rows, self._response), tokens)
        yield from self._chosen(logits)
        yield from compare_logits(
            self._of_seen("logits"),
            logits,
            unit_roundoffs=subject.error_bounds.logits,
            dtype=subject.dtype,
        )
        yield from self._scored(_by_rows(model.values, tokens))
        reference = _exact(subject.reference)
        own = tokens[:, -self._response :]
        expected = log_probs_of(
            _by_rows(lambda rows: logits_of(reference, rows, self._response), tokens),
            own,
            subject.model.temperature,
        )
        actual = self._of_seen("reference_log_probs")
        yield self._near("reference's log-probabilities", actual, expected, logits)

    def _chosen(self, logits: torch.Tensor) -> Iterator[Check]:
        warmth, noise = self.subject.model.temperature, self.subject.before.inputs["noise"]
        own = self._rollout["tokens"][:, -self._response :, None]
        sums = noised(self._rollout["logits"], noise, warmth)
        missed = ~(sums.gather(2, own)[..., 0] >= sums.amax(2))
        yield counted("tokens that are not the largest noised logit", int(missed.sum()))
        exact = noised(logits, noise[self._seen].double(), warmth)
        lost = exact.amax(2) - exact.gather(2, own[self._seen])[..., 0]
        bound = 2 * self.subject.error_bounds.logits * rounding(self.subject.dtype)
        is_worse = lost > bound * logits.square().mean().sqrt() / warmth
        worse = int(is_worse.sum())
        yield Check(
            name="tokens that float64 would not draw", error=worse, bound=0.0, kind="numeric"
        )

    def _near(
        self, name: str, actual: torch.Tensor, exact: torch.Tensor, logits: torch.Tensor
    ) -> Check:
        """Log-probabilities, in units of the logits' root mean square."""
        size = logits.square().mean().sqrt() / self.subject.model.temperature
        bound = 2 * self.subject.error_bounds.logits * rounding(self.subject.dtype)
        return Check(
            name=f"{name} against float64",
            error=((on_host(actual) - exact).abs().max() / size).item(),
            bound=bound,
            detects=bound,
            detects_what="error of one, in units of the logits' root mean square",
        )

    def _scored(self, values: torch.Tensor) -> Iterator[Check]:
        yield self._worth("values", self._of_seen("values"), values)
        reward = _exact(self.subject.reward)
        scores = _by_rows(lambda rows: scores_of(reward, rows), self._of_seen("tokens"))
        # A score or two, of few responses, may all be small: then those of all tokens are the size.
        size = scores[:, -1] if self.subject.plan is None else scores
        yield self._worth("scores", self._of_seen("scores"), scores[:, -1], size)

    def _worth(
        self,
        name: str,
        actual: torch.Tensor,
        exact: torch.Tensor,
        size: torch.Tensor | None = None,
    ) -> Check:
        """In units of the root mean square of `size`; of what is exact, if it is not given."""
        bound = self.subject.error_bounds.scores * rounding(self.subject.dtype)
        unit = (exact if size is None else size).square().mean().sqrt()
        return Check(
            name=f"{name} against float64",
            error=((on_host(actual) - exact).abs().max() / unit).item(),
            bound=bound,
            detects=bound,
            detects_what="error of one, in units of their root mean square",
        )

    def _converged(self) -> Iterator[Check]:
        """The first update and the last."""
        yield from self._update("first", 0, self.subject.before.weights)
        if self._updates > 1:
            yield from self._update("last", -1, self._before_last())

    def _before_last(self) -> dict[str, torch.Tensor]:
        """The weights that the last update began with, from what it left."""
        output, rule = self.subject.output, self.subject.rule
        number = (self.subject.before.number + 1) * self._updates
        first, second = (1 - beta**number for beta in rule.betas)
        weights = {}
        for name, weight in output.weights.items():
            mean, square = on_host(output.mean[name]), on_host(output.square[name])
            move = rule.learning_rate * (mean / first) / ((square / second).sqrt() + rule.epsilon)
            weights[name] = on_host(weight) + move
        return weights

    def _update(self, name: str, place: int, weights: Tensors) -> Iterator[Check]:
        if self.subject.plan is not None:
            yield from self._update_again(self.subject.plan, name, place, weights)
            return
        model, rows = _loaded(self.subject.model, weights), self.subject.order[place]
        outputs, slopes = [], []
        for one in self.drawn:
            model.zero_grad(set_to_none=True)
            outputs.append(self._carried_back(model, one, rows, place))
            slopes.append(self._sampled_slopes(model))
        yield from self._outputs(name, place, *outputs[self._rank])
        yield from self._slopes(f"{name} update against float64", place, slopes)

    def _update_again(
        self, plan: Sampling, name: str, place: int, weights: Tensors
    ) -> Iterator[Check]:
        """Run an update once more on the device, and hold every module to float64 alone."""
        state, before = self.subject.training, self._before_update(place, weights)
        rows = draw_rows(plan.seed + before.number, plan.batch, plan.inputs)
        state.model.zero_grad(set_to_none=True)  # its room is needed, and nobody reads it again

        def made_again() -> sampled_checks.Watched:
            restore(before, state.model)
            state.model.zero_grad(set_to_none=True)
            return sampled_checks.run_again(before, state, plan, rows)

        with put_back(state) as copies:
            seen = with_room(state, None, copies, made_again)
        if seen is None:
            yield room.unjudged()
            return
        seed = self.subject.seed + self.subject.before.number
        again = {one: on_host(sampled_elements(g, seed)) for one, g in seen.gradients.items()}
        yield from self._outputs(name, place, *seen.exact[1].unbind(-1))
        yield from self._slopes(f"{name} update run again", place, [again])
        for check in sampled_checks.check_followed(state, plan, rows, seen):
            yield replace(check, name=f"{check.name}, {name} update")

    def _before_update(self, place: int, weights: Tensors) -> UpdateBefore:
        """What an update began with."""
        rows = self.subject.order[place]
        names = ("tokens", "log_probs", "values", "advantages")
        number = self.subject.before.number * self._updates + place % self._updates
        return UpdateBefore(
            number=number,
            batch={one: self._rollout[one][rows] for one in names},
            weights=weights,
            moments={},
            statistics=copies_on_host(statistics_of(self.subject.model)),
            noise=None,
            frozen={},
        )

    def _outputs(
        self, name: str, place: int, log_probs: torch.Tensor, values: torch.Tensor
    ) -> Iterator[Check]:
        """What the networks said of an update's responses."""
        policy_outputs = self.subject.output.policy_outputs[place].detach().cpu()
        size = self._rollout["logits"]
        yield self._near(
            f"log-probabilities of the {name} update",
            policy_outputs[..., 0],
            log_probs,
            on_host(size),
        )
        yield self._worth(f"values of the {name} update", policy_outputs[..., 1], values)

    def _carried_back(
        self, model: ActorCritic, drawn: _Drawn, rows: torch.Tensor, place: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the gradients of one rank's minibatch to the model's; what its networks say."""
        policy_outputs = drawn.policy_outputs[place].double().requires_grad_()
        loss = self._loss(drawn, rows, policy_outputs)
        (shares,) = torch.autograd.grad(loss, policy_outputs)
        now, worth = [], []
        for part, share in zip(torch.split(rows, _ROWS), torch.split(shares, _ROWS), strict=True):
            both = model.heads(drawn.tokens[part])
            torch.autograd.backward(both, share.unbind(-1))
            now.append(both[0].detach())
            worth.append(both[1].detach())
        return torch.cat(now), torch.cat(worth)

    def _sampled_slopes(self, model: ActorCritic) -> dict[str, torch.Tensor]:
        seed = self.subject.seed + self.subject.before.number
        return {
            name: sampled_elements(_slope(weight), seed)
            for name, weight in model.named_parameters()
        }

    def _slopes(
        self, name: str, place: int, slopes: list[dict[str, torch.Tensor]]
    ) -> Iterator[Check]:
        """The gradients averaged over ranks, and of the first update each rank's share in them."""
        exact = {one: torch.stack([part[one] for part in slopes]).mean(0) for one in slopes[0]}
        norms = {one: float(torch.linalg.vector_norm(part)) for one, part in exact.items()}
        floor = _FLOOR * math.hypot(*norms.values())
        actual = {one: on_host(part[place]) for one, part in self.subject.output.gradients.items()}
        errors = [
            float(torch.linalg.vector_norm(actual[one] - part)) / (norms[one] + floor)
            for one, part in exact.items()
        ]
        bound = self.subject.error_bounds.gradients * rounding(self.subject.dtype)
        yield Check(
            name=f"gradients of the {name}",
            error=math.nan if any(map(math.isnan, errors)) else max(errors),
            bound=bound,
            detects=bound,
            detects_what="error of one tensor's gradient, relative to its norm",
        )
        if place == 0 and len(slopes) > 1:
            shares = torch.stack([rank_checks.sampled(part) for part in slopes])
            yield from rank_checks.check_shares(rank_checks.sampled(actual), shares, bound)


def _slope(weight: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _exact(model: Any) -> Any:
    """A copy on the host in float64, of a model whose bits are known to be right."""
    return copy.deepcopy(model).cpu().double()


def _loaded(model: ActorCritic, weights: Tensors) -> ActorCritic:
    """A copy on the host in float64, with these weights."""
    exact: ActorCritic = _exact(model)
    with torch.no_grad():
        for name, weight in exact.named_parameters():
            weight.copy_(weights[name])
    return exact


def _by_rows(ask: Callable[[torch.Tensor], torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """What a network says of a batch, a few rows at a time."""
    with torch.no_grad():
        return torch.cat([ask(rows) for rows in torch.split(tokens, _ROWS)])
