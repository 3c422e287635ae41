"""Settings that all tests share, and which tests run in which part of `make test`.

The parallel part has three workers. Tests that share a fixture of their module go to one worker,
so that it is made once; all others are spread by their first parameter, the longest groups first.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings

settings.register_profile(
    "bench",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],  # how fast a machine draws says nothing of us
)
settings.load_profile("bench")
for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)  # what a program writes into a pipe is what the tests read

DURATIONS = Path(__file__).parent / "durations.json"
"""Seconds of the slow tests by file name and test, as `make durations` has measured them."""
RECORDED_SECONDS = 0.2
QUICK_SECONDS = 0.2
ALONE = "serial"
TOGETHER = "container"
"""Tests of one group: they share an engine and its images, which one session has at a time."""
SHARED = "shared"
IMAGES = "images_seconds"
_measured: defaultdict[str, float] = defaultdict(float)
_images: list[float] = []


def pytest_configure(config: pytest.Config) -> None:
    """Let all workers share what JAX compiles, which small rows spend most of their time on."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="bench-tests-jax-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # workers inherit it
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    # JAX writes a program in place: who reads it meanwhile says so, and compiles it
    half_written = "ignore:Error reading persistent compilation cache entry:UserWarning"
    config.addinivalue_line("filterwarnings", half_written)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption(
        "--part",
        choices=("all", "parallel", "serial", "quick"),
        default="all",
        help="tests that may run beside others, those that may not, or quick ones of the first",
    )
    group.addoption(
        "--record-durations", action="store_true", help=f"write what took long to {DURATIONS.name}"
    )
    group.addoption("--fuzz-seed", type=int, default=1, help="which hostile inputs are drawn")
    group.addoption("--fuzz-count", type=int, default=140, help="how many hostile inputs")


def group_of(item: pytest.Function) -> str:
    """Tests of one group run in one worker, one after the other."""
    if item.get_closest_marker(TOGETHER):
        return TOGETHER
    parts, scopes = [item.path.stem], {}
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    if callspec:
        scopes = {key: callspec._arg2scope[key].value for key in parameters}
    definitions = item._fixtureinfo.name2fixturedefs.values()
    own = [one[-1] for one in definitions if one[-1].baseid == item.parent.nodeid]
    if any(one.scope == "module" and not one._autouse for one in own):
        parts += [
            *(stable(parameters[key]) for key in parameters if scopes[key] == "module"),
            SHARED,
        ]
    elif parameters:
        parts += [stable(next(iter(parameters.values())))]
    return "-".join(re.sub(r"\W+", "_", part)[:40] for part in parts)


def stable(parameter: object) -> str:
    """A word for a parameter that is the same in every process: an address in memory is not."""
    if isinstance(parameter, str | int | float | None):
        return f"{parameter}"
    return getattr(parameter, "__name__", type(parameter).__name__)


def key_of(nodeid: str) -> str:
    """Name of a test that stays the same when its file moves to another folder."""
    path, _, name = nodeid.partition("::")
    return f"{Path(path).stem}::{name}"


def recorded() -> dict[str, float]:
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the serial part, files without a test of it: a quarter of a minute of imports."""
    is_file = collection_path.suffix == ".py" and config.getoption("--part") == "serial"
    if is_file and f"mark.{ALONE}" not in collection_path.read_text():
        return True
    return None  # as it would be without this


def is_wanted(item: pytest.Function, part: str, seconds: dict[str, float]) -> bool:
    is_alone = item.get_closest_marker(ALONE) is not None
    if part in {"all", "serial"}:
        return part == "all" or is_alone
    if part == "parallel":
        return not is_alone
    is_slow = any(item.get_closest_marker(name) for name in ("slow", TOGETHER))
    return not (is_alone or is_slow) and seconds.get(key_of(item.nodeid), 0.0) < QUICK_SECONDS


def without_slow_groups(items: list[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """Those of groups in which nothing takes long.

    What a group shares is made by whoever comes first: where the test that is recorded with the
    seconds of it is left out, the next would take them.
    """
    groups = [group_of(item) for item in items]
    sums = defaultdict(float, {group: seconds.get(group, 0.0) for group in set(groups)})
    for item, group in zip(items, groups, strict=True):
        sums[group] += seconds.get(key_of(item.nodeid), 0.0)
    return [
        item
        for item, group in zip(items, groups, strict=True)
        if not (group.endswith(SHARED) and sums[group] >= QUICK_SECONDS)
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, seconds = config.getoption("--part"), recorded()
    quick = without_slow_groups(items, seconds) if part == "quick" else items
    wanted = [item for item in quick if is_wanted(item, part, seconds)]
    chosen = set(wanted)
    if dropped := [item for item in items if item not in chosen]:
        config.hook.pytest_deselected(items=dropped)
    items[:] = wanted
    if not hasattr(config, "workerinput"):
        return
    groups = {item.nodeid: group_of(item) for item in items}
    sums: defaultdict[str, float] = defaultdict(float)
    for group in set(groups.values()):
        sums[group] = seconds.get(group, 0.0)
    for item in items:
        sums[groups[item.nodeid]] += seconds.get(key_of(item.nodeid), 0.0)
    items.sort(key=lambda item: -sums[groups[item.nodeid]])
    for item in items:
        item._id = coerce_node_id(f"{item.nodeid}@{groups[item.nodeid]}")  # what loadgroup reads


def pytest_collection_finish() -> None:
    """What was imported lives to the end: a collection of garbage need not visit it each time."""
    gc.collect()
    gc.freeze()


def is_of_a_test(key: str) -> bool:
    """Whether the file of a recorded name is still there, and its test in it."""
    module, _, name = key.partition("::")
    files = DURATIONS.parent.rglob(f"{module.partition('-')[0]}.py")
    function = f"def {name.rpartition('::')[2].partition('[')[0]}(" if name else ""
    return any(function in file.read_text() for file in files)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take the group off the name that pytest-xdist gave the test, and note the seconds."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    nodeid, _, group = (
        report.nodeid.rpartition("@")
        if report.nodeid.rfind("@") > report.nodeid.rfind("]")
        else (report.nodeid, "", "")
    )
    report.nodeid = nodeid
    if group.endswith(SHARED) and report.when == "setup":
        _measured[group] = max(_measured[group], report.duration)
    else:
        _measured[key_of(nodeid)] += report.duration


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep how long the worker with the engine made its images (tests/container/conftest.py)."""
    _images.append(getattr(node, "workeroutput", {}).get(IMAGES, 0.0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(_images):
        terminalreporter.write_line(f"engine images made in {sum(_images):.1f} s")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--record-durations") or hasattr(session.config, "workerinput"):
        return
    kept = {
        key: value
        for key, value in recorded().items()
        if key not in _measured and is_of_a_test(key)
    }
    slow = {key: round(value, 1) for key, value in _measured.items() if value >= RECORDED_SECONDS}
    DURATIONS.write_text(json.dumps(dict(sorted({**kept, **slow}.items())), indent=1) + "\n")


@pytest.fixture(scope="session", autouse=True)
def servers_of_tests() -> Iterator[None]:
    """They are on this host, so no proxy of the site is asked for them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("no_proxy", "NO_PROXY"):
            patch.setenv(name, "127.0.0.1,localhost", prepend=",")
        yield


@pytest.fixture(scope="module")
def quick_programs() -> Iterator[None]:
    """Steps of JAX are compiled in a third of the time, and the same step once a process."""
    from support.quick_programs import quickly_compiled  # noqa: PLC0415 - imports JAX

    with quickly_compiled():
        yield


@pytest.fixture(scope="module")
def light_collections() -> None:
    """What other tests have imported since is not visited by the collections that a launch makes.

    A launch collects garbage before each block and repeat: a second beside the libraries of all
    workloads.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small products wait for each other's threads on a busy host."""
    import torch  # noqa: PLC0415 - most tests do without

    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


@pytest.fixture(scope="session")
def simulated_accelerator() -> None:
    """The simulated accelerator is built, once for all; tests without a compiler are skipped.

    With REQUIRE_COMPILER, as where changes are checked, none is.
    """
    from support import simulated_device  # noqa: PLC0415 - most tests do without

    lacking = simulated_device.missing_tools()
    if lacking and not os.environ.get("REQUIRE_COMPILER"):
        pytest.skip(f"the simulated accelerator cannot be built without {lacking}")
    simulated_device.build()
