"""scripts/locks.sh without an index: what it asks for, and what it takes as a lock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HASH = "--hash=sha256:" + "0123456789abcdef" * 4
WHOLE = f"jax==0.10.2 \\\n    {HASH}\nnumpy==2.4.1 \\\n    {HASH} \\\n    {HASH}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script reads, with a lock of two packages and a `uv` that says what was asked."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "cpu.txt").write_text("numpy==2.4.1 \\\n    x\ntorch==2.13.0+cpu \\\n")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n'
        f"for word; do case $word in */wanted.in|*/without.txt|*/common.txt) "
        f"cp $word {tmp_path};; esac; done\ncat {tmp_path}/answer\n"
    )
    program.chmod(0o755)
    return tmp_path


def make_lock(checkout: Path, name: str, answer: str) -> tuple[int, str]:
    (checkout / "answer").write_text(answer)
    done = subprocess.run(
        [checkout / "scripts" / "locks.sh", name],
        env={"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("name", "index", "wanted", "without"),
    [
        (
            "xpu-torch",
            "https://download.pytorch.org/whl/xpu",
            ["setuptools>=77", "torch==2.13.0+xpu", "onnxruntime-openvino>=1.24"],
            "onnxruntime ",
        ),
        (
            "rocm-jax",
            "https://stable.repo.amd.com/rocm/whl-next/",
            [
                "setuptools>=77",
                "onnxruntime==1.29.0",
                "jax-rocm10-plugin==0.10.2+rocm10.0.0",
                "jax-rocm10-pjrt==0.10.2+rocm10.0.0",
            ],
            "torch ",
        ),
    ],
)
def test_locks_of_vendors_indexes_stand_on_the_processors_lock(
    checkout: Path, name: str, index: str, wanted: list[str], without: str
) -> None:
    assert make_lock(checkout, name, WHOLE) == (0, "")
    lock = (checkout / "locks" / f"{name}.txt").read_text()
    python = {"xpu-torch": "3.11", "rocm-jax": "3.12"}[name]  # that of the base image
    head = f"# made for: cpython {python} Linux x86_64\n# extras: run,report,compare\n"
    assert lock == head + WHOLE
    words = (checkout / "asked").read_text().split()
    assert words[words.index("--index") + 1] == index
    assert "--generate-hashes" in words
    assert (checkout / "wanted.in").read_text().splitlines() == wanted
    assert (checkout / "without.txt").read_text().startswith(without)
    assert (checkout / "common.txt").read_text() == "numpy==2.4.1\n"


def test_wheel_without_a_hash_is_listed_and_no_lock_is_claimed(checkout: Path) -> None:
    code, output = make_lock(checkout, "rocm-jax", f"{WHOLE}bare==1.0\nlast==2.0+rocm10.0.0\n")
    assert code == 1
    assert output == (
        "locks: locks/rocm-jax.txt was not written: no index states a sha256 of "
        "bare==1.0 last==2.0+rocm10.0.0 (listed in locks/rocm-jax.unhashed.txt)\n"
    )
    assert not (checkout / "locks" / "rocm-jax.txt").exists()
    listed = (checkout / "locks" / "rocm-jax.unhashed.txt").read_text().splitlines()
    assert listed[1:] == ["bare==1.0", "last==2.0+rocm10.0.0"]
    assert make_lock(checkout, "rocm-jax", WHOLE) == (0, "")
    assert not (checkout / "locks" / "rocm-jax.unhashed.txt").exists()


def test_lock_that_was_there_stays_where_hashes_are_missing(checkout: Path) -> None:
    assert make_lock(checkout, "rocm", WHOLE)[0] == 0
    before = (checkout / "locks" / "rocm.txt").read_bytes()
    assert make_lock(checkout, "rocm", "bare==1.0\n")[0] == 1
    assert (checkout / "locks" / "rocm.txt").read_bytes() == before
    assert "--index" not in (checkout / "asked").read_text().split()


def test_no_recipe_is_said(checkout: Path) -> None:
    code, output = make_lock(checkout, "tpu", "")
    assert (code, output.count("\n")) == (2, 1)
    assert 'there is no recipe for "tpu"' in output
