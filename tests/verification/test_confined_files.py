"""What somebody else hands over is parsed in a confined child, and nowhere else.

Each parser of such forms is replaced by one that fails the test outside of a child, and by one that
takes all memory; each file is a sound one, so that it is read to its end.
"""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from support.bundles import healthy, sealed
from support.purchase_order import HEAD, LINE

from appliance.challenge import ledger
from appliance.errors import BenchError, EvidenceError, UsageError
from appliance.ipc import confined_child
from appliance.records.order import Challenge
from appliance.signing import html_attachments, keys, pades
from appliance.signing.keys import Key
from appliance.storage import (
    bundle,
    criteria_file,
    order_file,
    settings_file,
    suite_file,
    toml_file,
)
from appliance.verbs import compare, rerun
from appliance.verbs.baselines import measurements
from appliance.verification import facts
from appliance.verification.terms import Terms
from appliance.verification.verify import read_confined, verify_confined

PARSERS = (
    (tomllib, "loads"),
    (x509, "load_pem_x509_certificate"),
    (x509, "load_pem_x509_certificates"),
    (pades, "attachments"),
    (pades, "check_pdf"),
    (html_attachments, "carried_files"),
    (zipfile, "ZipFile"),
)


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, key: Key) -> Path:
    """A folder of what a stranger may send."""
    folder = tmp_path_factory.mktemp("sent")
    run = sealed(folder / "run", healthy(), key)
    with zipfile.ZipFile(folder / "run.zip", "w") as archive:
        for name, data in bundle.files_of(run).items():
            archive.writestr(name, data)
    keys.create_key("A signer", folder)
    release = keys.load_key(folder / "key.pem", folder / "certificate.pem")
    (folder / "facts.json").write_bytes(facts.sign(facts.shipped().file, release))
    (folder / "order.toml").write_text(HEAD + LINE)
    own = (suite_file.SUITES / "smoke.toml").read_text()
    (folder / "suite.toml").write_text(f"# mine\n{own}")
    (folder / "bench.toml").write_text('suite = "smoke"\n')
    shipped = (criteria_file.CRITERIA / "functional.toml").read_text()
    (folder / "criteria.toml").write_text(f"# mine\n{shipped}")
    return folder


def challenge_of(folder: Path) -> Challenge:
    return Challenge(
        nonce="0" * 64,
        issued_utc="2026-01-01T00:00:00Z",
        not_after_utc="2026-02-01T00:00:00Z",
        criteria="0" * 64,
        suite="0" * 64,
        note="",
        buyer=(folder / "certificate.pem").read_text(),
    )


READERS: dict[str, Callable[[Path], object]] = {
    "order": lambda to: order_file.read((to / "order.toml").read_bytes(), "order.toml"),
    "suite": lambda to: suite_file.load_suite(str(to / "suite.toml")),
    "criteria": lambda to: criteria_file.load_criteria(str(to / "criteria.toml")),
    "settings": lambda to: settings_file.settings({}, to),
    "signer": lambda to: keys.signer_of((to / "certificate.pem").read_bytes(), "tester"),
    "key": lambda to: keys.load_key(to / "key.pem", to / "certificate.pem"),
    "buyer": lambda to: ledger.buyer_of(challenge_of(to)),
    "folder": lambda to: verify_confined(to / "run", Terms(allow_development=True)),
    "page": lambda to: verify_confined(to / "run" / bundle.HTML),
    "trust": lambda to: verify_confined(
        to / "run", Terms(trusted=[(to / "certificate.pem").read_bytes()])
    ),
    "facts": lambda to: verify_confined(
        to / "run",
        Terms(
            trusted=[(to / "certificate.pem").read_bytes()],
            facts=(to / "facts.json").read_bytes(),
        ),
    ),
    "compared folder": lambda to: compare._verified(to / "run", (), allow_development=True),
    "compared zip": lambda to: compare._verified(to / "run.zip", (), allow_development=True),
    "compared PDF": lambda to: compare._verified(
        to / "run" / bundle.PDF, (), allow_development=True
    ),
    "measured": lambda to: measurements.verified(to / "run", (), None, allow=True),
    "disputed": lambda to: rerun._sound(to / "run"),
}


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    """No parser works outside of a confined child."""
    toml_file._confined_text.cache_clear()
    for module, name in PARSERS:
        real = getattr(module, name)

        def guarded(*args: Any, _real: Any = real, _name: str = name, **kwargs: Any) -> Any:
            assert confined_child.is_confined(), f"{_name} outside of a child"
            return _real(*args, **kwargs)

        monkeypatch.setattr(module, name, guarded)


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("name", READERS)
def test_a_file_is_parsed_in_a_child_alone(name: str, files: Path) -> None:
    READERS[name](files)


def test_what_was_verified_is_what_is_compared(files: Path) -> None:
    terms = Terms(allow_development=True)
    whole = bundle.files_of(files / "run")
    for path in (files / "run", files / "run.zip"):
        verification, read = read_confined(path, terms)
        assert verification.exit_code == 0
        assert read == whole
    _, carried = read_confined(files / "run" / bundle.PDF, terms)
    assert carried.items() < whole.items()
    assert bundle.JOURNAL in carried


@pytest.mark.parametrize("name", ["order", "suite", "criteria", "settings", "signer", "buyer"])
def test_a_parser_that_takes_all_memory_is_one_sentence(
    name: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(*_: object, **__: object) -> None:
        bytearray(2**40)

    toml_file._confined_text.cache_clear()
    for module, parser in PARSERS[:2]:
        monkeypatch.setattr(module, parser, hungry)
    expected: type[BenchError] = EvidenceError if name == "buyer" else UsageError
    with pytest.raises(expected, match="was given up: to read it takes more memory"):
        READERS[name](files)
