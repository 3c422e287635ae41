"""The parts of the package: which libraries each brings, and the line that installs one.

The parts are the extras of pyproject.toml, read from the metadata of the installed package, or from
that file where this package is not installed but read from a folder, so that they are written down
once. A part is installed or not as a whole. Nothing is imported: a
library is looked for where an import would look.
"""

from __future__ import annotations

import ctypes
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata, util
from pathlib import Path
from types import ModuleType

from appliance.errors import UsageError

DISTRIBUTION = "bench-appliance"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
"""Where this package is read from a folder."""
MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""Distributions of the suite whose module has another name than they have."""
OR = " or "
"""Between two ranges of which either will do."""
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


def requirements() -> list[str]:
    """What the base and the parts need, as the metadata of an installed package has it.

    None are known of a package that is not installed and whose pyproject.toml did not come along.
    """
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return list(_of_folder())


def _of_folder() -> Iterator[str]:
    try:
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):  # not there, or not to be read
        return
    if project.get("name") != DISTRIBUTION:  # of somebody else, above a folder of packages
        return
    yield from project["dependencies"]
    for part, wanted in project["optional-dependencies"].items():
        for requirement in wanted:
            name, _, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and " if marker else ""
            yield f'{name.strip()}; {condition}extra == "{part}"'


@cache
def parts() -> Mapping[str, tuple[str, ...]]:
    """Distributions of each part, those of other parts that it names left out; "" is the base.

    Empty where they are not known (`requirements`).
    """
    wanted = requirements()
    by_extra: dict[str, list[str]] = {}
    for requirement in wanted:
        names = by_extra.setdefault(_extra(requirement), [])
        if normal(requirement) != DISTRIBUTION:
            names.append(normal(requirement))
    return {part: tuple(names) for part, names in by_extra.items()}


def _extra(requirement: str) -> str:
    extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", requirement)
    return extra[1] if extra else ""


def ranges() -> dict[str, str]:
    """The versions that each distribution may have, those of all parts and of the base.

    As PEP 440 writes them, ">=2.13,<2.14"; "" where any will do. Empty where they are not known
    (`requirements`).
    """
    wanted = requirements()
    named = ((normal(one), one.partition(";")[0]) for one in wanted)
    return {
        name: ",".join(sorted(re.findall(r"[<>=!~]=?\s*[^,\s()]+", text), reverse=True))
        for name, text in named
        if name != DISTRIBUTION
    }


def installed_version(distribution: str) -> str | None:
    """Version of a distribution, or of the one that brings its module; None where none does.

    A library that is built for one vendor's devices mostly has another name.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        if not _is_there(distribution):
            return None
    others = _bringing(tuple(sys.path)).get(module_of(distribution), ())
    return metadata.version(others[0]) if others else None


@cache
def _bringing(_: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Distributions by the modules that they bring; reads what each one has installed."""
    return metadata.packages_distributions()


def importable_version(distribution: str) -> str | None:
    """The version of a distribution whose module can be found; None of one that cannot."""
    return installed_version(distribution) if _is_there(distribution) else None


def is_in_range(version: str, allowed: str) -> bool:
    """Whether a version is one of a range, or of one of several with `OR` between them.

    A part behind "+" says how a version was built, and a pre-release counts as what it is. What is
    no version is in no range.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - most verbs need none
    from packaging.version import InvalidVersion  # noqa: PLC0415 - the same

    try:
        return any(
            SpecifierSet(one).contains(version, prereleases=True) for one in allowed.split(OR)
        )
    except InvalidVersion:
        return False


def contradiction(distribution: str) -> str:
    """Where a library that is loaded states another version than its package; or empty.

    How a version was built ("+cpu") is not compared, and a library that states none is believed.
    """
    module = sys.modules.get(module_of(distribution))
    stated = getattr(module, "__version__", None) if isinstance(module, ModuleType) else None
    packaged = installed_version(distribution)
    if stated is None or packaged is None:
        return ""
    from packaging.version import InvalidVersion  # noqa: PLC0415 - most verbs need none

    try:
        is_same = _public(str(stated)) == _public(packaged)
    except InvalidVersion:
        is_same = str(stated) == packaged
    if is_same:
        return ""
    return (
        f"{distribution} states version {stated} and its package {packaged}: "
        f"pip install --force-reinstall {distribution}=={packaged}"
    )


def _public(version: str) -> object:
    """The version without how it was built."""
    from packaging.version import Version  # noqa: PLC0415 - most verbs need none

    return Version(Version(version).public)


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


def line_that_brings(distributions: Iterable[str]) -> str:
    """The command that installs the parts with these distributions; the suite's if none has one."""
    wanted = {*distributions}
    bringing = [part for part, names in parts().items() if part and not wanted.isdisjoint(names)]
    return line(bringing or [RUN])


def require_known() -> None:
    """UsageError with the command to give, unless it is known what the parts need."""
    if not requirements():
        raise UsageError(
            f"bench itself is not installed, and which libraries it needs is not known without "
            f"{PROJECT}: {line([RUN])}"
        )


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
