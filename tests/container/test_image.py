"""The image as a buyer starts it: closed off from everything but /out, by any user."""

import os
import re
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import docker
import pytest
from support.program import sentences
from support.started_images import CLOSED, ROOT, Started, bench, finish, mounted

TINY = ROOT / "tests" / "suites" / "tiny.toml"
LINE = 'mkdir -p out && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/out:/out" bench-cpu'

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def start(engine: docker.DockerClient, image: str):
    started = Started(engine, image)
    yield started
    for container in started.all:
        container.remove(force=True)


def journals(out: Path) -> list[Path]:
    return list(out.glob("*/journal.jsonl"))


def test_closed_container_of_any_user_leaves_a_bundle_that_verifies_outside(
    start: Started, tmp_path: Path
) -> None:
    user = 100_000 + secrets.randbelow(1_000_000)
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    os.chown(out, user, user)
    container = start(
        "accept", "--suite", "smoke", user=f"{user}:{user}", volumes=mounted(out), **CLOSED
    )
    code, _, output = finish(container)
    assert code == 0, output
    (run,) = out.iterdir()  # and no .work is left
    assert {path.stat().st_uid for path in run.rglob("*")} == {user}
    assert LINE not in output  # the evidence is kept already
    for path in (run, run / "report.pdf"):
        done = bench("verify", path, "--allow-dev")
        assert done.returncode == 0, done.stdout + done.stderr
    assert bench("verify", run).returncode == 4  # nobody trusts a development key
    check_with_public_tools(run)


def check_with_public_tools(run: Path) -> None:
    """The lines that docs/how-to/verifying.md gives to those who have no bench."""
    if shutil.which("jq") is None or shutil.which("openssl") is None:
        return
    page = (ROOT / "docs" / "how-to" / "verifying.md").read_text()
    (lines,) = re.findall(r"```sh\n(jq .*?)```", page, re.DOTALL)
    script = lines.replace("/tmp/", '"$SCRATCH"/')  # noqa: S108 - the page's, not ours
    scratch = run.parent.parent / "scratch"
    scratch.mkdir()
    for target in ("statement.dsse.json", "report.dsse.json"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("statement.dsse.json", target)],
            cwd=run,
            env={**os.environ, "SCRATCH": str(scratch)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Verified OK" in done.stdout


def test_out_that_takes_no_file_is_one_sentence(start: Started, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # root's
    container = start("accept", user="54321:54321", volumes=mounted(tmp_path), **CLOSED)
    code, out, output = finish(container)
    assert (code, out) == (2, "")
    assert len(sentences(output)) == 1
    assert LINE in output
    assert list(tmp_path.iterdir()) == []


def test_read_only_container_without_a_folder_is_one_sentence(start: Started) -> None:
    code, _, output = finish(start(**CLOSED))
    assert code == 2
    assert LINE in output


def test_plain_start_prints_the_verdict_and_how_to_keep_the_evidence(start: Started) -> None:
    container = start(
        "accept", "--suite", "/suite/tiny.toml", volumes=mounted(TINY.parent, "/suite", "ro")
    )
    code, _, output = finish(container)
    assert code == 0, output
    assert "ACCEPTED" in output
    assert f"docker cp {container.short_id}:/out/. out" in output
    assert output.rstrip().endswith(LINE)
    written = {change["Path"] for change in container.diff()}
    assert {path for path in written if path.split("/")[1] != "out"} <= {"/suite"}
    assert not any("/.work" in path for path in written)


def test_stop_is_an_interruption_that_can_be_resumed(start: Started, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    container = start(
        "accept", "--suite", "smoke", user="54321:54321", volumes=mounted(tmp_path), **CLOSED
    )
    while not any(b"launch_started" in path.read_bytes() for path in journals(tmp_path)):
        container.reload()
        assert container.status == "running", container.logs().decode()
        time.sleep(0.1)
    container.kill("SIGTERM")
    code, _, output = finish(container)
    assert code == 130, output
    (run,) = (path for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert not (run / "verdict.json").exists()


def test_verbs_that_only_read_need_no_out(start: Started, image: str) -> None:
    code, out, output = finish(start("list", "suites", user="54321:54321", **CLOSED))
    assert code == 0, output
    assert "smoke" in out


def test_image_says_what_it_is(engine: docker.DockerClient, image: str) -> None:
    result = engine.images.get(image)
    assert result.attrs["Config"]["User"] == "65532:65532"
    assert result.labels["org.opencontainers.image.title"] == "bench-cpu"
    assert result.labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_data_sets_in_the_image_are_whole(start: Started, image: str) -> None:
    if not (ROOT.parent / "shared" / "datasets").is_dir():
        pytest.skip("no mirror beside this checkout, so the image was built without data sets")
    code, _, output = finish(start("data", "verify", "/usr/share/bench/data", **CLOSED))
    assert code == 0, output
    assert "tinyshakespeare: whole" in output
