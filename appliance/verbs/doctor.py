"""The verb `doctor`: what this machine needs for a run, what it has of it, and what to do.

One row for each thing, with its state: ok, missing, out of range, not needed here, or not known.
Some rows are required: without them `bench accept` cannot run here, or would not see a device that
is on the bus. The others make a run better (steadier figures, more facts, a container). Nothing is
changed and no device is used; what takes long (importing torch, which `software.py` does) happens
in a child that is stopped after some seconds. An examination that fails is a row of its own and
never an error.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from appliance.container import preflight, software
from appliance.container.container_options import SHM_BYTES_EACH, Engine
from appliance.container.doctor_rows import (
    FIGURES,
    IN_CONTAINER,
    LACKS,
    RUNS,
    Place,
    Row,
    State,
    not_needed,
    row_of,
)
from appliance.errors import BenchError
from appliance.foreign_text import one_line
from appliance.linux.kernel_log import KernelLog
from appliance.linux.sensors import CPU, EDAC, Sensors
from appliance.linux.sysfs import Tree, Unreadable, or_none
from appliance.probe import node
from appliance.probe.conditions import CLOCK
from appliance.readiness import disk_space, interference
from appliance.readiness.idle_wait import NodeUse
from appliance.readiness.out_folder import nearest, refusal
from appliance.signing import keys
from appliance.storage.dataset_file import load_datasets
from appliance.vendors.containers import CONTAINERS
from appliance.verbs import datasets

if TYPE_CHECKING:
    from appliance.container.engine_client import EngineClient

ENGINE_SECONDS = 2.0
OTHERS_SECONDS = 0.5
"""Other processes are watched so long; torch is imported meanwhile, by a child of ours."""
SHM = "/dev/shm"  # noqa: S108 - the very thing
SMALLEST_SHM = 64 * 2**20
"""What an engine gives by default, and enough for processors."""
LEAST_WIDTH = 120  # columns of a terminal that the table of five columns needs
STYLES = {
    **dict.fromkeys(LACKS, "bold yellow"),
    "busy": "bold yellow",
    "ok": "",
    "not needed here": "dim",
    "not known": "dim",
}
SMALLEST_DISK = 150 * disk_space.MB
"""What the smoke suite may need; every run checks the room for its own plan before it begins."""
GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
"""Read without a system call; hpet and acpi_pm cost a microsecond and more for each time."""

Examination = Callable[[Place], Iterable[Row]]


def examine(
    *,
    out: Path = Path("out"),
    data: Path | None = None,
    engine: str | None = None,
    root: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
) -> tuple[Row, ...]:
    """Every row for this machine, within about five seconds. Never raises."""
    variables = os.environ if environment is None else environment
    place = Place(tree=Tree(root), out=out, data=data, engine=engine, environment=variables)
    begin = time.monotonic()
    with software.ask_torch() as child:
        rows = [row for one in EXAMINATIONS for row in _guarded(one, place)]
        left = max(0.1, software.TORCH_SECONDS - (time.monotonic() - begin))
        torch = _guarded(lambda _: software.torch(child, left, place), place)
    return (*rows[:1], *torch, *rows[1:])


def can_accept(rows: Iterable[Row]) -> bool:
    """Whether nothing that is required is missing or of a version outside its range."""
    return not any(row.is_required and row.state in LACKS for row in rows)


def to_document(rows: Iterable[Row]) -> dict[str, object]:
    """The one JSON document of the verb."""
    listed = tuple(rows)
    return {
        "can_accept": can_accept(listed),
        "summary": summary(listed),
        "rows": [asdict(row) for row in listed],
    }


def summary(rows: Iterable[Row]) -> str:
    """What it comes to, in one line: whether a run can be made here, and what is left to do."""
    listed = tuple(rows)
    lacking = [row for row in listed if row.state in LACKS]
    required = [row.what for row in lacking if row.is_required]
    optional = [row.what for row in lacking if not row.is_required]
    busy = [row.what for row in listed if row.state == "busy"]
    words = f"{sum(row.state == 'ok' for row in listed)} ok"
    words += f"; optional and missing: {', '.join(optional)}" if optional else ""
    words += f"; busy: {', '.join(busy)}" if busy else ""
    if required:
        return f"not ready, fix first: {', '.join(required)} ({words})"
    return f"ready for `bench accept` ({words})"


def shown(rows: Iterable[Row], width: int) -> Table:
    """The rows for a person: a table where the terminal has room for five columns, else a list."""
    return table(rows) if width >= LEAST_WIDTH else _narrow(rows)


def _narrow(rows: Iterable[Row]) -> Table:
    """What each thing is beside all that is said of it, so that no word is cut."""
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(overflow="fold", no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        fix = f" -> {row.fix}" if row.fix else ""
        told = f"{_state_words(row)}: {row.detected} (for {row.needed_for}){fix}"
        grid.add_row(_cell(row.what), _cell(told), style=_style(row))
    return grid


def _style(row: Row) -> str:
    """What is missing stands out, and what is required of it more."""
    return "bold red" if row.is_required and row.state in LACKS else STYLES[row.state]


def table(rows: Iterable[Row]) -> Table:
    """The rows in five columns, for a terminal that is wide enough."""
    grid = Table(box=None, pad_edge=False)
    for name in ("what", "detected", "needed for", "state", "fix"):
        grid.add_column(name, overflow="fold")
    for row in rows:
        cells = (
            row.what,
            row.detected,
            row.needed_for,
            _state_words(row),
            row.fix,
        )
        grid.add_row(*map(_cell, cells), style=_style(row))
    return grid


def _cell(text: str) -> Text:
    """As it is, on one line: a node's names and the paths of its user stand in it."""
    return Text(one_line(text))


def _state_words(row: Row) -> str:
    """The state; of what is missing, whether a run can do without."""
    if row.state not in LACKS:
        return row.state
    return f"{row.state} ({'required' if row.is_required else 'optional'})"


def _guarded(examination: Examination, place: Place) -> list[Row]:
    try:
        return list(examination(place))
    except Exception as error:  # noqa: BLE001 - an examination that fails is a finding, too
        name = getattr(examination, "__name__", "examination").strip("_<>").replace("_", " ")
        detected = f"could not be examined ({type(error).__name__}: {error})"[:120]
        return [Row(what=name, detected=detected, needed_for="bench doctor", state="not known")]


# ------------------------------------------------------------------ containers and devices


def _containers(place: Place) -> Iterator[Row]:
    try:
        from appliance.container import engine_client  # noqa: PLC0415 - the SDK may be absent
    except BenchError as error:
        yield row_of("container engine", str(error), IN_CONTAINER, "", ok=False, required=False)
        yield from _devices(place, Engine(url=""))
        return
    try:
        url = engine_client.address(place.engine, place.environment)
        with engine_client.opened(url, ENGINE_SECONDS) as engine:
            facts = engine.engine
            detected = f"{facts.product} {facts.version}, API {facts.api}, {facts.storage}, {url}"
            yield row_of("container engine", detected, IN_CONTAINER, "", ok=True, required=False)
            yield from _images(engine, place)
    except BenchError as error:
        sentence, _, fix = str(error).partition(": ")
        yield row_of("container engine", sentence, IN_CONTAINER, fix, ok=False, required=False)
        facts = Engine(url="")
    yield from _devices(place, facts)


def _images(engine: EngineClient, place: Place) -> Iterator[Row]:
    here = {
        name
        for name, one in CONTAINERS.items()
        if preflight.visible_devices(place.tree, one).functions
    }
    for vendor in (*CONTAINERS, preflight.PROCESSORS):
        name = preflight.image_of(vendor)
        is_needed = vendor in here or (vendor == preflight.PROCESSORS and not here)
        try:
            detected = engine.image(name, vendor).id[:19]
            yield row_of(f"image {name}", detected, IN_CONTAINER, "", ok=True, required=False)
        except BenchError as error:
            state: State = "missing" if is_needed else "not needed here"
            fix = str(error).partition(": ")[2] if is_needed else ""
            yield Row(
                what=f"image {name}", detected="none", needed_for=IN_CONTAINER, state=state, fix=fix
            )


def _devices(place: Place, engine: Engine) -> Iterator[Row]:
    """For each vendor: functions on the bus, nodes, and what passes them into a container."""
    for vendor, passing in CONTAINERS.items():
        visible = preflight.visible_devices(place.tree, passing)
        what, counted = f"devices of {passing.title}", f"{len(visible.functions)} on the PCI bus"
        needed_for = f"runs on {passing.title}"
        if not visible.functions and not visible.nodes:
            yield not_needed(what, counted, needed_for)
            continue
        counted += f", {visible.count} nodes in /dev"
        _, missing = preflight.devices(place.tree, vendor, engine)
        is_whole = not any("this host has no" in one for one in missing)
        yield row_of(what, counted, needed_for, passing.driver, ok=is_whole, required=True)
        has_cdi = preflight.has_cdi(place.tree, passing, engine)
        lacks = tuple(preflight.missing_toolkit(place.tree, passing, engine))
        can_pass = has_cdi or not passing.requests or not lacks
        way = passing.cdi if has_cdi else "--gpus all" if passing.requests else "device nodes"
        yield row_of(
            f"container toolkit of {passing.title}",
            way if can_pass else "neither CDI nor hook",
            IN_CONTAINER,
            passing.toolkit,
            ok=can_pass,
            required=False,
        )


def _subject(_place: Place) -> Iterator[Row]:
    """What a run would test, as `accept` asks: an image for accelerators takes nothing else."""
    what = "devices to test"
    try:
        devices = node.present().probe()
    except BenchError as error:
        sentence, _, fix = str(error).partition(": ")
        fix = fix or "name one that is here with --vendor"
        yield row_of(what, sentence, RUNS, fix, ok=False, required=True)
        return
    models = ", ".join(dict.fromkeys(device.model for device in devices))
    yield row_of(what, f"{len(devices)} x {models}", RUNS, "", ok=True, required=True)


# ------------------------------------------------------------------ room


def _room(place: Place) -> Iterator[Row]:
    """As `accept` asks: by writing a file where the run would."""
    refused = refusal(place.out)
    detected = f"{place.out} takes files" if refused is None else refused.reason
    fix = "" if refused is None else refused.fix
    yield row_of("output folder", detected, RUNS, fix, ok=refused is None, required=True)
    free = disk_space.free_bytes(place.out)
    fix = f"make room in {nearest(place.out)}, or name another folder with --out"
    enough = free >= SMALLEST_DISK
    yield row_of("free disk", disk_space.size(free), RUNS, fix, ok=enough, required=True)


def _memory(place: Place) -> Iterator[Row]:
    count = sum(preflight.visible_devices(place.tree, one).count for one in CONTAINERS.values())
    wanted = SHM_BYTES_EACH * count or SMALLEST_SHM
    shared = os.statvfs(SHM)
    size = shared.f_frsize * shared.f_blocks
    fix = f"start with --shm-size {_size(wanted)}, or use `bench start`"
    yield row_of(SHM, _size(size), "several ranks", fix, ok=size >= wanted, required=False)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    is_free = limit == resource.RLIM_INFINITY
    words = "unlimited" if is_free else _size(limit)
    if count:
        fix = "raise it (`ulimit -l unlimited`, or limits.conf), or use `bench start`"
        yield row_of("locked memory", words, "several devices", fix, ok=is_free, required=False)
    else:
        yield not_needed("locked memory", words, "several devices")


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:  # noqa: PLR2004 - of a unit in the next
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def _data(place: Place) -> Iterator[Row]:
    folder = datasets.folder(place.data)
    known = {item.name for item in load_datasets().dataset}
    absent = sorted(known - datasets.available_datasets(folder))
    detected = f"not whole: {', '.join(absent)}" if absent else f"{len(known)} whole in {folder}"
    fix = f"bench data fetch {' '.join(absent)} --to data, and --data data"
    needed_for = "cases that read them"
    yield row_of("data sets", detected, needed_for, fix, ok=not absent, required=False)


# ------------------------------------------------------------------ what the machine reports


def _reporting(place: Place) -> Iterator[Row]:
    try:
        KernelLog(from_start=False, path=place.tree.path("/dev/kmsg")).close()
        yield row_of("kernel log", "readable", "faults of devices", "", ok=True, required=False)
    except Unreadable as gap:
        sentence, _, fix = gap.hint.partition(": ")
        yield row_of("kernel log", sentence, "faults of devices", fix, ok=False, required=False)
    is_virtual = "hypervisor" in (or_none(lambda: place.tree.text("/proc/cpuinfo", 4096)) or "")
    for what, is_there, fix in _sensors(place.tree):
        if is_virtual and not is_there:
            yield not_needed(what, "a virtual machine shows none", "counting errors")
        else:
            detected = "readable" if is_there else "none"
            yield row_of(what, detected, "counting errors", fix, ok=is_there, required=False)


def _sensors(tree: Tree) -> Iterator[tuple[str, bool, str]]:
    controllers = or_none(lambda: tree.names(EDAC, r"mc\d+")) or ()
    yield "memory error counts", bool(controllers), "load the EDAC driver of this processor"
    temperature = or_none(Sensors(tree).temperature)
    yield "temperature", temperature is not None, "load coretemp or k10temp"


def _steadiness(place: Place) -> Iterator[Row]:
    clock = or_none(lambda: place.tree.line(CLOCK))
    fix = "boot without clocksource=, and update the firmware if the kernel distrusts its tsc"
    if clock is None:
        yield Row(
            what="clock source", detected="not reported", needed_for=FIGURES, state="not known"
        )
    else:
        is_good = clock in GOOD_CLOCKS
        yield row_of("clock source", clock, FIGURES, fix, ok=is_good, required=False)
    governors = set(_governors(place.tree))
    fix = "sudo cpupower frequency-set -g performance"
    if governors:
        is_fast = governors == {"performance"}
        detected = ", ".join(sorted(governors))
        yield row_of("CPU governor", detected, FIGURES, fix, ok=is_fast, required=False)
    else:
        yield not_needed("CPU governor", "no frequency driver here", FIGURES)


def _others(place: Place) -> Iterator[Row]:
    """Who else uses the node, as `--wait-idle` asks; on a tree of its own there is nobody."""
    use = NodeUse(None, tree=place.tree)
    time.sleep(OTHERS_SECONDS)
    clauses = use.clauses()
    detected = "; ".join(clauses) or "nobody uses a tenth of it"
    state: State = "busy" if clauses else "ok"
    fix = interference.STOP + " MINUTES" if clauses else ""
    yield Row(what="other load", detected=detected, needed_for=FIGURES, state=state, fix=fix)


def _governors(tree: Tree) -> Iterator[str]:
    for name in or_none(lambda: tree.names(f"{CPU}/cpufreq", r"policy\d+")) or ():
        path = f"{CPU}/cpufreq/{name}/scaling_governor"
        governor = or_none(lambda place=path: tree.line(place))  # type: ignore[misc]
        if governor is not None:
            yield governor


def _key(place: Place) -> Iterator[Row]:
    names = ("BENCH_SIGN_KEY_FILE", "BENCH_SIGN_CERT_FILE")
    key, certificate = (place.environment.get(name) for name in names)
    needed_for = "a signature that is trusted"
    if not key and not certificate:
        detected = f"{names[0]} is not set: runs are signed with a development key"
        yield not_needed("signing key", detected, needed_for, "bench keys create NAME")
        return
    if not key or not certificate:
        fix = f"set both {' and '.join(names)}"
        yield row_of("signing key", "half of it is named", needed_for, fix, ok=False, required=True)
        return
    try:
        keys.load_key(Path(key), Path(certificate))
        yield row_of("signing key", key, needed_for, "", ok=True, required=True)
    except BenchError as error:
        sentence, _, fix = str(error).partition(": ")
        yield row_of("signing key", sentence, needed_for, fix, ok=False, required=True)


EXAMINATIONS: tuple[Examination, ...] = (
    software.python,
    software.packages,
    software.ranges,
    software.locked,
    software.rendering,
    _subject,
    _room,
    _memory,
    _data,
    _containers,
    _reporting,
    _steadiness,
    _others,
    _key,
)
