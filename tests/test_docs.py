"""The docs name what the program has: verbs, variables, files; and no unready release is tagged."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.storage import bundle, settings_file
from appliance.version import VERSION

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))
OF_TESTS = {"BENCH_TEST_MARK"}


def test_reference_of_the_command_line_is_the_program_s() -> None:
    import write_cli_reference  # noqa: PLC0415 - a script, found by its path

    assert write_cli_reference.PAGE.read_text() == write_cli_reference.page(), "run `make generate`"
    assert write_cli_reference.MAN.read_text() == write_cli_reference.man_page(), "the same"


def test_reference_of_a_fleet_s_tables_is_the_program_s() -> None:
    import write_fleet_tables  # noqa: PLC0415 - a script, found by its path

    assert write_fleet_tables.PAGE.read_text() == write_fleet_tables.page(), "run `make generate`"


def test_every_variable_is_in_the_reference() -> None:
    listed = set(re.findall(r"`(BENCH_[A-Z_]+)`", (DOCS / "reference/environment.md").read_text()))
    files = subprocess.run(
        [
            "git",
            "ls-files",
            "appliance",
            "workloads",
            "reports",
            "scripts",
            "tests",
            "Dockerfile.*",
        ],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    used = {
        name
        for file in files
        if (ROOT / file).suffix in {".py", ".sh", ".cpu", ".cuda", ".rocm", ".xpu"}
        for name in re.findall(r"BENCH_[A-Z_]*[A-Z]\b", (ROOT / file).read_text())
    }
    used |= {settings_file.PREFIX + name.upper() for name in settings_file.VARIABLES}
    assert used - OF_TESTS - {"BENCH_SIGN_PASSWORD"} == listed


def test_every_file_of_a_bundle_is_in_the_reference() -> None:
    listed = set(
        re.findall(r"`([a-z.]+(?:/|\.[a-z]+))`", (DOCS / "reference/files.md").read_text())
    )
    assert {*bundle.FINISHED_FILES, *bundle.OPTIONAL_FILES, "logs/"} <= listed


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert pages == {link for link in re.findall(r"\]\(([^)#]+)", index) if link.endswith(".md")}


def sentence(node: ast.AST) -> str:
    """A string of the code, with … for each value that is put into it; empty for anything else."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in parts]
    is_text = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
    return re.sub("…+", "…", "".join(texts)) if is_text else ""


def test_every_sentence_that_troubleshooting_explains_is_the_program_s() -> None:
    """Its headings quote what a person has read; a reworded message must be reworded there."""
    page = (DOCS / "how-to/troubleshooting.md").read_text()
    quoted = re.findall(r"(?m)^### `(.*?)`$", page)
    files = [path for room in ("appliance", "reports") for path in (ROOT / room).rglob("*.py")]
    trees = (ast.parse(path.read_text()) for path in files)
    said = "\n".join({sentence(node) for tree in trees for node in ast.walk(tree)})
    assert len(quoted) > 15
    missing = [one for one in quoted if one.removeprefix("… ").removesuffix(" …") not in said]
    assert missing == []


def test_readme_is_one_screen() -> None:
    """What it leaves out stands in docs/; pictures are small enough for a slow link."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 75
    sizes = {path.name: path.stat().st_size for path in (DOCS / "pictures").iterdir()}
    assert sizes.keys() == {"page-1.png", "terminal.svg"}
    assert max(sizes.values()) <= 150_000


def test_changelog_begins_with_this_version_and_its_date() -> None:
    heads = re.findall(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())
    if heads[0].endswith(", unreleased"):  # of the version that follows this one
        assert heads.pop(0) > VERSION
    assert re.fullmatch(re.escape(VERSION) + r", \d{4}-\d\d-\d\d", heads[0])
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, \d{4}-\d\d-\d\d", head) for head in heads)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own with the files that a release looks at, and a python."""
    for name in ("scripts/release.sh", "appliance/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION}, 2026-01-01\n")
    (tmp_path / "appliance" / "__init__.py").touch()
    (tmp_path / "Makefile").write_text("generate:\n\t@true\n")
    (tmp_path / ".gitignore").write_text(".venv/\n__pycache__/\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")


def release(folder: Path, *words: str) -> tuple[int, str]:
    identity = {
        f"GIT_{who}_{what}": "t@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["bash", "scripts/release.sh", *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_release_is_tagged_once(checkout: Path) -> None:
    assert release(checkout, "--check") == (0, f"release: v{VERSION} is ready\n")
    assert git(checkout, "tag") == ""
    assert release(checkout)[0] == 0
    assert git(checkout, "tag").split() == [f"v{VERSION}"]
    code, output = release(checkout)
    assert (code, "stands already" in output) == (2, True)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("CHANGELOG.md", "# Changelog\n\n## 9.9.9, 2026-01-01\n", "its first version must be"),
        ("CHANGELOG.md", "# Changelog\n", "its first version must be"),
        ("CHANGELOG.md", f"# Changelog\n\n## {VERSION}, unreleased\n", "must be"),
        ("appliance/version.py", 'VERSION = "1.0"\n', "a version is MAJOR.MINOR.PATCH"),
        ("Makefile", "generate:\n\t@echo x > made\n", "generated files were not current"),
    ],
)
def test_an_unready_release_is_refused(checkout: Path, file: str, text: str, sentence: str) -> None:
    (checkout / file).write_text(text)
    commit(checkout)
    code, output = release(checkout)
    assert (code, sentence in output) == (2, True), output
    assert git(checkout, "tag") == ""


def test_a_release_of_uncommitted_changes_is_refused(checkout: Path) -> None:
    (checkout / "README.md").write_text("new\n")
    code, output = release(checkout)
    assert (code, "the work tree has changes" in output) == (2, True)
