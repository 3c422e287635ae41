"""`bench start` with a real engine: what it starts, how it ends, and what it leaves alone."""

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from engines import connect

from appliance.container import engine_client
from appliance.container.container_options import (
    LABEL,
    Bind,
    Container,
    Devices,
    Engine,
    Image,
    line,
)
from appliance.errors import ApplianceError, UsageError
from appliance.linux.sysfs import Tree
from appliance.verbs import start
from appliance.verbs.run_options import StartOptions

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "suites" / "tiny.toml"

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def url(engine: docker.DockerClient) -> str:
    return f"unix://{engine.api._custom_adapter.socket_path}"


@pytest.fixture
def bystander(
    engine: docker.DockerClient, base: str
) -> Iterator[docker.models.containers.Container]:
    """Somebody else's container, with a label that is nearly ours."""
    labels = {"bench": "not ours"}
    other = engine.containers.run(
        base, ["sleep", "3600"], detach=True, network_mode="none", labels=labels
    )
    yield other
    other.remove(force=True)


def argv(image: str, url: str, out: Path, *words: str) -> list[str]:
    named = ["--image", image, "--engine", url]
    named += (
        [] if "--resume" in words else ["--vendor", "cpu", "--suite", str(TINY), "--out", str(out)]
    )
    return [sys.executable, "-m", "appliance", "start", *named, *words]


def bench_start(image: str, url: str, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv(image, url, out, *words), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1]


def runs(out: Path) -> list[Path]:
    return [path.parent for path in out.glob("*/plan.json")]


def ours(engine: docker.DockerClient) -> list[Any]:
    return engine.containers.list(all=True, filters={"label": LABEL})


def plain(image: str, url: str, *words: str, **given: Any) -> Container:
    """A container of an image that has no program of its own."""
    facts = Engine(url=url)
    return Container(
        id=os.urandom(4).hex(),
        image=Image(name=image),
        words=words,
        user="12345:12345",
        binds=(),
        engine=facts,
        **given,
    )


def run_plain(
    url: str, container: Container, **given: Any
) -> tuple[engine_client.ContainerExit, str]:
    output = bytearray()
    with engine_client.opened(url) as engine:
        ended = engine.run(container, write=output.extend, say=lambda _: None, **given)
    return ended, output.decode()


# ------------------------------------------------------------------ a whole run


def test_run_is_signed_outside_and_the_key_is_nowhere_inside(
    engine: docker.DockerClient, image: str, url: str, bystander: Any, tmp_path: Path
) -> None:
    keys, out = tmp_path / "keys", tmp_path / "out"
    subprocess.run(
        [sys.executable, "-m", "appliance", "keys", "create", "A Lab", "--out", keys],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    words = ("--key", str(keys / "key.pem"), "--certificate", str(keys / "certificate.pem"))
    seen: list[str] = []
    with subprocess.Popen(
        argv(image, url, out, "--json", *words),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        while process.poll() is None:
            for one in _present(engine):
                seen.append(json.dumps(one.attrs))
                with suppress(docker.errors.APIError):  # it may be on its way out meanwhile
                    seen.append(one.logs().decode())
            time.sleep(1)
        stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    document = json.loads(stdout)
    folder = Path(document["folder"])
    assert (document["verdict"], document["faults"]) == ("ACCEPTED", [])
    assert document["image"]["id"] == engine.images.get(image).id
    check_launch_facts(folder, document)
    secret = [row for row in (keys / "key.pem").read_text().splitlines() if "-" not in row]
    assert seen
    assert secret
    texts = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    for text in (*seen, *texts, stderr):
        assert not any(row in text for row in secret)
    assert not any(str(keys) in text for text in seen)
    verify = [sys.executable, "-m", "appliance", "verify", folder]
    trusting = [*verify, "--trust", keys / "certificate.pem"]
    assert subprocess.run(trusting, cwd=ROOT, check=False, capture_output=True).returncode == 0
    assert subprocess.run(verify, cwd=ROOT, check=False, capture_output=True).returncode == 4
    assert ours(engine) == []
    bystander.reload()
    assert bystander.status == "running"


def _present(engine: docker.DockerClient) -> list[Any]:
    try:
        return ours(engine)
    except docker.errors.APIError:  # it was removed while it was looked at
        return []


def check_launch_facts(folder: Path, document: dict[str, Any]) -> None:
    """The evidence holds what only the launcher knows, and says who told it."""
    system = json.loads((folder / "system.json").read_text())
    identity, conditions = system["identity"]["host"], system["conditions"]["facts"]
    assert identity["image_digest"]["value"] == document["image"]["id"]
    assert identity["image_layers"]["value"] == document["image"]["layers"]
    assert conditions["container_name"]["value"] == document["container"]
    assert conditions["container_options"]["value"].startswith("--read-only --cap-drop ALL")
    assert "--network none" in conditions["container_options"]["value"]
    assert "reported by the launcher" in conditions["container_engine"]["source"]
    lifted = "--ulimit" in conditions["container_options"]["value"]
    assert lifted == (conditions["container_locked_memory"]["value"] == "unlimited")


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker's command line is not here")
def test_line_of_the_dry_run_makes_the_container_that_is_started(
    engine: docker.DockerClient, image: str, url: str, tmp_path: Path
) -> None:
    out = tmp_path / "a folder, with a comma"
    data = tmp_path / "data"
    data.mkdir()
    request = StartOptions(
        vendor="cpu",
        image=image,
        suite=str(TINY),
        out=out,
        engine=url,
        memory="1g",
        data=data,
        relax_seccomp=True,
    )
    printed, missing = start.dry_line(request)
    assert missing == ()
    assert not out.exists()
    assert ours(engine) == []
    subprocess.run(["bash", "-c", printed.replace(" run --rm ", " create ")], check=True)
    (typed,) = ours(engine)
    try:
        wanted = _from_line(engine, printed, request)
    finally:
        typed.remove(force=True)
    made = engine.containers.create(**engine_client.arguments(wanted))
    try:
        assert _configured(typed.attrs) == _configured(made.attrs)
        assert made.attrs["HostConfig"]["ReadonlyRootfs"]
        assert made.attrs["HostConfig"]["CapDrop"] == ["ALL"]
    finally:
        made.remove(force=True)
    assert line(wanted) == printed


def test_scratch_is_the_one_folder_beside_out_that_a_container_may_write(tmp_path: Path) -> None:
    options = StartOptions(scratch=tmp_path, data=tmp_path, stress="disk")
    words, binds = start._words(options, "cpu")
    place = f"/in/scratch/{tmp_path.name}"
    assert words[-2:] == ("--scratch", place)
    assert [bind.target for bind in binds if bind.is_writable] == [place]
    assert list(start._misplaced(binds)) == []


def _from_line(engine: docker.DockerClient, printed: str, request: StartOptions) -> Container:
    """The container of the request, with the number that the line drew."""
    result = re.search(r"--name bench-([0-9a-f]+)", printed)
    assert result is not None
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(start.secrets, "token_hex", lambda _: result[1])
        return start._prepare(request, Tree(), stack)[1].container


def _configured(attrs: dict[str, Any]) -> dict[str, Any]:
    """What a container was configured with; what is empty or of one client's habit is left out."""
    habits = {"AttachStdout", "AttachStderr", "Hostname", "Image", "ConsoleSize", "RestartPolicy"}
    parts = {**attrs["HostConfig"], **attrs["Config"], "image": attrs["Image"]}
    kept = {name: value for name, value in parts.items() if value and name not in habits}
    kept["Env"] = sorted(kept["Env"])
    for mount in kept["Mounts"]:
        mount.pop("ReadOnly", None) if not mount.get("ReadOnly") else None
    return kept


# ------------------------------------------------------------------ runs that end early


def test_ctrl_c_interrupts_the_run_and_it_goes_on(
    engine: docker.DockerClient, image: str, url: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        argv(image, url, out), cwd=ROOT, text=True, stderr=subprocess.PIPE
    ) as process:
        while not any(
            b"launch_started" in path.read_bytes() for path in out.glob("*/journal.jsonl")
        ):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=600)
    (run,) = runs(out)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert f"bench start --resume {run}" in output.splitlines()[-1]
    assert ours(engine) == []
    done = bench_start(image, url, out, "--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert "verified here: ACCEPTED" in last_words(done)
    again = bench_start(image, url, out, "--resume", str(run))
    assert again.returncode == 2
    assert "finished and signed" in last_words(again)


def test_time_limit_interrupts_the_run(
    engine: docker.DockerClient, image: str, url: str, tmp_path: Path
) -> None:
    # less than the container needs to load its libraries, on however fast a machine
    done = bench_start(image, url, tmp_path / "out", "--timeout", "1")
    assert done.returncode == 130, done.stderr
    assert "--timeout" in last_words(done)
    assert ours(engine) == []


def test_memory_limit_is_named(
    engine: docker.DockerClient, image: str, url: str, tmp_path: Path
) -> None:
    done = bench_start(image, url, tmp_path / "out", "--memory", "48m")
    assert done.returncode == 5, done.stderr
    assert "memory limit of 48 MiB: raise --memory" in last_words(done)
    assert ours(engine) == []


def test_full_disk_is_one_sentence(image: str, url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", out], check=True)
    try:
        done = bench_start(image, url, out)
    finally:
        subprocess.run(["umount", out], check=True)
    assert done.returncode == 2, done.stderr
    assert "MB free and the run may need" in done.stderr


def test_engine_that_goes_away_is_told_from_a_run_that_ends(tmp_path: Path) -> None:
    """An engine of its own, with an image of one program; killed while that sleeps."""
    with mortal_engine(tmp_path) as (url, name, kill), pytest.MonkeyPatch.context() as patch:
        watch = engine_client.EngineClient._until_end

        def lost(*arguments: Any) -> engine_client.Reason:
            kill()
            return watch(*arguments)

        patch.setattr(
            engine_client.EngineClient, "_until_end", lost
        )  # which waits from the start on
        ended, _ = run_plain(url, plain(name, url, "/bin/sleep", "600"))
    # docker's client leaves the socket open that it could not connect to an engine which is gone
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()
    assert (ended.reason, ended.exit_code) == ("engine_lost", None)
    output = start.fault(ended, None)
    assert isinstance(output, ApplianceError)
    assert url in str(output)


# ------------------------------------------------------------------ devices


def test_nodes_and_their_groups_are_passed_by_number(base: str, url: str) -> None:
    # not below /tmp, which is a file system without devices inside
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        check_node(Path(folder) / "kfd", base, url)


def check_node(node: Path, base: str, url: str) -> None:
    os.mknod(node, 0o660 | 0o020000, os.makedev(1, 3))
    os.chown(node, 0, 54321)
    node.chmod(0o660)
    devices = Devices(count=1, nodes=(str(node),), groups=(54321,))
    look = f"stat -c '%F %t %T' {node} && id -G && echo x > {node}"
    ended, output = run_plain(url, plain(base, url, "sh", "-c", look, devices=devices))
    assert ended.exit_code == 0, output
    assert output.splitlines()[:2] == ["character special file 1 3", "12345 54321"]


def test_node_that_is_gone_is_named(base: str, url: str, tmp_path: Path) -> None:
    devices = Devices(count=1, nodes=(str(tmp_path / "kfd"),))
    with pytest.raises(UsageError, match=r"kfd is not on this host"):
        run_plain(url, plain(base, url, "true", devices=devices))


@pytest.mark.parametrize(
    "devices", [Devices(count=1, requests=True), Devices(count=1, cdi="a.com/gpu=all")]
)
def test_engine_without_a_toolkit_is_named(
    engine: docker.DockerClient, base: str, url: str, devices: Devices
) -> None:
    with pytest.raises(UsageError, match=r"could not select device driver.*container toolkit"):
        run_plain(url, plain(base, url, "true", devices=devices))
    assert ours(engine) == []


def test_container_is_closed_off(base: str, url: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    binds = (Bind(source=str(tmp_path), target="/out", is_writable=True),)
    look = "cat /proc/self/status; ls /sys/class/net; touch /out/a /tmp/a; touch /a 2>&- || echo no"
    container = plain(base, url, "sh", "-c", look)
    ended, output = run_plain(url, replace(container, binds=binds))
    assert ended.exit_code == 0, output
    rows = dict(row.split(":\t") for row in output.splitlines() if ":\t" in row)
    assert (rows["CapEff"], rows["CapBnd"]) == ("0" * 16, "0" * 16)
    assert (rows["NoNewPrivs"], rows["Seccomp"]) == ("1", "2")
    assert output.splitlines()[-2:] == ["lo", "no"]
    assert (tmp_path / "a").stat().st_uid == 12345


# ------------------------------------------------------------------ an engine that dies


class mortal_engine:  # noqa: N801 - used as a function is
    """An engine that may be killed, with an image of one program; nothing of it is left."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = Path(tempfile.mkdtemp(prefix="bench-mortal-"))

    def __enter__(self) -> tuple[str, str, Any]:
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            pytest.skip("starting a container engine needs root and dockerd")
        flags = ["--bridge=none", "--iptables=false", "--ip6tables=false"]
        words = [
            "dockerd",
            "--data-root",
            self.root / "engine",
            "--exec-root",
            self.folder / "exec",
        ]
        words += ["-p", self.folder / "pid", "-H", f"unix://{self.folder}/socket", *flags]
        log = (self.folder / "log").open("wb")
        self.process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        log.close()
        client = connect(self.folder, self.process)
        archive = self.root / "image.tar"
        with tarfile.open(archive, "w") as tar:
            for path in ("/bin/sleep", *libraries("/bin/sleep")):
                tar.add(Path(path).resolve(), arcname=path)
        client.api.import_image_from_file(str(archive), repository="one-program", tag="latest")
        client.close()
        return f"unix://{self.folder}/socket", "one-program:latest", self.process.kill

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()
        for process in Path("/proc").glob("[0-9]*"):  # what the engine leaves behind
            try:
                is_left = str(self.folder).encode() in (process / "cmdline").read_bytes()
            except OSError:
                continue
            if is_left:
                end(process)
        for _ in range(3):
            time.sleep(0.5)
            for row in Path("/proc/mounts").read_text().splitlines():
                place = row.split()[1]
                if place.startswith((str(self.folder), str(self.root))):
                    subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.root / "engine", ignore_errors=True)


def end(process: Path) -> None:
    """End a process of /proc and its children, any of which may end by itself meanwhile."""
    with suppress(OSError):
        children = (process / "task" / process.name / "children").read_text().split()
        for number in (*children, process.name):
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)


def libraries(program: str) -> list[str]:
    """Paths of the shared libraries that a program loads."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)
