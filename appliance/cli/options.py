"""Options that several verbs share, how a group of them becomes parameters, and runs named wrongly.

What a run is made from is declared in `appliance.verbs.run_options`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from appliance.cli.output import bench
from appliance.errors import UsageError
from appliance.roles import ROLES, Role
from appliance.storage import input_file

if TYPE_CHECKING:
    from appliance.signing.keys import Key

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
RoleOption = Annotated[str, typer.Option(help=f"Who signs: {', '.join(ROLES)}.")]
RUNS = Path("out")
"""Where runs lie, unless --out says another."""
SHOWN_ALONE = {"report.pdf", "report.html", "statement.dsse.json"}
"""Files of a run that can be verified without its folder."""
FolderArgument = Annotated[Path, typer.Argument(help="Folder of a run, out/<run id>.")]


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as the command line reads it: a dataclass of options stands there field by field."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in signature(verb).parameters.values():
        if parameter.name in groups:
            parameters += _parameters(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(verb)
    def called(**values: Any) -> None:
        arguments = {
            name: kind(**{one.name: values.pop(one.name) for one in fields(kind)})
            for name, kind in groups.items()
        }
        verb(**values, **arguments)

    called.__annotations__ = {one.name: one.annotation for one in parameters}
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parameters(kind: Any) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(kind)
    ]


def role_of(word: str) -> Role:
    """The role of that name; UsageError if there is none."""
    for role in ROLES:
        if role == word:
            return role
    raise UsageError(f'there is no role "{word}": use {", ".join(ROLES)}')


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """A key with its certificate, both or neither."""

    key: Annotated[
        Path | None,
        typer.Option(envvar="BENCH_SIGN_KEY_FILE", help="Private key (PEM) to sign with."),
    ] = None
    certificate: Annotated[
        Path | None, typer.Option(envvar="BENCH_SIGN_CERT_FILE", help="Its certificate (PEM).")
    ] = None

    def own_key(self) -> Key | None:
        """The key with its certificate, None where none is named; UsageError for half a key."""
        from appliance.signing import keys

        if self.key is None and self.certificate is None:
            return None
        if self.key is None or self.certificate is None:
            raise UsageError("--key and --certificate go together: name both files")
        return keys.load_key(self.key, self.certificate)


@dataclass(frozen=True, kw_only=True)
class SigningOptions(KeyOptions):
    """Who signs, and with which key; without one a development key is made on the fly."""

    role: RoleOption = "tester"

    def signer(self) -> tuple[Key, Role]:
        """The key with its certificate, and the signer's role; UsageError for half a key."""
        from appliance.signing import keys

        key = self.own_key()
        return key or keys.development_key(), role_of(self.role)


@dataclass(frozen=True, kw_only=True)
class TrustOptions:
    """Whose signatures are trusted."""

    trust: Annotated[
        list[Path] | None, typer.Option(help="Certificate (PEM) of a signer that you trust.")
    ] = None
    allow_dev: Annotated[
        bool, typer.Option("--allow-dev", help="Take a development key as a trusted signer.")
    ] = False

    def certificates(self) -> list[bytes]:
        """The files' contents; UsageError names one that is no certificate."""
        return [_certificate(path) for path in self.trust or []]


def _certificate(path: Path) -> bytes:
    data = input_file.read(path, what="certificate")
    if b"-----BEGIN CERTIFICATE-----" not in data:
        from appliance.signing import keys

        raise UsageError(f"{path} {keys.no_certificate(data)}")
    return data


# ------------------------------------------------------------------ runs


def refuse_runs(path: Path, verb: str, *before: str | Path, after: Sequence[Path] = ()) -> None:
    """UsageError for a folder of runs where one run is asked for; it names that of the newest."""
    from appliance.storage import bundle

    names = names_in(path)
    if bundle.PLAN in names:
        return
    _refuse_number(path, verb, *before, after=after)
    runs = [path / name for name in sorted(names) if (path / name / bundle.PLAN).is_file()]
    if runs:
        words = map(str, (*before, runs[-1], *after))
        raise UsageError(
            f"{path} holds runs and is none itself: `{bench(verb, *words)}` is of the newest"
        )


def _refuse_number(path: Path, verb: str, *before: str | Path, after: Sequence[Path]) -> None:
    """UsageError for the number of a run of this folder; it names the run's own."""
    from appliance.storage import bundle

    meant = RUNS / path
    if not path.exists() and (meant / bundle.PLAN).is_file():
        words = map(str, (*before, meant, *after))
        raise UsageError(f"there is nothing at {path}: `{bench(verb, *words)}` is of that run")


def names_in(path: Path) -> set[str]:
    """What lies in a folder; nothing of what cannot be read, which is for the checks to refuse."""
    with suppress(OSError):
        return {one.name for one in path.iterdir()}
    return set()


def refuse_parts(path: Path, verb: str) -> None:
    """UsageError for a file of a run that shows nothing alone, and for a folder of other things."""
    from appliance.storage import bundle

    if path.name in {*bundle.FINISHED_FILES} - SHOWN_ALONE and path.is_file():
        raise UsageError(
            f"{path} alone shows nothing: `{bench(verb, str(path.parent))}` is of its whole run"
        )
    if path.is_dir() and os.access(path, os.R_OK) and not names_in(path) & {*bundle.FINISHED_FILES}:
        raise UsageError(f"{path} holds no file of a run: name out/<run id> or a report.pdf")
