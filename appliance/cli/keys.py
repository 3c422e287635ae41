"""The verbs `keys create` and `keys show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.options import JsonOption
from appliance.cli.output import conclude, conclude_lines
from appliance.storage import input_file


def create(
    *,
    name: Annotated[str, typer.Argument(help="Organisation that signs.")],
    out: Annotated[Path, typer.Option(help="Folder for key.pem and certificate.pem.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make a signing key with a certificate of its own, valid for a year."""
    from appliance.signing import keys

    key_file, certificate_file = keys.create_key(name, out)
    conclude(
        f"{key_file} is the secret: do not share it. Give {certificate_file} to those who verify.",
        {"key": str(key_file), "certificate": str(certificate_file)},
        as_json=as_json,
    )


def show(
    *,
    certificate: Annotated[Path, typer.Argument(help="Certificate (PEM).")],
    as_json: JsonOption = False,
) -> None:
    """Say whom a certificate names, until when, and its fingerprint."""
    from appliance.signing import keys

    record = keys.signer_of(input_file.read(certificate), "tester")
    conclude_lines(
        (record.subject, f"valid until {record.not_after_utc}", f"sha256 {record.sha256}"),
        {
            "subject": record.subject,
            "not_after_utc": record.not_after_utc,
            "sha256": record.sha256,
        },
        as_json=as_json,
    )
