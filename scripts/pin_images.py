"""Pins the base images of the Dockerfiles to digests; for whoever maintains the images.

    scripts/pin_images.py [--dry-run | --check] [DOCKERFILE...]

A tag can be moved, a digest cannot, so a Dockerfile is pinned when its `ARG BASE_IMAGE` ends in
`@sha256:...`. On a connected machine this asks the registry for the digest of the tag, through
the distribution specification's API (https://distribution.github.io/distribution/spec/api), and
writes it into the file. The digest is computed here from the manifest that came and must be the
one that the registry claims; with an index of several platforms it is the index's. Registries are
read without an account, over https, and on this very machine over http.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.errors import BenchError, OutputError, UsageError  # noqa: E402 - runs uninstalled

PATTERN = "Dockerfile.*"
HUB = "docker.io"
HUB_HOST = "registry-1.docker.io"
LOCAL = ("localhost", "127.0.0.1", "[::1]")
TIMEOUT_SECONDS = 30.0
LARGEST_BYTES = 4 << 20  # of a manifest, which registries must take up to this size
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_BASE = re.compile(r"(?m)^ARG BASE_IMAGE=(\S+)[ \t]*$")
_DIGEST_LINE = re.compile(r'(?m)^(ARG BASE_DIGEST=)("?)[^\s"]*\2[ \t]*$')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"  # as the distribution specification has it
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image's name in its parts; `digest` is empty where only a tag is given."""

    registry: str
    repository: str
    tag: str
    digest: str
    text: str
    """As it was written, without the digest."""

    def __str__(self) -> str:
        return f"{self.text}@{self.digest}" if self.digest else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A Dockerfile and the base image of its `ARG BASE_IMAGE`."""

    file: Path
    image: Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What `pin` found for a file; `is_changed` says that its reference is another now."""

    base: Base
    digest: str
    is_changed: bool


def parse(text: str) -> Reference:
    """The parts of [REGISTRY/]NAME[:TAG][@DIGEST], as an engine reads it. Raises UsageError."""
    plain, _, digest = text.partition("@")
    first, slash, rest = plain.partition("/")
    has_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, rest) if has_host else (HUB, plain)
    repository, colon, tag = path.partition(":")
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    is_sound = _NAME.fullmatch(repository) and _TAG.fullmatch(tag if colon else "latest")
    if not is_sound or (digest and not _DIGEST.fullmatch(digest)):
        raise UsageError(f'"{text}" names no image: write NAME:TAG or NAME:TAG@sha256:DIGEST')
    return Reference(
        registry=registry, repository=repository, tag=tag or "latest", digest=digest, text=plain
    )


# ------------------------------------------------------------------ the files


def bases(files: Sequence[Path] = ()) -> tuple[Base, ...]:
    """The base image of each file; of every Dockerfile in this folder if none is named."""
    paths = tuple(files) or tuple(sorted(Path().glob(PATTERN)))
    if not paths:
        raise UsageError(f"there is no {PATTERN} here: go to a checkout of bench, or name one")
    return tuple(_base(file) for file in paths)


def check(files: Sequence[Path] = ()) -> tuple[Base, ...]:
    """The base images, all pinned. Raises UsageError that names those that are not."""
    images = bases(files)
    loose = [f"{base.file} ({base.image})" for base in images if not base.image.digest]
    if loose:
        raise UsageError(
            f"not pinned to a digest: {', '.join(loose)}; scripts/pin_images.py does it where the "
            "registry can be reached"
        )
    return images


def pin(files: Sequence[Path] = (), *, dry_run: bool = False) -> tuple[Pinned, ...]:
    """Ask the registries for the digest of each file's tag, and write them unless `dry_run`.

    Nothing is written before every registry has answered. Raises UsageError if one cannot be
    reached, does not know the tag or wants an account, OutputError if a file cannot be written.
    """
    pinned = []
    for base in bases(files):
        digest = resolve(base.image)
        pinned.append(Pinned(base=base, digest=digest, is_changed=digest != base.image.digest))
    for item in pinned:
        if not dry_run:
            _write(item)
    return tuple(pinned)


def _base(file: Path) -> Base:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{file} cannot be read ({reason}): name a Dockerfile") from None
    matches = _BASE.findall(text)
    if len(matches) != 1:
        raise UsageError(
            f"{file} has {len(matches)} lines ARG BASE_IMAGE=... instead of one: name a Dockerfile "
            "of bench"
        )
    try:
        return Base(file=file, image=parse(matches[0]))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def _write(item: Pinned) -> None:
    """Put the digest into both lines of the file, which is replaced whole or not at all."""
    file, image = item.base.file, replace(item.base.image, digest=item.digest)
    text = file.read_text(encoding="utf-8")
    changed = _BASE.sub(f"ARG BASE_IMAGE={image}", text)
    changed = _DIGEST_LINE.sub(rf"\g<1>{item.digest}", changed)
    if changed == text:
        return
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.parent, prefix=f".{file.name}.", delete=False
        ) as stream:
            stream.write(changed)
        Path(stream.name).chmod(file.stat().st_mode)
        os.replace(stream.name, file)  # noqa: PTH105 - beside the line that made its source
    except OSError as error:
        raise OutputError(f"{file} cannot be written ({error.strerror})") from None


# ------------------------------------------------------------------ the registry


def resolve(image: Reference) -> str:
    """Digest of the manifest that the registry has under the image's tag. Raises UsageError."""
    host = HUB_HOST if image.registry == HUB else image.registry
    scheme = "http" if _is_local(host) else "https"
    url = f"{scheme}://{host}/v2/{image.repository}/manifests/{image.tag}"
    try:
        body, claimed = _manifest(url, image)
    except urllib.error.HTTPError as error:
        raise _refusal(error, image) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"{host} cannot be reached ({reason}): pin {image.text} where there is a network, or "
            "write the digest of your mirror into the file"
        ) from None
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if claimed and claimed != digest:
        raise UsageError(
            f"{host} sent for {image.text} a manifest that is not {claimed}, as it says, but "
            f"{digest}: something on the way changes what is sent, so nothing was pinned"
        )
    return digest


def _manifest(url: str, image: Reference) -> tuple[bytes, str]:
    """The manifest's bytes and the digest that is claimed for them, with a token if one is due."""
    try:
        return _fetch(url)
    except urllib.error.HTTPError as error:
        error.close()
        wanted = error.headers.get("WWW-Authenticate", "")
        if error.code != http.HTTPStatus.UNAUTHORIZED or not wanted.lower().startswith("bearer "):
            raise
    token = _token(dict(_CHALLENGE.findall(wanted)), image)
    return _fetch(url, token)


def _token(challenge: Mapping[str, str], image: Reference) -> str:
    """What the registry's token service gives to anyone, for reading this repository."""
    realm = urllib.parse.urlsplit(challenge.get("realm", ""))
    if realm.scheme != "https" and not (realm.scheme == "http" and _is_local(realm.netloc)):
        raise UsageError(
            f'{image.registry} sends for tokens to "{challenge.get("realm", "")}", which is no '
            f"https address: pin {image.text} by hand"
        )
    asked = {
        "service": challenge.get("service", ""),
        "scope": challenge.get("scope") or f"repository:{image.repository}:pull",
    }
    query = urllib.parse.urlencode({key: value for key, value in asked.items() if value})
    body, _ = _fetch(realm._replace(query=query).geturl())
    try:
        answer: Any = json.loads(body)
    except ValueError:
        answer = None
    given = (answer.get("token") or answer.get("access_token")) if isinstance(answer, dict) else ""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{realm.netloc} gave no token for {image.text}: pin it by hand")
    return given


def _fetch(url: str, token: str = "") -> tuple[bytes, str]:
    """Body and claimed digest. A token stays with the host that it is for."""
    request = urllib.request.Request(  # noqa: S310 - http and https alone reach this line
        url, headers={"Accept": ", ".join((*MANIFESTS, "application/json"))}
    )
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - same
        body = response.read(LARGEST_BYTES + 1)
        if len(body) > LARGEST_BYTES:
            raise http.client.HTTPException(f"more than {LARGEST_BYTES} bytes came")
        return body, response.headers.get("Docker-Content-Digest", "")


def _refusal(error: urllib.error.HTTPError, image: Reference) -> UsageError:
    """What a refused request means for the person who wants to pin."""
    error.close()
    if error.code == http.HTTPStatus.NOT_FOUND:
        return UsageError(
            f"{image.registry} has no {image.text}: look for its tags there and put one that it "
            "has into the file"
        )
    if error.code in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return UsageError(
            f"{image.registry} does not let everybody read {image.text}, or has no such image: "
            "pull it with your account and write its digest into the file"
        )
    if error.code == http.HTTPStatus.TOO_MANY_REQUESTS:
        return UsageError(f"{image.registry} answers no more for now: pin {image.text} later")
    return UsageError(
        f"{image.registry} answered {error.code} {error.reason} for {image.text}: try again later"
    )


def _is_local(netloc: str) -> bool:
    return netloc.rpartition("@")[2].startswith(LOCAL) and (
        urllib.parse.urlsplit(f"//{netloc}").hostname in ("localhost", "127.0.0.1", "::1")
    )


# ------------------------------------------------------------------ the command


def _sentence(item: Pinned, *, dry_run: bool) -> str:
    verb = "would be" if dry_run else "is"
    unchanged = "" if item.is_changed else ", as before"
    return f"{item.base.file}: {item.base.image.text} {verb} pinned to {item.digest}{unchanged}"


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="pin the base images of Dockerfiles to digests")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="ask the registries; write nothing")
    mode.add_argument("--check", action="store_true", help="ask nobody; fail (2) if not pinned")
    parser.add_argument("files", nargs="*", type=Path, help="all in this folder if none")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Pin, or check; one line for each file, and the exit code."""
    given = _arguments(words)
    try:
        if given.check:
            for base in check(given.files):
                print(f"{base.file}: {base.image}")
            return 0
        for item in pin(given.files, dry_run=given.dry_run):
            print(_sentence(item, dry_run=given.dry_run))
    except BenchError as error:
        print(f"pin_images: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
