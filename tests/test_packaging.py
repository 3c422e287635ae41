"""What is shipped beside the code: locks, set-up, Dockerfiles, the images' first process, docs."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import typer
from packaging.requirements import Requirement
from support.locked import entries, extras, lock, pins, requirements

ROOT = Path(__file__).parents[1]
LOCKS = {name: lock(name) for name in ("cpu-smoke", "cpu", "cpu-test")}
DOCKERFILES = sorted(ROOT.glob("Dockerfile.*"))
README = (ROOT / "README.md").read_text()
VERBS = (ROOT / "docs" / "reference" / "verbs.md").read_text()


# ------------------------------------------------------------------ locks


@pytest.mark.parametrize(("part", "whole"), [("cpu-smoke", "cpu"), ("cpu", "cpu-test")])
def test_smaller_lock_is_in_the_larger_with_versions_and_digests(part: str, whole: str) -> None:
    assert entries(LOCKS[part]).items() < entries(LOCKS[whole]).items()


def test_torch_is_the_build_for_processors() -> None:
    assert {pins(text)["torch"] for text in LOCKS.values()} == {"2.13.0+cpu"}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_a_sha256(name: str) -> None:
    result = entries(LOCKS[name]).values()
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in result)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cpu-smoke", ["report", "torch", "onnx"]),
        ("cpu", ["run", "report", "compare"]),
        ("cpu-test", ["run", "report", "compare", "fleet", "s3", "test"]),
    ],
)
def test_lock_meets_the_ranges_of_the_project(name: str, parts: list[str]) -> None:
    pinned = pins(LOCKS[name])
    assert extras(LOCKS[name]) == parts
    for item in requirements(parts):
        assert item.specifier.contains(pinned[item.name.lower()].split("+")[0]), item


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("cpu-smoke", {"jax", "pandas", "statsmodels", "diffusers", "peft", "lightning", "mujoco"}),
        ("cpu", {"pytest", "mypy", "ruff"}),
    ],
)
def test_lock_holds_no_part_that_it_is_not_for(name: str, absent: set[str]) -> None:
    assert absent <= pins(LOCKS["cpu-test"]).keys()
    assert not absent & pins(LOCKS[name]).keys()


# ------------------------------------------------------------------ set-up


def sandbox(folder: Path) -> Path:
    """A checkout of what set-up reads, with one package in its lock that is made here."""
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "locks").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = []\n'
    )
    return folder


def wheel_of_torch(folder: Path) -> str:
    """A wheel that has the name of ours and nothing in it; its sha256."""
    folder.mkdir()
    path = folder / "torch-2.13.0+cpu-py3-none-any.whl"
    about = "torch-2.13.0+cpu.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("torch.py", "")
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(*argv: str, cwd: Path, **variables: str) -> tuple[int, str]:
    """Exit code and stderr, with pip kept away from every index and configuration."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    closed = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        argv, cwd=cwd, env=kept | closed | variables, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has pip and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the lock is for CPython 3.11")
def test_package_is_installed_only_with_its_hash(tmp_path: Path, python: Path) -> None:
    checkout, wheels = sandbox(tmp_path / "checkout"), tmp_path / "wheels"
    digest = wheel_of_torch(wheels)
    lock = checkout / "locks" / "cpu.txt"
    install = ["scripts/install.sh", str(python), "locks/cpu.txt", "packages"]

    lock.write_text(f"torch==2.13.0+cpu \\\n    --hash=sha256:{digest[::-1]}\n")
    code, output = run(*install, cwd=checkout, WHEELS=str(wheels))
    assert code == 2
    assert "differs from its sha256 in locks/cpu.txt" in output
    assert run(str(python), "-c", "import torch", cwd=tmp_path)[0] == 1

    lock.write_text(f"torch==2.13.0+cpu \\\n    --hash=sha256:{digest}\n")
    code, output = run(*install, cwd=checkout)
    assert code == 2
    assert "torch could not be installed" in output
    assert "name its source with TORCH_INDEX, PIP_INDEX_URL or WHEELS=DIR" in output

    assert run(*install, cwd=checkout, WHEELS=str(wheels)) == (0, "")
    assert run(str(python), "-c", "import torch", cwd=tmp_path)[0] == 0


def test_set_up_installs_once_for_each_lock(tmp_path: Path) -> None:
    checkout = sandbox(tmp_path)
    names = ("cpu-smoke", "cpu", "cpu-test")
    for name in names:
        (checkout / "locks" / f"{name}.txt").write_text("torch==2.13.0+cpu\n")
    calls = checkout / "calls"
    (checkout / "scripts" / "install.sh").write_text(f'#!/bin/sh\necho "$2 $3 $4" >>{calls}\n')

    def set_up(name: str) -> None:
        code, output = run("scripts/setup.sh", name, cwd=checkout, PYTHON=sys.executable)
        assert code == 0, output

    for name in ("cpu-smoke", "cpu-smoke", "cpu", "cpu", "cpu-smoke"):
        set_up(name)
    for name in ("cpu-test", "cpu-test", "cpu", "cpu-smoke"):
        set_up(name)
    assert calls.read_text().splitlines() == [
        f"locks/{name}.txt packages editable" for name in names
    ]
    for name in names:
        (checkout / "locks" / f"{name}.txt").write_text("torch==2.14.0+cpu\n")
    set_up("cpu")
    assert calls.read_text().splitlines()[3:] == ["locks/cpu.txt packages editable"]


@pytest.mark.parametrize(("suite", "name"), [("smoke", "cpu-smoke"), ("extended", "cpu")])
def test_acceptance_sets_up_what_its_suite_needs(suite: str, name: str) -> None:
    # as a user starts it: a make that runs these tests would be told of, and print its folder
    outer = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS"}
    done = subprocess.run(
        ["make", "--dry-run", "accept", f"SUITE={suite}"],
        cwd=ROOT, check=True, capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if name not in outer},
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == f"scripts/setup.sh {name}"


def test_ranges_stand_in_for_a_lock_that_was_made_for_another_python(
    tmp_path: Path, python: Path
) -> None:
    """Every part that the lock names is asked for, and torch alone first."""
    checkout = sandbox(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", checkout)
    lines = "# made for: cpython 3.9 Linux x86_64\n# extras: report,onnx\ntorch==1\n"
    (checkout / "locks" / "cpu.txt").write_text(lines)
    requested = checkout / "asked"
    program = checkout / "python"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *"pip install"*) echo "$@" >>{requested};; '
        f'*) exec {python} "$@";; esac\n'
    )
    program.chmod(0o755)
    code, output = run(
        "scripts/install.sh", str(program), "locks/cpu.txt", "packages", cwd=checkout
    )
    assert (code, "no hash is checked" in output) == (0, True)
    first, second = requested.read_text().splitlines()
    assert first.split()[-2:] == ["--no-deps", "torch>=2.13,<2.14"]
    wanted = {str(item).replace(" ", "") for item in requirements(["report", "onnx"])}
    given = {word for word in second.split() if ">=" in word}
    assert {str(Requirement(word)) for word in given - {"setuptools>=77"}} == wanted


@pytest.mark.parametrize(
    ("name", "variables", "sentence"),
    [
        ("gpu", {}, "there is no locks/gpu.txt: give one of "),
        ("cpu", {"PYTHON": "/bin/false"}, "PYTHON names /bin/false, which is no Python"),
    ],
)
def test_set_up_says_in_one_sentence_what_is_missing(
    name: str, variables: dict[str, str], sentence: str
) -> None:
    code, output = run("scripts/setup.sh", name, cwd=ROOT, **variables)
    assert code == 2
    assert output.startswith(f"setup: {sentence}")
    assert output.count("\n") == 1


# ------------------------------------------------------------------ the images


def outside_vendor_block(path: Path) -> str:
    """A Dockerfile's stages without its head and its vendor block."""
    begin, end = "# --- vendor block begin ---\n", "# --- vendor block end ---\n"
    text = path.read_text()
    assert text.count(begin) == text.count(end) == 1
    return text.split(end)[1]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfiles_differ_in_the_vendor_block_alone(path: Path) -> None:
    assert outside_vendor_block(path) == outside_vendor_block(ROOT / "Dockerfile.cpu")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_needs_no_root(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"(?m)^USER (.*)$", text) == ["65532:65532"]
    assert "--mount" not in text  # the classic builder has no such thing


@pytest.fixture
def entry() -> ModuleType:
    """The images' first process, as a module."""
    spec = util.spec_from_file_location("entry", ROOT / "scripts" / "entry.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_entry_refuses_an_out_that_takes_no_file(
    entry: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file, so that root cannot write below it either")
    assert entry.main(["accept"], tmp_path / "out") == 2
    output = capfd.readouterr().err
    assert output.count("\n") == 1
    assert 'mkdir -p out && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/out:/out"' in output


@pytest.mark.parametrize(
    ("words", "added"),
    [
        (["accept"], ["--out", "/out"]),
        (["accept", "--suite", "smoke"], ["--out", "/out"]),
        (["accept", "--out=/elsewhere"], []),
        (["accept", "--resume", "/out/run"], []),
        (["verify", "/out/run"], []),
        ([], []),
    ],
)
def test_entry_sends_runs_to_out(entry: ModuleType, words: list[str], added: list[str]) -> None:
    assert entry.command(words, Path("/out"))[1:] == [*words, *added]


@pytest.fixture
def stand_in(entry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in the place of bench; the test writes it."""
    path = tmp_path / "bench"
    monkeypatch.setattr(entry, "command", lambda *_: [sys.executable, str(path)])
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield path
    for number, handler in held.items():
        signal.signal(number, handler)


def test_entry_sends_every_cache_below_out_and_removes_it(
    entry: ModuleType, stand_in: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stand_in.write_text(
        "import os, pathlib, tempfile\n"
        "for name in ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'HF_HOME', 'TORCHINDUCTOR_CACHE_DIR'):\n"
        "    (pathlib.Path(os.environ[name]) / 'file').write_text('kept')\n"
        "print(os.environ['HOME'], tempfile.gettempdir())\n"
        "raise SystemExit(3)\n"
    )
    assert entry.main(["accept"], out) == 3
    home, temporary = capfd.readouterr().out.split()
    assert Path(home).parent == out / ".work"
    assert Path(temporary).parent == Path(home)
    assert list(out.iterdir()) == []


def test_entry_leaves_what_another_run_keeps_for_its_resumption(
    entry: ModuleType, stand_in: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "out" / ".work" / "run-1" / "reference.npy"
    kept.parent.mkdir(parents=True)
    kept.write_text("artifact")
    stand_in.write_text("")
    assert entry.main(["accept"], tmp_path / "out") == 0
    assert [path.name for path in (tmp_path / "out" / ".work").iterdir()] == ["run-1"]


def test_stop_of_a_container_is_an_interruption(tmp_path: Path) -> None:
    program, ready = tmp_path / "program", tmp_path / "ready"
    program.write_text(
        "import pathlib, signal, time\n"
        "try:\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as bench does\n"
        f"    pathlib.Path({str(ready)!r}).touch(); time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    raise SystemExit(130)\n"
    )
    code = (
        "import os, runpy, sys\n"
        f"entry = runpy.run_path({str(ROOT / 'scripts' / 'entry.py')!r})\n"
        f"sys.exit(entry['supervise']([sys.executable, {str(program)!r}], os.environ))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 130


@pytest.mark.parametrize("given", ["SIG_DFL", "SIG_IGN"])
def test_stop_that_comes_as_the_run_is_started_is_not_lost(given: str) -> None:
    """Also where the run is a job in the background, whose shell starts it with SIGINT ignored."""
    code = (
        "import os, runpy, signal, subprocess, sys\n"
        f"signal.signal(signal.SIGINT, signal.{given})\n"
        f"entry = runpy.run_path({str(ROOT / 'scripts' / 'entry.py')!r})\n"
        "real = subprocess.Popen\n"
        "def stopped_at_once(*words, **named):\n"
        "    child = real(*words, **named)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return child\n"
        "subprocess.Popen = stopped_at_once\n"
        "words = [sys.executable, '-m', 'appliance', 'list', 'suites']\n"
        "sys.exit(entry['supervise'](words, os.environ))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"bench: stopped\n")


# ------------------------------------------------------------------ what is written about it


def test_reference_names_every_verb() -> None:
    from appliance.cli.main import app  # noqa: PLC0415 - not needed by the other tests

    command = typer.main.get_command(app)
    verbs = set(getattr(command, "commands", {}))
    assert verbs
    assert (
        set(
            re.findall(r"(?m)^\| `([a-z]+)` \| [a-z]", VERBS.split("| verb |")[1].split("\n## ")[0])
        )
        == verbs
    )


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in link]
    assert all((page.parent / link.split("#")[0]).exists() for link in links), links


def test_ci_runs_the_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "\nmake test\n" in script.read_text()
    assert "\nmake test " in README
