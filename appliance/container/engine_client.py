"""The container engine, through the Docker SDK: find it, start a container of ours, watch it end.

The only importer of the SDK. The engine is reached by an address that is given to the SDK, never
by the context of somebody's command line. A container is attached to before it is started, so
that no line of it is lost; it carries a label, and only what was created here is stopped and
removed here. `ContainerExit` says what ended it (itself, a person, a time limit, the kernel for
want of memory, an engine that goes away), and the evidence on disk is never touched.
"""

from __future__ import annotations

import errno
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit
from docker.utils.socket import frames_iter
from requests.exceptions import RequestException

from appliance.container.container_options import (
    LABEL,
    MOST_PROCESSES,
    OUT,
    TMP_BYTES,
    Container,
    Engine,
    Image,
    environment,
)
from appliance.errors import ApplianceError, UsageError
from appliance.records.json import sha256

SCHEME = "unix://"
SECONDS = 60.0
"""How long the engine may take for an answer, but to the question of when a run ends."""
GRACE_SECONDS = 30.0
"""From the interruption of a run to its end by force: the launch in progress is ended at once."""
STREAMS = {"stdout": 1, "stderr": 1, "stream": 1}
GONE = (RequestException, DockerException, OSError)
WITHOUT_DEVICES = re.compile(
    r"could not select device driver|unresolvable CDI devices", re.IGNORECASE
)
WITHOUT_NODE = re.compile(
    r"gathering device information.*?\"(?P<node>[^\"]+)\"|stat (?P<path>/dev/\S+): no such file",
    re.IGNORECASE,
)
WITHOUT_LIMIT = re.compile(r"rlimit", re.IGNORECASE)

Say = Callable[[str], None]
Write = Callable[[bytes], None]
Reason = Literal["ended", "stopped", "timed_out", "engine_lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExit:
    """How a container ended: `exit_code` is None if the engine could not report it.

    `container` is what was started in the end: locked memory may have been refused.
    """

    reason: Reason
    exit_code: int | None
    ran_out_of_memory: bool
    detail: str
    container: Container


# ------------------------------------------------------------------ where the engine is


def addresses(configured: str | None, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Where an engine may be: the address that was named, else the usual sockets in order."""
    named = configured or variables.get("DOCKER_HOST")
    if named:
        return (named if "://" in named else f"{SCHEME}{Path(named).absolute()}",)
    runtime = variables.get("XDG_RUNTIME_DIR")
    own = [f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"] if runtime else []
    paths = ["/var/run/docker.sock", *own, "/run/podman/podman.sock"]
    return tuple(f"{SCHEME}{path}" for path in paths)


def address(configured: str | None, variables: Mapping[str, str]) -> str:
    """The first address at which something listens. Raises UsageError with the fix if none."""
    candidates = addresses(configured, variables)
    for candidate in candidates:
        if not candidate.startswith(SCHEME):
            raise UsageError(
                f"the engine is at {candidate}, and only one on this machine has its devices and "
                f"folders: name its socket with --engine {SCHEME}/var/run/docker.sock"
            )
    faults = {one: _trial(one.removeprefix(SCHEME)) for one in candidates}
    reachable = [one for one, fault in faults.items() if fault == 0]
    if reachable:
        return reachable[0]
    raise UsageError(_unreachable(faults))


def _trial(path: str) -> int:
    """0 if something listens at a socket, else the number of the error."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(5)
        try:
            return trial.connect_ex(path)
        except OSError:  # a path that is too long
            return errno.ENOENT


def _unreachable(faults: Mapping[str, int]) -> str:
    for url, fault in faults.items():
        if fault == errno.EACCES:
            return (
                f"you may not use the container engine at {url}: `sudo usermod -aG docker $USER` "
                "and log in again, or start Podman's own with `systemctl --user start "
                "podman.socket`"
            )
    for url, fault in faults.items():
        if fault != errno.ENOENT:
            return f"no container engine listens at {url}: `sudo systemctl start docker`"
    places = " or ".join(one.removeprefix(SCHEME) for one in faults)
    return (
        f"no container engine is at {places}: install Docker Engine or Podman and start it "
        "(`sudo systemctl start docker`), or name its socket with --engine"
    )


# ------------------------------------------------------------------ what it is and has


class EngineClient:
    """One engine; close it after use."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        try:
            self._client = docker.DockerClient(base_url=url, timeout=seconds)
            self.engine = _engine(url, self._client.info(), self._client.version())
        except GONE as error:
            raise ApplianceError(
                f"the engine at {url} gives no sound answer ({_words(error)}): see its log"
            ) from None

    def close(self) -> None:
        self._client.close()

    def image(self, name: str, vendor: str) -> Image:
        """What the engine knows of an image. Raises UsageError if it has none of that name."""
        try:
            attributes = self._client.images.get(name).attrs
        except (ImageNotFound, APIError):
            raise UsageError(
                f"the engine has no image {name}: `docker build -f Dockerfile.{vendor} -t {name} "
                ".`, `docker load` it from a file, or name another with --image"
            ) from None
        layers = (attributes.get("RootFS") or {}).get("Layers") or []
        return Image(
            name=name,
            id=attributes["Id"],
            references=tuple(sorted(attributes.get("RepoDigests") or [])),
            layers=f"sha256:{sha256(chr(10).join(layers).encode())}" if layers else "",
        )

    def running_in(self, out: Path) -> str | None:
        """Name of a running container of ours that writes into `out`, if there is one."""
        for one in self._client.containers.list(filters={"label": LABEL}, ignore_removed=True):
            mounts = one.attrs.get("Mounts") or []
            if any(
                mount.get("Destination") == OUT and mount.get("Source") == str(out)
                for mount in mounts
            ):
                return str(one.name)
        return None

    # -------------------------------------------------------------- one run

    def run(
        self, container: Container, *, write: Write, say: Say, timeout: float | None = None
    ) -> ContainerExit:
        """Start a container and stay with it to its end; it is removed whatever happens.

        What it says goes to `write` as it comes. Raises UsageError if the engine cannot start it
        for something that is missing, ApplianceError if it refuses for another reason.
        """
        with _Signals() as signals:
            number, attached, started = self._started(container)
            try:
                pump = threading.Thread(target=_copy, args=(attached, write), daemon=True)
                pump.start()
                waiter = _Waiter(lambda: self._client.api.wait(number, timeout=None))
                reason = self._until_end(number, waiter, _Limits(signals, timeout), say)
                pump.join(timeout=0 if reason == "engine_lost" else 10)
                return self._ended(number, reason, waiter, started)
            finally:
                self._remove(number)
                _close(attached)

    def _started(self, container: Container) -> tuple[str, Any, Container]:
        """Number and attached socket of the container once it runs.

        Where the engine refuses to lift the limit on locked memory, it runs without.
        """
        try:
            return self._start(container)
        except APIError as error:
            if container.locks_memory and WITHOUT_LIMIT.search(_words(error)):
                return self._started(replace(container, locks_memory=False))
            raise _refusal(error, container) from None
        except GONE as error:
            raise ApplianceError(
                f"the engine at {container.engine.url} went away before the run began "
                f"({_words(error)}): see its log, and start again"
            ) from None

    def _start(self, container: Container) -> tuple[str, Any, Container]:
        made = self._client.containers.create(**arguments(container))
        attached = None
        try:
            attached = self._client.api.attach_socket(made.id, params=STREAMS)
            made.start()
        except BaseException:
            self._remove(made.id)
            _close(attached)
            raise
        return str(made.id), attached, container

    def _ended(
        self, number: str, reason: Reason, waiter: _Waiter, container: Container
    ) -> ContainerExit:
        """What the engine says of the end; lost if it says nothing."""
        is_there = reason != "engine_lost" and waiter.fault is None
        state = self._state(number) if is_there else None
        if state is None:
            return ContainerExit(
                reason="engine_lost",
                exit_code=None,
                ran_out_of_memory=False,
                detail=_words(waiter.fault) if waiter.fault else "it does not answer",
                container=container,
            )
        return ContainerExit(
            reason=reason,
            exit_code=state.get("ExitCode"),
            ran_out_of_memory=bool(state.get("OOMKilled")),
            detail=str(state.get("Error") or ""),
            container=container,
        )

    def _until_end(self, number: str, waiter: _Waiter, limits: _Limits, say: Say) -> Reason:
        """Wait; interrupt at a signal or the time limit, and end by force after the grace."""
        reason: Reason = "ended"
        end_by_force = float("inf")
        while not waiter.done.wait(0.2):
            now = time.monotonic()
            if reason == "ended" and limits.reason(now) is not None:
                reason = limits.reason(now) or reason
                say(
                    f"{'stopping' if reason == 'stopped' else 'the time limit is reached'}: the "
                    "launch in progress is ended, and what was recorded stays"
                )
                end_by_force = now + GRACE_SECONDS
                if not self._signal(number, "SIGINT"):
                    return "engine_lost"
            elif now > end_by_force or (reason != "ended" and limits.is_impatient):
                end_by_force = now + GRACE_SECONDS
                if not self._signal(number, "SIGKILL"):
                    return "engine_lost"
        return reason

    def _signal(self, number: str, name: str) -> bool:
        """Send a signal to the first process; False if the engine does not answer."""
        try:
            self._client.api.kill(number, name)
        except APIError:  # it ended meanwhile
            return True
        except GONE:
            return False
        return True

    def _state(self, number: str) -> Mapping[str, Any] | None:
        try:
            state: Mapping[str, Any] = self._client.api.inspect_container(number)["State"]
        except GONE:
            return None
        return state

    def _remove(self, number: str) -> None:
        """Remove a container of ours; nothing where no engine listens any more."""
        if _trial(self.engine.url.removeprefix(SCHEME)) == 0:
            with suppress(*GONE):
                self._client.api.remove_container(number, force=True, v=True)


def arguments(container: Container) -> dict[str, Any]:
    """Arguments for `containers.create` of the SDK; the options of container_options.line."""
    return {
        "image": container.image.id or container.image.name,
        "command": list(container.words),
        "name": container.name,
        "labels": {LABEL: container.id},
        "user": container.user,
        "environment": environment(container),
        **_isolation(container),
        **_limits(container),
        **_passed_devices(container),
    }


def _isolation(container: Container) -> dict[str, Any]:
    """Nothing but /out and a small /tmp can be written, and no network is seen."""
    namespace = container.user_namespace
    return {
        "mounts": [
            Mount(bind.target, bind.source, type="bind", read_only=not bind.is_writable)
            for bind in container.binds
        ],
        "read_only": True,
        "cap_drop": ["ALL"],
        "network_mode": "none",
        "security_opt": list(container.security),
        "tmpfs": {"/tmp": f"size={TMP_BYTES},mode=1777"},  # noqa: S108 - the container's own
        **({"userns_mode": namespace} if namespace else {}),
    }


def _limits(container: Container) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "shm_size": container.shm_bytes,
        "pids_limit": MOST_PROCESSES,
        "log_config": LogConfig(type=container.log_driver),
    }
    if container.locks_memory:
        limits["ulimits"] = [Ulimit(name="memlock", soft=-1, hard=-1)]
    if container.memory_bytes is not None:
        limits |= {"mem_limit": container.memory_bytes, "memswap_limit": container.memory_bytes}
    return limits


def _passed_devices(container: Container) -> dict[str, Any]:
    devices = container.devices
    nodes: list[Any] = list(devices.nodes)
    requests = [DeviceRequest(count=-1, capabilities=[["gpu"]])] if devices.requests else []
    if devices.cdi and container.is_podman:  # its compatible interface takes it for a device
        nodes = [{"PathOnHost": devices.cdi, "PathInContainer": "", "CgroupPermissions": ""}]
    elif devices.cdi:
        requests = [DeviceRequest(driver="cdi", device_ids=[devices.cdi])]
    return {
        "devices": nodes,
        "device_requests": requests,
        "group_add": list(container.groups),
    }


def _engine(url: str, info: Mapping[str, Any], version: Mapping[str, Any]) -> Engine:
    components = [str(one.get("Name")) for one in version.get("Components") or []]
    is_podman = any("podman" in name.lower() for name in components)
    security = info.get("SecurityOptions") or []
    names = {part for option in security for part in str(option).split(",")}
    folders = info.get("CDISpecDirs") or (("/etc/cdi", "/var/run/cdi") if is_podman else ())
    return Engine(
        url=url,
        product="Podman" if is_podman else "Docker",
        version=str(version.get("Version") or ""),
        api=str(version.get("ApiVersion") or ""),
        storage=str(info.get("Driver") or ""),
        is_rootless="name=rootless" in names,
        remaps_users="name=userns" in names,
        labels_files="name=selinux" in names,
        device_folders=tuple(folders),
    )


def _refusal(error: APIError, container: Container) -> UsageError | ApplianceError:
    """Why the engine did not start a container, with the fix."""
    message = _words(error)
    if WITHOUT_DEVICES.search(message):
        return UsageError(
            f"the engine cannot pass the devices ({message}): install the vendor's container "
            "toolkit and restart the engine; `bench doctor` names it"
        )
    match = WITHOUT_NODE.search(message)
    if match is not None:
        node = match["node"] or match["path"]
        return UsageError(f"{node} is not on this host: load the driver of the device first")
    return ApplianceError(f"the engine refused to start {container.image.name} ({message})")


def _words(error: BaseException) -> str:
    """What an error says, on one line."""
    message = getattr(error, "explanation", None) or str(error)
    return " ".join(str(message).split())[:500] or type(error).__name__


def _copy(attached: Any, write: Write) -> None:
    """Pass on both streams of a container until they end."""
    with suppress(*GONE, ValueError):
        for _, part in frames_iter(attached, tty=False):
            write(part)


def _close(attached: Any) -> None:
    """End an attached socket and the answer that it came with; the SDK keeps both open."""
    if attached is not None:
        with suppress(*GONE, ValueError):
            attached._response.close()  # noqa: SLF001 - the SDK puts it there, and no other way
            attached.close()


# ------------------------------------------------------------------ waiting


class _Waiter:
    """The answer of the engine to when a container ends, requested in a thread of its own."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.done = threading.Event()
        self.fault: BaseException | None = None
        self._ask = ask
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._ask()
        except NotFound:  # it was removed by somebody: the state shows how it ended
            pass
        except GONE as error:
            self.fault = error
        finally:
            self.done.set()


class _Signals:
    """Counts the requests to stop while it is open; the handlers before it come back after."""

    NAMES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            wanted = [one for one in self.NAMES if not _is_ignored(one)]
            self._before = {one: signal.signal(one, self._noted) for one in wanted}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _noted(self, _number: int, _frame: object) -> None:
        self.count += 1


def _is_ignored(number: signal.Signals) -> bool:
    """Under nohup a terminal may go away, and the run goes on."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


class _Limits:
    """What may end a run from outside: a person, or the time limit."""

    def __init__(self, signals: _Signals, timeout: float | None) -> None:
        self._signals = signals
        self._end = float("inf") if timeout is None else time.monotonic() + timeout

    def reason(self, now: float) -> Reason | None:
        if self._signals.count:
            return "stopped"
        return "timed_out" if now > self._end else None

    @property
    def is_impatient(self) -> bool:
        """A person asked a second time."""
        return self._signals.count > 1


@contextmanager
def opened(url: str, seconds: float = SECONDS) -> Iterator[EngineClient]:
    """An engine for the length of a block; `seconds` is how long it may take for an answer."""
    host = EngineClient(url, seconds)
    try:
        yield host
    finally:
        host.close()
