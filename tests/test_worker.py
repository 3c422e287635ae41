"""The child's parts: how steps are timed, outputs compared, parameters read; and `describe`."""

from __future__ import annotations

import dataclasses
import errno
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from faulty.misbehaving import Misbehaving

from appliance import outputs, parameters, runner, timing, worker
from appliance.environment import child_environment, usable_cores
from appliance.errors import ApplianceError, UsageError
from appliance.records import CaseRequest, Refused, Resolved

# ------------------------------------------------------------------ timing


class FakeWatch:
    """A clock that only steps and snapshots move, and a log of what happened."""

    def __init__(self, *, has_events: bool = False) -> None:
        self.time = 0
        self.log: list[str] = []
        self.has_events = has_events

    def now(self) -> int:
        return self.time

    def synchronise(self) -> None:
        self.log.append("synchronise")

    def mark(self) -> int | None:
        return self.time if self.has_events else None

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def action(self, name: str, *durations: int) -> Callable[[], int]:
        """Something that takes the next of `durations`, the last of them for ever."""
        left = list(durations)

        def act() -> int:
            self.log.append(name)
            self.time += left.pop(0) if len(left) > 1 else left[0]
            return self.log.count(name)

        return act


def test_block_has_at_least_its_steps_and_its_time() -> None:
    watch = FakeWatch()
    by_time = timing.block(watch.action("step", 10), watch, timing.Length(steps=2, nanoseconds=35))
    by_steps = timing.block(watch.action("step", 10), watch, timing.Length(steps=6, nanoseconds=35))
    assert (by_time.wall_ns, by_time.block_wall_ns) == ([10] * 4, 40)
    assert by_steps.wall_ns == [10] * 6
    assert by_time.event_ns is None


def test_every_sample_is_closed_by_a_synchronise() -> None:
    watch = FakeWatch()
    timing.block(watch.action("step", 10), watch, timing.Length(steps=2))
    assert watch.log == ["synchronise", "step", "synchronise", "step", "synchronise"]


def test_last_step_of_a_checked_block_has_its_snapshot_just_before_it() -> None:
    watch = FakeWatch()
    samples = timing.block(
        watch.action("step", 10),
        watch,
        timing.Length(steps=3, nanoseconds=1),
        watch.action("snapshot", 1000),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", "step", "snapshot", "step"]
    assert (samples.before, samples.output) == (1, 3)
    assert samples.block_wall_ns == sum(samples.wall_ns) == 30  # the snapshot is not in it


def test_block_that_ends_against_expectation_makes_one_more_step_for_its_check() -> None:
    watch = FakeWatch()
    samples = timing.block(
        watch.action("step", 10, 90, 10),
        watch,
        timing.Length(steps=1, nanoseconds=80),
        watch.action("snapshot", 0),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", "step", "snapshot", "step"]
    assert samples.wall_ns == [10, 90, 10]


def test_block_that_goes_on_against_expectation_takes_a_new_snapshot() -> None:
    watch = FakeWatch()
    samples = timing.block(
        watch.action("step", 40, 10, 10, 10, 30),
        watch,
        timing.Length(steps=1, nanoseconds=75),
        watch.action("snapshot", 0),
    )
    order = [name for name in watch.log if name != "synchronise"]
    assert order == ["step", *["snapshot", "step"] * 4]
    assert samples.before == 4
    assert samples.output == 5


def test_device_events_are_read_after_the_block() -> None:
    watch = FakeWatch(has_events=True)
    samples = timing.block(watch.action("step", 7), watch, timing.Length(steps=3))
    assert samples.event_ns == [7, 7, 7]


# ------------------------------------------------------------------ outputs


@dataclasses.dataclass
class Output:
    tensor: torch.Tensor
    rest: Any


def frozen(output: Any) -> outputs.Frozen:
    return outputs.freeze(output, worker._bits)


def test_same_output_has_no_differing_byte_whatever_it_is_made_of() -> None:
    def output() -> Output:
        rest = {"a": (np.arange(3), None, 1.5, "x"), 2: [torch.tensor(7), b"b"]}
        return Output(torch.full((2, 2), 0.1, dtype=torch.bfloat16), rest)

    assert outputs.differing_bytes(frozen(output()), frozen(output())) == 0.0
    assert len(frozen(output())) == 7


def test_one_changed_bit_is_seen_and_signed_zero_too() -> None:
    one, two = torch.zeros(4), torch.zeros(4)
    two[3] = -0.0
    assert outputs.differing_bytes(frozen(one), frozen(two)) == 1.0


def test_frozen_output_does_not_follow_its_tensor() -> None:
    tensor = torch.ones(4)
    before = frozen(tensor)
    tensor += 1
    assert outputs.differing_bytes(before, frozen(tensor)) == 8.0  # two bytes of each float


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(2, dtype=torch.float64), (1,), {}])
def test_output_of_another_shape_differs_without_limit(other: Any) -> None:
    assert outputs.differing_bytes(frozen(torch.ones(2)), frozen(other)) == math.inf


def test_output_that_holds_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"output\[0\] is a object"):
        frozen((object(),))


def test_relative_difference_is_of_the_largest_number_and_keeps_nan() -> None:
    def values(*numbers: float) -> outputs.Frozen:
        return outputs.freeze(torch.tensor(numbers, dtype=torch.float64), worker._values)

    assert outputs.relative_difference(values(1.0, 8.0), values(2.0, 8.0)) == 0.125
    assert math.isnan(outputs.relative_difference(values(1.0), values(math.nan)))
    assert outputs.relative_difference(values(0.0), values(1.0)) == math.inf


# ------------------------------------------------------------------ parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chooser(Misbehaving):
    small: ClassVar[dict[str, int]] = {"size": 8}
    dtype: Literal["float32", "bfloat16"] = "float32"


def resolve(**given: Any) -> Resolved | Refused:
    request = CaseRequest(workload="chooser", small=True, parameters=given)
    return parameters.resolve(Chooser, request)


def test_resolved_parameters_are_complete_and_typed() -> None:
    found = resolve(seconds=1, num_steps=4)
    assert isinstance(found, Resolved)
    assert found.parameters == {
        "fault": "none",
        "at": 0,
        "size": 8,
        "seconds": 1.0,
        "num_steps": 4,
        "is_quick": True,
        "dtype": "float32",
    }
    assert type(found.parameters["seconds"]) is float
    assert (found.steps, found.work.units) == (4, 8)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"siez": 3}, 'has no parameter "siez" (did you mean "size"?)'),
        ({"size": 2.0}, 'parameter "size" must be a whole number, not 2.0'),
        ({"size": True}, 'parameter "size" must be a whole number, not True'),
        ({"is_quick": 1}, 'parameter "is_quick" must be true or false, not 1'),
        ({"fault": 1}, 'parameter "fault" must be a text, not 1'),
        ({"seconds": math.nan}, 'parameter "seconds" must be a finite number, not nan'),
        ({"size": 2**60}, 'parameter "size" must be at most 2**53'),
        ({"dtype": "bfloat61"}, '(did you mean "bfloat16"?)'),
        ({"fault": "strike"}, 'there is no fault "strike"'),
        ({"size": -1}, "refuses its parameters"),
    ],
)
def test_value_that_does_not_fit_is_refused_in_a_sentence(
    given: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chooser, "num_parameters", lambda self: torch.empty(self.size).numel())
    found = resolve(**given)
    assert isinstance(found, Refused)
    assert sentence in found.error


# ------------------------------------------------------------------ what an exception means


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (ValueError("a\nb"), "crashed", "ValueError"),
        (MemoryError(), "crashed", "out_of_memory"),
        (torch.OutOfMemoryError("device"), "crashed", "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "crashed", "out_of_memory"),
        (OSError(errno.ENOSPC, "No space left"), "interrupted", "disk_full"),
        (OSError(errno.EIO, "broken"), "crashed", "OSError"),
        (ApplianceError("a file changed"), "not_run", "artifact"),
        (SystemExit(0), "crashed", "SystemExit"),
    ],
)
def test_exception_is_a_result_with_its_reason(
    tmp_path: Path, error: BaseException, outcome: str, reason: str
) -> None:
    end = worker._failed(error, tmp_path)
    assert (end.outcome, end.reason) == (outcome, reason)
    assert "\n" not in end.detail


def test_preloaded_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    with pytest.raises(worker._NotMade) as refusal:
        worker._prepared(None, None, 0)  # type: ignore[arg-type]
    assert refusal.value.reason == "ld_preload"


# ------------------------------------------------------------------ the environment


def test_child_gets_neither_preloads_nor_the_signers_secrets(tmp_path: Path) -> None:
    inherited = {"LD_PRELOAD": "x", "BENCH_SIGN_PASSWORD": "x", "PATH": "/bin", "HOME": "/root"}
    found = child_environment(
        inherited=inherited,
        work=tmp_path,
        num_threads=3,
        vendor={"VISIBLE": "1"},
        tokens={"TOKEN": "t"},
    )
    assert not {"LD_PRELOAD", "BENCH_SIGN_PASSWORD"} & found.keys()
    assert (found["PATH"], found["OMP_NUM_THREADS"], found["VISIBLE"]) == ("/bin", "3", "1")
    assert (found["HF_HUB_OFFLINE"], found["PYTHONHASHSEED"]) == ("1", "0")
    folders = [value for name, value in found.items() if name.endswith(("HOME", "DIR"))]
    assert len(folders) >= 8
    assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)
    assert Path(found["TMPDIR"]).is_dir()


def test_usable_cores_are_at_least_one() -> None:
    assert usable_cores() >= 1


# ------------------------------------------------------------------ describe


def test_describe_answers_for_good_and_bad_requests(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    names = ["faulty.misbehaving", "gem", "faulty.maker", "faulty.noisy"]
    answer = runner.describe(
        [CaseRequest(workload=name, small=False, parameters={}) for name in names]
    )
    good, unknown, no_workload, noisy = answer.resolved
    assert isinstance(good, Resolved)
    assert good.work.units == 64
    assert isinstance(unknown, Refused)
    assert unknown.error.startswith('there is no workload "gem"')
    assert isinstance(no_workload, Refused)
    assert "has no WORKLOAD" in no_workload.error
    assert isinstance(noisy, Resolved)
    found = {description.name: description for description in answer.descriptions}
    assert {"faulty.misbehaving", "faulty.noisy"} <= found.keys()
    assert not {"contract", "parts", "faulty.maker"} & found.keys()
    assert found["faulty.misbehaving"].parameters[0].type == "str"
    assert answer.software["torch"].value == torch.__version__
    assert capfd.readouterr().out == ""


def test_missing_torch_is_said_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    monkeypatch.setattr(
        runner,
        "child_environment",
        lambda **given: {
            **child_environment(**given),
            "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[1]}",
        },
    )
    with pytest.raises(UsageError, match=r"pip install .bench-appliance\[run\]"):
        runner.describe(())
