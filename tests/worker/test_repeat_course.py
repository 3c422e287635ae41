"""The deterministic phase in the child: what it sets, what it reports, what a mismatch leads to."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faulty.flipping import SIZE, Flipping
from support.launching import case, plan

from appliance.evidence.repeats import digest_of
from appliance.planning.launch_constants import REPEATS_AFTER_MISMATCH as AGAIN
from appliance.records.journal import Difference, MismatchExamined, Repeated
from appliance.records.request import LaunchSpec
from appliance.vendors.torch_settings import be_deterministic
from appliance.worker import outputs, torch_device
from appliance.worker.measure import Channel, Machine
from appliance.worker.repeats import RepeatCourse
from workloads.contract.target import Artifacts, Target

pytestmark = pytest.mark.usefixtures("light_collections")  # one before each of a hundred repeats


@pytest.fixture
def settings() -> Iterator[Mapping[str, str]]:
    yield be_deterministic()
    torch.set_deterministic_debug_mode("default")
    os.environ.pop("TORCHINDUCTOR_DETERMINISTIC")
    torch.backends.cudnn.deterministic = False


class Clock:
    """Clocks that a second passes between two readings of."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.time, self.step = 0, round(seconds * 1e9)

    def now(self) -> int:
        self.time += self.step
        return self.time

    raw = now

    def synchronise(self) -> None: ...

    def mark(self) -> None: ...

    def between(self, begin: int, end: int) -> int:
        return end - begin


def launched(
    folder: Path,
    settings: Mapping[str, str],
    *,
    expected: Mapping[str, Mapping[str, str]] | None = None,
    clock: Clock | None = None,
    **parameters: Any,
) -> list[Any]:
    """Records of one launch of the deterministic phase that is made in this process."""
    records: list[Any] = []
    planned = plan(case("flip", workload="faulty.flipping", is_timed=False, launches=0))
    spec = LaunchSpec(
        launch="flip@cpu:0/r2",
        case=planned.cases[0],
        vendor="faulty.vendor",
        protocol=planned.protocol,
        is_timed=False,
        check_last=False,
        seed=7,
        data=None,
        artifacts_folder=str(folder),
        artifacts={},
        socket="",
        token="",
        num_threads=1,
        library_mode="deterministic",
        expected=expected or {},
    )
    RepeatCourse(
        spec=spec,
        rank=0,
        workload=Flipping(counter=str(folder / "counter"), **parameters),
        target=Target(device=torch.device("cpu"), artifacts=Artifacts(folder)),
        machine=Machine(
            stopwatch=clock or Clock(),
            make_work=lambda: lambda: None,
            seed=torch_device.seed_generators,
            bits=torch_device.device_bits,
            values=torch_device.device_values,
            libraries=dict,
        ),
        channel=Channel(send=records.append, wait=lambda: None),
        settings=settings,
    ).run()
    return records


def test_bits_are_reported_by_tensor_with_what_was_set(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (reported,) = launched(tmp_path, settings)
    assert isinstance(reported, Repeated)
    assert list(reported.digests) == [
        "output['same'] float32 (3,)",
        f"output['value'] float32 ({SIZE},)",
    ]
    assert reported.operators == ()
    assert reported.settings["torch.are_deterministic_algorithms_enabled"] == "True"
    assert reported.settings["torch.backends.cudnn.deterministic"] == "True"
    assert reported.settings["torch.backends.cudnn.benchmark"] == "False"


COMPILER = """
from appliance.vendors.torch_settings import be_deterministic
import sys
be_deterministic()
print("torch._inductor.config" in sys.modules)
from torch._inductor import config
print(config.deterministic)
"""


def test_torch_s_compiler_is_not_imported_and_is_deterministic_where_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILER], capture_output=True, text=True, check=True, timeout=1500
    )
    assert done.stdout.split() == ["False", "True"]


def test_an_operator_without_a_deterministic_form_is_named(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (reported,) = launched(tmp_path, settings, has_form=False)
    assert reported.operators == ("put_",)


def test_the_same_bits_as_before_are_not_repeated(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (first,) = launched(tmp_path, settings)
    assert launched(tmp_path, settings, expected={"0": first.digests}) == [first]


def test_one_flipped_bit_is_followed_by_a_hundred_repeats_and_shown(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (first,) = launched(tmp_path, settings)
    reported, result = launched(tmp_path, settings, expected={"0": first.digests}, first=2)
    assert isinstance(result, MismatchExamined)
    assert reported.digests != first.digests
    assert result.tensors == (f"output['value'] float32 ({SIZE},)",)
    assert (result.num_wanted, result.answers) == (AGAIN, (digest_of(first),) * AGAIN)
    assert result.difference == Difference(
        tensors=(f"output['value'] float32 ({SIZE},)",),
        num_tensors=1,
        num_bytes=1,
        total_bytes=4 * (SIZE + 3),
        num_elements=1,
        total_elements=SIZE,
        first_indices=(2,),
        xor_bits=tuple(int(bit == 30) for bit in range(32)),
        largest_ulp=2**30,
    )


def test_a_flipped_bit_in_every_repeat_gives_as_many_answers(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (first,) = launched(tmp_path, settings)
    _, result = launched(tmp_path, settings, expected={"0": first.digests}, first=2, always=True)
    assert len(result.answers) == AGAIN
    assert digest_of(first) not in result.answers
    assert len(set(result.answers)) == AGAIN


def test_repeats_end_before_the_time_limit_and_say_how_many_were_wanted(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    (first,) = launched(tmp_path, settings)
    _, result = launched(
        tmp_path, settings, expected={"0": first.digests}, first=2, clock=Clock(seconds=2.0)
    )
    assert result.num_wanted == AGAIN
    assert 2 < len(result.answers) < 40  # of 300 s, in each of which some readings pass


# ------------------------------------------------------------------ how outputs differ


def frozen(output: Any) -> outputs.Frozen:
    return outputs.freeze(output, torch_device.device_bits)


@dataclasses.dataclass
class Output:
    tensor: torch.Tensor
    rest: Any


def test_same_output_does_not_differ_whatever_it_is_made_of() -> None:
    def output() -> Output:
        rest = {"a": (np.arange(3), None, 1.5, "x"), 2: [torch.tensor(7), b"b"]}
        return Output(torch.full((2, 2), 0.1, dtype=torch.bfloat16), rest)

    assert outputs.difference(frozen(output()), frozen(output())) is None
    assert len(frozen(output())) == 7


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(3),
        torch.ones(1, 2),
        torch.ones(2, dtype=torch.float64),
        torch.ones(2).view(torch.int32),
        (1,),
        {},
    ],
)
def test_output_of_another_shape_has_other_digests_and_no_numbers_to_compare(other: Any) -> None:
    one = torch.ones(2)
    assert outputs.difference(frozen(one), frozen(other)) is None
    bits = torch_device.device_bits
    assert outputs.digests(one, bits) != outputs.digests(other, bits)


def test_frozen_output_does_not_follow_its_tensor() -> None:
    tensor = torch.ones(4)
    before = frozen(tensor)
    tensor += 1
    result = outputs.difference(before, frozen(tensor))
    assert result is not None
    assert (result.num_bytes, result.num_elements) == (8, 4)  # two bytes of each float


def ulp(one: torch.Tensor, two: torch.Tensor) -> int | None:
    result = outputs.difference(frozen(one), frozen(two))
    assert result is not None
    return result.largest_ulp


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64]
)
def test_neighbouring_numbers_are_one_unit_apart(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, -1.0], dtype=dtype)
    real = torch.view_as_real(one) if dtype.is_complex else one
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}[real.element_size()]
    two = one.clone()
    turned = torch.view_as_real(two) if dtype.is_complex else two
    turned.view(words)[0] += 1  # away from zero
    turned.view(words)[1] += 3
    assert ulp(one, two) == 3


def test_units_count_across_zero_and_integers_have_none() -> None:
    least = float(np.finfo(np.float32).smallest_subnormal)
    assert ulp(torch.tensor([-least]), torch.tensor([least])) == 3  # by -0 and +0
    assert ulp(torch.tensor([0.0]), torch.tensor([-0.0])) == 1
    assert ulp(torch.tensor([math.nan]), torch.tensor([1.0])) is not None
    assert ulp(torch.tensor([1]), torch.tensor([2])) is None
