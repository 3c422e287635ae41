"""Options that a person or a site sets once: variables, bench.toml in the folder, the user's.

A setting stands for an option that the command line leaves out. What a run is judged by, whom to
trust, keys and what is started in its place are no settings: they are named on the command line, so
that no file that lies about decides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from appliance.errors import UsageError
from appliance.records.json import Record
from appliance.storage import input_file, toml_file

NAME = "bench.toml"
USER_FOLDER = "XDG_CONFIG_HOME"
PREFIX = "BENCH_"
NEVER = {
    *("trust", "allow_dev", "key", "certificate", "role"),
    *("expect_criteria", "expect_suite", "order", "challenge", "receipt", "ledger", "facts"),
    *("criteria", "baseline", "image", "engine"),
}
"""Options that decide what evidence is worth, or what is started."""
NO_VARIABLE = {"vendor", "data"}
"""BENCH_VENDOR says whose devices an image is for; who opens data sets reads BENCH_DATA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Record):
    """Options by their names, as the command line takes them; None leaves an option out."""

    suite: str | None = None
    vendor: str | None = None
    out: str | None = None
    data: str | None = None
    scratch: str | None = None
    minutes: int | None = None
    sessions: int | None = None
    pause: str | None = None
    redact: bool | None = None
    quiet: bool | None = None
    memory: str | None = None
    timeout: float | None = None


NAMES = tuple(one.name for one in fields(Settings))
VARIABLES = tuple(name for name in NAMES if name not in NO_VARIABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The value of an option, and where it is from: a file, or a variable."""

    value: object
    source: str


def settings(environ: Mapping[str, str], folder: Path) -> dict[str, Setting]:
    """Every setting by its option: variables before the folder's file, that before the user's.

    UsageError names a file or a key that is wrong.
    """
    values: dict[str, Setting] = {}
    for path in reversed(_files(environ, folder)):
        values |= _of_file(path)
    return values | dict(_of_variables(environ))


def _files(environ: Mapping[str, str], folder: Path) -> Sequence[Path]:
    """The files that may hold settings, the nearest first."""
    user = environ.get(USER_FOLDER) or str(Path(environ.get("HOME") or "/nonexistent") / ".config")
    return folder / NAME, Path(user) / "bench" / NAME


def _of_file(path: Path) -> dict[str, Setting]:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError:
        pass  # reading it says why
    data = input_file.read(path, fix="mend it or remove it")
    record = toml_file.parse(Settings, _without_refused(data, path), str(path))
    values = {name: getattr(record, name) for name in NAMES}
    return {
        name: Setting(value=value, source=str(path))
        for name, value in values.items()
        if value is not None
    }


def _without_refused(data: bytes, path: Path) -> bytes:
    """The text as it is; UsageError where a line sets what no file may."""
    for line in data.decode(errors="replace").splitlines():
        key = line.partition("=")[0].strip().strip("\"'").replace("-", "_")
        if key in NEVER:
            raise UsageError(
                f"{path} sets {key}, which no file may: give --{key.replace('_', '-')} on the "
                "command line"
            )
    return data


def _of_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    for name in VARIABLES:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            yield name, Setting(value=environ[variable], source=variable)
