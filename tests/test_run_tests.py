"""The command behind `make test`: both parts count, and the last line is pytest's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "run_tests.py"
SPEC = importlib.util.spec_from_file_location("run_tests", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
run_tests = importlib.util.module_from_spec(SPEC)
sys.modules["run_tests"] = run_tests  # where its dataclass looks for itself
SPEC.loader.exec_module(run_tests)


def part(code: int, closing: str = "", seconds: float = 1.0):
    return run_tests.Part(name="x", code=code, seconds=seconds, closing=closing, images_seconds=0.0)


@pytest.mark.parametrize(
    ("codes", "code"),
    [((0, 0), 0), ((0, 5), 0), ((5, 0), 0), ((5, 5), 5), ((1, 0), 1), ((0, 1), 1), ((-9, 0), -9)],
)
def test_a_failure_of_either_part_is_the_whole_s(codes: tuple[int, ...], code: int) -> None:
    assert run_tests.code_of([part(one) for one in codes]) == code


def test_counts_of_both_parts_are_one_closing_line() -> None:
    first = part(1, "== 2 failed, 50 passed, 3 skipped in 60.00s (0:01:00) ==", 61.0)
    second = part(0, "7 passed, 55 deselected in 2.00s", 3.5)
    assert run_tests.counted([first, second]) == "2 failed, 57 passed, 3 skipped in 64.50s"
    assert run_tests.counted([part(5, "62 deselected in 1.00s")]) == "no tests ran in 1.00s"
    assert run_tests.CLOSING.match(first.closing)
    assert run_tests.CLOSING.match(second.closing)


def test_words_of_a_test_are_no_closing_line() -> None:
    assert not run_tests.CLOSING.match("50 passed through the gate")
    assert run_tests.IMAGES.findall("engine images made in 31.5 s\n") == ["31.5"]


def test_what_is_compiled_is_kept_for_the_next_process_and_workers_have_one_thread() -> None:
    own = {"PATH": "/bin", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "8"}
    shared = {"JAX_COMPILATION_CACHE_DIR": "/programs", **run_tests.COMPILED}
    result = run_tests.environment(own, "/programs", workers=False)
    assert result == {"PATH": "/bin", "OMP_NUM_THREADS": "8", **shared}
    result = run_tests.environment(own, "/programs", workers=True)
    assert result == {"PATH": "/bin", **dict.fromkeys(run_tests.THREADS, "1"), **shared}
