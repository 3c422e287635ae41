"""Texts that training draws: the bits of the host, others for each rank, and by NumPy the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from support.device_draws import DeviceDraws, bytes_of

from appliance.generator import drawing
from appliance.generator.maps import WORDS, Map, integers
from workloads.bert import Bert
from workloads.contract.target import Artifacts, Target
from workloads.parts.datasets.text import FIRST_ORDINARY, IGNORED, MASK, Language, masked_text
from workloads.parts.drawing.drawn import HostDraws, described
from workloads.parts.training.checks import check_step
from workloads.parts.training.inputs import DrawnSets

SEED, VOCABULARY, COUNT, LENGTH = 5, 900, 6, 40


def whole(name: str, values: Map, *shape: int) -> np.ndarray:
    return drawing.whole(described(SEED, name, values, torch.int64, shape)).view(np.int64)


def by_numpy() -> tuple[np.ndarray, np.ndarray]:
    """Masked text and its labels, of the generator and NumPy alone."""
    ordinary, masked = VOCABULARY - FIRST_ORDINARY, round(0.15 * LENGTH)
    successors = whole("successors", integers(0, ordinary - 1), ordinary, 4)
    choices = whole("choices 3", integers(0, 3), COUNT, LENGTH)
    tokens = np.empty_like(choices)
    token = whole("first tokens 3", integers(0, ordinary - 1), COUNT)
    for place in range(LENGTH):
        tokens[:, place] = token = successors[token, choices[:, place]]
    tokens += FIRST_ORDINARY
    order = whole("masked 3", WORDS, COUNT, LENGTH).argsort(axis=1, kind="stable")[:, :masked]
    kind = whole("replaced 3", integers(0, 9), COUNT, masked)
    others = whole("replacements 3", integers(0, ordinary - 1), COUNT, masked) + FIRST_ORDINARY
    labels, rows = np.full_like(tokens, IGNORED), np.arange(COUNT)[:, None]
    labels[rows, order] = tokens[rows, order]
    tokens[rows, order] = np.choose(
        (kind > 7) * (1 + (kind > 8)), (MASK, others, tokens[rows, order])
    )
    return tokens, labels


def test_a_device_and_the_host_and_numpy_draw_the_same_text() -> None:
    expected = by_numpy()
    for drawer in (DeviceDraws(SEED), HostDraws(seed=SEED)):
        language = Language.of(drawer, VOCABULARY)
        made = masked_text(language, "3", count=COUNT, length=LENGTH)
        assert [bytes_of(one) for one in made] == [one.tobytes() for one in expected]


def test_a_spoilt_token_gives_other_results_and_other_bits(tmp_path: Path) -> None:
    """The reference is of what was drawn, so wrong inputs alone make the step wrong."""
    workload = replace(Bert(**Bert.small), layers=1)
    state = workload.build(Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path)), SEED)
    before = workload.snapshot(state)
    assert isinstance(state.batches, DrawnSets)
    state.batches.sets[0]["input_ids"][:, :4] = FIRST_ORDINARY
    outside = {
        check.name
        for check in check_step(before, state, workload.step(state))
        if not check.is_within
    }
    assert {"inputs as generated", "logits against float64"} <= outside
