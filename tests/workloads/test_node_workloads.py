"""The parts of a node: what their workloads do beyond what every workload must."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.errors import ApplianceError
from appliance.generator import drawing
from appliance.generator.words import FILE, sampled_digest
from appliance.worker.child import _failed
from appliance.worker.torch_device import median_seconds
from workloads.contract.failures import ParameterError, Unsupported
from workloads.contract.target import Artifacts, Target
from workloads.disk_read import DiskRead
from workloads.gemm import Gemm
from workloads.gemm_search import SHAPES, GemmSearch
from workloads.host_copy import HostCopy
from workloads.host_stream import HostStream
from workloads.launch_latency import LaunchLatency
from workloads.memory_bandwidth import MemoryBandwidth
from workloads.parts.matmul import dense
from workloads.parts.memory import copies
from workloads.parts.memory.disk import blocks_content, make_file, reader, shared_file
from workloads.parts.numerics.threads import on_threads, usable_processors

MEGABYTE = 2**20


def target(folder: Path, seconds: Callable[[Callable[[], object]], float] | None = None) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder), seconds=seconds)


# ------------------------------------------------------------------ a disk


def num_wrong(workload: Any, state: Any, output: Any) -> float:
    (check,) = workload.check(None, state, output)
    return float(check.error)


@pytest.mark.parametrize("pattern", ["sequential", "random"])
def test_every_block_is_read_once_before_any_is_read_again(pattern: str, tmp_path: Path) -> None:
    workload = DiskRead(
        pattern=pattern, file_bytes=MEGABYTE, block_bytes=4096, blocks=32, folder=str(tmp_path)
    )
    state = workload.build(target(tmp_path), seed=3)
    seen: list[bytes] = []
    for _ in range(MEGABYTE // 4096 // 32):
        output = workload.step(state)
        assert num_wrong(workload, state, output) == 0
        seen += [bytes(row.numpy().tobytes()) for row in output.view(32, -1)]
    assert len(set(seen)) == len(seen) == 256
    in_order = [bytes(blocks_content(3, [n * 4096], 4096).numpy().tobytes()) for n in range(256)]
    assert (seen == in_order) == (pattern == "sequential")
    assert set(seen) == set(in_order)


def num_open_below(folder: Path) -> int:
    """Descriptors of this process for files of a folder; others come and go with other tests."""
    names = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(name.startswith(f"{folder}/") for name in names)


def test_file_has_no_name_and_its_descriptor_is_closed_with_it(tmp_path: Path) -> None:
    file = make_file(str(tmp_path), MEGABYTE, seed=1)
    assert list(tmp_path.iterdir()) == []
    assert num_open_below(tmp_path) == 1
    del file
    assert num_open_below(tmp_path) == 0


def test_where_direct_reads_are_refused_the_check_says_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: str, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    workload = DiskRead(file_bytes=MEGABYTE, block_bytes=4096, blocks=32, folder=str(tmp_path))
    state = workload.build(target(tmp_path), seed=3)
    (check,) = workload.check(None, state, workload.step(state))
    assert check.is_within
    assert "which refuses O_DIRECT: dropped from the page cache" in check.name


# ------------------------------------------------------------------ one that launches share

SHARED = DiskRead(file_bytes=MEGABYTE, block_bytes=4096, blocks=32)


def built(folder: Path, known: dict[str, str] | None = None, seed: int = 3) -> dict[str, str]:
    """A launch builds, with the digests that an untimed one reported; its own."""
    said: dict[str, str] = {}

    def report(name: str, path: Path, digest: str, is_made: bool) -> None:  # noqa: FBT001 - contract
        assert is_made == (known is None)
        said[name] = digest

    artifacts = Artifacts(folder, known, report)
    state = SHARED.build(Target(device=torch.device("cpu"), artifacts=artifacts), seed=seed)
    assert num_wrong(SHARED, state, SHARED.step(state)) == 0
    return said


def test_file_is_written_by_the_untimed_launch_and_read_by_the_others(tmp_path: Path) -> None:
    known = built(tmp_path)
    assert known == {FILE: sampled_digest(3, MEGABYTE)}  # as who verifies derives it
    before = (tmp_path / FILE).stat()
    assert built(tmp_path, known) == known
    after = (tmp_path / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, f"{FILE}.stamp"]


def written_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def cut_short(path: Path) -> None:
    os.truncate(path, MEGABYTE - 4096)


def another_word(path: Path) -> None:
    """Of the first page, which every sample has, at the time that was noted."""
    times = path.stat()
    with path.open("r+b") as file:
        file.write(bytes(8))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (written_again, "was written again or moved since this run's untimed launch made it"),
        (cut_short, "was written again or moved"),
        (another_word, "changed after this run's untimed launch had made it"),
        (Path.unlink, "is gone: run it again"),
    ],
)
def test_file_that_is_not_the_one_that_was_written_is_refused(
    spoil: Callable[[Path], None], sentence: str, tmp_path: Path
) -> None:
    known = built(tmp_path)
    spoil(tmp_path / FILE)
    with pytest.raises(ApplianceError, match=sentence):
        built(tmp_path, known)


def num_cached(path: Path) -> int:
    """Pages of the file that the kernel holds in memory (mincore, man page 2)."""
    size = path.stat().st_size
    library = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        held = (ctypes.c_ubyte * (size // 4096))()
        place = ctypes.c_ubyte.from_buffer(memory)
        failed = library.mincore(ctypes.byref(place), ctypes.c_size_t(size), held)
        del place
        assert not failed
        return sum(one & 1 for one in held)


@pytest.mark.parametrize("is_direct", [True, False])
def test_no_launch_reads_from_memory_what_another_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_direct: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr(os, "O_DIRECT", 0)
        monkeypatch.setattr(os, "preadv", refused_once(os.preadv))
    known = built(tmp_path)
    path = tmp_path / FILE
    if shared_file(Artifacts(tmp_path, known), MEGABYTE, 3).is_direct != is_direct:
        pytest.skip("this file system refuses O_DIRECT")
    if path.read_bytes() and not num_cached(path):
        pytest.skip("this file system caches nothing")
    state = SHARED.build(
        Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path, known)), seed=3
    )
    assert num_cached(path) == 0  # dropped before the first read
    SHARED.step(state)
    assert num_cached(path) == 0


def refused_once(real: Callable[..., int]) -> Callable[..., int]:
    """As preadv of a file system that refuses direct reads, into one page of a file just opened."""

    def read(number: int, buffers: Sequence[Any], offset: int) -> int:
        if isinstance(buffers[0], mmap.mmap):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(number, buffers, offset)

    return read


def test_a_file_system_in_memory_is_named(tmp_path: Path) -> None:
    if not os.access("/dev/shm", os.W_OK):  # noqa: S108 - tmpfs of every Linux
        pytest.skip("no tmpfs at /dev/shm")
    assert make_file("/dev/shm", MEGABYTE, seed=1).how.startswith("tmpfs, ")  # noqa: S108
    assert not make_file(str(tmp_path), MEGABYTE, seed=1).how.startswith(",")


def test_a_folder_without_room_is_unsupported_and_one_that_is_none_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(Unsupported, match=r"GB free, and a file of .* GB is to be read there"):
        make_file(str(tmp_path), 2**60, seed=1)
    with pytest.raises(ParameterError, match="cannot be written"):
        make_file(str(tmp_path / "missing"), MEGABYTE, seed=1)
    end = _failed(Unsupported("no room"), tmp_path)
    assert end.outcome == "not_run"  # an ApplianceError of any other place is no fault of a device
    assert issubclass(Unsupported, ApplianceError)


def test_a_read_that_stops_short_is_an_error(tmp_path: Path) -> None:
    file = make_file(str(tmp_path), MEGABYTE, seed=1)
    reads = reader(file, num_blocks=2, block_bytes=4096, threads=2)
    with pytest.raises(OSError, match="the disk gave 0 of 4096 bytes"):
        reads.read([0, MEGABYTE])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"block_bytes": 1000}, "give a multiple of 4096"),
        ({"file_bytes": MEGABYTE}, "give whole blocks"),
        ({"file_bytes": 2**40}, "give whole blocks"),
        ({"pattern": "backwards"}, "choose one of sequential, random"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_reads_that_cannot_be_made_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        DiskRead(**fields)


# ------------------------------------------------------------------ the best of a list


def test_every_shape_of_the_list_makes_the_same_operations() -> None:
    assert {m * n * k for m, n, k in SHAPES} == {15 * 2**35}
    assert len(set(SHAPES)) == len(SHAPES) == 16
    assert GemmSearch().work().flops == 15 * 2**36


def test_search_keeps_the_fastest_shape_for_all_launches(tmp_path: Path) -> None:
    workload = GemmSearch(divisor=512)
    requested: list[tuple[int, ...]] = []

    def seconds(work: Callable[[], object]) -> float:
        product = work()
        assert isinstance(product, torch.Tensor)
        requested.append(tuple(product.shape))
        return 1.0 if len(requested) == 6 else 1.0 + len(requested)

    state = workload.build(target(tmp_path, seconds), seed=7)
    assert [*requested] == [(m, n) for m, n, _ in workload.shapes]
    assert (state.product.m, state.product.n, state.product.k) == workload.shapes[5]
    result = json.loads((tmp_path / "shape.json").read_text())
    assert len(result["searched"]) == 16
    digest = __import__("hashlib").sha256((tmp_path / "shape.json").read_bytes()).hexdigest()
    known = Target(
        device=torch.device("cpu"), artifacts=Artifacts(tmp_path, {"shape.json": digest})
    )
    again = workload.build(known, seed=7)
    assert (again.product.m, again.product.n, again.product.k) == workload.shapes[5]
    assert len(requested) == 16
    checks = list(workload.check(None, state, workload.step(state)))
    assert checks[0].name == "shape 8 x 30 x 8192 is of the list"
    assert all(check.is_within for check in checks)
    assert not next(workload.check(None, state, torch.zeros(2, 2))).is_within


def test_divisor_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ParameterError, match="divisor is 3: give a power of two up to 512"):
        GemmSearch(divisor=3)


class Clock:
    """Each call takes so many nanoseconds more than the one before."""

    def __init__(self) -> None:
        self.time = 0
        self.calls = 0

    def now(self) -> int:
        return self.time

    raw = now

    def synchronise(self) -> None:
        self.calls += 1
        self.time += 1000 * self.calls

    def mark(self) -> None:
        return None


def test_worker_times_some_work_after_it_has_warmed_up() -> None:
    clock = Clock()
    made: list[int] = []
    seconds = median_seconds(clock, lambda: made.append(1))  # type: ignore[arg-type]
    assert len(made) == 7  # two that warm up, five that count: the third to the seventh
    assert math.isclose(seconds, 5e-6)


# ------------------------------------------------------------------ copies, launches, memory


def test_both_ways_at_once_are_two_copies_of_different_sets(tmp_path: Path) -> None:
    workload = HostCopy(direction="both", num_bytes=4096)
    state = workload.build(target(tmp_path), seed=5)
    output = workload.step(state)
    assert list(output) == ["to_device", "from_device"]
    assert not torch.equal(output["to_device"], output["from_device"])
    swapped = {"to_device": output["from_device"], "from_device": output["to_device"]}
    assert not any(check.is_within for check in workload.check(None, state, swapped))
    assert workload.work().units == 2 * 4096


@pytest.mark.parametrize("num_bytes", [0, -8, 12])
def test_copies_of_no_whole_words_are_refused(num_bytes: int) -> None:
    with pytest.raises(ParameterError, match="give a positive multiple of 8"):
        HostCopy(num_bytes=num_bytes)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_launch_that_is_lost_or_made_twice_shows(change: int, tmp_path: Path) -> None:
    workload = LaunchLatency(launches=50)
    state = workload.build(target(tmp_path), seed=5)
    before = workload.snapshot(state)
    output = workload.step(state)
    assert next(workload.check(before, state, output)).is_within
    wrong = output + change * state.added[state.cycle.index]
    assert not next(workload.check(before, state, wrong)).is_within


def test_host_memory_is_measured_on_all_processors_and_torch_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    real = torch.set_num_threads

    def counted(number: int) -> None:
        used.append(number)
        real(number)

    monkeypatch.setattr(torch, "set_num_threads", counted)
    before = torch.get_num_threads()
    workload = HostStream(array_bytes=MEGABYTE)
    state = workload.build(target(tmp_path), seed=5)
    workload.step(state)
    assert state.threads == usable_processors()
    assert usable_processors() in used
    assert torch.get_num_threads() == before
    assert HostStream(array_bytes=MEGABYTE, threads=1).build(target(tmp_path), seed=5).threads == 1


def test_one_bit_of_what_the_host_streams_shows_in_any_piece(tmp_path: Path) -> None:
    """In the first piece that is drawn for the check, and in the last, which is shorter."""
    workload = HostStream(array_bytes=MEGABYTE + 64)
    for place in (0, MEGABYTE // 4 + 15):
        where = target(tmp_path)
        state = workload.build(where, seed=5)
        assert [summed.drawn.name for summed in where.drawn] == [
            "first 0",
            "first 1",
            "second 0",
            "second 1",
        ]
        assert num_wrong(workload, state, workload.step(state)) == 0
        state.first[1].view(torch.int32)[place] ^= 1 << 23
        assert num_wrong(workload, state, workload.step(state)) == 1


def test_threads_are_put_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), on_threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_one_wrong_word_shows_in_any_part_of_a_copy_on_any_threads(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "PART", 1024)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    workload = HostCopy(num_bytes=8 * 5000)
    state = workload.build(target(tmp_path), seed=5)
    buffer = workload.step(state)["to_device"]
    assert num_wrong(workload, state, {"to_device": buffer}) == 0
    for place in (0, 1023, 1024, 4999):
        changed = buffer.clone()
        changed[place] ^= 1 << 62
        assert num_wrong(workload, state, {"to_device": changed}) == 1
    assert num_wrong(workload, state, {"to_device": buffer[:-1]}) == 5000


@pytest.mark.parametrize("threads", [1, 3])
def test_one_wrong_element_shows_in_any_part_of_any_kernel_s_output(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "PIECE", 1024)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    workload = MemoryBandwidth(array_bytes=4 * 3000)
    state = workload.build(target(tmp_path), seed=5)
    output = workload.step(state)
    for wrong_name in ("copy", "scale", "add", "triad"):
        for place in (0, 1023, 1024, 2999):
            changed = {name: one.clone() for name, one in output.items()}
            changed[wrong_name].view(torch.int32)[place] ^= 1
            counts = {
                check.name.partition(":")[0]: check.error
                for check in workload.check(None, state, changed)
            }
            assert counts == {name: int(name == wrong_name) for name in output}


def test_a_product_is_read_by_a_few_rows_as_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "PIECE", 64 * 7)
    monkeypatch.setattr(dense, "WORTH_A_THREAD", 1)
    workload = Gemm(m=60, n=64, k=4096, dtype="float32")
    state = workload.build(target(tmp_path), seed=5)
    output = workload.step(state)
    given, whole = dense.given(output, state), output.double()
    assert torch.equal(given.rows, whole[state.rows])
    torch.testing.assert_close(given.projected, whole @ state.signs)
    torch.testing.assert_close(given.norms, whole.norm(dim=1))
    assert all(check.error <= check.bound for check in workload.check(None, state, output))
