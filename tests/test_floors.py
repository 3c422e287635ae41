"""The house: imports go down its floors, heavy libraries stay in their rooms, vendors in theirs.

A room is a folder, and a floor holds rooms. A module imports from rooms on lower floors and from
its own room. A new module needs no entry here, a new folder does.
"""

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

FLOORS: list[tuple[str, ...]] = [
    ("appliance",),
    ("appliance.records",),
    ("appliance.linux", "appliance.ipc", "appliance.statistics", "appliance.generator"),
    ("appliance.storage", "appliance.load"),
    ("workloads.contract", "appliance.vendors", "appliance.planning", "appliance.signing"),
    (
        "appliance.vendors.nvidia",
        "appliance.vendors.amd",
        "appliance.vendors.intel",
        "appliance.probe",
        "appliance.evidence",
        "appliance.challenge",
        "appliance.scheduling",
        "appliance.plausibility",
        "appliance.stress",
        "workloads.parts.numerics",
    ),
    ("workloads.parts.distributed", "workloads.parts.drawing"),
    (
        "workloads.parts.matmul",
        "workloads.parts.auditing",
        "workloads.parts.datasets",
        "workloads.parts.graphs",
    ),
    ("workloads.parts.training", "workloads.parts.memory", "workloads.parts.operators"),
    ("workloads.parts.burning",),
    ("workloads.parts.stress",),
    ("workloads.parts.vision", "workloads.parts.inference", "workloads.parts.reinforcement"),
    ("workloads.parts.diffusion", "workloads.parts.language", "workloads.parts.curves"),
    ("workloads", "appliance.worker.idle"),
    ("workloads.injected", "workloads.recording", "appliance.worker", "appliance.readiness"),
    ("appliance.runner", "appliance.judging", "appliance.comparison", "appliance.container"),
    ("appliance.verification", "appliance.qualifying", "appliance.watching", "reports"),
    ("reports.comparing", "reports.document", "appliance.fleet"),
    ("appliance.collection",),
    ("reports.fleet",),
    ("appliance.selftest", "appliance.verbs", "appliance.verbs.baselines"),
    ("appliance.cli",),
    ("appliance.cli.fleet",),
]
ONE_FILE_A_WORKLOAD = {"workloads", "workloads.injected"}
FEWEST, MOST = 3, 15  # modules in a room
ENTRY = "appliance.__main__"  # starts the top floor
JOINER = "appliance.cli.main"  # joins the verbs of all rooms
HEAVY = {"torch", "jax", "onnxruntime", "docker", "weasyprint"}
HEAVY_ROOMS = {"weasyprint": {"reports.render"}, "docker": {"appliance.container.engine_client"}}
VENDOR_WORDS = re.compile(r"(?<![a-z])(cuda|hip|rocm|xpu|nvidia)(?![a-z])", re.IGNORECASE)
ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for package in ("appliance", "workloads", "reports")
    for path in sorted((ROOT / package).rglob("*.py"))
}
MODULES = {name: path for name, path in FILES.items() if path.stem != "__init__"}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


def room_of(module: str) -> str:
    return module.rpartition(".")[0]


def floor_of(room: str) -> int:
    for level, rooms in enumerate(FLOORS):
        if room in rooms:
            return level
    pytest.fail(f"the folder {room} has no floor yet: enter it in FLOORS")


@cache
def imported(module: str) -> frozenset[str]:
    """Every project module that an import statement can reach, relative ones resolved."""
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            names |= {source} | {f"{source}.{alias.name}" for alias in node.names}
    return frozenset(names & MODULES.keys())


@cache
def libraries(module: str) -> set[str]:
    """Every library that a module imports, at its top or in a function, but not for types alone."""
    types_alone = {
        inner
        for node in ast.walk(tree(module))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in set(ast.walk(tree(module))) - types_alone:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_imports_go_down() -> None:
    for module in sorted(MODULES.keys() - {ENTRY, JOINER}):
        room = room_of(module)
        for name in sorted(imported(module)):
            below = room_of(name)
            assert below == room or floor_of(below) < floor_of(room), f"{module} imports {name}"


def test_no_room_has_a_cycle() -> None:
    graphlib.TopologicalSorter({module: imported(module) for module in MODULES}).prepare()


def test_rooms_are_neither_closets_nor_halls() -> None:
    sizes = Counter(room_of(module) for module in MODULES)
    assert {room for rooms in FLOORS for room in rooms} == sizes.keys()
    wrong = {
        room: size
        for room, size in sizes.items()
        if not FEWEST <= size <= MOST and room not in ONE_FILE_A_WORKLOAD
    }
    assert not wrong


def test_a_room_says_what_lives_in_it_and_hands_nothing_on() -> None:
    for room in sorted(FILES.keys() - MODULES.keys()):
        assert ast.get_docstring(tree(room)), f"{room} has no docstring"
        assert len(tree(room).body) == 1, f"{room} defines or hands on names"


def test_unit_tests_stand_in_the_rooms_that_they_test() -> None:
    """A folder of tests has the name of a room, or of a folder of rooms, or has no unit tests."""
    others = {"container", "contract", "faulty", "flow", "recorded", "suites", "support", "tamper"}
    rooms = {name for rooms in FLOORS for room in rooms for name in room.split(".")}
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))}
    assert folders - others <= rooms


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_no_file_of_tests_imports_another() -> None:
    """What two of them need is in support/, where its name says what it builds."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    for path in tests:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            wrong = [name for name in names if name.rpartition(".")[2].startswith("test_")]
            assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_few_modules_import_by_name() -> None:
    # The worker names its workload, the registry its vendor, a curve the workload that it follows,
    # the digests a compiler that only some of torch's builds bring, and the exporter parts of torch
    # that another version may not have.
    by_name = {
        "appliance.worker.workload_loader",
        "appliance.vendors.registry",
        "workloads.parts.curves.curves",
        "workloads.parts.inference.exporter",
        "workloads.parts.memory.digest_kernel",
    }
    for module in MODULES.keys() - by_name:
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(tree(module))
            if isinstance(node, ast.Attribute | ast.Name)
        }
        assert not names & {"import_module", "__import__"}, f"{module} imports by name"


def test_the_worker_alone_imports_workloads() -> None:
    workloads = {
        name
        for name in MODULES
        if name.startswith("workloads.") and not name.startswith("workloads.contract.")
    }
    # The loader imports them by name; others join the ranks of a launch, or prepare exports.
    names = ("workload_loader", "prepare", "child", "forkserver")
    worker = {f"appliance.worker.{name}" for name in names}
    for module in MODULES.keys() - workloads - worker:
        assert not imported(module) & workloads, module


def test_the_worker_is_a_program_that_no_other_room_imports() -> None:
    for module in MODULES:
        reached = {room_of(name) for name in imported(module)}
        own = {"appliance.worker", "appliance.worker.idle"}
        assert room_of(module) in own or not own & reached, module


def test_only_workloads_vendors_and_the_worker_import_torch() -> None:
    allowed = ("workloads.", "appliance.vendors.", "appliance.worker.idle.")
    worker = {
        f"appliance.worker.{name}"
        for name in ("child", "describe", "forkserver", "prepare", "torch_device", "torchrun")
    }
    for module in MODULES.keys() - worker:
        assert module.startswith(allowed) or "torch" not in libraries(module), module


@pytest.mark.parametrize("library", sorted(HEAVY_ROOMS))
def test_a_heavy_library_has_one_room(library: str) -> None:
    users = {module for module in MODULES if library in libraries(module)}
    assert users <= HEAVY_ROOMS[library]


def test_verifying_and_all_below_load_nothing_heavy() -> None:
    top = floor_of("appliance.verification")
    light = [
        module
        for module in MODULES
        if floor_of(room_of(module)) <= top
        and module.startswith(("appliance.", "workloads.contract."))
        and room_of(module)
        not in {"appliance.worker", "appliance.worker.idle", "appliance.container"}
        and module != ENTRY
    ]
    assert "appliance.verification.verify" in light
    code = f"import sys, {', '.join(light)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY == set()


def test_the_words_of_vendors_stay_with_them() -> None:
    for module, path in MODULES.items():
        words = VENDOR_WORDS.findall(path.read_text())
        assert module.startswith("appliance.vendors.") or not words, (
            f"{module} knows a vendor's word ({words[0]}); its vendor or a data file should"
        )


@pytest.mark.parametrize("text", ["a ship of chips", "hipster", "CUDAesque"])
def test_other_words_are_free(text: str) -> None:
    assert not VENDOR_WORDS.search(text)


@pytest.mark.parametrize("text", ["torch.cuda", "HIP", "is_rocm", "/dev/nvidia0", "xpu-smi"])
def test_words_of_vendors_are_seen_in_any_dress(text: str) -> None:
    assert VENDOR_WORDS.search(text)
