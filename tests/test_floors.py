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
        ("appliance.errors", "appliance.records.journal", "appliance.storage.input_file"),
        ("appliance.version",),
        ("appliance.cli.sanitize",),
    ],
    [
        ("workloads.contract.workload",),
        ("appliance.vendors.base", "appliance.records.vocabulary"),
        ("appliance.vendors.containers",),
        ("appliance.vendors.torch_settings",),
        ("appliance.storage.criteria_file",),
        ("appliance.storage.journal",),
        ("appliance.planning.seeds", "appliance.planning.challenge_window"),
        # what the kernel tells of a machine, in files
        (
            "appliance.linux.sysfs",
            "appliance.linux.fact_reader",
            "appliance.linux.cgroup",
            "appliance.linux.processors",
            "appliance.linux.sensors",
            "appliance.linux.smbios",
            "appliance.linux.cpu_contention",
            "appliance.linux.pci",
            "appliance.linux.kernel_log",
        ),
        # what the parent and the child of a launch say to each other
        ("appliance.ipc.processes", "appliance.ipc.channel"),
    ],
    [
        ("workloads.parts.*",),
        (
            "appliance.vendors.intel.xpu",
            "appliance.vendors.intel.cards",
            "appliance.vendors.intel.kernel",
            "appliance.vendors.intel.tool",
            "appliance.vendors.intel.facts",
            "appliance.vendors.intel.log",
            "appliance.vendors.intel.software",
        ),
        ("appliance.vendors.*",),
        (
            "appliance.vendors.nvidia.nvml",
            "appliance.vendors.nvidia.nvlink",
            "appliance.vendors.nvidia.nvml_telemetry",
            "appliance.vendors.nvidia.nvml_facts",
            "appliance.vendors.nvidia.nvml_absent",
            "appliance.vendors.nvidia.xid",
            "appliance.vendors.nvidia.cuda",
        ),
        (
            "appliance.vendors.amd.values",
            "appliance.vendors.amd.throttles",
            "appliance.vendors.amd.bus",
            "appliance.vendors.amd.absent",
            "appliance.vendors.amd.faults",
            "appliance.vendors.amd.amdsmi_calls",
            "appliance.vendors.amd.amdsmi_facts",
            "appliance.vendors.amd.amdsmi_library",
            "appliance.vendors.amd.smi_facts",
            "appliance.vendors.amd.smi_tool",
            "appliance.vendors.amd.rocm",
        ),
        # samples to numbers
        (
            "appliance.statistics.estimates",
            "appliance.statistics.group_sequential",
            "appliance.statistics.tails",
            "appliance.statistics.tolerance",
            "appliance.statistics.drift",
            "appliance.statistics.changepoints",
            "appliance.statistics.steady_state",
            "appliance.statistics.stragglers",
            "appliance.statistics.score",
            "appliance.planning.criterion_scope",
            "appliance.planning.check_sampling",
            "appliance.planning.coverage",
            "appliance.comparison.mixed_model",
        ),
        ("reports.words", "reports.plots"),
    ],
    [
        ("workloads.*",),
        ("appliance.vendors.registry",),  # all makers
        ("appliance.planning.placement", "appliance.planning.plan"),
        ("appliance.planning.workload_manifest",),
        (
            "appliance.evidence.baseline_key",
            "appliance.evidence.launches",
            "appliance.evidence.device_health",
            "appliance.evidence.determinism",
            "appliance.judging.limits",
            "appliance.judging.criteria_check",
            "appliance.judging.performance",
            "appliance.judging.ratios",
            "appliance.evidence.case_results",
            "appliance.judging.variants",
            "appliance.judging.functional",
            "appliance.storage.order_values",
            "appliance.storage.order_file",
            "appliance.judging.verdict",
        ),
    ],
    [
        (
            "workloads.injected.*",
        ),  # workloads that go wrong on purpose, on top of those that do not
        ("workloads.recording.*",),  # a program of its own, which records bands
        (
            "appliance.probe.container_facts",
            "appliance.probe.components",
            "appliance.probe.conditions",
            "appliance.probe.host",
            "appliance.probe.node",
            "appliance.probe.redaction",
        ),
        (
            "appliance.worker.timing",
            "appliance.worker.cache_check",
            "appliance.worker.outputs",
            "appliance.worker.libraries",
            "appliance.worker.parameters",
            "appliance.worker.measure",
            "appliance.worker.forkserver",
            "appliance.worker.child",
        ),
        (
            "appliance.runner.environment",
            "appliance.evidence.run_state",
            "appliance.runner.children",
            "appliance.runner.supervisor",
            "appliance.runner.counter_log",
            "appliance.runner.execution",
        ),
        ("appliance.storage.bundle",),
        ("appliance.verbs.order_draft",),
        ("appliance.signing.dsse", "appliance.signing.pades", "appliance.signing.keys"),
    ],
    [
        (
            "appliance.signing.html_attachments",
            "appliance.verification.run_checks",
            "appliance.verification.launch_checks",
            "appliance.verification.suite_checks",
            "appliance.verification.verify",
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
        ("appliance.comparison.case_pairs", "appliance.comparison.compare_runs"),
        ("appliance.verbs.rerun_diff",),
    ],
    [
        ("reports.comparison", "reports.render"),
        # the side of the container that is outside
        (
            "appliance.container.preflight",
            "appliance.container.container_options",
            "appliance.container.engine",
        ),
    ],
    [
        (
            "appliance.verbs.datasets",
            "appliance.verbs.publish",
            "appliance.verbs.accept",
            "appliance.verbs.rerun",
            "appliance.verbs.start",
            "appliance.container.doctor_rows",
            "appliance.container.software",
            "appliance.verbs.doctor",
        ),
        ("appliance.verbs.compare",),
        ("appliance.verbs.baseline",),
        # faults that are injected, and what became of them
        (
            "appliance.selftest.time_model",
            "appliance.selftest.virtual_node",
            "appliance.selftest.simulation",
            "appliance.selftest.expected_outcomes",
            "appliance.selftest.virtual_faults",
            "appliance.selftest.process_faults",
            "appliance.selftest.summary",
        ),
        ("appliance.verbs.challenge",),
        ("appliance.verbs.listing", "appliance.cli.progress"),
    ],
    [("appliance.cli.main", "appliance.__main__")],
]
EACH_ALONE = {("workloads.*",), ("appliance.vendors.*",)}  # one workload, one maker: a room each
LIGHT_FLOORS = 5  # up to `bench verify` nothing heavy is loaded
HEAVY = {"torch", "onnxruntime", "docker", "weasyprint"}
HEAVY_ROOMS = {"weasyprint": {"reports.render"}, "docker": {"appliance.container.engine"}}
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
    can_name = {"appliance.worker.child", "workloads.parts.curves.curves"}
    assert module in can_name or not names & {"import_module", "__import__"}


def test_the_worker_alone_imports_workloads() -> None:
    workloads = {
        name
        for name in MODULES
        if name.startswith("workloads.") and name != "workloads.contract.workload"
    }
    for module in MODULES.keys() - workloads - {"appliance.worker.child"}:
        assert not imported(module) & workloads, module


def test_only_workloads_makers_and_the_worker_import_torch() -> None:
    allowed = ("workloads.", "appliance.vendors.", "appliance.worker.child")
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
        and (not module.startswith("workloads.") or module == "workloads.contract.workload")
        and module != "appliance.worker.child"
    ]
    assert "appliance.verification.verify" in light
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
