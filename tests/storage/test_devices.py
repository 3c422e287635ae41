"""Device files: what is shipped is plausible, and what cannot be a figure is refused."""

import itertools
import math
from functools import cache
from pathlib import Path

import pytest

from appliance.errors import UsageError
from appliance.records.baseline import DeviceFile, Peaks
from appliance.storage import device_file, units
from appliance.storage.device_file import DEVICES, load_peaks
from appliance.storage.toml_file import parse

FILES = sorted(DEVICES.glob("*.toml"))
NAMES = [path.stem for path in FILES]
BOUNDS_ALONE = "epyc-virtual"
"""A processor of unknown model: bounds of its cores, and no figure of the device."""
NO_RATES = "flex-170"
"""A card of whose rates no figure was read."""
BEFORE_BFLOAT16 = ("t4", "v100-sxm2-32gb")
"""Parts whose matrix units take neither bfloat16 nor TF32."""
RANGES = {  # from the smallest card to twice the largest module of 2026
    "float64_flops_per_second": (1e11, 2e14),
    "float64_matrix_flops_per_second": (1e12, 4e14),
    "float32_flops_per_second": (1e12, 4e14),
    "float32_matrix_flops_per_second": (1e12, 4e14),
    "tf32_flops_per_second": (1e13, 3e15),
    "bfloat16_flops_per_second": (1e13, 5e15),
    "float16_flops_per_second": (1e13, 5e15),
    "float8_flops_per_second": (1e14, 1e16),
    "float4_flops_per_second": (1e15, 4e16),
    "int8_operations_per_second": (1e14, 1e16),
    "memory_bytes_per_second": (1e11, 2e13),
    "memory_bytes": (8e9, 6e11),
}
ASCENDING = ("float32", "tf32", "bfloat16", "float8", "float4")
"""Formats in which a device is the faster, the fewer bits it multiplies."""


@cache
def shipped(name: str) -> DeviceFile:
    """A shipped file, read by whom a test asks of it: each takes a process to read."""
    path = DEVICES / f"{name}.toml"
    return parse(DeviceFile, path.read_bytes(), path.name)


def figures(device: DeviceFile) -> dict[str, float]:
    return {figure.quantity: figure.value for figure in device.figure}


def test_the_devices_that_are_bought_today_are_there() -> None:
    vendors = [device.vendor for device in map(shipped, NAMES)]
    assert {vendor: vendors.count(vendor) for vendor in vendors} == {
        "NVIDIA": 20,
        "AMD": 8,
        "Intel": 5,
    }


def test_every_quantity_has_its_range() -> None:
    assert RANGES.keys() == units.QUANTITIES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_of_their_order_of_magnitude(name: str) -> None:
    result = figures(shipped(name))
    cores = 64 if name == BOUNDS_ALONE else 1
    for quantity, value in result.items():
        low, high = RANGES[quantity]
        assert low <= cores * value <= high, quantity
    if name == BOUNDS_ALONE:
        assert {figure.per for figure in shipped(name).figure} == {"core"}
        return
    assert {"memory_bytes_per_second", "memory_bytes"} <= result.keys()
    assert ("float32_flops_per_second" in result) == (name != NO_RATES)


@pytest.mark.parametrize("name", NAMES)
def test_matrix_units_are_faster_than_vector_units(name: str) -> None:
    result = figures(shipped(name))
    for wide, narrow in itertools.pairwise(ASCENDING):
        slow, fast = (result.get(f"{part}_flops_per_second") for part in (wide, narrow))
        assert slow is None or fast is None or slow < fast, (wide, narrow)
    for bits in ("float64", "float32"):
        matrix = result.get(f"{bits}_matrix_flops_per_second", math.inf)
        assert result.get(f"{bits}_flops_per_second", 0.0) <= matrix
    if name in BEFORE_BFLOAT16:
        assert not {"bfloat16_flops_per_second", "tf32_flops_per_second"} & result.keys()
    elif name != BOUNDS_ALONE:
        assert result.get("float16_flops_per_second") == result.get("bfloat16_flops_per_second")


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_dense_and_not_sparse(name: str) -> None:
    """A sparse figure would double one format against its neighbours: each step is twofold."""
    result = figures(shipped(name))
    steps = [
        ("tf32_flops_per_second", "bfloat16_flops_per_second"),
        ("bfloat16_flops_per_second", "float8_flops_per_second"),
    ]
    for wide, narrow in steps:
        if wide in result and narrow in result:
            assert result[narrow] / result[wide] == pytest.approx(2.0, rel=0.02), (wide, narrow)
    if {"float8_flops_per_second", "int8_operations_per_second"} <= result.keys():
        assert result["int8_operations_per_second"] == result["float8_flops_per_second"]
    if "float4_flops_per_second" in result:  # twofold, or threefold where the units were widened
        ratio = result["float4_flops_per_second"] / result["float8_flops_per_second"]
        assert 1.99 < ratio < 3.4


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_where_it_was_read(name: str) -> None:
    device = shipped(name)
    assert device.models
    for figure in device.figure:
        assert len(figure.source) > 10
        text = figure.source.lower()
        assert "http" in text or not figure.is_confirmed or "amd" in text or "several" in text


def test_every_model_has_one_file_and_loads() -> None:
    models = [model for device in map(shipped, NAMES) for model in device.models]
    assert len(models) == len(set(models))
    for device in map(shipped, NAMES):
        for model in device.models:
            loaded = load_peaks([model]).peak
            assert {peak.quantity: peak.value for peak in loaded} == figures(device)
            assert {peak.model for peak in loaded} == {model}


def test_an_unknown_model_has_no_peak() -> None:
    assert load_peaks(["AMD EPYC 9999", "NVIDIA H100", ""]) == Peaks(peak=())


def test_what_second_hand_sources_alone_say_is_marked() -> None:
    """The rates of one reader's table; the vendors' own of the same cards are confirmed."""
    marks = {figure.quantity: figure.is_confirmed for figure in shipped("max-1550").figure}
    assert not marks["bfloat16_flops_per_second"]
    assert marks["memory_bytes_per_second"]
    assert all(figure.is_confirmed for figure in shipped("h100-sxm").figure)


# ------------------------------------------------------------------ what is refused

SOUND = """schema = "bench/device/2"
name = "One"
vendor = "Somebody"
models = ["One"]
[[figure]]
quantity = "float32_flops_per_second"
value = 1e13
unit = "FLOP/s"
source = "a data sheet"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device_file, "DEVICES", tmp_path)
    return tmp_path


def test_a_sound_file_is_read(folder: Path) -> None:
    (folder / "one.toml").write_text(SOUND)
    (peak,) = load_peaks(["One"]).peak
    assert (peak.value, peak.per, peak.is_confirmed) == (1e13, "device", True)
    assert load_peaks(["Two"]) == Peaks(peak=())


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"FLOP/s"', '"TFLOP/s"', 'float32_flops_per_second is in "FLOP/s", not in "TFLOP/s"'),
        ("1e13", "0.0", "must be a positive number"),
        ("1e13", "-1e13", "must be a positive number"),
        ("1e13", "nan", "must be a positive number"),
        ("1e13", "inf", "must be a positive number"),
        ("float32_flops", "float23_flops", 'did you mean "float32_flops_per_second"'),
        ('["One"]', "[]", 'key "models" must name the device'),
        ('["One"]', '["One", "One"]', 'the model "One" stands there twice'),
        ('"a data sheet"', '" "', "needs its source"),
        ("unit = ", 'by = "me"\nunit = ', 'unknown key "by" of figure 1'),
        ('source = "a data sheet"', "", 'key "source" of figure 1 is missing'),
    ],
)
def test_a_figure_that_cannot_be_one_is_refused(
    folder: Path, old: str, new: str, sentence: str
) -> None:
    assert old in SOUND
    (folder / "one.toml").write_text(SOUND.replace(old, new))
    with pytest.raises(UsageError) as refused:
        load_peaks(["Two"])
    assert sentence in str(refused.value)
    assert "one.toml" in str(refused.value)


def test_one_quantity_twice_is_refused(folder: Path) -> None:
    figure = SOUND[SOUND.index("[[figure]]") :]
    (folder / "one.toml").write_text(SOUND + figure)
    with pytest.raises(UsageError, match="stands there twice"):
        load_peaks(["One"])


def test_one_model_in_two_files_is_refused(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / f"{name}.toml").write_text(SOUND)
    with pytest.raises(UsageError, match=r'"One" stands in one\.toml and in two\.toml'):
        load_peaks(["One"])
