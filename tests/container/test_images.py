"""The images without an engine: Dockerfiles, locks, inventory, pinning at a registry's door."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import util
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
from packaging.markers import default_environment
from support.locked import extras, pins, requirements
from support.program import sentences
from typer.testing import CliRunner

from appliance.cli.main import app
from appliance.errors import OutputError, UsageError
from appliance.probe import node as probe
from appliance.vendors.visibility import NOT_VISIBLE
from appliance.version import VERSION

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """A script of the folder, which is no package, as a module."""
    spec = util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


images = script("pin_images")
BEGIN, END = "# --- vendor block begin ---\n", "# --- vendor block end ---\n"
VENDORS = ("cpu", *NOT_VISIBLE)
STAGES = ["vendor", "system", "packages", "bench", "data", "final"]
DIGEST = "sha256:" + "0123456789abcdef" * 4


def dockerfile(vendor: str) -> str:
    return (ROOT / f"Dockerfile.{vendor}").read_text()


def arguments(vendor: str) -> dict[str, str]:
    """The build arguments of the vendor block with their defaults."""
    block = dockerfile(vendor).split(BEGIN)[1].split(END)[0]
    return {name: value.strip('"') for name, value in re.findall(r"(?m)^ARG (\w+)=(.*)$", block)}


def lock(vendor: str) -> str:
    return (ROOT / arguments(vendor)["LOCK"]).read_text()


# ------------------------------------------------------------------ the Dockerfiles


def test_there_is_a_dockerfile_for_every_vendor() -> None:
    assert {path.suffix[1:] for path in ROOT.glob("Dockerfile.*")} == set(VENDORS)


@pytest.mark.parametrize("vendor", VENDORS)
def test_files_are_the_same_bytes_but_for_the_vendor_block(vendor: str) -> None:
    before, block, after = re.split(f"{BEGIN}|{END}", dockerfile(vendor))
    first, _, last = re.split(f"{BEGIN}|{END}", dockerfile("cpu"))
    assert (before, after) == (first, last)
    assert re.findall(r"(?m)^FROM \S+ AS (\w+)$", block + after) == STAGES


def test_image_for_rocm_keeps_no_cache_of_pip() -> None:
    """The cache of AMD's own image lies in a layer below, where nothing can remove it."""
    block = dockerfile("rocm").split(BEGIN)[1].split(END)[0]
    assert arguments("rocm")["BASE_IMAGE"].startswith("ubuntu:")
    installs = re.findall(r"-m pip install (\S+)", block)
    assert installs == ["--no-cache-dir"] * 3
    assert "--cache" not in block


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_base_is_an_argument_with_a_default_that_can_be_pinned(vendor: str) -> None:
    known = arguments(vendor)
    (base,) = images.bases([ROOT / f"Dockerfile.{vendor}"])
    assert known["BASE_IMAGE"] == str(base.image)
    assert known["BASE_DIGEST"] == base.image.digest
    sources = re.findall(r"(?m)^FROM (\S+)", dockerfile(vendor))
    assert sources == ["${BASE_IMAGE}", "vendor", "system", "system", "bench", "bench"]


def test_bases_without_a_digest_are_those_of_which_no_source_tells_one() -> None:
    loose = [one.file.name for one in images.bases(sorted(ROOT.glob("Dockerfile.*")))
             if not one.image.digest]  # fmt: skip
    assert loose == ["Dockerfile.xpu"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_image_says_for_whose_devices_it_is(vendor: str) -> None:
    text = dockerfile(vendor)
    variables = dict(re.findall(r"(BENCH_\w+)=(\"[^\"]*\"|'[^']*'|\S+)", text))
    assert variables["BENCH_IMAGE"] == f"bench-{vendor}"
    assert variables["BENCH_VENDOR"] == vendor
    assert text.count("HEALTHCHECK") == text.count('CMD ["accept"]') == 1
    for name in ("title", "description", "version", "licenses", "base.name", "base.digest"):
        assert text.count(f"org.opencontainers.image.{name}=") == 1
    assert f"ARG VERSION={VERSION}\n" in text


@pytest.mark.parametrize("vendor", sorted(NOT_VISIBLE))
def test_line_to_run_passes_what_the_sentence_of_absence_asks_for(vendor: str) -> None:
    (options,) = re.findall(r"(?m) BENCH_RUN_OPTIONS=[\"'](.*)[\"']$", dockerfile(vendor))
    wanted = re.findall(r"--\w+ [\w/]+", NOT_VISIBLE[vendor])
    assert wanted
    assert all(option in options for option in wanted)


@pytest.mark.parametrize("vendor", sorted(NOT_VISIBLE))
def test_vendor_block_says_where_its_versions_come_from(vendor: str) -> None:
    block = dockerfile(vendor).split(BEGIN)[1].split(END)[0]
    comments = "".join(line for line in block.splitlines() if line.startswith("#"))
    assert "https://" in comments
    own = pins(lock(vendor))
    named = {name for name in own if name == "torch" or name.startswith("onnxruntime")}
    assert named
    assert all(f"{name} {own[name]}" in comments for name in named)


# ------------------------------------------------------------------ the locks


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_package_of_a_lock_has_its_sha256(vendor: str) -> None:
    text = re.sub(r"(?m)^\s*#.*\n", "", lock(vendor)).strip()
    entries = re.split(r"\n(?=\S)", text)
    assert len(entries) == len(pins(text)) > 100
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)


@pytest.mark.parametrize("vendor", sorted(NOT_VISIBLE))
def test_images_have_the_versions_of_the_processors_lock(vendor: str) -> None:
    common, own = pins(lock("cpu")), pins(lock(vendor))
    differing = {name for name in common.keys() & own.keys() if common[name] != own[name]}
    assert differing <= {"torch", "onnxruntime"}


@pytest.mark.parametrize("vendor", VENDORS)
def test_lock_and_base_image_have_one_torch_and_one_onnx_runtime(vendor: str) -> None:
    own = pins(lock(vendor))
    brings_torch = arguments(vendor)["PYTHON"] != "python3.11"
    assert ("torch" in own) is not brings_torch
    assert not brings_torch or not any(name.startswith(("nvidia-", "triton")) for name in own)
    assert len([name for name in own if re.fullmatch(r"onnxruntime(-\w+)?", name)]) == 1


@pytest.mark.parametrize("vendor", VENDORS)
def test_lock_meets_the_ranges_of_the_project(vendor: str) -> None:
    own = pins(lock(vendor))
    parts = {"run", "report", "compare"} | ({"cuda"} if vendor == "cuda" else set())
    assert set(extras(lock(vendor))) == parts
    brought = {"torch"} - own.keys()
    elsewhere = {"onnxruntime"} - own.keys()  # by a vendor's build of another name
    for item in requirements(sorted(parts)):
        if item.name.lower() not in brought | elsewhere:
            assert item.specifier.contains(own[item.name.lower()].split("+")[0]), item


def test_lock_of_cuda_is_of_one_cuda() -> None:
    own = pins(lock("cuda"))
    named = {name for name in own if re.search(r"-cu\d+$|cuda\d+", name)}
    assert named
    assert all(name.endswith("-cu13") or "cuda13" in name for name in named)
    assert own["nvidia-cuda-runtime"].startswith("13.")


# ------------------------------------------------------------------ a base image with its torch


def wheel(folder: Path, name: str, version: str) -> str:
    """A wheel with one module that knows its version; the line of a lock for it."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"VERSION = {version!r}\n")
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def run(*argv: str | Path, **variables: str) -> tuple[int, str, str]:
    closed = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=closed | variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@dataclass
class Site:
    """A checkout, a folder of wheels, and the Python of a base image, which is a venv's."""

    checkout: Path
    wheels: Path
    python: Path
    bench: Path

    def install(self, text: str) -> tuple[int, str]:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (self.checkout / "locks" / "x.txt").write_text(
            f"# made for: cpython {version} Linux {os.uname().machine}\n{text}"
        )
        code, _, output = run(
            self.checkout / "scripts" / "install.sh", self.bench / "bin" / "python",
            "locks/x.txt", "packages", WHEELS=str(self.wheels),
        )  # fmt: skip
        return code, output

    def seen(self, name: str) -> str:
        code = f"import {name}; print({name}.VERSION, {name}.__file__)"
        return run(self.bench / "bin" / "python", "-I", "-c", code)[1].strip()


@pytest.fixture(scope="module")
def base_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of a vendor's image: a torch of its own, and pip."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wheels = folder / "wheels"
    wheels.mkdir()
    for name, version in (("torch", "2.8.0+vendor"), ("beside", "1.0")):
        wheel(wheels, name, version)
    pip = [folder / "bin" / "pip", "install", "-q", "--no-index", "--find-links", wheels]
    subprocess.run([*pip, "torch", "beside"], check=True, env={"PATH": os.environ["PATH"]})
    return folder


@pytest.fixture
def site(tmp_path: Path, base_venv: Path) -> Site:
    shutil.copytree(ROOT / "scripts", tmp_path / "checkout" / "scripts")
    (tmp_path / "checkout" / "locks").mkdir()
    (tmp_path / "wheels").mkdir()
    made = Site(
        checkout=tmp_path / "checkout", wheels=tmp_path / "wheels",
        python=base_venv / "bin" / "python", bench=tmp_path / "bench",
    )  # fmt: skip
    code, _, output = run(ROOT / "scripts" / "environment.sh", made.python, made.bench)
    assert code == 0, output
    return made


def test_packages_go_beside_what_the_base_image_brings(site: Site) -> None:
    text = wheel(site.wheels, "beside", "2.0") + wheel(site.wheels, "extra", "1.0")
    assert site.install(text) == (0, "")
    assert site.seen("torch").startswith(f"2.8.0+vendor {site.python.parents[1]}/")
    assert site.seen("beside").startswith(f"2.0 {site.bench}/")
    assert site.seen("extra").startswith(f"1.0 {site.bench}/")
    old = run(site.python, "-I", "-c", "import beside; print(beside.VERSION)")
    assert old == (0, "1.0\n", "")  # nothing of the image's own was touched


def test_lock_that_replaces_the_torch_of_the_base_image_is_refused(site: Site) -> None:
    wheel(site.wheels, "other", "1.0")
    path = site.wheels / "other-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as archive:  # brings a torch under another name
        archive.writestr("torch/__init__.py", "VERSION = 'another'\n")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    code, output = site.install(f"other==1.0 \\\n    --hash=sha256:{digest}\n")
    assert code == 2
    assert "in the place of 2.8.0+vendor" in output


def test_nothing_of_a_base_image_is_seen_where_the_lock_has_a_torch(
    tmp_path: Path, base_venv: Path
) -> None:
    """Its extensions are made for its own torch."""
    lock = tmp_path / "x.txt"
    bench = tmp_path / "bench"
    lock.write_text("beside==2.0\ntorch==2.13.0+xpu\n")
    script = ROOT / "scripts" / "environment.sh"
    assert run(script, base_venv / "bin" / "python", bench, lock) == (0, "", "")
    code = "import importlib.util as util; print(util.find_spec('torch'), util.find_spec('beside'))"
    assert run(bench / "bin" / "python", "-I", "-c", code) == (0, "None None\n", "")
    assert run(bench / "bin" / "python", "-m", "pip", "--version")[0] == 0


def test_lock_without_torch_needs_a_base_image_with_one(site: Site) -> None:
    plain = site.bench.with_name("plain")
    python = Path(sys.base_prefix) / "bin" / "python3"
    if not python.exists() or run(python, "-I", "-c", "import torch")[0] == 0:
        pytest.skip("there is no interpreter without torch here")
    code, _, output = run(ROOT / "scripts" / "environment.sh", python, plain)
    assert code == 0, output
    site.bench = plain
    code, output = site.install(wheel(site.wheels, "extra", "1.0"))
    assert code == 2
    assert "has no torch and neither has" in output


@pytest.mark.parametrize("line", ["torch==2.13.0", "x==1"])
def test_image_with_another_python_than_its_lock_is_refused(site: Site, line: str) -> None:
    (site.checkout / "locks" / "x.txt").write_text(
        f"# made for: cpython 3.7 Linux x86_64\n{line}\n"
    )
    code, _, output = run(
        site.checkout / "scripts" / "install.sh", site.bench / "bin" / "python",
        "locks/x.txt", "packages",
    )  # fmt: skip
    assert code == 2
    assert "locks/x.txt is for cpython 3.7" in output


# ------------------------------------------------------------------ what is in an image


@pytest.fixture(scope="module")
def inventory() -> ModuleType:
    return script("inventory")


# What https://cyclonedx.org/schema/bom-1.6.schema.json requires of the fields that are written.
BILL = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "additionalProperties": False,
    "properties": {
        "bomFormat": {"enum": ["CycloneDX"]},
        "specVersion": {"enum": ["1.6"]},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {"type": "object", "properties": {"component": {"$ref": "#/$defs/part"}}},
        "components": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/part"}},
    },
    "$defs": {
        "part": {
            "type": "object",
            "required": ["type", "name"],
            "additionalProperties": False,
            "properties": {
                "bom-ref": {"type": "string", "minLength": 1},
                "type": {"enum": ["library", "container", "data"]},
                "name": {"type": "string", "minLength": 1},
                "version": {"type": "string", "maxLength": 1024},
                "purl": {"type": "string", "pattern": "^pkg:(pypi|deb)/"},
                "hashes": {
                    "items": {
                        "required": ["alg", "content"],
                        "properties": {"content": {"pattern": "^[0-9a-f]{64}$"}},
                    }
                },
                "licenses": {
                    "maxItems": 1,
                    "items": {
                        "oneOf": [
                            {"required": ["expression"]},
                            {
                                "required": ["license"],
                                "properties": {"license": {"required": ["name"]}},
                            },
                        ]
                    },
                },
                "properties": {"items": {"required": ["name", "value"]}},
            },
        }
    },
}


def distribution(folder: Path, name: str, *fields: str) -> None:
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    head = ["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields]
    (about / "METADATA").write_text("\n".join(head) + "\n")
    (about / "LICENSE").write_text("the terms")
    (about / "RECORD").write_text(f"{name}-1.0.dist-info/LICENSE,,\n")


@pytest.mark.parametrize(
    ("fields", "licence", "stated_in"),
    [
        (["License-Expression: MIT OR Apache-2.0"], "MIT OR Apache-2.0", "License-Expression"),
        (["Classifier: License :: OSI Approved :: BSD License"], "BSD License", "Classifier"),
        (["License: BSD-3-Clause"], "BSD-3-Clause", "License"),
        (["License: UNKNOWN"], None, ""),
        (["License: " + "a whole text " * 20], None, ""),
        ([], None, ""),
    ],
)
def test_licence_is_what_the_metadata_states(
    inventory: ModuleType, tmp_path: Path, fields: list[str], licence: str | None, stated_in: str
) -> None:
    distribution(tmp_path, "thing", *fields)
    (part,) = inventory.python_parts([str(tmp_path)])
    assert (part.licence, part.stated_in) == (licence, stated_in)
    assert part.files == (str(tmp_path / "thing-1.0.dist-info" / "LICENSE"),)
    assert inventory.licences([part])["not_stated"] == (licence is None)


def test_the_distribution_that_is_used_is_the_one_that_is_listed(
    inventory: ModuleType, tmp_path: Path
) -> None:
    distribution(tmp_path / "own", "The_Thing", "License: mine")
    distribution(tmp_path / "base", "the.thing", "License: the base image's")
    paths = [str(tmp_path / "own"), str(tmp_path / "base")]
    (part,) = inventory.python_parts(paths)
    assert (part.name, part.licence) == ("the-thing", "mine")


def test_data_set_is_listed_when_it_is_there_with_its_licence_and_digest(
    inventory: ModuleType, tmp_path: Path
) -> None:
    manifest = ROOT / "workloads" / "datasets.toml"
    assert list(inventory.data_parts(manifest, tmp_path)) == []
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("To be")
    (part,) = inventory.data_parts(manifest, tmp_path)
    assert part.name == "tinyshakespeare/input.txt"
    assert part.licence == "public domain text"
    assert part.sha256 == hashlib.sha256(b"To be").hexdigest()


def test_bill_of_this_environment_has_all_that_the_schema_requires(
    inventory: ModuleType, tmp_path: Path
) -> None:
    words = ["--image", "bench-cpu", "--base", f"debian:x@{DIGEST}", "--to", str(tmp_path / "to")]
    words += ["--datasets", str(ROOT / "workloads" / "datasets.toml"), "--data", str(tmp_path)]
    inventory.main(words)
    text = (tmp_path / "to" / "sbom.json").read_text()
    bill = json.loads(text)
    jsonschema.validate(bill, BILL)
    references = [part["bom-ref"] for part in bill["components"]]
    assert len(references) == len(set(references))
    assert "torch" in {part["name"] for part in bill["components"]}
    assert {"name": "bench:base.digest", "value": DIGEST} in (
        bill["metadata"]["component"]["properties"]
    )
    inventory.main(words)
    assert (tmp_path / "to" / "sbom.json").read_text() == text  # nothing of the moment is in it


def test_every_locked_package_states_its_licence(inventory: ModuleType) -> None:
    installed = {part.name: part.licence for part in inventory.python_parts()}
    environment = default_environment()["python_version"]
    assert environment
    silent = [name for name in pins(lock("cpu")) if installed.get(name, "not here") is None]
    assert silent == []


# ------------------------------------------------------------------ an image without its devices


@pytest.mark.parametrize("vendor", sorted(NOT_VISIBLE))
def test_image_for_accelerators_does_not_fall_back_to_processors(
    vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(probe.VENDORS, vendor, Nothing)  # type: ignore[arg-type]
    monkeypatch.setenv("BENCH_VENDOR", vendor)
    with pytest.raises(UsageError, match="no accelerator visible") as refusal:
        probe.present()
    assert str(refusal.value).endswith(NOT_VISIBLE[vendor])
    assert probe.present("cpu").name == "cpu"
    shown, absence = probe.visible()
    assert (shown.name, absence) == ("cpu", str(refusal.value))
    with pytest.raises(UsageError):
        probe.visible(vendor)


class Nothing:
    """A vendor without devices."""

    def probe(self) -> tuple[()]:
        return ()


def test_image_for_processors_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_VENDOR", "cpu")
    shown, absence = probe.visible()
    assert (shown.name, absence) == (probe.present().name, "") == ("cpu", "")


@pytest.mark.parametrize("verb", ["accept", "run", "plan"])
def test_verbs_that_run_stop_without_the_accelerators_of_the_image(
    verb: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "appliance", verb],
        cwd=tmp_path,
        env={**os.environ, "BENCH_VENDOR": "xpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = sentences(done.stderr)
    assert sentence.startswith("bench: no accelerator visible: was --device /dev/dri given?")
    assert list(tmp_path.rglob("*.json*")) == []


def test_probe_shows_the_processors_and_says_what_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BENCH_VENDOR", "xpu")
    done = CliRunner().invoke(app, ["probe", "--json"])
    assert done.exit_code == 0
    assert "no accelerator visible: was --device /dev/dri given?" in done.stderr
    devices = json.loads(done.stdout)["identity"]["devices"]
    assert [device["vendor"] for device in devices] == ["cpu"]


# ------------------------------------------------------------------ names of images


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("debian:bookworm-slim", "docker.io", "library/debian", "bookworm-slim"),
        ("debian", "docker.io", "library/debian", "latest"),
        ("rocm/pytorch:rocm10.0_py3.12", "docker.io", "rocm/pytorch", "rocm10.0_py3.12"),
        ("docker.io/debian:12", "docker.io", "library/debian", "12"),
        ("mirror.site:5000/a/b/c:1", "mirror.site:5000", "a/b/c", "1"),
        ("localhost/base:1", "localhost", "base", "1"),
        ("nvcr.io/nvidia/cuda:13", "nvcr.io", "nvidia/cuda", "13"),
    ],
)
def test_reference_is_read_as_an_engine_reads_it(
    text: str, registry: str, repository: str, tag: str
) -> None:
    result = images.parse(f"{text}@{DIGEST}")
    assert (result.registry, result.repository, result.tag) == (registry, repository, tag)
    assert (result.digest, str(result)) == (DIGEST, f"{text}@{DIGEST}")
    assert images.parse(text).digest == ""


@pytest.mark.parametrize("text", ["", "UPPER:1", "a:b:c", "a@sha256:12", "a:", "${X}", "a/../b:1"])
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="names no image"):
        images.parse(text)


def test_a_file_with_a_bad_name_of_an_image_is_named(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile.test"
    file.write_text("ARG BASE_IMAGE=a:b:c\n")
    with pytest.raises(UsageError, match=r'Dockerfile\.test: "a:b:c" names no image'):
        images.bases([file])


# ------------------------------------------------------------------ a registry


@dataclass
class Asked:
    path: str
    accept: str
    authorization: str


@dataclass
class Registry:
    """What the server answers; a test changes it."""

    manifest: bytes = b'{"schemaVersion": 2, "manifests": []}'
    wants_token: bool = True
    gives_token: bool = True
    claims: Callable[[bytes], str] = field(
        default=lambda body: f"sha256:{hashlib.sha256(body).hexdigest()}"
    )
    status: int = 200
    realm: str = ""
    requested: list[Asked] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Answers as the distribution specification says, token challenge included."""

    registry: Registry

    def do_GET(self) -> None:
        known = self.registry
        given = self.headers.get("Authorization", "")
        known.requested.append(Asked(self.path, self.headers.get("Accept", ""), given))
        if self.path.startswith("/token"):
            body = b'{"token": "secret"}' if known.gives_token else b"{}"
            self.answer(200, body)
        elif known.wants_token and given != "Bearer secret":
            host = f"http://{self.headers['Host']}"
            realm = known.realm or f"{host}/token"
            words = f'Bearer realm="{realm}",service="test",scope="repository:team/base:pull"'
            self.answer(401, b"{}", {"WWW-Authenticate": words})
        elif known.status != 200:
            self.answer(known.status, b"{}")
        elif self.path == "/v2/team/base/manifests/1.0":
            kind = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
            claim = known.claims(known.manifest)
            self.answer(
                200, known.manifest, kind | ({"Docker-Content-Digest": claim} if claim else {})
            )
        else:
            self.answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Served:
    """A running registry and a Dockerfile that stands on an image of it."""

    registry: Registry
    file: Path
    host: str

    def write(self, reference: str, digest: str = '""') -> None:
        self.file.write_text(
            f"# head\nARG BASE_IMAGE={reference}\nARG BASE_DIGEST={digest}\nFROM ${{BASE_IMAGE}}\n"
        )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    registry = Registry()
    handler = type("Own", (Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        host = f"127.0.0.1:{server.server_address[1]}"
        made = Served(registry, tmp_path / "Dockerfile.test", host)
        made.write(f"{host}/team/base:1.0")
        yield made
        server.shutdown()
        thread.join()


def test_pin_writes_the_digest_that_the_registry_has(served: Served) -> None:
    served.file.chmod(0o640)
    (pinned,) = images.pin([served.file])
    digest = served.registry.digest
    assert pinned.is_changed
    assert served.file.read_text() == (
        f"# head\nARG BASE_IMAGE={served.host}/team/base:1.0@{digest}\n"
        f"ARG BASE_DIGEST={digest}\nFROM ${{BASE_IMAGE}}\n"
    )
    assert served.file.stat().st_mode & 0o777 == 0o640
    assert list(served.file.parent.iterdir()) == [served.file]
    first, token, second = served.registry.requested
    assert first.path == second.path == "/v2/team/base/manifests/1.0"
    assert "application/vnd.oci.image.index.v1+json" in first.accept
    assert (first.authorization, second.authorization) == ("", "Bearer secret")
    assert token.path == "/token?service=test&scope=repository%3Ateam%2Fbase%3Apull"


def test_pin_follows_a_tag_that_moved_and_says_when_it_did_not(served: Served) -> None:
    images.pin([served.file])
    assert [item.is_changed for item in images.pin([served.file])] == [False]
    served.registry.manifest += b" "
    assert [item.is_changed for item in images.pin([served.file])] == [True]
    assert served.registry.digest in served.file.read_text()


def test_dry_run_writes_nothing(served: Served) -> None:
    before = served.file.read_text()
    (result,) = images.pin([served.file], dry_run=True)
    assert result.digest == served.registry.digest
    assert served.file.read_text() == before


def test_registry_without_tokens_or_claims_is_read_too(served: Served) -> None:
    served.registry.wants_token = False
    served.registry.claims = lambda _: ""
    assert images.pin([served.file])[0].digest == served.registry.digest


def test_nothing_is_written_unless_every_registry_answers(served: Served, tmp_path: Path) -> None:
    other = tmp_path / "Dockerfile.other"
    other.write_text(f"ARG BASE_IMAGE={served.host}/team/base:gone\n")
    before = served.file.read_text()
    with pytest.raises(UsageError):
        images.pin([served.file, other])
    assert served.file.read_text() == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": 404}, "has no {host}/team/base:1.0: look for its tags"),
        ({"status": 401}, "does not let everybody read"),
        ({"status": 403}, "does not let everybody read"),
        ({"status": 429}, "answers no more for now"),
        ({"status": 500}, "answered 500"),
        ({"gives_token": False}, "gave no token for"),
        ({"realm": "ftp://elsewhere"}, 'sends for tokens to "ftp://elsewhere"'),
        ({"realm": "http://elsewhere/token"}, "which is no https address"),
        ({"claims": lambda _: DIGEST}, "nothing was pinned"),
    ],
)
def test_refusal_of_a_registry_is_one_sentence(
    served: Served, change: dict[str, object], sentence: str
) -> None:
    for name, value in change.items():
        setattr(served.registry, name, value)
    with pytest.raises(UsageError) as refusal:
        images.pin([served.file])
    output = str(refusal.value)
    assert sentence.format(host=served.host) in output
    assert "\n" not in output


def test_registry_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "Dockerfile.test"
    file.write_text("ARG BASE_IMAGE=127.0.0.1:1/team/base:1.0\n")
    assert images.main([str(file)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("pin_images: 127.0.0.1:1 cannot be reached (")
    assert "write the digest of your mirror into the file" in output
    assert output.count("\n") == 1


def test_file_that_cannot_be_replaced_is_one_sentence(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    with pytest.raises(OutputError, match="cannot be written"):
        images.pin([served.file])


def test_check_asks_nobody_and_names_what_is_loose(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert images.main(["--check", str(served.file)]) == 2
    assert str(served.file) in capsys.readouterr().err
    images.pin([served.file])
    served.registry.requested.clear()
    assert images.main(["--check", str(served.file)]) == 0
    assert served.registry.digest in capsys.readouterr().out
    assert served.registry.requested == []


def test_command_says_what_it_did_to_each_file(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    name, digest = f"{served.file}: {served.host}/team/base:1.0", served.registry.digest
    for words, sentence in (
        (["--dry-run"], f"{name} would be pinned to {digest}"),
        ([], f"{name} is pinned to {digest}"),
        ([], f"{name} is pinned to {digest}, as before"),
    ):
        assert images.main([*words, str(served.file)]) == 0
        assert capsys.readouterr().out == f"{sentence}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read"),
        ("FROM debian\n", "0 lines ARG BASE_IMAGE"),
        ("ARG BASE_IMAGE=a\nARG BASE_IMAGE=b\n", "2 lines ARG BASE_IMAGE"),
        ("ARG BASE_IMAGE=UPPER\n", "names no image"),
    ],
)
def test_file_that_is_no_dockerfile_of_ours_is_refused(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    file = tmp_path / "Dockerfile.test"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        images.bases([file])


def test_folder_without_a_dockerfile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"there is no Dockerfile\.\* here"):
        images.bases()
