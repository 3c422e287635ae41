"""What a launch hands to a workload: devices, providers, data, rank, and a place for artifacts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import ApplianceError
from appliance.generator.drawing import Summed

if TYPE_CHECKING:
    import torch


def _whole_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Artifacts:
    """Files that a case makes once per run, in its untimed launch, and reads in the others.

    A float64 reference or an exported model costs more than the step that it checks. `known`
    has the digests that the untimed launch reported; a file that differs from its digest is
    refused. Without a known digest the file is made anew. `report(name, path, digest, is_made)`
    is called for every use, so that the journal shows what was read.
    """

    def __init__(
        self,
        folder: Path,
        known: Mapping[str, str] | None = None,
        report: Callable[[str, Path, str, bool], None] | None = None,
    ) -> None:
        self._folder = folder
        self._digests = dict(known or {})
        self._report = report

    def once(
        self,
        name: str,
        make: Callable[[Path], None],
        digest_of: Callable[[Path], str] = _whole_digest,
    ) -> Path:
        """Path of the file called `name`, made by `make(path)` if this run has none yet.

        `digest_of` is the SHA-256 of all of it, or of what shows that it is the same. Raises
        ApplianceError if the file on disk is not the one that was made.
        """
        path = self._folder / name
        is_made = name not in self._digests
        if is_made:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f"unfinished-{path.name}")
            make(unfinished)
            unfinished.replace(path)
        try:
            digest = digest_of(path)
        except FileNotFoundError:
            message = f"{name} was made by this run's untimed launch and is gone: run it again"
            raise ApplianceError(message) from None
        if self._digests.setdefault(name, digest) != digest:
            message = f"{name} changed after this run's untimed launch had made it: run it again"
            raise ApplianceError(message)
        if self._report is not None:
            self._report(name, path, digest, is_made)
        return path


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The launches of a case that run at once, each on a device of its own.

    `devices` are their names in the plan's order, of which `number` is this launch's; `meeting` is
    a folder that is theirs alone, and need not be there.
    """

    devices: tuple[str, ...]
    number: int
    meeting: Path


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a launch runs on; filled by the worker, so that no workload knows a vendor.

    `data` is the folder with one folder per data set of workloads/datasets.toml. `collectives` is
    the torch.distributed backend that joins the `world_size` processes of a launch, of which one
    waits at most `stall_seconds` for another. `devices` are all devices of the launch in the plan's
    order, of which `device` is this process's; empty where nobody says. `onnx_options` is what the
    first of `onnx_providers` is opened with for a graph of a number format. `seconds` is the
    worker's clock: what one call of some work takes. It serves to choose between ways of doing the
    same in the untimed launch, never to judge; None where there is none, as in tests. `drawn` has
    the inputs that the build drew on the device, in their order, each summed up. `flops` are the
    operations of a step that the plan counted, None where nobody did.

    A workload that starts processes of its own hands them `vendor`, the name by which they prepare
    torch for the device; `beside` are the launches at once, None where this one is alone, and
    `scratch` is where large files go, None for the folder of temporary ones.
    """

    device: torch.device
    artifacts: Artifacts
    onnx_providers: tuple[str, ...] = ()
    onnx_options: Callable[[str], Mapping[str, str]] = lambda dtype: {}  # noqa: ARG005
    data: Path | None = None
    rank: int = 0
    world_size: int = 1
    collectives: str = "gloo"
    stall_seconds: float = 60.0
    devices: tuple[torch.device, ...] = ()
    seconds: Callable[[Callable[[], object]], float] | None = None
    drawn: list[Summed] = field(default_factory=list)
    vendor: str = ""
    beside: Beside | None = None
    scratch: Path | None = None
    flops: float | None = None
