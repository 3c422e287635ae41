"""Drawn molecules: trees of atoms with rings closed in them, laid out in space, in integers.

Batches have the sizes of drug-like molecules without hydrogen, 9 to 19 atoms in equal shares
(14 on average, with 15 bonds), so that every batch of a length has as many atoms and bonds as
any other, and the same work. Atoms are carbon, nitrogen or oxygen; each is put a bond's length
from its parent, in that one of some drawn directions which keeps it furthest from all others. A
ring is closed between the two nearest atoms that have room for a bond. No chemistry is claimed
beyond numbers of neighbours and lengths.

They are grown where they are to lie, on a device by the generator's integers: lengths are multiples
of 1/512 angstrom, directions the integer points of a sphere of radius 105, so that places and
squared distances are integers of less than 2**53; nothing is compared but these, with the number of
the atom or the pair behind them where two may be equal. What depends on a length is looked up by
the bin of 1/128 angstrom that it lies in, in tables that the host computes once and rounds so far
that hosts agree. So a device and the host make the same bits.

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

from appliance.generator.maps import NORMAL, WORDS, integers
from workloads.parts.drawing.drawn import Drawer, HostDraws

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

LEAST, MOST = 9, 19
"""Atoms of a molecule."""
TYPICAL = (LEAST + MOST) // 2
NUMBERS = (6, 7, 8)
"""Atomic numbers of the elements: carbon, nitrogen, oxygen."""
VALENCES = (4, 3, 2)
_ELEMENTS = (0, 0, 1, 2)
"""By a drawn number: the shares of the elements, where an atom need not be carbon."""
_RADII = np.array([0.76, 0.71, 0.66])  # covalent, in angstrom: Cordero et al. 2008
_STRETCH = 0.08
"""Largest deviation of a bond's length from the sum of its radii, relative."""
_STEPS = 2**14
"""Of a stretch."""
_UNITS = 512
"""Of length, in an angstrom."""
_RADIUS = 105
"""Of the sphere whose integer points are the directions: as 3 * 5 * 7 it has 1,350 of them."""
PLACE = 1.0 / (_UNITS * _RADIUS)
"""Angstrom that an integer of a place stands for."""
_TRIES = 12
_WISHES = 512
_PROPERTIES = 3  # numbers drawn for each atom, which tell it from any other
_LARGEST = 127
"""Of a property, drawn evenly around nought."""
_BINS, _MOST_BINS = 128, 1024
"""Bins of a length in an angstrom, and in all; the last has what is longer."""
_PAIRS = 512
"""Numbers for the pairs of a molecule's atoms."""
_FULL = 2**52
"""Added to the squared distance of atoms that have no room for a bond, which is less."""
_NEVER = 2**62
_MOST_NEIGHBOURS = 8
"""Of an atom, in tables: rings may be closed where there is no room left."""
_OF_A_SIZE = 200  # molecules, from which the expected numbers of neighbours are taken
_FINE = 2**16
"""Steps of features and energies in one, so coarse that hosts round alike."""


@dataclass(frozen=True, kw_only=True)
class Molecules:
    """Atoms of all molecules one after the other; bonds in both directions, sorted by target.

    Tensors of int64, on one device. `sizes` (molecules,), `elements` (atoms,) as indices of
    NUMBERS, `places` (atoms, 3) in units of PLACE, `properties` (atoms, 3), `bonds` (2, directed
    bonds): source and target.
    """

    sizes: torch.Tensor
    elements: torch.Tensor
    places: torch.Tensor
    properties: torch.Tensor
    bonds: torch.Tensor

    @property
    def numbers(self) -> torch.Tensor:
        """By atom, its atomic number."""
        return _on(NUMBERS, self.elements)[self.elements]

    @property
    def offsets(self) -> torch.Tensor:
        """The first atom of each molecule, and at the end the number of atoms."""
        return torch.nn.functional.pad(self.sizes.cumsum(0), (1, 0))

    @property
    def owners(self) -> torch.Tensor:
        """By atom, the number of its molecule."""
        return torch.arange(len(self.sizes), device=self.sizes.device).repeat_interleave(self.sizes)

    @property
    def degrees(self) -> torch.Tensor:
        """By atom, the number of its neighbours."""
        return _counted(self.bonds[1], len(self.elements))

    @property
    def lengths(self) -> torch.Tensor:
        """By directed bond, the number of its bin."""
        source, target = self.bonds
        return _bins(_squared(self.places[source], self.places[target]))


def sizes_of(count: int) -> Whole:
    """Atoms of each molecule of a batch, before it is shuffled."""
    return LEAST + np.arange(count) % (MOST - LEAST + 1)


def num_bonds(sizes: Whole) -> Whole:
    """Bonds of molecules with so many atoms: a tree's, and one for each ring."""
    return sizes - 1 + _num_rings(sizes)


def _num_rings(sizes: Whole) -> Whole:
    return (sizes - LEAST + 5) // 5


def drawn(drawer: Drawer, name: str, count: int) -> Molecules:
    """The batch of a name, where the drawer draws."""
    order = drawer.tensor(f"order {name}", WORDS, torch.int64, (count,)).argsort(stable=True)
    sizes = _on(sizes_of(count), order)[order]
    chosen = drawer.tensor(f"elements {name}", integers(0, 3), torch.int64, (count, MOST))
    elements = _on(_ELEMENTS, order)[chosen]
    elements[:, ::2] = 0  # carbon has room for the others
    properties = drawer.tensor(
        f"properties {name}",
        integers(-_LARGEST, _LARGEST),
        torch.int64,
        (count, MOST, _PROPERTIES),
    )
    is_there = torch.arange(MOST, device=order.device) < sizes[:, None]
    is_bound, places = _trees(drawer, name, is_there, elements)
    for ring in range(int(_num_rings(sizes_of(count)).max())):
        has_ring = _on(_num_rings(np.arange(MOST + 1)), order)[sizes] > ring
        _close(is_bound, places, elements, is_there & has_ring[:, None])
    owner, target, source = is_bound.nonzero().unbind(1)
    number = is_there.flatten().cumsum(0).view_as(is_there) - 1
    return Molecules(
        sizes=sizes,
        elements=elements[is_there],
        places=places[is_there],
        properties=properties[is_there],
        bonds=torch.stack([number[owner, source], number[owner, target]]),
    )


def _trees(
    drawer: Drawer, name: str, is_there: torch.Tensor, elements: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bonds (molecules, atoms, atoms) and places of trees, grown atom by atom."""
    count, device = len(elements), elements.device
    wishes, lengths, ways = _ways(drawer, name, count)
    rows, numbers = torch.arange(count, device=device), torch.arange(MOST, device=device)
    is_bound = torch.zeros(count, MOST, MOST, dtype=torch.bool, device=device)
    places = torch.zeros(count, MOST, 3, dtype=torch.int64, device=device)
    room, sums = _on(VALENCES, elements)[elements], _on(_sums(), elements)
    for atom in range(1, MOST):
        wish = wishes[:, atom, :atom] * (numbers[:atom] + 1)  # rather a late one: chains
        has_room = room[:, :atom] > 0
        parent = (wish * MOST + numbers[:atom]).where(has_room, -1).argmax(dim=1)
        length = sums[elements[rows, parent], elements[:, atom]] * lengths[:, atom] // _STEPS
        places[:, atom] = _free_place(
            places[:, :atom], places[rows, parent], length[:, None, None] * ways[:, atom]
        )
        is_grown = is_there[:, atom]
        is_bound[rows, atom, parent] = is_bound[rows, parent, atom] = is_grown
        room[rows, parent] -= 1
        room[:, atom] -= 1
    return is_bound, places


def _ways(drawer: Drawer, name: str, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What each atom has drawn: how it wishes for each other as parent, its length, directions."""
    widest = round(_STRETCH * _STEPS)
    wishes = drawer.tensor(f"wishes {name}", integers(1, _WISHES), torch.int64, (count, MOST, MOST))
    lengths = drawer.tensor(
        f"lengths {name}",
        integers(_STEPS - widest, _STEPS + widest),
        torch.int64,
        (count, MOST),
    )
    points = _directions()
    chosen = drawer.tensor(
        f"directions {name}", integers(0, len(points) - 1), torch.int64, (count, MOST, _TRIES)
    )
    return wishes, lengths, _on(points, chosen)[chosen]


def _free_place(taken: torch.Tensor, near: torch.Tensor, ways: torch.Tensor) -> torch.Tensor:
    """Of the places `ways` from `near` the one furthest from those taken; the first of equals."""
    tries = near[:, None] + ways
    away = _squared(tries[:, :, None], taken[:, None]).amin(dim=-1)
    numbers = torch.arange(_TRIES, device=near.device)
    best = (away * _TRIES + (_TRIES - 1 - numbers)).argmax(dim=1)
    return tries[torch.arange(len(near), device=near.device), best]


def _close(
    is_bound: torch.Tensor, places: torch.Tensor, elements: torch.Tensor, is_there: torch.Tensor
) -> None:
    """Bind the two nearest atoms with room that are not bound yet, of those that are there."""
    rows = is_there.any(dim=1).nonzero().squeeze(1)
    bound, there, place = is_bound[rows], is_there[rows], places[rows]
    distances = _squared(place[:, :, None], place[:, None])
    is_full = bound.sum(dim=-1) >= _on(VALENCES, elements)[elements[rows]]
    distances += _FULL * (is_full[:, :, None] | is_full[:, None])
    is_open = (there[:, :, None] & there[:, None] & ~bound).triu(diagonal=1)
    numbers = torch.arange(MOST * MOST, device=places.device)
    keys = distances.flatten(1) * _PAIRS + numbers
    best = keys.where(is_open.flatten(1), _NEVER).argmin(dim=1)
    one, other = best // MOST, best % MOST
    is_bound[rows, one, other] = is_bound[rows, other, one] = True


# ------------------------------------------------------------------ integers


def _on(numbers: object, like: torch.Tensor) -> torch.Tensor:
    """Integers of the host where another tensor lies."""
    return torch.as_tensor(np.asarray(numbers, np.int64), device=like.device)


def _squared(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Squared distances of places, whose last dimension goes; a sum of three is slower."""
    total = torch.zeros((), dtype=torch.int64, device=one.device)
    for here, there in zip(one.unbind(-1), other.unbind(-1), strict=True):
        total = total + (here - there).square_()
    return total


def _counted(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """How often each number below `count` is there."""
    ones = torch.ones_like(numbers)
    return torch.zeros(count, dtype=torch.int64, device=numbers.device).index_add_(0, numbers, ones)


def _bins(squared: torch.Tensor) -> torch.Tensor:
    """The bins of squared distances in units of PLACE, by comparison with their squared edges."""
    edges = (np.arange(1, _MOST_BINS, dtype=np.int64) * (_UNITS * _RADIUS // _BINS)) ** 2
    return torch.bucketize(squared, _on(edges, squared), right=True)


@lru_cache(maxsize=1)
def _directions() -> Whole:
    """Integer points (points, 3) of the sphere, in order."""
    one = np.arange(-_RADIUS, _RADIUS + 1)
    first, second = np.meshgrid(one, one, indexing="ij")
    rest = _RADIUS**2 - first**2 - second**2
    roots = np.rint(np.sqrt(np.maximum(rest, 0))).astype(np.int64)
    is_whole = (rest >= 0) & (roots**2 == rest)
    half = np.stack([first[is_whole], second[is_whole], roots[is_whole]], axis=1)
    return np.unique(np.concatenate([half, half * [1, 1, -1]]), axis=0)


def _sums() -> Whole:
    """Sums of two elements' radii, in units of length."""
    sums: Whole = np.rint((_RADII[:, None] + _RADII) * _UNITS).astype(np.int64)
    return sums


def _middles() -> Floats:
    """The middle of each bin of lengths, in angstrom."""
    return (np.arange(_MOST_BINS) + 0.5) / _BINS


def _fine(values: Floats) -> Whole:
    """Values in steps of 2**-16, which are few enough for float32 to hold their sums."""
    return np.rint(values * _FINE).astype(np.int64)


# ------------------------------------------------------------------ what is to be learned


def energies(molecules: Molecules) -> torch.Tensor:
    """What to predict, (molecules, 1) in float32, of mean nought and variance one over all."""
    mean, factor = _scale()
    return (_energies(molecules) - mean).float().mul_(factor)[:, None]


@lru_cache(maxsize=1)
def sample() -> Molecules:
    """The molecules from which constants are taken, the same for every seed."""
    return drawn(HostDraws(seed=1), "sample", 44 * (MOST - LEAST + 1))


@lru_cache(maxsize=1)
def _scale() -> tuple[int, float]:
    """Mean of energies in their steps, and the factor that makes their variance one.

    A sum of integers and a factor of 12 bits: the same on every host.
    """
    energies = _energies(sample()).numpy()
    deviation = float(energies.std()) / _FINE
    return int(energies.sum()) // len(energies), round(2**12 / deviation) / 2**12 / _FINE


def _energies(molecules: Molecules) -> torch.Tensor:
    """Energies (molecules,) in their steps."""
    source, target = molecules.bonds
    elements = molecules.elements
    of_atoms, of_bonds = (_on(table, elements) for table in _terms())
    atoms = of_atoms[elements, molecules.degrees]
    bonds = of_bonds[elements[source], elements[target], molecules.lengths]
    zeros = torch.zeros_like(molecules.sizes)
    owners = molecules.owners
    return zeros.index_add(0, owners, atoms).index_add_(0, owners[target], bonds)


@lru_cache(maxsize=1)
def _terms() -> tuple[Whole, Whole]:
    """Terms of atoms (element, neighbours), and of directed bonds (element, element, bin)."""
    degrees = np.arange(_MOST_NEIGHBOURS)
    atoms = np.array([0.3, -1.0, 1.0])[:, None] * (1 + 0.3 * degrees)
    usual = (_RADII[:, None] + _RADII)[..., None]
    numbers = np.arange(len(NUMBERS))
    strength = 1 + 0.5 * (numbers[:, None] + numbers)[..., None]
    bonds = strength * np.tanh((_middles() / usual - 1) / _STRETCH)
    return _fine(atoms), _fine(0.25 * bonds)


# ------------------------------------------------------------------ what a network sees


def atom_features(molecules: Molecules, width: int) -> torch.Tensor:
    """(atoms, width) in float32: element, neighbours and properties, mixed by a fixed matrix."""
    known, mixing = (_on(table, molecules.sizes) for table in _atom_tables(width))
    mixed = known[molecules.elements, molecules.degrees]
    for number, row in enumerate(mixing):
        mixed = mixed + molecules.properties[:, number, None] * row
    return mixed.float().mul_(1 / _FINE)


@lru_cache(maxsize=4)
def _atom_tables(width: int) -> tuple[Whole, Whole]:
    """In steps: by element and neighbours (.., width), and for each step of a property."""
    one_hot = np.eye(len(NUMBERS)) * 3**0.5
    degrees = (np.arange(_MOST_NEIGHBOURS)[:, None] - 2) / 0.8
    matrix = _matrix("atoms", len(NUMBERS) + 1 + _PROPERTIES, width)
    by_element, by_degree, by_property = np.split(matrix, [len(NUMBERS), len(NUMBERS) + 1])
    known = (one_hot @ by_element)[:, None] + degrees @ by_degree
    deviation = ((2 * _LARGEST + 1) ** 2 / 12) ** 0.5
    return _fine(known), _fine(by_property / deviation)


def bond_features(molecules: Molecules, width: int) -> torch.Tensor:
    """(directed bonds, width) in float32: the length on bell curves, mixed by a fixed matrix."""
    table = _on(_bond_table(width), molecules.sizes).float().mul_(1 / _FINE)
    return table[molecules.lengths]


@lru_cache(maxsize=4)
def _bond_table(width: int) -> Whole:
    """In steps, by the bin of the length (bins, width)."""
    centres = np.linspace(1.2, 2.6, 8)
    curves = 3 * np.exp(-np.square((_middles()[:, None] - centres) / 0.2))
    return _fine(curves @ _matrix("bonds", len(centres), width))


def _matrix(name: str, height: int, width: int) -> Floats:
    """A fixed matrix that keeps the size of what passes through it."""
    numbers = HostDraws(seed=1).tensor(name, NORMAL, torch.float64, (height, width)).numpy()
    scaled: Floats = numbers / height**0.5
    return scaled


# ------------------------------------------------------------------ neighbours in space


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Pairs of atoms within a cutoff, sorted by target, and what pairs meet at their source.

    `pairs` (2, pairs): source j and target i. `before`, `after` (triplets,): numbers of the pairs
    k -> j and j -> i, where k is not i; sorted by `after`.
    """

    pairs: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor


def neighbours(molecules: Molecules, cutoff: float) -> Neighbours:
    """All pairs of one molecule nearer than `cutoff`, in angstrom, and their triplets."""
    owners = molecules.owners
    place = torch.arange(len(owners), device=owners.device) - molecules.offsets[owners]
    padded = molecules.places.new_zeros(len(molecules.sizes), MOST, 3)
    padded[owners, place] = molecules.places
    number = torch.zeros_like(padded[..., 0])
    number[owners, place] = torch.arange(len(owners), device=owners.device)
    is_there = torch.arange(MOST, device=owners.device) < molecules.sizes[:, None]
    distances = _squared(padded[:, :, None], padded[:, None])
    is_other = ~torch.eye(MOST, dtype=torch.bool, device=owners.device)
    is_near = (distances < int((cutoff / PLACE) ** 2)) & is_there[:, :, None] & is_there[:, None]
    is_near &= is_other
    owner, target, source = is_near.nonzero().unbind(1)
    pair = is_near.flatten().cumsum(0).view_as(is_near) - 1
    # Of molecule m the pair j -> i stands at (m, i, j), what meets it at (m, i, j, k).
    meets = is_near[..., None] & is_near[:, None] & is_other[:, None]
    m, i, j, k = meets.nonzero().unbind(1)
    return Neighbours(
        pairs=torch.stack([number[owner, source], number[owner, target]]),
        before=pair[m, j, k],
        after=pair[m, i, j],
    )


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
    molecules = drawn(HostDraws(seed=2), "expected", _OF_A_SIZE * kinds)
    near = neighbours(molecules, cutoff)
    size_of_pair = (molecules.sizes[molecules.owners][near.pairs[1]] - LEAST).numpy()
    pairs = np.bincount(size_of_pair, minlength=kinds) / _OF_A_SIZE
    triplets = np.bincount(size_of_pair[near.after.numpy()], minlength=kinds) / _OF_A_SIZE
    return pairs, triplets
