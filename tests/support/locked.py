"""The locks and the parts of pyproject.toml, as the tests of packaging read them."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lock(name: str) -> str:
    return (ROOT / "locks" / f"{name}.txt").read_text()


def entries(text: str) -> dict[str, str]:
    """Each package of a lock with its whole entry: version and digests."""
    blocks = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n", "", text).strip())
    return {block.partition("==")[0]: block for block in blocks}


def pins(text: str) -> dict[str, str]:
    """Each package of a lock with its version."""
    return {name: block.split()[0].partition("==")[2] for name, block in entries(text).items()}


def extras(text: str) -> list[str]:
    """The parts that a lock says it is for."""
    (names,) = re.findall(r"(?m)^# extras: (\S+)$", text)
    return str(names).split(",")


def metadata() -> list[str]:
    """The project's requirements as the metadata of an installed package has them."""
    optional = PROJECT["optional-dependencies"]
    extra = [f'{item}; extra == "{part}"' for part, items in optional.items() for item in items]
    return [*PROJECT["dependencies"], *extra]


def requirements(parts: list[str]) -> Iterator[Requirement]:
    """What the project and these parts require; a part may name others of this project."""
    yield from map(Requirement, PROJECT["dependencies"])
    for part in parts:
        for item in map(Requirement, PROJECT["optional-dependencies"][part]):
            if item.name == PROJECT["name"]:
                yield from requirements(sorted(item.extras))
            else:
                yield item
