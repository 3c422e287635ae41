"""The image with CUDA, built from a package index and started where no accelerator is.

It costs gigabytes, so it runs only with BENCH_BUILD_CUDA=1. What needs an accelerator is no part
of it: a container without one must say so, and never accept the processors by accident.
"""

import json
from pathlib import Path
from typing import Any

import docker
import pytest
from support.started_images import CLOSED, Started, bench, finish, mounted

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(5400)]
ABSENT = "no accelerator visible: was --gpus all given?"
LINE = (
    'mkdir -p out && docker run --rm --gpus all --user "$(id -u):$(id -g)" '
    '-v "$PWD/out:/out" bench-cuda'
)


@pytest.fixture
def start(engine: docker.DockerClient, cuda_image: str):
    started = Started(engine, cuda_image)
    yield started
    for container in started.all:
        container.remove(force=True)


def inside(start: Started, code: str) -> Any:
    """What a line of Python prints as JSON inside the image."""
    python = "/opt/bench/bin/python"
    done, out, output = finish(start("-c", code, entrypoint=[python, "-I"], **CLOSED))
    assert done == 0, output
    return json.loads(out)


def test_probe_shows_the_node_and_says_that_no_accelerator_is_visible(start: Started) -> None:
    code, out, output = finish(start("probe", "--json", **CLOSED))
    assert code == 0, output
    system = json.loads(out)
    assert [device["vendor"] for device in system["identity"]["devices"]] == ["cpu"]
    assert system["identity"]["host"]["image"]["value"] == "bench-cuda"
    assert ABSENT in output


@pytest.mark.parametrize("verb", ["accept", "run", "plan"])
def test_nothing_is_accepted_without_an_accelerator(
    start: Started, tmp_path: Path, verb: str
) -> None:
    tmp_path.chmod(0o777)
    code, out, output = finish(start(verb, volumes=mounted(tmp_path), **CLOSED))
    assert (code, out) == (2, "")
    assert output.startswith(f"bench: {ABSENT}")
    assert list(tmp_path.iterdir()) == []


def test_processors_are_accepted_when_they_are_asked_for(start: Started, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    words = ("accept", "--vendor", "cpu", "--suite", "smoke")
    code, _, output = finish(start(*words, user="54321:54321", volumes=mounted(out), **CLOSED))
    assert code == 0, output
    assert "ACCEPTED" in output
    (run,) = out.iterdir()
    done = bench("verify", run, "--allow-dev")
    assert done.returncode == 0, done.stdout + done.stderr


def test_refusal_names_the_line_that_passes_the_accelerators(start: Started) -> None:
    code, _, output = finish(start(**CLOSED))
    assert code == 2
    assert LINE in output


def test_libraries_are_those_of_one_cuda(start: Started) -> None:
    code = (
        "import json, torch, onnxruntime, jax, pynvml, ctypes\n"
        "loaded = [str(ctypes.CDLL(name)._name) for name in "
        "('libcudart.so.13', 'libcublas.so.13', 'libcudnn.so.9', 'libcurand.so.10')]\n"
        "print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.is_available(), "
        "onnxruntime.get_available_providers(), jax.__version__, loaded]))"
    )
    torch, cuda, is_available, providers, jax, loaded = inside(start, code)
    assert (torch, is_available, jax) == ("2.13.0+cu130", False, "0.10.2")
    assert cuda.startswith("13.")
    assert {"CUDAExecutionProvider", "CPUExecutionProvider"} <= set(providers)
    assert len(loaded) == 4


def test_image_says_what_it_is_and_what_it_is_made_of(
    engine: docker.DockerClient, start: Started, cuda_image: str
) -> None:
    result = engine.images.get(cuda_image)
    assert result.labels["org.opencontainers.image.title"] == "bench-cuda"
    assert result.attrs["Config"]["User"] == "65532:65532"
    folder = "/usr/share/bench"
    code = (
        "import json\n"
        f"bill = json.load(open('{folder}/sbom.json'))\n"
        f"terms = json.load(open('{folder}/licences.json'))\n"
        "print(json.dumps([bill['specVersion'], [c['name'] for c in bill['components']], "
        "[p['name'] for p in terms['parts'] if p['kind'] == 'python' and not p['licence']]]))"
    )
    version, names, silent = inside(start, code)
    assert version == "1.6"
    assert {"torch", "nvidia-cublas", "onnxruntime-gpu", "libc6", "bench-appliance"} <= set(names)
    assert silent == ["cuda-toolkit"]  # names the packages that go together, and holds no file
