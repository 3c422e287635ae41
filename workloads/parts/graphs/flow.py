"""A policy that builds trees of fragments, and the balance that it learns (trajectory balance).

The policy is a graph transformer: tokens are the nodes and one that stands for the whole tree;
attention between two of them is shifted by what their bond is, and every layer keeps what it had.
Its logits are of all actions; what a state does not allow is set to `FORBIDDEN`. An action is the
largest of its logits with Gumbel noise, which the host drew: so it is drawn from the policy, and
float64 draws the same (`parts/training` follows the device between two that lie within a rounding).

For each trajectory log Z + log P(forwards) - log R - log P(backwards) should be nought (Malkin et
al. 2022); its mean square is the loss. All states are passed through the network once without
gradients, step by step, and once more together with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from workloads.parts.graphs.fragments import STOP, Proxy, Rules, Trees, Vocabulary, together

FORBIDDEN = -1000.0
"""Logit of what is not allowed, far below all others; finite, so that distances have a scale."""
GAIN = 20.0
"""By how much the logarithm of Z learns faster than the weights, which Adam moves alike."""
_APART, _SELF, _WHOLE = 0, 1, 2  # relations of two tokens that have no bond


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a batch of trajectories was: `actions` (steps, trees), the rest (trees,)."""

    actions: torch.Tensor
    log_rewards: torch.Tensor
    log_back: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """The loss, and as logits the logarithm of each action's chance (trees, steps)."""

    loss: torch.Tensor
    logits: torch.Tensor


class Layer(nn.Module):
    """Attention with a shift by relation, and two linear layers; both normalised before."""

    def __init__(self, width: int, heads: int, relations: int, activation: str) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.shift = nn.Embedding(relations, heads)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.activate = nn.functional.gelu if activation == "gelu" else nn.functional.silu

    def forward(
        self, tokens: torch.Tensor, relations: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Tokens (trees, tokens, width); `relations` (trees, tokens, tokens), `mask` as it."""
        count, length, width = tokens.shape
        parts = self.mixed(self.before(tokens)).view(count, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        shift = self.shift(relations).permute(0, 3, 1, 2)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + shift
        shares = torch.where(mask[:, None], scores, -torch.inf).softmax(dim=-1)
        tokens = tokens + self.out((shares @ value).transpose(1, 2).reshape(tokens.shape))
        output: torch.Tensor = tokens + self.narrow(self.activate(self.wide(self.between(tokens))))
        return output


class Policy(nn.Module):
    """Graph transformer with the rules of its trees, its proxy of the reward, and log Z."""

    limits: torch.Tensor

    def __init__(
        self,
        *,
        words: Vocabulary,
        width: int,
        layers: int,
        heads: int,
        activation: str,
        sharpness: float,
    ) -> None:
        super().__init__()
        self.words = words
        limits = torch.tensor(words.num_points)
        self.register_buffer("limits", limits, persistent=False)
        self.kinds = nn.Embedding(words.kinds + 2, width)  # and no node, and the whole
        self.points = nn.Linear(words.points, width, bias=False)
        relations = _WHOLE + 1 + (words.points + 1) ** 2
        self.layers = nn.ModuleList(
            Layer(width, heads, relations, activation) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.stop = nn.Linear(width, 1)
        self.add = nn.Linear(width, words.kinds)
        self.attach = nn.Linear(width, words.points)
        # Begins at the number of ways to choose the fragments of a tree.
        self.flow = nn.Parameter(torch.full((1,), words.largest * math.log(words.kinds) / GAIN))
        self.proxy = Proxy(words, sharpness=sharpness)
        self.played: Played | None = None

    @property
    def rules(self) -> Rules:
        """The rules of the trees, on the device where the network is."""
        return Rules(words=self.words, limits=self.limits)

    def forward(self, noise: torch.Tensor) -> Balanced:
        """Play with Gumbel noise (steps, trees, actions), and balance; keeps what was played."""
        states, actions, ends = self.play(noise)
        with torch.no_grad():
            log_rewards = self.proxy(ends)
        log_back = self._log_back([*states[1:], ends], actions).to(log_rewards.dtype)
        self.played = Played(actions=actions, log_rewards=log_rewards, log_back=log_back)
        chances = self.chances(together(states), actions)
        total = GAIN * self.flow + chances.sum(dim=1)
        return Balanced(loss=(total - log_rewards - log_back).square().mean(), logits=chances)

    @torch.no_grad()
    def play(self, noise: torch.Tensor) -> tuple[list[Trees], torch.Tensor, Trees]:
        """The states before each action, the actions (steps, trees), the states at the end."""
        trees = Trees.begin(noise.shape[1], self.words, noise.device)
        states, actions = [], []
        for drawn in noise:
            action = torch.argmax(self.logits(trees) + drawn, dim=-1)
            states.append(trees)
            actions.append(action)
            trees = self.rules.advance(trees, action)
        return states, torch.stack(actions), trees

    def _log_back(self, after: list[Trees], actions: torch.Tensor) -> torch.Tensor:
        ways = torch.stack([self.rules.log_ways_back(trees) for trees in after])
        return -torch.where(actions == STOP, 0.0, ways).sum(dim=0)

    def chances(self, trees: Trees, actions: torch.Tensor) -> torch.Tensor:
        """Logarithms (trees, steps) of the chance of each action; nought once a tree has ended.

        `trees` are the states before the actions (steps, trees), step after step.
        """
        chances = self.logits(trees).log_softmax(dim=-1)
        # A sum with noughts instead of a gather, whose gradient is added up in any order.
        taken = nn.functional.one_hot(actions.flatten(), chances.shape[-1]).to(chances.dtype)
        chosen = (chances * taken).sum(dim=-1)
        return torch.where(trees.is_over, 0.0, chosen).view(actions.shape).t()

    def logits(self, trees: Trees) -> torch.Tensor:
        """Of all actions, (trees, actions); FORBIDDEN where a state does not allow one."""
        tokens = self._tokens(trees)
        relations, mask = self._relations(trees)
        for layer in self.layers:
            tokens = layer(tokens, relations, mask)
        tokens = self.norm(tokens)
        adds, sets = self.add(tokens), self.attach(tokens[:, 1:])
        scores = torch.cat([self.stop(tokens[:, 0]), adds.flatten(1), sets.flatten(1)], dim=1)
        return torch.where(self.rules.allowed(trees), scores, FORBIDDEN)

    def _tokens(self, trees: Trees) -> torch.Tensor:
        whole = torch.full_like(trees.kinds[:, :1], self.words.kinds + 1)
        kinds = torch.where(trees.kinds >= 0, trees.kinds, self.words.kinds)
        embedded: torch.Tensor = self.kinds(torch.cat([whole, kinds], dim=1))
        used = self.rules.used(trees).to(embedded.dtype)
        return embedded + nn.functional.pad(self.points(used), (0, 0, 1, 0))

    def _relations(self, trees: Trees) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each pair of tokens: the number of its relation, and whether one sees the other."""
        nodes = torch.arange(self.words.largest, device=trees.kinds.device)
        hangs = trees.parents[..., None] == nodes
        own, upper = trees.own + 1, trees.upper + 1  # UNSET is nought
        width = self.words.points + 1
        down = torch.where(hangs, (_WHOLE + 1 + own * width + upper)[..., None], _APART)
        up = torch.where(hangs, (_WHOLE + 1 + upper * width + own)[..., None], _APART)
        bonds = down + up.transpose(1, 2) + _SELF * (nodes[:, None] == nodes)
        relations = nn.functional.pad(bonds, (1, 0, 1, 0), value=_WHOLE)
        is_token = nn.functional.pad(trees.kinds >= 0, (1, 0), value=True)
        return relations, is_token[:, None] & is_token[..., None] | _itself(is_token)


def _itself(is_token: torch.Tensor) -> torch.Tensor:
    """What is no node sees itself, so that no share is divided by nought."""
    return torch.eye(is_token.shape[1], dtype=torch.bool, device=is_token.device)


def draw(policy: Policy) -> None:
    """First weights that keep sizes, and nearly equal logits: exploring before knowing."""
    for module in policy.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for head in (policy.stop, policy.add, policy.attach):
        nn.init.normal_(head.weight, std=0.3 * head.in_features**-0.5)
