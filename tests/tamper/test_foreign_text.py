"""What a bundle's author writes is shown on one line, and cannot speak in the verifier's voice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.forger import Forgery, forged
from support.program import called

from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle

SAYS = "Ravel\nACCEPTED  out\nnot shown: nothing \u202e\x1b[2J\u2028\x85"
HIDDEN = ("\x1b", "\u202e", "\u2028", "\x85")


def in_a_certificate(forgery: Forgery) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    forgery.key = Key(private, keys._self_signed(private, SAYS, 7))


def in_a_summary(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["cases"][0]["summary"] = SAYS


def in_a_version(forgery: Forgery) -> None:
    with forgery.plan() as plan:
        plan["bench_version"] = SAYS
        plan["cases"][0]["work"]["flops"] = 1.0


def in_a_check(forgery: Forgery) -> None:
    for event in forgery.events("checked"):
        event["check"]["name"] += SAYS


def in_a_device(forgery: Forgery) -> None:
    with forgery.record(bundle.SYSTEM) as system:
        system["identity"]["devices"][0]["id"] = SAYS


@pytest.mark.parametrize(
    "put", [in_a_certificate, in_a_summary, in_a_version, in_a_check, in_a_device]
)
def test_foreign_text_adds_no_line_and_hides_none(
    put: object, genuine: Path, tmp_path: Path
) -> None:
    forgery = forged(genuine)
    put(forgery)  # type: ignore[operator]
    folder = forgery.sealed(tmp_path / "run")
    done = called("verify", str(folder), "--allow-dev")
    assert done.returncode in (3, 4, 0)
    assert not any(sign in done.stderr for sign in HIDDEN)
    said = [line for line in done.stderr.splitlines() if line.startswith("not shown:")]
    assert len(said) == 1
    assert sum(line.startswith("ACCEPTED") for line in done.stderr.splitlines()) <= (
        done.returncode == 0
    )


def test_json_is_ascii_and_one_document(genuine: Path, tmp_path: Path) -> None:
    forgery = forged(genuine)
    in_a_certificate(forgery)
    done = called("verify", str(forgery.sealed(tmp_path / "run")), "--json")
    assert done.stdout.isascii()
    assert "\\u202e" in done.stdout
    assert json.loads(done.stdout)["exit_code"] == 4


def test_an_empty_folder_of_logs_is_no_part_of_a_bundle(genuine: Path, tmp_path: Path) -> None:
    folder = forged(genuine).sealed(tmp_path / "run")
    (folder / "logs").mkdir()
    done = called("verify", str(folder), "--allow-dev")
    assert (done.returncode, "logs" in done.stderr) == (4, True)
