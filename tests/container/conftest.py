"""An engine of the tests' own, a base image from Debian's packages, and the image under test.

Nothing of the host's engine is touched: dockerd runs with its own folders and socket, without a
bridge or firewall rules, and ends with the session. What is slow to make is kept in a cache
folder, so that only the first run pays for it. Skipped where there is no root or no engine.
"""

import fcntl
import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound
from engines import connect

ROOT = Path(__file__).parents[2]
MIRROR = ROOT.parent / "shared" / "datasets"
CACHE = Path(
    os.environ.get("BENCH_CONTAINER_CACHE", Path.home() / ".cache" / "bench-container-tests")
)
PROGRAMS = ("dockerd", "debootstrap", "tar")
BASE, CONNECTED = "bench-test-base:bookworm", "bench-test-base:connected"
AUTHORITIES = "/etc/site-authorities.pem"
_making: list[float] = []


@contextmanager
def images_being_made() -> Iterator[None]:
    """Set-up and no test: its time is stated apart."""
    begin = time.monotonic()
    yield
    _making.append(time.monotonic() - begin)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the session that has its summary, which tests/conftest.py writes."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["images_seconds"] = sum(_making)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _making:
        terminalreporter.write_line(f"engine images made in {sum(_making):.1f} s")


@pytest.fixture(scope="session")
def cache() -> Iterator[Path]:
    """The cache folder, held by one session at a time."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        pytest.skip("starting a container engine needs root")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield CACHE


@pytest.fixture(scope="session")
def engine(cache: Path) -> Iterator[docker.DockerClient]:
    """A running engine that can reach no network but the host's own."""
    folder = Path(tempfile.mkdtemp(prefix="bench-engine-"))  # short: the socket's path has a limit
    argv = ["dockerd", "--data-root", cache / "engine", "--exec-root", folder / "exec"]
    argv += ["-p", folder / "pid", "-H", f"unix://{folder}/socket", "--bridge=none"]
    argv += ["--iptables=false", "--ip6tables=false"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        client = None
        try:
            client = connect(folder, process)
            yield client
        finally:
            if client is not None:
                client.close()
            process.terminate()
            process.wait(timeout=300)
    # the engine leaves its network namespace mounted; lazily, because nobody else uses it
    subprocess.run(["umount", "-l", folder / "exec" / "netns" / "default"], check=False)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def base(engine: docker.DockerClient, cache: Path) -> str:
    """Name of a minimal Debian image, made from packages once."""
    try:
        engine.images.get(BASE)
    except ImageNotFound:
        with images_being_made(), tempfile.TemporaryDirectory(dir=cache) as name:
            root, archive = Path(name) / "root", Path(name) / "root.tar"
            run("debootstrap", "--variant=minbase", "bookworm", root)
            run("tar", "-C", root, "-cf", archive, ".")
            repository, tag = BASE.split(":")
            engine.api.import_image_from_file(str(archive), repository=repository, tag=tag)
    return BASE


@pytest.fixture(scope="session")
def wheels(cache: Path) -> Path:
    """The wheels of the lock, so that the build needs no package index of its own."""
    lock = ROOT / "locks" / "cpu.txt"
    folder = cache / f"wheels-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:"]
        with images_being_made():
            run(*pip, "--require-hashes", "-r", lock, "-d", unfinished)
        unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def image(
    engine: docker.DockerClient, base: str, wheels: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Name of the image, built by the classic builder from this checkout."""
    with images_being_made():
        context = checkout(tmp_path_factory.mktemp("context"))
        shutil.copytree(wheels, context / "wheels", copy_function=os.link)
        return build(engine, context, "cpu", {"BASE_IMAGE": base, "PIP_NO_INDEX": "1"})


@pytest.fixture(scope="session")
def connected_base(engine: docker.DockerClient, base: str, cache: Path) -> str:
    """Name of the minimal image that trusts whom this host trusts, for builds that fetch."""
    with images_being_made(), tempfile.TemporaryDirectory(dir=cache) as name:
        trusted = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().openssl_cafile
        shutil.copy(trusted, Path(name) / "authorities.pem")
        lines = f"FROM {base}\nCOPY authorities.pem {AUTHORITIES}\n"
        (Path(name) / "Dockerfile").write_text(lines)
        engine.images.build(path=name, tag=CONNECTED, rm=True)
    return CONNECTED


@pytest.fixture(scope="session")
def cuda_image(
    engine: docker.DockerClient, connected_base: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Name of the image with CUDA, its packages fetched from the index: gigabytes, so by leave."""
    if os.environ.get("BENCH_BUILD_CUDA") != "1":
        pytest.skip("builds an image of many gigabytes from a package index: BENCH_BUILD_CUDA=1")
    context = checkout(tmp_path_factory.mktemp("context"))
    trust = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), AUTHORITIES)
    index = {key: os.environ[key] for key in ("PIP_INDEX_URL",) if key in os.environ}
    with images_being_made():
        return build(engine, context, "cuda", {"BASE_IMAGE": connected_base, **trust, **index})


def checkout(context: Path) -> Path:
    """A folder with what the images are made of."""
    for name in ("appliance", "workloads", "reports", "locks", "scripts"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, context / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".dockerignore"):
        shutil.copy(ROOT / name, context / name)
    for path in ROOT.glob("Dockerfile.*"):
        shutil.copy(path, context / path.name)
    if MIRROR.is_dir():
        shutil.copytree(MIRROR, context / "data-mirror")
    return context


def build(
    engine: docker.DockerClient, context: Path, vendor: str, arguments: dict[str, str]
) -> str:
    """Name of a vendor's image, built with the data sets that lie beside this checkout."""
    mirror = context / "data-mirror"
    data = sorted(path.name for path in mirror.iterdir()) if mirror.is_dir() else ["none"]
    wanted = {"BASE_DIGEST": "", "DATA": " ".join(data), **arguments}
    image = f"bench-{vendor}:test"
    for target, tag in (("packages", f"bench-test-packages:{vendor}"), ("final", image)):
        engine.images.build(
            path=str(context),
            dockerfile=f"Dockerfile.{vendor}",
            target=target,
            tag=tag,
            buildargs=wanted,
            network_mode="host",
            rm=True,
        )
    engine.images.prune()  # what earlier runs left; the stage that is slow to make has a name
    return image


def run(*argv: str | Path) -> None:
    """Run a program; its last words are the failure's."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, f"{argv[0]}: {done.stdout[-500:]}{done.stderr[-1500:]}"
