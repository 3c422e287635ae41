"""Files of data sets, taken only when they are those for which a target is stated."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path

from workloads.contract.failures import ParameterError

_MANIFEST = Path(__file__).parents[2] / "datasets.toml"


def locate(data: Path | None, dataset: str, file: str) -> Path:
    """Path of a file of a data set; ParameterError if it is not there."""
    path = (data or Path("data")) / dataset / file
    if not path.is_file():
        raise ParameterError(f"the data set {dataset} is missing ({path}): {_fix(dataset)}")
    return path


def require_pinned(path: Path, dataset: str) -> None:
    """Raise ParameterError unless the file has the sha256 that the manifest of data sets pins."""
    if not is_pinned(path, dataset):
        message = f"{path} is not the file whose target is stated: {_fix(dataset)}"
        raise ParameterError(message)


def is_pinned(path: Path, dataset: str) -> bool:
    """Whether the file has the sha256 that the manifest of data sets pins."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    manifest = tomllib.loads(_MANIFEST.read_text())
    files = next(entry["file"] for entry in manifest["dataset"] if entry["name"] == dataset)
    return digest in {entry["sha256"] for entry in files if entry["name"] == path.name}


def _fix(dataset: str) -> str:
    return f"fetch it with `bench data fetch {dataset}`"
