"""The parts of the package: which libraries each brings, and the line that installs one.

The parts are the extras of pyproject.toml, read from the metadata of the installed package, so
that they are written down once. A part is installed or not as a whole. Nothing is imported: a
library is looked for where an import would look.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata, util

from appliance.errors import UsageError

DISTRIBUTION = "bench-appliance"
MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""Distributions of the suite whose module has another name than they have."""
REPORT, COMPARE, TORCH, RUN = "report", "compare", "torch", "run"
RENDERING = (
    "libgobject-2.0.so.0",
    "libpango-1.0.so.0",
    "libpangoft2-1.0.so.0",
    "libharfbuzz.so.0",
    "libfontconfig.so.1",
)
"""Libraries of the system that WeasyPrint 70 loads (weasyprint/text/ffi.py)."""
PACKAGES = "libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fontconfig fonts-dejavu-core"
"""What Debian calls them, with a font."""


def normal(requirement: str) -> str:
    """A requirement's name as PEP 503 compares it."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else requirement).lower()


def module_of(distribution: str) -> str:
    """What is imported of a distribution."""
    return MODULES.get(distribution, distribution.replace("-", "_"))


@cache
def parts() -> Mapping[str, tuple[str, ...]]:
    """Distributions of each part, those of other parts that it names left out; "" is the base.

    Empty where this package is not installed, but read from a folder.
    """
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    by_extra: dict[str, list[str]] = {}
    for requirement in wanted:
        extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", requirement)
        names = by_extra.setdefault(extra[1] if extra else "", [])
        if normal(requirement) != DISTRIBUTION:
            names.append(normal(requirement))
    return {part: tuple(names) for part, names in by_extra.items()}


def absent(part: str) -> tuple[str, ...]:
    """Distributions of a part that are not installed."""
    return tuple(name for name in parts().get(part, ()) if not _is_there(name))


def _is_there(distribution: str) -> bool:
    try:
        return util.find_spec(module_of(distribution)) is not None
    except (ImportError, ValueError):  # refused by a hook, or without a specification
        return False


def line(wanted: Iterable[str]) -> str:
    """The command that installs these parts."""
    return f'pip install "{DISTRIBUTION}[{",".join(wanted)}]"'


def line_for(module: str | None) -> str:
    """The command that installs the part with a module; of the whole suite where none has it."""
    top = (module or "").partition(".")[0]
    for part, names in parts().items():
        if part and top in map(module_of, names):
            return line([part])
    return line([RUN])


def require(part: str, what: str) -> None:
    """UsageError with the command to give, unless the part that `what` needs is installed."""
    missing = absent(part)
    if missing:
        raise UsageError(f"{what} needs {', '.join(missing)}, not installed here: {line([part])}")


def require_rendering(what: str) -> None:
    """UsageError unless pages can be rendered: the part, and the system's libraries."""
    require(REPORT, what)
    missing = tuple(unloadable(RENDERING))
    if missing:
        raise UsageError(
            f"{what} needs {', '.join(missing)}, which cannot be loaded: "
            f"sudo apt-get install {PACKAGES}"
        )


def unloadable(names: Iterable[str]) -> Iterator[str]:
    """Those of the system's libraries that the loader cannot give."""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            yield name
