"""`bench doctor`: a row for each thing, required ones decide, and nothing raises."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support.engine_devices import with_devices
from support.program import ROOT, bench

from appliance import extras
from appliance.container import software
from appliance.container.doctor_rows import LACKS, Place, Row, State
from appliance.linux.sysfs import Tree
from appliance.verbs import datasets, doctor


def row_of(rows: tuple[Row, ...] | list[Row], what: str) -> Row:
    (result,) = [row for row in rows if row.what == what]
    return result


def look(name: str, root: Path, **given: object) -> list[Row]:
    usual = {
        "tree": Tree(root),
        "out": root / "out",
        "data": None,
        "engine": f"unix://{root}/none",
        "environment": {},
    }
    place = Place(**{**usual, **given})  # type: ignore[arg-type]
    looks = {**vars(doctor), **vars(software)}
    return list(looks[name](place))


def test_this_machine_is_told_in_one_document() -> None:
    done = bench("doctor", "--json")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    rows = [Row(**row) for row in document["rows"]]
    assert (done.returncode == 0) == document["can_accept"] == doctor.can_accept(rows)
    assert [row.what for row in rows[:2]] == ["Python", "torch"]
    assert {row.state for row in rows} <= {*get_args(State)}
    assert all(row.fix for row in rows if row.state in LACKS)


def test_required_row_that_is_missing_forbids_acceptance() -> None:
    row = Row(what="a", detected="", needed_for="", state="missing", fix="b", is_required=True)
    assert not doctor.can_accept([row])
    assert doctor.can_accept([replace(row, is_required=False)])


def test_summary_says_whether_it_is_ready_and_what_is_left() -> None:
    fine = Row(what="a", detected="", needed_for="", state="ok")
    lack = Row(what="b", detected="", needed_for="", state="missing", fix="c")
    busy = Row(what="d", detected="", needed_for="", state="busy", fix="e")
    words = doctor.summary([fine, lack, busy])
    assert words == "ready for `bench accept` (1 ok; optional and missing: b; busy: d)"
    assert doctor.summary([fine, replace(lack, is_required=True)]) == (
        "not ready, fix first: b (1 ok)"
    )
    assert doctor._state_words(lack) == "missing (optional)"
    assert doctor._state_words(replace(lack, is_required=True)) == "missing (required)"
    assert doctor._state_words(fine) == "ok"


def test_look_that_fails_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[Row]:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(doctor, "EXAMINATIONS", (broken,))
    monkeypatch.setattr(software, "TORCH_SECONDS", 0.2)
    (row, *_) = doctor.examine(out=tmp_path, root=tmp_path, environment={})
    assert (row.what, row.state) == ("broken", "not known")
    assert "by zero" in row.detected


@pytest.mark.parametrize("vendor", ["cuda", "rocm", "xpu"])
def test_device_on_the_bus_without_a_node_is_missing_and_required(
    tmp_path: Path, vendor: str
) -> None:
    tree = with_devices(tmp_path, vendor)
    passing = doctor.CONTAINERS[vendor]
    rows = look("_containers", tmp_path, tree=tree)
    assert row_of(rows, f"devices of {passing.title}").state == "ok"
    for node in (*passing.nodes, *doctor.preflight.visible_devices(tree, passing).nodes):
        (tmp_path / node.lstrip("/")).unlink()
    row = row_of(look("_containers", tmp_path, tree=tree), f"devices of {passing.title}")
    assert (row.state, row.is_required, row.fix) == ("missing", True, passing.driver)
    assert "1 on the PCI bus, 0 nodes" in row.detected


def test_torch_without_the_device_is_missing_where_there_is_one(tmp_path: Path) -> None:
    place = Place(
        tree=with_devices(tmp_path, "cuda"), out=tmp_path, data=None, engine=None, environment={}
    )
    (row,) = software._accelerator("none", place)
    assert (row.state, row.is_required) == ("missing", True)
    (row,) = software._accelerator("cuda", place)
    assert row.state == "ok"


@pytest.mark.parametrize(
    ("program", "seconds", "state"),
    [
        ("print('2.13.0+cpu none')", 300.0, "ok"),
        ("import no_such_module", 300.0, "missing"),
        ("import time; time.sleep(600)", 0.2, "not known"),
    ],
)
def test_torch_is_asked_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, seconds: float, state: str
) -> None:
    monkeypatch.setattr(software, "TORCH", program)
    monkeypatch.setattr(software, "TORCH_SECONDS", seconds)
    monkeypatch.setattr(doctor, "EXAMINATIONS", ())
    rows = doctor.examine(out=tmp_path, root=tmp_path, environment={})
    assert row_of(rows, "torch").state == state


def test_locked_versions_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pins = software._pins(ROOT / "locks" / "cpu.txt")
    monkeypatch.setattr(software, "_installed", lambda: {**pins, "numpy": "0.1"})
    (row,) = look("locked", ROOT)
    assert row.state == "missing"
    assert f"numpy 0.1 (lock {pins['numpy']})" in row.detected
    monkeypatch.setattr(software, "_installed", lambda: pins)
    (row,) = look("locked", ROOT)
    assert row.state == "ok"


def test_package_that_is_there_twice_counts_as_the_one_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "numpy-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    (row,) = look("locked", ROOT)
    assert row.state == "missing"
    assert "numpy 0.1 (lock " in row.detected


def test_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "RENDERING", ("libc.so.6", "libnothing.so.7"))
    row = row_of(look("rendering", ROOT), "WeasyPrint's libraries")
    assert (row.state, row.is_required) == ("missing", True)
    assert "libnothing.so.7" in row.detected
    assert "libc.so.6" not in row.detected


def test_folder_that_takes_nothing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    row = row_of(look("_room", tmp_path), "output folder")
    assert (row.state, row.is_required) == ("missing", True)
    assert "--out" in row.fix


def test_image_without_its_devices_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_VENDOR", "cpu")
    assert row_of(look("_subject", tmp_path), "devices to test").detected.startswith("1 x ")
    monkeypatch.setenv("BENCH_VENDOR", "no-such-vendor")
    row = row_of(look("_subject", tmp_path), "devices to test")
    assert (row.state, row.is_required) == ("missing", True)


def test_full_disk_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SMALLEST_DISK", 2**62)
    assert row_of(look("_room", tmp_path), "free disk").state == "missing"


def test_data_sets_that_are_not_there_have_their_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    (row,) = look("_data", tmp_path, data=tmp_path)
    assert row.state == "missing"
    assert "bench data fetch" in row.fix
    assert "tinyshakespeare" in row.detected


@pytest.mark.parametrize(("clock", "state"), [("tsc", "ok"), ("hpet", "missing")])
def test_slow_clock_is_told(tmp_path: Path, clock: str, state: str) -> None:
    path = tmp_path / doctor.CLOCK.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(f"{clock}\n")
    assert row_of(look("_steadiness", tmp_path), "clock source").state == state


@pytest.mark.parametrize(("governor", "state"), [("performance", "ok"), ("powersave", "missing")])
def test_governor_is_told(tmp_path: Path, governor: str, state: str) -> None:
    path = tmp_path / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    path.parent.mkdir(parents=True)
    path.write_text(f"{governor}\n")
    assert row_of(look("_steadiness", tmp_path), "CPU governor").state == state


def test_machine_that_reports_nothing_differs_from_a_virtual_one(tmp_path: Path) -> None:
    rows = look("_reporting", tmp_path)
    assert [row.state for row in rows] == ["missing", "missing", "missing"]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : fpu hypervisor\n")
    rows = look("_reporting", tmp_path)
    assert [row.state for row in rows[1:]] == ["not needed here", "not needed here"]


def test_key_that_others_can_read_is_missing(tmp_path: Path) -> None:
    key, certificate = doctor.keys.create_key("A Lab", tmp_path)
    names = {"BENCH_SIGN_KEY_FILE": str(key), "BENCH_SIGN_CERT_FILE": str(certificate)}
    (row,) = look("_key", tmp_path, environment=names)
    assert row.state == "ok"
    key.chmod(0o644)
    (row,) = look("_key", tmp_path, environment=names)
    assert (row.state, row.is_required) == ("missing", True)
    assert "chmod 600" in row.fix
    (row,) = look("_key", tmp_path, environment={"BENCH_SIGN_KEY_FILE": str(key)})
    assert row.state == "missing"
    (row,) = look("_key", tmp_path)
    assert row.state == "not needed here"


def test_engine_that_is_not_there_has_its_fix(tmp_path: Path) -> None:
    row = row_of(look("_containers", tmp_path), "container engine")
    assert (row.state, row.is_required) == ("missing", False)
    assert row.fix


def test_each_part_of_the_package_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"": ("numpy",), "torch": ("torch",), "jax": ("jax", "no-such"), "run": (), "test": ()}
    monkeypatch.setattr(extras, "parts", lambda: parts)
    base, torch, jax = look("packages", ROOT)
    assert (base.what, base.state, base.is_required) == ("packages", "ok", True)
    assert (torch.what, torch.state, torch.is_required) == ("packages [torch]", "ok", True)
    assert (jax.state, jax.is_required) == ("missing", False)
    assert jax.detected == "not installed: no-such"
    assert jax.fix == 'pip install "bench-appliance[jax]"'


def with_package(folder: Path, name: str, version: str) -> str:
    """A folder in which a package of this name says that it is of this version."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (about / "METADATA").write_text(text)
    return str(folder)


def test_package_below_its_range_is_a_line_with_its_fix(tmp_path: Path) -> None:
    """As a person sees it: the folder stands ahead of what is installed."""
    ahead = with_package(tmp_path, "transformers", "5.0.0")
    environment = {**os.environ, "PYTHONPATH": f"{ahead}{os.pathsep}{ROOT}"}
    done = bench("doctor", "--json", env=environment)
    rows = [Row(**row) for row in json.loads(done.stdout)["rows"]]
    (row,) = [row for row in rows if row.state == "out of range"]
    allowed = extras.ranges()["transformers"]
    assert (row.what, row.detected) == ("transformers", f"5.0.0, outside {allowed}")
    assert (row.is_required, row.needed_for) == (True, "every run")
    assert row.fix == f'pip install "transformers{allowed}"'
    assert done.returncode == 2


def test_packages_are_held_to_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.8.0+x", "peft": "0.20.0", "numpy": "2.4.6"}
    parts = {"": ("numpy",), "torch": ("torch",), "lora": ("peft",), "atari": ("ale-py",)}
    wanted = {"numpy": ">=2.0", "torch": ">=2.13,<2.14", "peft": ">=0.21,<0.22", "ale-py": ">=0.12"}
    monkeypatch.setattr(extras, "parts", lambda: parts)
    monkeypatch.setattr(extras, "ranges", lambda: wanted)
    monkeypatch.setattr(extras, "installed_version", versions.get)
    torch, peft = look("ranges", ROOT)
    assert (torch.what, torch.is_required, torch.state) == ("torch", True, "out of range")
    assert (peft.is_required, peft.needed_for) == (False, "workloads of lora")
    assert peft.detected == "0.20.0, outside >=0.21,<0.22"
    assert not doctor.can_accept([torch])
    assert doctor.can_accept([peft])
    versions |= {"torch": "2.13.0+x", "peft": "0.21.3"}
    (row,) = look("ranges", ROOT)
    assert (row.what, row.detected) == ("versions of packages", "3 within their ranges")


def test_package_that_is_not_installed_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "parts", dict)
    (row,) = look("packages", ROOT)
    assert row.state == "not known"
