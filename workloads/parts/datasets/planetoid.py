"""Cora as Planetoid split it: 2,708 papers, the words of each, who cites whom, what each is about.

Yang, Cohen and Salakhutdinov (2016) published the split that every figure for Cora is stated
for: labels of 140 papers to learn from, 500 to validate, 1,000 to test. The last 1,000 papers
come in a shuffled order, which `test.index` tells.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.contract.failures import ParameterError
from workloads.parts.datasets import restricted_pickle
from workloads.parts.datasets.pinned import locate, require_pinned
from workloads.parts.datasets.restricted_pickle import Array, Matrix

Kind = TypeVar("Kind")

DATASET = "planetoid-cora"
PAPERS, WORDS, CLASSES = 2708, 1433, 7
NUM_WORDS_USED = 49_216
"""Pairs of a paper and a word in it."""
NUM_LINKS = 13_264
"""Pairs of a paper and itself or one that it cites or is cited by: 2 * 5,278 + 2,708."""
TRAINED_ON, VALIDATED = slice(140), slice(140, 640)


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """A sparse matrix by rows: row i is `values[offsets[i]:offsets[i + 1]]` in those `columns`.

    `offsets` (rows + 1,) and `columns` (n,) are int64, `values` (n,) float32.
    """

    offsets: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Papers:
    """The data set on the host.

    `words` (2708, 1433): each row the paper's words, all of one weight, which add up to 1.
    `links` (2708, 2708): D^-1/2 (A + I) D^-1/2, the adjacency of Kipf and Welling (2017).
    `labels` (2708,): what each paper is about. `tested` (1000,): numbers of the test papers.
    """

    words: Sparse
    links: Sparse
    labels: torch.Tensor
    tested: torch.Tensor


def cora(data: Path | None) -> Papers:
    """Read Cora from the folder of data sets.

    Raises ParameterError if a file is missing, differs from its pinned digest, or does not hold
    what Cora does.
    """
    tested = np.array(_file(data, "test.index").split(), np.int64)
    known, test = _matrix(data, "allx"), _matrix(data, "tx")
    order = np.empty(PAPERS, np.int64)  # of the rows as they lie, by paper
    order[: known.shape[0]] = np.arange(known.shape[0])
    order[tested] = known.shape[0] + np.arange(len(tested))
    rows = _rows(known) + _rows(test)
    classes = np.concatenate((_array(data, "ally"), _array(data, "ty"))).argmax(1)
    return Papers(
        words=_words([rows[index] for index in order]),
        links=_links(_pickle(data, "graph", dict)),
        labels=torch.from_numpy(classes[order]),
        tested=torch.from_numpy(np.sort(tested)),
    )


def _words(rows: list[NDArray[np.int64]]) -> Sparse:
    counts = np.array([len(row) for row in rows])
    return Sparse(
        offsets=_offsets(counts),
        columns=torch.from_numpy(np.concatenate(rows)),
        values=torch.from_numpy(np.repeat(1 / counts, counts).astype(np.float32)),
    )


def _links(graph: dict[int, list[int]]) -> Sparse:
    """Every link once in each direction, and one of each paper to itself."""
    links = {(paper, paper) for paper in range(PAPERS)}
    for paper, others in graph.items():
        links.update(itertools.chain.from_iterable(((paper, o), (o, paper)) for o in others))
    pairs = np.array(sorted(links))
    degrees = np.bincount(pairs[:, 0], minlength=PAPERS)
    values = 1 / np.sqrt(degrees[pairs[:, 0]] * degrees[pairs[:, 1]])
    return Sparse(
        offsets=_offsets(degrees),
        columns=torch.from_numpy(pairs[:, 1].copy()),
        values=torch.from_numpy(values.astype(np.float32)),
    )


def _offsets(counts: NDArray[np.int64]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(counts))))


# ------------------------------------------------------------------ the files


def _rows(matrix: Matrix) -> list[NDArray[np.int64]]:
    """Columns of each row, in order."""
    cuts = matrix.offsets[1:-1]
    return [np.sort(row).astype(np.int64) for row in np.split(matrix.columns, cuts)]


def _file(data: Path | None, name: str) -> bytes:
    path = locate(data, DATASET, f"ind.cora.{name}")
    require_pinned(path, DATASET)
    return path.read_bytes()


def _pickle(data: Path | None, name: str, kind: type[Kind]) -> Kind:
    source = f"ind.cora.{name}"
    held = restricted_pickle.load(_file(data, name), source)
    if not isinstance(held, kind):
        raise ParameterError(f"{source} holds no {kind.__name__.lower()}: fetch {DATASET} again")
    return held


def _matrix(data: Path | None, name: str) -> Matrix:
    return _pickle(data, name, Matrix)


def _array(data: Path | None, name: str) -> NDArray[np.generic]:
    return _pickle(data, name, Array).value
