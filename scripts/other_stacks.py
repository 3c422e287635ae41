"""Runs the rows of the suite smoke-all on other stacks of libraries, and records how they ended.

    scripts/other_stacks.py --folder DIR [--stack NAME]... [--case ID]... [--again]

Each stack has an environment of its own, DIR/<stack>, made once and reused. Where its Python is the
one that runs this script, the environment stands in front of this one, and only what differs is
installed; another Python gets everything, in the versions of locks/cpu.txt as far as they exist.
`bench run --suite smoke-all --vendor cpu` then runs in it, so that fork servers, ONNX Runtime, jobs
of ranks and every check against its bound take part, which tests of the rows alone would not show.

A library outside the ranges of pyproject.toml makes a row "cannot run: software", by design. So
what is installed there is a copy of this checkout whose ranges name the versions of its stack and
nothing else. What a user does instead is a qualified record of exactly that stack.

It writes docs/reference/stacks.json and stacks.md, in which stacks that were not run now keep what
they have. Packages come from where pip's configuration says, torch from TORCH_INDEX if it is set;
the general index has torch for CUDA alone, which runs on processors and brings gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "workloads" / "suites" / "smoke-all.toml"
LOCK = ROOT / "locks" / "cpu.txt"
RECORD = ROOT / "docs" / "reference" / "stacks.json"
PAGE = RECORD.with_suffix(".md")
COPIED = ("appliance", "workloads", "reports", "pyproject.toml", "README.md", "LICENSE")
NAMED = ("torch", "transformers", "onnxruntime", "jax", "numpy")
"""Distributions whose versions stand in the table."""
JUDGED_BY = ("completion", "integrity", "correctness")
"""The criteria that say whether a row runs here; times are not compared."""
INSTALLED = """
import importlib.metadata as metadata, json, platform
names = {one.metadata["Name"].lower().replace("_", "-"): one.version
         for one in reversed([*metadata.distributions()])}
print(json.dumps({"python": platform.python_version(), **names}))
"""
HEAD = """\
# Other stacks of libraries

Written by `make test-stacks`, by hand and not by `make test`: the rows of the suite `smoke-all` on
processors, each stack in an environment of its own. Accepted is a row whose launches all completed
with every check within its bound, on a stack whose ranges were set to its versions. `bench` itself
starts no row on a stack outside its ranges, but says `cannot run: software`
([installing](../how-to/installing.md)). How to run it stands in
[the how-to](../how-to/installing.md#on-another-stack).
"""


class CannotMakeError(Exception):
    """A stack's environment cannot be made; the sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What is installed otherwise: the Python and versions by distribution; `floors` for all."""

    name: str
    python: str = f"{sys.version_info[0]}.{sys.version_info[1]}"
    versions: Mapping[str, str] = field(default_factory=dict)
    floors: bool = False

    @property
    def is_beside(self) -> bool:
        """Whether it stands in front of the environment that runs this script."""
        return self.python == f"{sys.version_info[0]}.{sys.version_info[1]}"


STACKS = (
    Stack(name="torch-2.8.0", versions={"torch": "2.8.0"}),
    Stack(name="torch-2.15.0", versions={"torch": "2.15.0"}),
    Stack(name="lower-bounds", floors=True),
    Stack(name="python-3.12", python="3.12"),
    Stack(name="python-3.13", python="3.13"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """How one case ended: accepted, failed or cannot run, with the first reason."""

    case: str
    result: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is recorded of a stack; `fault` is why it has no rows."""

    stack: str
    date: str
    versions: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    fault: str = ""


# ------------------------------------------------------------------ what a stack consists of


def requirements(project: Mapping[str, Any]) -> Iterator[Requirement]:
    """What the package and the parts of a run require, those of other parts that they name too."""
    optional = project["optional-dependencies"]

    def of(items: Iterable[str]) -> Iterator[Requirement]:
        for item in map(Requirement, items):
            if item.name == project["name"]:
                yield from of(one for part in sorted(item.extras) for one in optional[part])
            else:
                yield item

    base = project["dependencies"]
    named = {canonicalize_name(one.name): one for one in of([*base, *optional["run"]])}
    yield from named.values()


def brought(project: Mapping[str, Any]) -> Iterator[Requirement]:
    """pandas, which gymnax brings: one made for a newer NumPy does not load beside the lowest."""
    wanted = map(Requirement, project["optional-dependencies"]["compare"])
    return (item for item in wanted if item.name == "pandas")


def floors(wanted: Iterable[Requirement]) -> dict[str, str]:
    """The lowest version that is allowed of each."""
    return {
        canonicalize_name(item.name): bound.version
        for item in wanted
        for bound in item.specifier
        if bound.operator == ">="
    }


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock, without how they were built."""
    return dict(re.findall(r"(?m)^([a-z0-9._-]+)==([^\s+]+)", lock))


def with_ranges_of(text: str, versions: Mapping[str, str]) -> str:
    """pyproject.toml whose requirements allow these versions of distributions and no others.

    Those of which no version is given stay as they are.
    """

    def exact(match: re.Match[str]) -> str:
        version = versions.get(canonicalize_name(match[1]))
        return f'"{match[1]}=={version.partition("+")[0]}"' if version else match[0]

    head, mark, rest = text.partition("\n[project]\n")
    body, tools, tail = rest.partition("\n[project.scripts]\n")
    return head + mark + re.sub(r'"([A-Za-z0-9._-]+)[<>=!~][^"]*"', exact, body) + tools + tail


def part_of_suite(text: str, wanted: Sequence[str]) -> str:
    """A suite's file with these of its cases; all where none is named. Raises ValueError."""
    head, *cases = re.split(r"(?m)^(?=\[\[case\]\])", text)
    by_id = {re.findall(r'(?m)^id = "(.*)"', one)[0]: one for one in cases}
    unknown = [name for name in wanted if name not in by_id]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: smoke-all has no such case")
    return head + "".join(by_id[name] for name in wanted or by_id)


# ------------------------------------------------------------------ environments


def interpreter(version: str) -> str:
    """A Python of this version; CannotMakeError where the machine has none."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    candidates = [
        f"python{version}",
        *map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python")),
    ]
    for candidate in candidates:
        words = [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    raise CannotMakeError(f"this machine has no Python {version}")


def run(words: Sequence[str | Path], what: str) -> str:
    """Output of a program; CannotMakeError with its first error where it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines()]
        errors = [line for line in lines if re.match(r"ERROR|\w*Error: ", line)]
        reason = (errors or lines[-1:] or ["it gave no reason"])[0]
        raise CannotMakeError(f"{what}: {reason.removeprefix('ERROR: ')}")
    return done.stdout


def install(python: Path, *words: str | Path, what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile", "-q"]
    run([*pip, "--disable-pip-version-check", *words], what)


def make(stack: Stack, folder: Path) -> Path:
    """The Python of a stack's environment, which is made where it is not there whole."""
    environment = folder / stack.name
    python = environment / "bin" / "python"
    stamp = environment / "stamp.json"
    wanted = json.dumps(asdict(stack))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(environment, ignore_errors=True)
    run([interpreter(stack.python), "-m", "venv", "--without-pip", environment], "venv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*requirements(project), *brought(project)]
    if stack.is_beside:
        own = run(
            [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], "venv"
        )
        here = sorted({one for one in sys.path if one.endswith("site-packages")})
        (Path(own.strip()) / "beside.pth").write_text("\n".join(here) + "\n")
    install_libraries(stack, python, needed)
    stamp.write_text(wanted)
    return python


def install_libraries(stack: Stack, python: Path, needed: Sequence[Requirement]) -> None:
    """What the environment does not see yet: torch first, because it may have another source."""
    versions = dict(floors(needed)) if stack.floors else dict(stack.versions)
    if not stack.is_beside:
        locked = pins(LOCK.read_text())
        versions = {
            name: locked[name]
            for name in (canonicalize_name(item.name) for item in needed)
            if name in locked
        } | versions
    torch = versions.pop("torch", None)
    seen = versions_of(python)
    if torch is not None and not is_same(seen.get("torch"), torch):
        index = os.environ.get("TORCH_INDEX")
        source = ["--index-url", index] if index else []
        install(python, *source, f"torch=={torch}", what=f"torch {torch}")
    differing = [
        f"{name}=={one}" for name, one in versions.items() if not is_same(seen.get(name), one)
    ]
    if differing:
        install(python, *differing, what="the libraries")


def is_same(installed: str | None, wanted: str) -> bool:
    """Whether a version is the wanted one, however it was built."""
    return installed is not None and Version(Version(installed).public) == Version(wanted)


def versions_of(python: Path) -> dict[str, str]:
    """The Python and the distributions that an environment sees."""
    return dict(json.loads(run([python, "-I", "-c", INSTALLED], "the list of packages")))


def install_project(python: Path, stack: Stack, folder: Path, versions: Mapping[str, str]) -> None:
    """A copy of this checkout whose ranges are the stack's versions."""
    source = folder / f"{stack.name}.source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=ignored)
        else:
            shutil.copy(path, source / name)
    file = source / "pyproject.toml"
    file.write_text(with_ranges_of(file.read_text(), versions))
    needs = [] if "setuptools" in versions else ["setuptools>=77"]
    if needs:
        install(python, *needs, what="setuptools")
    words = ["--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", source]
    install(python, *words, what="bench itself")


# ------------------------------------------------------------------ a run and what it gave


def rows_of(plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> tuple[Row, ...]:
    """How each case of a run ended, by the plan and the rulings that are not of times."""
    cases, rulings = plan["cases"], verdict["rulings"]
    return tuple(_row(case, rulings) for case in cases)


def _row(case: Mapping[str, Any], rulings: Sequence[Mapping[str, Any]]) -> Row:
    name = case["id"].partition("@")[0]  # without its device: the processors
    lack = case.get("software") or case.get("unsupported")
    if lack:
        return Row(case=name, result="cannot run", reason=lack)
    own = [one for one in rulings if one["case"] == case["id"] and one["criterion"] in JUDGED_BY]
    worst = next((one for one in own if one["ruling"] != "pass"), None)
    if worst is None:
        reason = "" if own else "nothing was ruled on its checks"
        return Row(case=name, result="accepted" if own else "failed", reason=reason)
    is_lack = worst["reason"] in {"software", "unsupported"}
    result = "cannot run" if is_lack else "failed"
    return Row(case=name, result=result, reason=worst["explanation"])


def measure(stack: Stack, folder: Path, cases: Sequence[str]) -> Result:
    """Make a stack's environment, run the suite in it and read how the rows ended."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    try:
        python = make(stack, folder)
        versions = versions_of(python)
        install_project(python, stack, folder, versions)
    except CannotMakeError as error:
        return Result(stack=stack.name, date=date, fault=one_line(str(error)))
    named = {"python": versions["python"]} | {
        name: versions[name] for name in NAMED if name in versions
    }
    suite = folder / f"{stack.name}.toml"
    suite.write_text(part_of_suite(SUITE.read_text(), cases))
    out = folder / f"{stack.name}.out"
    shutil.rmtree(out, ignore_errors=True)
    words = [python, "-I", "-m", "appliance", "run", "--quiet", "--vendor", "cpu"]
    with (folder / f"{stack.name}.log").open("w") as log:
        subprocess.run(  # noqa: S603 - the environment's own program
            [*map(str, words), "--suite", str(suite), "--out", str(out)],
            stdout=log, stderr=log, check=False, cwd=folder,
        )  # fmt: skip
    made = sorted(out.glob("*/verdict.json"))
    if not made:
        last = (folder / f"{stack.name}.log").read_text().splitlines()[-1:]
        fault = one_line(f"bench run left no verdict: {' '.join(last)}")
        return Result(stack=stack.name, date=date, versions=named, fault=fault)
    plan = json.loads((made[0].parent / "plan.json").read_text())
    rows = rows_of(plan, json.loads(made[0].read_text()))
    return Result(stack=stack.name, date=date, versions=named, rows=rows)


def one_line(text: str) -> str:
    """A reason as a cell of a table takes it, without folders of this machine."""
    short = re.sub(r"(?<!\w)/\S+/", "", " ".join(text.split()))
    return short.replace("|", "/")[:300]


# ------------------------------------------------------------------ record and page


def merged(old: Sequence[Mapping[str, Any]], new: Iterable[Result]) -> list[Mapping[str, Any]]:
    """Results by stack in the order of STACKS, the new ones in the place of the old."""
    by_stack = {str(one["stack"]): one for one in old}
    by_stack |= {one.stack: json.loads(json.dumps(asdict(one))) for one in new}
    order = [stack.name for stack in STACKS]
    return sorted(by_stack.values(), key=lambda one: order.index(str(one["stack"])))


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """docs/reference/stacks.md of the recorded results."""
    lines = [
        "",
        "| stack | versions | accepted | failed | cannot run | date |",
        "|---|---|--:|--:|--:|---|",
    ]
    reasons: list[str] = []
    known = {str(one["stack"]): one for one in results}
    for stack in STACKS:
        one = known.get(stack.name)
        if one is None:
            lines.append(f"| {stack.name} | not run yet | | | | |")
            continue
        rows, versions = one["rows"], one["versions"]
        count = Counter(row["result"] for row in rows)
        cells = [str(count[name]) for name in ("accepted", "failed", "cannot run")]
        if one["fault"]:
            cells = ["", "", ""]
            reasons.append(f"- {stack.name}: no rows: {one['fault']}")
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines.append(f"| {stack.name} | {text} | {' | '.join(cells)} | {one['date']} |")
        reasons += [
            f"- {stack.name}, `{row['case']}`: {row['result']}: {one_line(row['reason'])}"
            for row in rows
            if row["result"] != "accepted"
        ]
    accepted = [_accepted(one) for one in results]
    return "\n".join([HEAD.rstrip(), *lines, "", *filter(None, accepted), *reasons]).rstrip() + "\n"


def _accepted(result: Mapping[str, Any]) -> str:
    rows = result["rows"]
    names = [f"`{row['case']}`" for row in rows if row["result"] == "accepted"]
    return f"- {result['stack']}: accepted: {', '.join(names)}" if names else ""


def recorded() -> list[Mapping[str, Any]]:
    return list(json.loads(RECORD.read_text())) if RECORD.exists() else []


def main() -> int:
    """Measure the stacks that are wanted, and write the record and the page."""
    parser = argparse.ArgumentParser(description="smoke-all's rows on other stacks of libraries")
    parser.add_argument("--folder", type=Path, required=True, help="of the environments")
    parser.add_argument("--stack", action="append", choices=[one.name for one in STACKS])
    parser.add_argument("--case", action="append", default=[], help="of smoke-all; all by default")
    parser.add_argument("--again", action="store_true", help="make the environments anew")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        part_of_suite(SUITE.read_text(), options.case)
    except ValueError as error:
        parser.error(str(error))
    is_clean = True
    for stack in STACKS:
        if options.stack and stack.name not in options.stack:
            continue
        if options.again:
            shutil.rmtree(folder / stack.name, ignore_errors=True)
        print(f"{stack.name}: running", file=sys.stderr, flush=True)
        result = measure(stack, folder, options.case)
        count = Counter(row.result for row in result.rows)
        text = ", ".join(f"{number} {name}" for name, number in sorted(count.items()))
        print(f"{stack.name}: {result.fault or text}", flush=True)
        is_clean = is_clean and not result.fault and not count["failed"]
        results = merged(recorded(), [result])  # after each, so that nothing is lost
        RECORD.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
