"""Generated molecules: trees of atoms with rings closed in them, laid out in space.

Batches have the sizes of drug-like molecules without hydrogen, 9 to 19 atoms in equal shares
(14 on average, with 15 bonds), so that every batch of a length has as many atoms and bonds as
any other, and the same work. Atoms are carbon, nitrogen or oxygen; each is put a bond's length
from its parent, in that one of some drawn directions which keeps it furthest from all others. A
ring is closed between the two nearest atoms that have room for a bond. No chemistry is claimed
beyond numbers of neighbours and lengths.

What is to be learned (`energies`) is a sum over atoms, by element and number of neighbours, and
over bonds, by elements and length. It is made from the same numbers that a network sees, so a
right gradient lowers the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

LEAST, MOST = 9, 19
"""Atoms of a molecule."""
TYPICAL = (LEAST + MOST) // 2
NUMBERS = np.array([6, 7, 8])
"""Atomic numbers of the elements: carbon, nitrogen, oxygen."""
VALENCES = np.array([4, 3, 2])
_SHARES = (0.5, 0.25, 0.25)  # of the elements, where an atom need not be carbon
_RADII = np.array([0.76, 0.71, 0.66])  # covalent, in angstrom: Cordero et al. 2008
_STRETCH = 0.08
"""Largest deviation of a bond's length from the sum of its radii, relative."""
_TRIES = 12
_PROPERTIES = 3  # numbers drawn for each atom, which tell it from any other
_OF_A_SIZE = 200  # molecules, from which the expected numbers of neighbours are taken
_FULL = 1e3  # added to the distance of atoms that have no room for a bond, in angstrom


@dataclass(frozen=True, kw_only=True)
class Molecules:
    """Atoms of all molecules one after the other; bonds in both directions, sorted by target.

    `sizes` (molecules,), `elements` (atoms,) as indices of NUMBERS, `places` (atoms, 3) in
    angstrom, `properties` (atoms, 3), `bonds` (2, directed bonds): source and target.
    """

    sizes: Whole
    elements: Whole
    places: Floats
    properties: Floats
    bonds: Whole

    @property
    def offsets(self) -> Whole:
        """The first atom of each molecule, and at the end the number of atoms."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def owners(self) -> Whole:
        """By atom, the number of its molecule."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def degrees(self) -> Whole:
        """By atom, the number of its neighbours."""
        return np.bincount(self.bonds[1], minlength=len(self.elements))

    @property
    def lengths(self) -> Floats:
        """By directed bond, in angstrom."""
        source, target = self.bonds
        distances: Floats = np.linalg.norm(self.places[source] - self.places[target], axis=-1)
        return distances


def sizes_of(count: int) -> Whole:
    """Atoms of each molecule of a batch, before it is shuffled."""
    return LEAST + np.arange(count) % (MOST - LEAST + 1)


def num_bonds(sizes: Whole) -> Whole:
    """Bonds of molecules with so many atoms: a tree's, and one for each ring."""
    return sizes - 1 + (sizes - LEAST + 5) // 5


def drawn(generator: torch.Generator, count: int) -> Molecules:
    """Draw a batch of molecules on the host."""
    seed = int(torch.randint(2**62, (), generator=generator))
    return _molecules(np.random.default_rng(seed), count)


def _molecules(rng: np.random.Generator, count: int) -> Molecules:
    sizes = rng.permutation(sizes_of(count))
    elements = rng.choice(len(NUMBERS), size=(count, MOST), p=_SHARES)
    elements[:, ::2] = 0  # carbon has room for the others
    is_there = np.less(np.arange(MOST)[None], sizes[:, None])
    is_bound, places = _trees(rng, sizes, elements)
    for ring in range(int(np.max(num_bonds(sizes) - sizes + 1))):
        _close(is_bound, places, elements, np.flatnonzero(num_bonds(sizes) - sizes >= ring))
    owner, target, source = np.nonzero(is_bound)
    number = np.cumsum(is_there.reshape(-1)).reshape(is_there.shape) - 1
    return Molecules(
        sizes=sizes,
        elements=elements[is_there],
        places=places[is_there],
        properties=rng.standard_normal((int(sizes.sum()), _PROPERTIES)),
        bonds=np.stack([number[owner, source], number[owner, target]]),
    )


def _trees(
    rng: np.random.Generator, sizes: Whole, elements: Whole
) -> tuple[NDArray[np.bool_], Floats]:
    """Bonds (molecules, atoms, atoms) and places of trees, grown atom by atom."""
    count, rows = len(sizes), np.arange(len(sizes))
    is_bound = np.zeros((count, MOST, MOST), bool)
    places = np.full((count, MOST, 3), np.inf)
    places[:, 0] = 0.0
    room = VALENCES[elements].copy()
    for atom in range(1, MOST):
        wish = rng.random((count, atom)) * np.arange(1, atom + 1)  # rather a late one: chains
        parent = np.where(room[:, :atom] > 0, wish, -1.0).argmax(axis=1)
        length = _length(rng, elements[rows, parent], elements[:, atom])
        places[:, atom] = _free_place(rng, places[:, :atom], places[rows, parent], length)
        grown = rows[atom < sizes]
        is_bound[grown, atom, parent[grown]] = is_bound[grown, parent[grown], atom] = True
        room[rows, parent] -= 1
        room[:, atom] -= 1
    return is_bound, places


def _length(rng: np.random.Generator, one: Whole, other: Whole) -> Floats:
    stretch = 1 + _STRETCH * rng.uniform(-1, 1, len(one))
    length: Floats = (_RADII[one] + _RADII[other]) * stretch
    return length


def _free_place(rng: np.random.Generator, taken: Floats, near: Floats, length: Floats) -> Floats:
    """A place at `length` from `near` (molecules, 3), away from those (molecules, atoms, 3)."""
    ways = rng.standard_normal((len(near), _TRIES, 3))
    ways /= np.linalg.norm(ways, axis=-1, keepdims=True)
    tries = near[:, None] + length[:, None, None] * ways
    away = np.square(tries[:, :, None] - taken[:, None]).sum(axis=-1).min(axis=-1)
    best: Floats = tries[np.arange(len(near)), away.argmax(axis=1)]
    return best


def _close(is_bound: NDArray[np.bool_], places: Floats, elements: Whole, which: Whole) -> None:
    """Bind the two nearest atoms with room that are not bound yet, in these molecules."""
    bound = is_bound[which]
    squared_distances = np.square(places[which, :, None] - places[which, None]).sum(axis=-1)
    is_there = np.asarray(bound.any(axis=-1))
    is_full = np.greater_equal(bound.sum(axis=-1), VALENCES[elements[which]])
    squared_distances += _FULL * (is_full[:, :, None] | is_full[:, None])
    is_open = is_there[:, :, None] & is_there[:, None] & ~bound & ~np.eye(MOST, dtype=bool)
    best = np.where(is_open, squared_distances, np.inf).reshape(len(which), -1).argmin(axis=1)
    one, other = np.divmod(best, MOST)
    is_bound[which, one, other] = is_bound[which, other, one] = True


# ------------------------------------------------------------------ what is to be learned


def energies(molecules: Molecules) -> torch.Tensor:
    """What to predict, (molecules, 1) in float32, of mean nought and variance one over all."""
    mean, deviation = _scale()
    scaled = (_energies(molecules) - mean) / deviation
    return torch.from_numpy(scaled).float()[:, None]


@lru_cache(maxsize=1)
def sample() -> Molecules:
    """The molecules from which constants are taken, the same for every seed."""
    return _molecules(np.random.default_rng(1), 44 * (MOST - LEAST + 1))


@lru_cache(maxsize=1)
def _scale() -> tuple[float, float]:
    energies = _energies(sample())
    return float(energies.mean()), float(energies.std())


def _energies(molecules: Molecules) -> Floats:
    source, target = molecules.bonds
    elements = molecules.elements
    atoms: Floats = np.array([0.3, -1.0, 1.0])[elements] * (1 + 0.3 * molecules.degrees)
    usual = _RADII[elements[source]] + _RADII[elements[target]]
    stretch: Floats = (molecules.lengths / usual - 1) / _STRETCH
    strength = 1 + 0.5 * (elements[source] + elements[target])
    bonds = strength * np.tanh(stretch)
    atoms = atoms + 0.25 * np.bincount(target, weights=bonds, minlength=len(elements))
    sums = np.bincount(molecules.owners, weights=atoms, minlength=len(molecules.sizes))
    return sums.astype(np.float64)


# ------------------------------------------------------------------ what a network sees


def atom_features(molecules: Molecules, width: int) -> torch.Tensor:
    """(atoms, width) in float32: element, neighbours and properties, mixed by a fixed matrix."""
    one_hot = np.eye(len(NUMBERS))[molecules.elements] * 3**0.5
    degrees = (molecules.degrees[:, None] - 2) / 0.8
    return _mixed(np.concatenate([one_hot, degrees, molecules.properties], axis=1), width, 1)


def bond_features(molecules: Molecules, width: int) -> torch.Tensor:
    """(directed bonds, width) in float32: the length on bell curves, mixed by a fixed matrix."""
    centres = np.linspace(1.2, 2.6, 8)
    curves = np.exp(-np.square((molecules.lengths[:, None] - centres) / 0.2))
    return _mixed(3 * curves, width, 2)


def _mixed(features: Floats, width: int, number: int) -> torch.Tensor:
    matrix = np.random.default_rng(number).standard_normal((features.shape[1], width))
    return torch.from_numpy(features @ matrix / features.shape[1] ** 0.5).float()


# ------------------------------------------------------------------ neighbours in space


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Pairs of atoms within a cutoff, sorted by target, and what pairs meet at their source.

    `pairs` (2, pairs): source j and target i. `before`, `after` (triplets,): numbers of the pairs
    k -> j and j -> i, where k is not i; sorted by `after`.
    """

    pairs: Whole
    before: Whole
    after: Whole


def neighbours(molecules: Molecules, cutoff: float) -> Neighbours:
    """All pairs of one molecule nearer than `cutoff`, in angstrom, and their triplets."""
    pairs_of_each = [
        _near(molecules.places[first:last], cutoff) + first
        for first, last in zip(molecules.offsets, molecules.offsets[1:], strict=False)
    ]
    source, target = pairs = np.concatenate(pairs_of_each, axis=1)
    counts = np.bincount(target, minlength=len(molecules.elements))
    first = np.concatenate([[0], np.cumsum(counts)])
    after = np.repeat(np.arange(len(source)), counts[source])
    own = np.arange(len(after)) - np.repeat(np.cumsum(counts[source]), counts[source])
    before = first[source[after]] + own + counts[source[after]]
    is_other = source[before] != target[after]
    return Neighbours(pairs=pairs, before=before[is_other], after=after[is_other])


@dataclass(frozen=True, kw_only=True)
class Near:
    """Atoms of a batch, and numbers of its pairs and triplets; means where they are expected."""

    atoms: int
    pairs: float
    triplets: float


def expected_neighbours(count: int, cutoff: float) -> Near:
    """Of a batch of `count` molecules on average: their sizes are given, their places drawn."""
    sizes = sizes_of(count)
    pairs, triplets = (means[sizes - LEAST] for means in _means_by_size(cutoff))
    return Near(atoms=int(sizes.sum()), pairs=float(pairs.sum()), triplets=float(triplets.sum()))


@lru_cache(maxsize=8)
def _means_by_size(cutoff: float) -> tuple[Floats, Floats]:
    """Mean pairs and triplets of a molecule, by its atoms from LEAST to MOST.

    Of 200 molecules of each size; batches of 16 with other seeds differ from the mean by 4 %, and
    the mean by one of 400 by 0.3 %.
    """
    kinds = MOST - LEAST + 1
    molecules = _molecules(np.random.default_rng(2), _OF_A_SIZE * kinds)
    near = neighbours(molecules, cutoff)
    size_of_pair = molecules.sizes[molecules.owners][near.pairs[1]] - LEAST
    pairs = np.bincount(size_of_pair, minlength=kinds) / _OF_A_SIZE
    triplets = np.bincount(size_of_pair[near.after], minlength=kinds) / _OF_A_SIZE
    return pairs, triplets


def _near(places: Floats, cutoff: float) -> Whole:
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    target, source = np.nonzero((distances < cutoff) & ~np.eye(len(places), dtype=bool))
    return np.stack([source, target])
