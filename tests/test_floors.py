"""The house: imports go down its floors, heavy libraries stay in their rooms, makers in theirs.

A floor holds rooms. A module imports what lies on a lower floor, or in its own room: a room is
one idea that was split into several modules, and has no cycle. New modules are entered here.
"""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

Room = tuple[str, ...]
FLOORS: list[list[Room]] = [
    [
        ("appliance.errors", "appliance.records", "appliance.given"),
        ("appliance.version",),
        ("appliance.terminal",),
    ],
    [
        ("workloads.contract",),
        ("appliance.vendors.base", "appliance.vendors.vocabulary"),
        ("appliance.vendors.containers",),
        ("appliance.vendors.torch_settings",),
        ("appliance.catalog",),
        ("appliance.journal",),
        ("appliance.seeds", "appliance.freshness"),
        # what the kernel tells of a machine, in files
        (
            "appliance.tree",
            "appliance.facts",
            "appliance.cgroup",
            "appliance.processors",
            "appliance.sensors",
            "appliance.smbios",
            "appliance.neighbours",
            "appliance.pci",
            "appliance.kernel_log",
        ),
        # what the parent and the child of a launch say to each other
        ("appliance.processes", "appliance.wire"),
    ],
    [
        ("workloads.parts.*",),
        (
            "appliance.vendors.xpu",
            "appliance.vendors.xpu_cards",
            "appliance.vendors.xpu_kernel",
            "appliance.vendors.xpu_tool",
            "appliance.vendors.xpu_facts",
            "appliance.vendors.xpu_log",
            "appliance.vendors.xpu_software",
        ),
        ("appliance.vendors.*",),
        (
            "appliance.vendors.nvml",
            "appliance.vendors.nvlink",
            "appliance.vendors.nvml_telemetry",
            "appliance.vendors.nvml_facts",
            "appliance.vendors.nvml_absent",
            "appliance.vendors.xid",
            "appliance.vendors.cuda",
        ),
        (
            "appliance.vendors.amd_values",
            "appliance.vendors.amd_throttles",
            "appliance.vendors.amd_bus",
            "appliance.vendors.amd_absent",
            "appliance.vendors.amd_faults",
            "appliance.vendors.amdsmi_calls",
            "appliance.vendors.amdsmi_facts",
            "appliance.vendors.amdsmi_library",
            "appliance.vendors.amd_smi_facts",
            "appliance.vendors.amd_smi_tool",
            "appliance.vendors.rocm",
        ),
        # samples to numbers
        (
            "appliance.statistics",
            "appliance.sequential",
            "appliance.tails",
            "appliance.tolerance",
            "appliance.drift",
            "appliance.changepoints",
            "appliance.series",
            "appliance.stragglers",
            "appliance.score",
            "appliance.matching",
            "appliance.sampling",
            "appliance.coverage",
            "appliance.contrasts",
        ),
        ("reports.words", "reports.plots"),
    ],
    [
        ("workloads.*",),
        ("appliance.vendors.preferred",),  # all makers
        ("appliance.placing", "appliance.plan"),
        ("appliance.workload_facts",),
        (
            "appliance.comparable",
            "appliance.evidence",
            "appliance.ledger",
            "appliance.agreement",
            "appliance.limits",
            "appliance.plausible",
            "appliance.performance",
            "appliance.ratios",
            "appliance.results",
            "appliance.variants",
            "appliance.rulings",
            "appliance.comparing",
            "appliance.ordering",
            "appliance.verdict",
        ),
    ],
    [
        (
            "workloads.injected.*",
        ),  # workloads that go wrong on purpose, on top of those that do not
        ("workloads.recording.*",),  # a program of its own, which records bands
        (
            "appliance.launcher",
            "appliance.components",
            "appliance.conditions",
            "appliance.machine",
            "appliance.probe",
            "appliance.redaction",
        ),
        (
            "appliance.timing",
            "appliance.repeated",
            "appliance.outputs",
            "appliance.libraries",
            "appliance.parameters",
            "appliance.launch",
            "appliance.forkserver",
            "appliance.worker",
        ),
        (
            "appliance.environment",
            "appliance.history",
            "appliance.children",
            "appliance.watch",
            "appliance.observing",
            "appliance.runner",
        ),
        ("appliance.bundle",),
        ("appliance.drafting",),
        ("appliance.dsse", "appliance.pades", "appliance.signing"),
    ],
    [
        (
            "appliance.links",
            "appliance.conduct",
            "appliance.launched",
            "appliance.expected",
            "appliance.verify",
        ),
        (
            "reports.model",
            "reports.burn_in",
            "reports.pairs",
            "reports.machine",
            "reports.health",
            "reports.roofline",
            "reports.cases",
            "reports.judging",
            "reports.view",
        ),
        ("appliance.pairing", "appliance.comparison"),
        ("appliance.dispute",),
    ],
    [
        ("reports.comparison", "reports.render"),
        # the side of the container that is outside
        ("appliance.preflight", "appliance.launcher_options", "appliance.host"),
    ],
    [
        (
            "appliance.datasets",
            "appliance.attest",
            "appliance.accept",
            "appliance.rerun",
            "appliance.start",
            "appliance.findings",
            "appliance.software",
            "appliance.doctor",
        ),
        ("appliance.compare",),
        ("appliance.baseline",),
        # faults that are injected, and what became of them
        (
            "appliance.pace",
            "appliance.virtual",
            "appliance.simulation",
            "appliance.injections",
            "appliance.scenarios",
            "appliance.faults",
            "appliance.selftest",
        ),
        ("appliance.challenge",),
        ("appliance.listing", "appliance.progress"),
    ],
    [("appliance.cli", "appliance.__main__")],
]
EACH_ALONE = {("workloads.*",), ("appliance.vendors.*",)}  # one workload, one maker: a room each
LIGHT_FLOORS = 5  # up to `bench verify` nothing heavy is loaded
HEAVY = {"torch", "onnxruntime", "docker", "weasyprint"}
HEAVY_ROOMS = {"weasyprint": {"reports.render"}, "docker": {"appliance.host"}}
MAKERS = re.compile(r"(?<![a-z])(cuda|hip|rocm|xpu|nvidia)(?![a-z])", re.IGNORECASE)
ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for package in ("appliance", "workloads", "reports")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.stem != "__init__"
}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def place(module: str) -> tuple[int, Room]:
    """Floor and room that name the module, else those that name its folder."""
    family = f"{module.rpartition('.')[0]}.*"
    for name in (module, family):
        for level, rooms in enumerate(FLOORS):
            for room in rooms:
                if name in room:
                    return level, (module,) if room in EACH_ALONE else room
    pytest.fail(f"{module} has no floor yet: enter it in FLOORS")


def imported(module: str) -> set[str]:
    """Every project module that an import statement can reach, relative ones resolved."""
    found: set[str] = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            found |= {source} | {f"{source}.{alias.name}" for alias in node.names}
    return found & MODULES.keys()


def libraries(module: str) -> set[str]:
    """Every library that a module imports, at its top or in a function, but not for types alone."""
    types_alone = {
        inner
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in set(ast.walk(TREES[module])) - types_alone:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    level, room = place(module)
    for name in sorted(imported(module)):
        below, its_room = place(name)
        assert below < level or its_room == room, f"{module} imports {name}"


def test_no_room_has_a_cycle() -> None:
    graphlib.TopologicalSorter({module: imported(module) for module in MODULES}).prepare()


@pytest.mark.parametrize("module", MODULES)
def test_the_worker_alone_imports_by_name(module: str) -> None:
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(TREES[module])
        if isinstance(node, ast.Attribute | ast.Name)
    }
    # A workload may follow another one, which stands on its own floor: it names it, too.
    can_name = {"appliance.worker", "workloads.parts.curves"}
    assert module in can_name or not names & {"import_module", "__import__"}


def test_the_worker_alone_imports_workloads() -> None:
    workloads = {
        name for name in MODULES if name.startswith("workloads.") and name != "workloads.contract"
    }
    for module in MODULES.keys() - workloads - {"appliance.worker"}:
        assert not imported(module) & workloads, module


def test_only_workloads_makers_and_the_worker_import_torch() -> None:
    allowed = ("workloads.", "appliance.vendors.", "appliance.worker")
    for module in MODULES:
        assert module.startswith(allowed) or "torch" not in libraries(module), module


@pytest.mark.parametrize("library", sorted(HEAVY_ROOMS))
def test_a_heavy_library_has_one_room(library: str) -> None:
    users = {module for module in MODULES if library in libraries(module)}
    assert users <= HEAVY_ROOMS[library]


def test_verifying_and_all_below_load_nothing_heavy() -> None:
    light = [
        module
        for module in MODULES
        if place(module)[0] <= LIGHT_FLOORS
        and (not module.startswith("workloads.") or module == "workloads.contract")
        and module != "appliance.worker"
    ]
    assert "appliance.verify" in light
    code = f"import sys, {', '.join(light)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("module", MODULES)
def test_the_words_of_makers_stay_with_them(module: str) -> None:
    if not module.startswith("appliance.vendors."):
        found = MAKERS.findall(MODULES[module].read_text())
        assert not found, f"{module} knows a maker's word; its vendor or a data file should"


@pytest.mark.parametrize("text", ["a ship of chips", "hipster", "CUDAesque"])
def test_other_words_are_free(text: str) -> None:
    assert not MAKERS.search(text)


@pytest.mark.parametrize("text", ["torch.cuda", "HIP", "is_rocm", "/dev/nvidia0", "xpu-smi"])
def test_words_of_makers_are_seen_in_any_dress(text: str) -> None:
    assert MAKERS.search(text)
