"""Molecules built of fragments: what a state is, which actions it allows, and what it is worth.

A state is a tree of fragments. Every fragment of the vocabulary has some points at which it can be
attached. An action ends the tree, adds a fragment at a node with a free point, or says at which
point one end of the newest bond is attached; a bond must have both before anything else happens.
So a tree of n fragments takes 1 + 3 (n - 1) actions and the end.

All states of a batch advance at once, without asking the device for anything: one that has ended
goes on choosing the end. `replayed` plays the same actions one tree at a time in plain Python, and
counts what was not allowed; it shares no code with what is timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

STOP = 0
UNSET = -1
_LEAST_POINTS = 2
PROXY_WIDTH = 32
"""Of the vectors that the reward's network makes of fragments and points."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """How many fragments there are, and how many a tree may have; `points` at most of each."""

    kinds: int
    largest: int
    points: int

    @property
    def num_actions(self) -> int:
        """The end, a fragment at no node or at one, a point of a node."""
        return 1 + (self.largest + 1) * self.kinds + self.largest * self.points

    @property
    def num_steps(self) -> int:
        """Actions of the longest trajectory."""
        return 2 + 3 * (self.largest - 1)

    @property
    def num_points(self) -> list[int]:
        """Points of each fragment: from two to the most, by turns."""
        choices = self.points - _LEAST_POINTS + 1
        return [_LEAST_POINTS + kind % choices for kind in range(self.kinds)]


@dataclass(frozen=True, kw_only=True)
class Trees:
    """States of a batch; the bond of node n leads to `parents[n]`, that of the first nowhere.

    All but the last two (trees, nodes), UNSET where there is nothing: `kinds` of the fragments,
    `own` and `upper`: the points at which a node's bond is attached to it and to its parent.
    `counts` (trees,) of nodes, `is_over` (trees,).
    """

    kinds: torch.Tensor
    parents: torch.Tensor
    own: torch.Tensor
    upper: torch.Tensor
    counts: torch.Tensor
    is_over: torch.Tensor

    @classmethod
    def begin(cls, count: int, words: Vocabulary, device: torch.device) -> Trees:
        """Trees without a fragment."""
        shape = (count, words.largest)
        empty = torch.full(shape, UNSET, dtype=torch.long, device=device)
        return cls(
            kinds=empty,
            parents=empty,
            own=empty,
            upper=empty,
            counts=torch.zeros(count, dtype=torch.long, device=device),
            is_over=torch.zeros(count, dtype=torch.bool, device=device),
        )


def together(states: Sequence[Trees]) -> Trees:
    """One batch of the states of several."""
    names = vars(states[0])
    return Trees(**{name: torch.cat([getattr(one, name) for one in states]) for name in names})


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a vocabulary on a device; `limits` (kinds,) the points of each fragment."""

    words: Vocabulary
    limits: torch.Tensor

    def used(self, trees: Trees) -> torch.Tensor:
        """Which points of each node are taken, (trees, nodes, points) of bool."""
        points = torch.arange(self.words.points, device=trees.own.device)
        own = trees.own[..., None] == points
        upper = (trees.upper[..., None] == points).to(self.limits.dtype)
        at_parent = self._children(trees).to(upper.dtype)
        taken = (at_parent[..., None] * upper[:, :, None]).sum(dim=1) > 0
        return own | taken

    def _children(self, trees: Trees) -> torch.Tensor:
        """Whether node n hangs on node m, (trees, n, m)."""
        nodes = torch.arange(self.words.largest, device=trees.parents.device)
        return trees.parents[..., None] == nodes

    def _newest(self, trees: Trees) -> torch.Tensor:
        nodes = torch.arange(self.words.largest, device=trees.counts.device)
        return nodes == trees.counts[:, None] - 1

    def allowed(self, trees: Trees) -> torch.Tensor:
        """Which actions the states allow, (trees, actions) of bool."""
        words, is_newest = self.words, self._newest(trees)
        is_node = trees.kinds >= 0
        room = torch.where(is_node, self.limits[trees.kinds.clamp(min=0)], 0)
        used = self.used(trees)
        lacks_own = is_newest & (trees.own < 0) & (trees.parents >= 0)
        lacks_upper = is_newest & (trees.upper < 0) & (trees.parents >= 0)
        waits = (lacks_own | lacks_upper).any(dim=1)
        is_empty = trees.counts == 0
        grows = ~waits & ~trees.is_over & (trees.counts < words.largest)
        at_node = (grows & ~is_empty)[:, None] & is_node & (used.sum(dim=-1) < room)
        rows = torch.cat([(grows & is_empty)[:, None], at_node], dim=1)
        parent = (self._children(trees) & lacks_upper[..., None]).any(dim=1)
        points = torch.arange(words.points, device=used.device)
        is_free = ~used & (points < room[..., None])
        sets = (lacks_own | parent)[..., None] & is_free & ~trees.is_over[:, None, None]
        stops = trees.is_over | (~waits & ~is_empty)
        adds = rows[..., None].expand(-1, -1, words.kinds)
        return torch.cat([stops[:, None], adds.flatten(1), sets.flatten(1)], dim=1)

    def advance(self, trees: Trees, actions: torch.Tensor) -> Trees:
        """The states after these actions (trees,), which they allow."""
        words = self.words
        adds = (actions > STOP) & (actions <= (words.largest + 1) * words.kinds)
        sets = actions > (words.largest + 1) * words.kinds
        nodes = torch.arange(words.largest, device=actions.device)
        is_next = (nodes == trees.counts[:, None]) & adds[:, None]
        row = torch.div(actions - 1, words.kinds, rounding_mode="floor")
        kind = (actions - 1) % words.kinds
        point = actions - 1 - (words.largest + 1) * words.kinds
        node = torch.div(point, words.points, rounding_mode="floor")[:, None]
        point = (point % words.points)[:, None]
        is_newest = self._newest(trees) & sets[:, None]
        is_own = is_newest & (nodes == node)
        return replace(
            trees,
            kinds=torch.where(is_next, kind[:, None], trees.kinds),
            parents=torch.where(is_next, row[:, None] - 1, trees.parents),
            own=torch.where(is_own, point, trees.own),
            upper=torch.where(is_newest & ~is_own, point, trees.upper),
            counts=trees.counts + adds.long(),
            is_over=trees.is_over | (actions == STOP),
        )

    def log_ways_back(self, trees: Trees) -> torch.Tensor:
        """Logarithm of the number of states from which each is one action away, (trees,) float.

        A whole tree of three or more: either end of the bond of any leaf was set last. Trees that
        look the same by a symmetry are counted each for itself, as is usual.
        """
        newest = self._newest(trees) & (trees.parents >= 0)
        missing = (newest & (trees.own < 0)).long() + (newest & (trees.upper < 0)).long()
        missing = missing.sum(dim=1)
        degrees = (trees.parents >= 0).long() + self._children(trees).long().sum(dim=1)
        leaves = (degrees == 1).long().sum(dim=1)
        whole = torch.where(trees.counts == 2, 2, 2 * leaves)  # noqa: PLR2004 - of one bond
        fresh = torch.where(trees.counts == 2, 2, 1)  # noqa: PLR2004 - either node came last
        ways = torch.where(missing == 0, whole, torch.where(missing == 2, fresh, 1))  # noqa: PLR2004 - both ends
        return torch.where(trees.counts < 2, 1, ways).double().log()  # noqa: PLR2004 - no bond


# ------------------------------------------------------------------ what a tree is worth


class Proxy(nn.Module):
    """Logarithm of the reward: a fixed random network on the sum over fragments and bonds.

    Fragments and points have random vectors; a bond's is the tanh of what is attached to what. All
    weights are drawn from one seed, whatever the seed of the run, and never learn.
    """

    def __init__(
        self, words: Vocabulary, *, width: int = PROXY_WIDTH, sharpness: float = 2.0
    ) -> None:
        super().__init__()
        self.sharpness = sharpness
        rng = np.random.default_rng(words.kinds)
        shapes = {
            "kinds": (words.kinds, width),
            "points": (words.points, width),
            "first": (2 * width, width),
            "last": (width, 1),
        }
        for name, shape in shapes.items():
            scale = 1.0 if name in {"kinds", "points"} else 1 / math.sqrt(shape[0])
            weight = torch.tensor(rng.standard_normal(shape) * scale, dtype=torch.float32)
            self.register_parameter(name, nn.Parameter(weight, requires_grad=False))

    def forward(self, trees: Trees) -> torch.Tensor:
        """(trees,); of bonds that lack a point, what it will be does not count."""
        kinds, points = self.get_parameter("kinds"), self.get_parameter("points")
        is_node = (trees.kinds >= 0)[..., None]
        vectors = torch.where(is_node, kinds[trees.kinds.clamp(min=0)], 0.0)
        parents = trees.parents.clamp(min=0)[..., None].expand_as(vectors)
        one = vectors * points[trees.own.clamp(min=0)]
        other = vectors.gather(1, parents) * points[trees.upper.clamp(min=0)]
        is_bond = (trees.parents >= 0)[..., None]
        bonds = torch.where(is_bond, torch.tanh(one + other), 0.0)
        size = trees.kinds.shape[1] ** 0.5
        inputs = torch.cat([vectors.sum(dim=1), bonds.sum(dim=1)], dim=-1) / size
        hidden = torch.tanh(inputs @ self.get_parameter("first"))
        scores: torch.Tensor = self.sharpness * (hidden @ self.get_parameter("last"))[:, 0]
        return scores


# ------------------------------------------------------------------ the same, one by one


@dataclass(kw_only=True)
class Grown:
    """One tree while it is played again: of each node its kind, parent and points."""

    kinds: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    is_over: bool = False

    @property
    def waits(self) -> bool:
        """Whether the newest bond lacks a point."""
        return len(self.kinds) > 1 and UNSET in {self.own[-1], self.upper[-1]}

    def taken(self, node: int) -> list[int]:
        """Points of a node that have a bond, or are kept for one."""
        below = [self.upper[n] for n, parent in enumerate(self.parents) if parent == node]
        return below if node == 0 else [self.own[node], *below]

    def ways_back(self) -> int:
        """See `Rules.log_ways_back`."""
        count = len(self.kinds)
        if count < 2:  # noqa: PLR2004 - no bond
            return 1
        missing = [self.own[-1], self.upper[-1]].count(UNSET)
        if missing == 1:
            return 1
        if missing == 2 or count == 2:  # noqa: PLR2004 - both ends, one bond
            return 2 if count == 2 else 1  # noqa: PLR2004
        return 2 * sum(len(self.taken(node)) == 1 for node in range(count))


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """Trajectories played again: the states before each action, `is_live` (steps, trees).

    `log_back` (trees,): logarithm of the chance of each trajectory when it is drawn backwards,
    every state's parents equally likely. `faults`: actions that were not allowed.
    """

    trees: Trees
    ends: Trees
    is_live: NDArray[np.bool_]
    log_back: NDArray[np.float64]
    faults: int


def replayed(actions: NDArray[np.int64], words: Vocabulary) -> Replayed:
    """Play actions (steps, trees) from empty trees."""
    grown = [Grown() for _ in range(actions.shape[1])]
    log_back = np.zeros(len(grown))
    states, is_live, faults = [], [], 0
    for row in actions:
        states.append(_packed(grown, words))
        is_live.append([not tree.is_over for tree in grown])
        for number, action in enumerate(row.tolist()):
            tree = grown[number]
            faults += not _play(tree, action, words)
            if action != STOP:
                log_back[number] -= math.log(max(1, tree.ways_back()))
    faults += sum(not tree.is_over for tree in grown)
    return Replayed(
        trees=together(states),
        ends=_packed(grown, words),
        is_live=np.array(is_live),
        log_back=log_back,
        faults=faults,
    )


def _play(tree: Grown, action: int, words: Vocabulary) -> bool:
    """Change the tree as the action says; False, and no change, where it is not allowed."""
    if action == STOP:
        is_allowed = tree.is_over or (bool(tree.kinds) and not tree.waits)
        tree.is_over = tree.is_over or is_allowed
        return is_allowed
    if tree.is_over or not 0 < action < words.num_actions:
        return False
    row, kind = divmod(action - 1, words.kinds)
    if row <= words.largest:
        return _add(tree, row - 1, kind, words)
    node, point = divmod(action - 1 - (words.largest + 1) * words.kinds, words.points)
    return _attach(tree, node, point, words)


def _add(tree: Grown, parent: int, kind: int, words: Vocabulary) -> bool:
    count = len(tree.kinds)
    if tree.waits or count >= words.largest or parent >= count or (parent < 0) != (count == 0):
        return False
    if parent >= 0 and len(tree.taken(parent)) >= words.num_points[tree.kinds[parent]]:
        return False
    tree.kinds.append(kind)
    tree.parents.append(parent)
    tree.own.append(UNSET)
    tree.upper.append(UNSET)
    return True


def _attach(tree: Grown, node: int, point: int, words: Vocabulary) -> bool:
    newest = len(tree.kinds) - 1
    if not tree.waits or node > newest or point >= words.num_points[tree.kinds[node]]:
        return False
    ends = {newest: tree.own, tree.parents[newest]: tree.upper}
    if node not in ends or ends[node][newest] != UNSET or point in tree.taken(node):
        return False
    ends[node][newest] = point
    return True


def _packed(grown: Sequence[Grown], words: Vocabulary) -> Trees:
    def padded(name: str) -> torch.Tensor:
        rows = [getattr(tree, name) for tree in grown]
        return torch.tensor([row + [UNSET] * (words.largest - len(row)) for row in rows])

    return Trees(
        kinds=padded("kinds"),
        parents=padded("parents"),
        own=padded("own"),
        upper=padded("upper"),
        counts=torch.tensor([len(tree.kinds) for tree in grown]),
        is_over=torch.tensor([tree.is_over for tree in grown]),
    )
