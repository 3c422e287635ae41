r"""Writes what an image is made of and on what terms: sbom.json and licences.json.

Run while an image is built, by the Python of the image, so that it lists what is installed and not
what was asked for:

    python -I scripts/inventory.py --image NAME --base REFERENCE \
        --datasets FILE --data FOLDER --to FOLDER

sbom.json is a bill of materials in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json): every
Python distribution, every package of dpkg, every data set that is in the image. licences.json
(bench/licences/1) has for each of them what its own metadata states and where the texts lie. A
licence that nobody states is null and counted; none is guessed. The same image gives the same
bytes: no time and no random number is in them. It needs the standard library alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

OWN = "bench-appliance"
NOTHING = {"", "UNKNOWN", "NONE"}
FIRST_LINE = 100
"""Characters beyond which a License field is a text and no name."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing in the image. `licence` None: nobody states it; `files` hold the texts."""

    kind: str
    name: str
    version: str
    licence: str | None
    is_expression: bool = False
    stated_in: str = ""
    files: tuple[str, ...] = ()
    purl: str = ""
    sha256: str = ""
    source: str = ""


# ------------------------------------------------------------------ Python distributions


def python_parts(paths: Sequence[str] | None = None) -> Iterator[Part]:
    """Every distribution that the interpreter sees, once: the first on its path is the one used."""
    seen: set[str] = set()
    distributions = (
        metadata.distributions() if paths is None else metadata.distributions(path=[*paths])
    )
    for item in distributions:
        name = re.sub(r"[-_.]+", "-", item.metadata["Name"] or "").lower()
        if name and name not in seen:
            seen.add(name)
            yield _python_part(item, name)


def _python_part(item: metadata.Distribution, name: str) -> Part:
    licence, stated_in = _stated(item.metadata)
    return Part(
        kind="python",
        name=name,
        version=item.version,
        licence=licence,
        is_expression=stated_in == "License-Expression",
        stated_in=stated_in,
        files=tuple(_texts(item)),
        purl=f"pkg:pypi/{quote(name)}@{quote(item.version)}",
    )


def _stated(about: Any) -> tuple[str | None, str]:
    """The licence in a distribution's own words, and the field that has it."""
    expression = (about.get("License-Expression") or "").strip()
    if expression.upper() not in NOTHING:
        return expression, "License-Expression"
    classifiers = [
        line.split(" :: ")[-1]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    if classifiers:
        return "; ".join(classifiers), "Classifier"
    first = next(iter((about.get("License") or "").strip().splitlines()), "").strip()
    if first.upper() not in NOTHING and len(first) <= FIRST_LINE:
        return first, "License"
    return None, ""


def _texts(item: metadata.Distribution) -> Iterator[str]:
    for file in item.files or ():
        if re.match(r"(licen[cs]e|copying|notice|eula)", file.name, re.IGNORECASE):
            path = Path(str(item.locate_file(file)))
            if path.is_file():
                yield str(path)


# ------------------------------------------------------------------ packages of the distribution


def system_parts(root: Path = Path("/")) -> Iterator[Part]:
    """Every package that dpkg has installed; none where there is no dpkg."""
    for fields in _dpkg_rows():
        name, version, architecture, source = fields
        file = root / "usr" / "share" / "doc" / name / "copyright"
        names = _copyright(file)
        yield Part(
            kind="system",
            name=name,
            version=version,
            licence="; ".join(names) or None,
            stated_in="copyright" if names else "",
            files=(str(file),) if file.is_file() else (),
            purl=f"pkg:deb/{_distribution(root)}/{quote(name)}@{quote(version)}?arch={architecture}",
            source=source,
        )


def _dpkg_rows() -> Iterator[list[str]]:
    columns = r"${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
    try:
        done = subprocess.run(  # noqa: S603 - the image's own program
            ["dpkg-query", "-W", "-f", columns],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        return
    for row in done.stdout.splitlines():
        status, *fields = row.split("\t")
        if status == "installed":
            yield fields


def _copyright(file: Path) -> list[str]:
    """Short names in a machine-readable copyright file; none in one that is prose."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if not text.startswith("Format:"):
        return []
    return sorted({name.strip() for name in re.findall(r"(?m)^License:[ \t]*(\S.*)$", text)})


def _distribution(root: Path) -> str:
    try:
        text = (root / "etc" / "os-release").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    match = re.search(r'(?m)^ID="?([a-z0-9._-]+)', text)
    return match[1] if match else "unknown"


# ------------------------------------------------------------------ data sets


def data_parts(datasets: Path, data: Path) -> Iterator[Part]:
    """Each file of a data set that is in the image; those inside a package are its package's."""
    for item in tomllib.loads(datasets.read_text(encoding="utf-8"))["dataset"]:
        for file in item.get("file", ()):
            path = data / item["name"] / file["name"]
            if path.is_file():
                yield Part(
                    kind="data",
                    name=f"{item['name']}/{file['name']}",
                    version=_digest(path)[:12],
                    licence=item["licence"],
                    stated_in=datasets.name,
                    sha256=_digest(path),
                    source=item["source"],
                )


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ------------------------------------------------------------------ the two documents


def licences(parts: Sequence[Part]) -> dict[str, Any]:
    """bench/licences/1: what each part states, and how many state nothing."""
    return {
        "schema": "bench/licences/1",
        "not_stated": sum(part.licence is None for part in parts),
        "parts": [
            {
                "kind": part.kind,
                "name": part.name,
                "version": part.version,
                "licence": part.licence,
                "stated_in": part.stated_in or None,
                "files": list(part.files),
                "source": part.source or None,
            }
            for part in parts
        ],
    }


def bill(parts: Sequence[Part], image: str, base: str) -> dict[str, Any]:
    """CycloneDX 1.6. The serial number derives from the content."""
    components = [_component(part) for part in parts]
    version = next((part.version for part in parts if part.name == OWN), "")
    content = json.dumps([image, base, components], sort_keys=True)
    reference, _, digest = base.partition("@")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": "image",
                "type": "container",
                "name": image,
                **({"version": version} if version else {}),
                "properties": [
                    {"name": "bench:base.name", "value": reference},
                    {"name": "bench:base.digest", "value": digest or "not pinned"},
                ],
            }
        },
        "components": components,
    }


def _component(part: Part) -> dict[str, Any]:
    stated: list[Mapping[str, Any]] = []
    if part.licence is not None:
        name = part.licence
        stated = [{"expression": name} if part.is_expression else {"license": {"name": name}}]
    return {
        "bom-ref": part.purl or f"data:{part.name}",
        "type": "data" if part.kind == "data" else "library",
        "name": part.name,
        "version": part.version,
        **({"licenses": stated} if stated else {}),
        **({"purl": part.purl} if part.purl else {}),
        **({"hashes": [{"alg": "SHA-256", "content": part.sha256}]} if part.sha256 else {}),
    }


def write(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """One document as JSON, readable by anyone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> None:
    """Write both documents and say what they hold."""
    parser = argparse.ArgumentParser(description="write sbom.json and licences.json of an image")
    parser.add_argument("--image", required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--datasets", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--to", required=True, type=Path)
    given = parser.parse_args(words)
    parts = [*python_parts(), *system_parts(), *data_parts(given.datasets, given.data)]
    parts.sort(key=lambda part: (part.kind, part.name, part.version))
    write(given.to, "sbom.json", bill(parts, given.image, given.base))
    write(given.to, "licences.json", licences(parts))
    unstated = [part.name for part in parts if part.licence is None]
    print(f"inventory: {len(parts)} parts; {len(unstated)} state no licence in their metadata")


if __name__ == "__main__":
    main()
