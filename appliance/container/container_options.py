"""Which options a container of the appliance gets, as values and as the line that a person types.

Pure: what is known of the engine, of the devices and of the request goes in, and what comes out
is the same for the Docker SDK (engine_client turns it into a request) and for `docker run`. The
container is closed off: nothing of it can be written but /out and a small /tmp, it has no
capability and gains none, it sees no network, and it runs as the owner of the output folder.
"""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import dataclass, field

from appliance.probe import container_facts
from appliance.version import VERSION

OUT = "/out"
INPUTS = "/in"
"""Below it lie, read-only, the files and the data sets that a run reads."""
LABEL = "bench.run"
"""Every container of ours carries it, and none without it is ever touched."""
SHM_BYTES_EACH = 2**30
"""Of /dev/shm for one device: collective libraries put their buffers there."""
TMP_BYTES = 2**30
MOST_PROCESSES = 16384
"""Threads count, too: eight devices with some hundred each fit, a runaway does not."""
REFUSED = "limited by the engine, which refused to lift the limit"
RELAXED = "seccomp=unconfined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine says of itself; `product` is Docker or Podman."""

    url: str
    product: str = "Docker"
    version: str = ""
    api: str = ""
    storage: str = ""
    is_rootless: bool = False
    remaps_users: bool = False
    labels_files: bool = False
    """SELinux would keep the container from the folders that are bound into it."""
    device_folders: tuple[str, ...] = ()
    """Where it looks for specifications of the Container Device Interface; none: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image as the engine knows it; all but the name is empty where no engine was asked."""

    name: str
    id: str = ""
    references: tuple[str, ...] = ()
    """Its names with digests in registries: none for an image that was built here."""
    layers: str = ""
    """sha256 over the list of its layers, which no store and no registry changes."""

    @property
    def digest(self) -> str:
        """The digest in registries if there is one and the same, else the id.

        The id is of the configuration or of the manifest, as the engine's store has it.
        """
        digests = {one.rpartition("@")[2] for one in self.references}
        return digests.pop() if len(digests) == 1 else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file or folder of the host and its place inside."""

    source: str
    target: str
    is_writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """How devices are passed: by one CDI device, by asking the engine, or by their nodes."""

    count: int = 0
    cdi: str = ""
    requests: bool = False
    nodes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    """Numbers of the groups that own the nodes: an image has no names for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Everything that a container of ours is started with."""

    id: str
    image: Image
    words: tuple[str, ...]
    user: str
    binds: tuple[Bind, ...]
    devices: Devices = field(default_factory=Devices)
    engine: Engine
    memory_bytes: int | None = None
    locks_memory: bool = True
    relaxes_seccomp: bool = False

    @property
    def name(self) -> str:
        return f"bench-{self.id}"

    @property
    def shm_bytes(self) -> int:
        return SHM_BYTES_EACH * max(1, self.devices.count)

    @property
    def is_podman(self) -> bool:
        return self.engine.product == "Podman"

    @property
    def log_driver(self) -> str:
        """Podman has no driver called local."""
        return "k8s-file" if self.is_podman else "local"

    @property
    def security(self) -> tuple[str, ...]:
        relaxed = (RELAXED,) if self.relaxes_seccomp else ()
        unlabelled = ("label=disable",) if self.engine.labels_files else ()
        return ("no-new-privileges", *relaxed, *unlabelled)

    @property
    def groups(self) -> tuple[str, ...]:
        """Rootless, the numbers of the host mean nothing inside: Podman can keep the caller's."""
        if self.engine.is_rootless:
            return ("keep-groups",) if self.is_podman and self.devices.groups else ()
        return tuple(str(group) for group in self.devices.groups)

    @property
    def user_namespace(self) -> str:
        """Where the engine maps users to others, the owner of /out would be somebody else."""
        return "host" if self.engine.remaps_users and not self.engine.is_rootless else ""


def options(container: Container) -> tuple[str, ...]:
    """Words of `docker run` that close the container off and give it devices.

    None of them names a folder, a file or a user of the host, so they go into the evidence.
    """
    words = ["--read-only", "--cap-drop", "ALL", "--network", "none"]
    for name in container.security:
        words += ["--security-opt", name]
    words += ["--tmpfs", f"/tmp:size={TMP_BYTES},mode=1777"]  # noqa: S108 - the container's own
    words += ["--shm-size", str(container.shm_bytes), "--pids-limit", str(MOST_PROCESSES)]
    words += ["--log-driver", container.log_driver]
    if container.locks_memory:
        words += ["--ulimit", "memlock=-1:-1"]
    if container.memory_bytes is not None:
        words += ["--memory", str(container.memory_bytes)]
        words += ["--memory-swap", str(container.memory_bytes)]
    if container.user_namespace:
        words += ["--userns", container.user_namespace]
    return (*words, *_device_words(container))


def environment(container: Container) -> dict[str, str]:
    """Variables with what the run cannot see: its image, engine and options."""
    image, engine = container.image, container.engine
    api = f", API {engine.api}" if engine.api else ""
    facts = {
        "launcher": f"bench start {VERSION}",
        "container_name": container.name,
        "container_engine": f"{engine.product} {engine.version}{api}" if engine.version else "",
        "container_storage": engine.storage,
        "container_options": shlex.join(options(container)),
        "container_locked_memory": "unlimited" if container.locks_memory else REFUSED,
        "image_layers": image.layers,
        "image_references": " ".join(image.references),
    }
    named = {"BENCH_IMAGE": image.name, "BENCH_IMAGE_DIGEST": image.digest}
    return {
        **{name: value for name, value in named.items() if value},
        container_facts.VARIABLE: container_facts.encode(
            {name: value for name, value in facts.items() if value}
        ),
    }


def _device_words(container: Container) -> list[str]:
    devices = container.devices
    words = ["--device", devices.cdi] if devices.cdi else []
    words += ["--gpus", "all"] if devices.requests else []
    for node in devices.nodes:
        words += ["--device", node]
    for group in container.groups:
        words += ["--group-add", group]
    return words


def line(container: Container, program: str = "docker") -> str:
    """The command that makes /out's folder and starts the same container, ready for a shell."""
    folders = [bind.source for bind in container.binds if bind.is_writable]
    words = [program, "--host", container.engine.url, "run", "--rm", "--name", container.name]
    words += ["--label", f"{LABEL}={container.id}", "--user", container.user]
    words += options(container)
    for name, value in environment(container).items():
        words += ["--env", f"{name}={value}"]
    for bind in container.binds:
        words += ["--mount", _mount(bind)]
    command = shlex.join([*words, container.image.name, *container.words])
    return f"{shlex.join(['mkdir', '-p', *folders])} && {command}"


def _mount(bind: Bind) -> str:
    """The engine's client reads it as a row of CSV, so a comma in a path is no separator."""
    row = ["type=bind", f"source={bind.source}", f"target={bind.target}"]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(row if bind.is_writable else [*row, "readonly"])
    return text.getvalue()
