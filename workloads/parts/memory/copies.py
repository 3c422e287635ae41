"""What is copied from one memory to another, and whether it arrived: random words, all of them.

The words of an input set follow from the seed and the set's number alone, so whoever checks a copy
draws them anew on the host and need not trust the memory that they were copied from. Sets differ
in every word, so what was left from the step before shows.
"""

from __future__ import annotations

import numpy as np
import torch

from appliance.generator import drawing, maps
from appliance.generator.drawing import Drawn
from appliance.records.journal import Check
from workloads.contract.failures import ParameterError
from workloads.parts.drawing.drawn import described, on_host
from workloads.parts.numerics.threads import by_parts

WORD = torch.int64.itemsize
PART = 2**18
"""Words that a thread of the host compares at once."""


def require_words(num_bytes: int) -> None:
    """Raise ParameterError unless `num_bytes` is a positive number of whole words."""
    if num_bytes < WORD or num_bytes % WORD:
        raise ParameterError(f"num_bytes is {num_bytes}: give a positive multiple of {WORD}")


def words(seed: int, index: int, num_bytes: int) -> torch.Tensor:
    """Words (num_bytes / 8,), int64, of the input set `index`, on the host."""
    return on_host(drawn_words(seed, index, num_bytes))


def drawn_words(seed: int, index: int, num_bytes: int) -> Drawn:
    """What the words of an input set are, wherever they are drawn."""
    return described(seed, f"set {index}", maps.WORDS, torch.int64, (num_bytes // WORD,))


def arrival(name: str, output: torch.Tensor, drawn: Drawn) -> Check:
    """Every bit of a copy against what should have arrived.

    The host draws a part of it itself, and reads the same part of the copy, on each of its threads.
    """
    if output.shape == drawn.shape and output.dtype == torch.int64:
        wrong = sum(by_parts(drawn.count, PART, lambda part: _num_wrong(output, drawn, part)))
    else:
        wrong = drawn.count
    return Check(
        name=f"{name}: words that differ",
        error=wrong,
        bound=0,
        kind="exact",
        detects=1,
        detects_what=f"wrong words among {drawn.count}",
    )


def _num_wrong(output: torch.Tensor, drawn: Drawn, part: slice) -> int:
    given = output[part].cpu().numpy().view(np.uint64)
    exact = drawing.rows(drawn, part.start, len(given))
    return 0 if np.array_equal(given, exact) else int(np.count_nonzero(given != exact))
