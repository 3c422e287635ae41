"""The manifest of data sets: workloads/datasets.toml."""

from __future__ import annotations

import re
from pathlib import Path

from appliance.errors import UsageError
from appliance.records.dataset import DataFile, Datasets
from appliance.storage.toml_file import ROOT, parse_own, unique

DATASETS = ROOT / "workloads" / "datasets.toml"


def load_datasets(path: Path = DATASETS) -> Datasets:
    """The data sets that workloads may name; UsageError if a file is not pinned."""
    try:
        datasets = parse_own(Datasets, path.read_bytes(), path.name)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    unique(path.name, "data set", [dataset.name for dataset in datasets.dataset])
    for dataset in datasets.dataset:
        unique(path.name, f"file of {dataset.name}", [file.name for file in dataset.file])
        if bool(dataset.file) == bool(dataset.package) or not _is_file_name(dataset.name):
            raise UsageError(f'{path.name}: "{dataset.name}" needs files or else a package')
        for file in dataset.file:
            if not _is_pinned(file):
                raise UsageError(
                    f"{path.name}: {dataset.name}/{file.name} needs its https address, its size "
                    "and its sha256"
                )
    return datasets


def _is_file_name(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name))


def _is_pinned(file: DataFile) -> bool:
    return (
        _is_file_name(file.name)
        and bool(file.urls)
        and all(url.startswith(("https://", "http://127.0.0.1:")) for url in file.urls)
        and bool(re.fullmatch(r"[0-9a-f]{64}", file.sha256))
        and file.size_bytes > 0
    )
