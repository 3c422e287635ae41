"""Keys, envelopes and PDF signatures: what is refused, and that every changed byte is found."""

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from support.bundles import pdf

from appliance.errors import ApplianceError, EvidenceError, OutputError, UsageError
from appliance.signing import dsse, keys, pades
from appliance.signing.keys import Key

NOW = datetime.now(UTC)
STATEMENT = dsse.Statement(
    predicate_type=dsse.ACCEPTANCE,
    subjects={"plan.json": "a" * 64, "logs/x.stdout": "b" * 64},
    predicate={"verdict": "ACCEPTED"},
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """How a certificate for the tests is made; by default one that may sign."""

    name: str = "Ravel Labs"
    begin: datetime = NOW - timedelta(days=2)
    end: datetime = NOW + timedelta(days=2)
    commits: bool = True
    is_authority: bool = False

    def certificate(self, private: object, issuer: "Authority | None" = None) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=self.commits,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=self.is_authority,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        constraints = x509.BasicConstraints(ca=self.is_authority, path_length=None)
        is_ed25519 = isinstance(private, ed25519.Ed25519PrivateKey)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.begin)
            .not_valid_after(self.end)
            .add_extension(constraints, critical=True)
            .add_extension(usage, critical=True)
            .sign(issuer.private if issuer else private, None if is_ed25519 else SHA256())
        )


@dataclass(frozen=True)
class Authority:
    private: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def a_key(made: Made | None = None) -> Key:
    private = p256()
    return Key(private, (made or Made()).certificate(private))


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def stored(folder: Path, private: object, certificate: x509.Certificate) -> tuple[Path, Path]:
    key_file, certificate_file = folder / "key.pem", folder / "certificate.pem"
    key_file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    key_file.chmod(0o600)
    certificate_file.write_bytes(pem(certificate))
    return key_file, certificate_file


@pytest.fixture(scope="module")
def rsa_key() -> Key:
    private = rsa.generate_private_key(65537, 3072)
    return Key(private, Made().certificate(private))


# ------------------------------------------------------------------ keys


def test_development_key_says_what_it_is_and_lives_a_week_at_most() -> None:
    certificate = keys.development_key().certificate
    assert keys.is_development(certificate)
    assert certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=7)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert usage.content_commitment


def test_created_key_is_secret_loads_again_and_is_never_written_over(tmp_path: Path) -> None:
    key_file, certificate_file = keys.create_key("Ravel Labs", tmp_path / "keys")
    assert key_file.stat().st_mode & 0o777 == 0o600
    key = keys.load_key(key_file, certificate_file)
    assert not keys.is_development(key.certificate)
    assert "PRIVATE" not in repr(key)
    with pytest.raises(OutputError, match="never written over"):
        keys.create_key("Ravel Labs", tmp_path / "keys")


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "x" * 65, keys.DEVELOPMENT_NAME])
def test_key_needs_a_name_that_says_who_signs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        keys.create_key(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_key_with_a_passphrase_needs_it(tmp_path: Path) -> None:
    files = keys.create_key("Ravel Labs", tmp_path, b"correct horse")
    assert keys.load_key(*files, b"correct horse").certificate
    with pytest.raises(UsageError, match="needs a passphrase"):
        keys.load_key(*files)
    with pytest.raises(UsageError, match="does not open"):
        keys.load_key(*files, b"wrong")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_key_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    key_file, certificate_file = keys.create_key("Ravel Labs", tmp_path)
    key_file.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        keys.load_key(key_file, certificate_file)


def test_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files = stored(tmp_path, p256(), a_key().certificate)
    with pytest.raises(UsageError, match="another key"):
        keys.load_key(*files)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Made(end=NOW - timedelta(days=1)), "expired"),
        (Made(begin=NOW + timedelta(days=1)), "not valid before"),
        (Made(commits=False), "contentCommitment"),
    ],
)
def test_certificate_that_may_not_sign_is_refused(made: Made, why: str, tmp_path: Path) -> None:
    private = p256()
    with pytest.raises(UsageError, match=why):
        keys.load_key(*stored(tmp_path, private, made.certificate(private)))


@pytest.mark.parametrize(
    "private",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["ed25519", "p384", "rsa2048"],
)
def test_kinds_of_key_that_readers_cannot_check_are_refused(
    private: object, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="P-256"):
        keys.load_key(*stored(tmp_path, private, Made().certificate(private)))


def test_rsa_key_is_taken(rsa_key: Key, tmp_path: Path) -> None:
    key = keys.load_key(*stored(tmp_path, rsa_key.private, rsa_key.certificate))
    assert dsse.is_signed(key.certificate, key.sign(b"data"), b"data")


# ------------------------------------------------------------------ trust


def trust(key: Key, *trusted: bytes, allow_development: bool = False, days: float = 0) -> str:
    moment = datetime.now(UTC) + timedelta(days=days, minutes=1)
    return keys.check_trust(
        key.certificate, trusted, allow_development=allow_development, moment=moment
    )


def test_signer_is_trusted_by_his_own_certificate_or_by_his_authority() -> None:
    private = p256()
    authority = Authority(private, Made(name="Root", is_authority=True).certificate(private))
    leaf = p256()
    issued = Key(leaf, Made().certificate(leaf, authority))
    assert "whose certificate you trust" in trust(issued, pem(issued.certificate))
    assert "certified by CN=Root" in trust(issued, pem(authority.certificate))


def test_unknown_signer_is_not_trusted_whatever_he_calls_himself() -> None:
    key, namesake = a_key(), a_key()
    with pytest.raises(EvidenceError, match="--trust"):
        trust(key, pem(namesake.certificate), allow_development=True)


def test_certificate_that_may_not_issue_makes_nobody_trusted() -> None:
    private = p256()
    ordinary = Authority(private, Made(name="Root").certificate(private))
    leaf = p256()
    with pytest.raises(EvidenceError, match="not a trusted signer"):
        trust(Key(leaf, Made().certificate(leaf, ordinary)), pem(ordinary.certificate))


def test_authority_of_the_same_name_with_another_key_makes_nobody_trusted() -> None:
    private, other, leaf = p256(), p256(), p256()
    root = Made(name="Root", is_authority=True)
    rogue = Authority(other, root.certificate(other))
    key = Key(leaf, Made().certificate(leaf, rogue))
    with pytest.raises(EvidenceError, match="not a trusted signer"):
        trust(key, pem(root.certificate(private)))


def test_development_key_is_trusted_only_when_allowed() -> None:
    key = keys.development_key()
    with pytest.raises(EvidenceError, match="--allow-dev"):
        trust(key)
    assert "not who signed" in trust(key, allow_development=True)


def test_expired_certificate_is_not_trusted() -> None:
    key = a_key()
    assert trust(key, pem(key.certificate))
    with pytest.raises(EvidenceError, match="expired"):
        trust(key, pem(key.certificate), days=3)


def test_signer_record_that_says_more_than_its_certificate_is_refused() -> None:
    key = keys.development_key()
    record = keys.signer_record(key, "vendor")
    assert keys.certificate_of(record) == key.certificate
    lies = (
        replace(record, is_development=False),
        replace(record, subject="CN=Ravel Labs"),
        replace(record, sha256="0" * 64),
        replace(record, certificate_pem=record.certificate_pem + record.certificate_pem),
    )
    for lie in lies:
        with pytest.raises(EvidenceError, match="does not say what its certificate says"):
            keys.certificate_of(lie)


# ------------------------------------------------------------------ envelopes


def test_pae_is_the_one_of_the_dsse_specification() -> None:
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == expected


@pytest.mark.parametrize("kind", ["p256", "rsa"])
def test_statement_comes_back_as_it_was_signed(kind: str, rsa_key: Key) -> None:
    key = rsa_key if kind == "rsa" else a_key()
    data = dsse.sign_statement(STATEMENT, key)
    assert dsse.open_statement(data, key.certificate, dsse.ACCEPTANCE, "s") == STATEMENT
    names = [item["name"] for item in json.loads(payload_of(data))["subject"]]
    assert names == sorted(STATEMENT.subjects)


def payload_of(data: bytes) -> bytes:
    return base64.b64decode(json.loads(data)["payload"])


def refused(data: bytes, key: Key, why: str | None = None) -> None:
    with pytest.raises(EvidenceError, match=why):
        dsse.open_statement(data, key.certificate, dsse.ACCEPTANCE, "statement.dsse.json")


def test_every_changed_byte_of_an_envelope_is_found() -> None:
    key = a_key()
    data = dsse.sign_statement(STATEMENT, key)
    for position in range(len(data)):
        for flip in (1, 2, 4, 32):  # a neighbour in base64, padding bits, and the other case
            changed = bytearray(data)
            changed[position] ^= flip
            refused(bytes(changed), key)


def rewritten(data: bytes, change: Callable[[dict[str, object]], object]) -> bytes:
    result = json.loads(data)
    change(result)
    return rfc8785.dumps(result)


def other_form(result: dict[str, object]) -> None:
    """The ECDSA signature with n - s, which verifies as well."""
    signed = result["signatures"][0]
    r, s = decode_dss_signature(base64.b64decode(signed["sig"]))
    signed["sig"] = base64.b64encode(encode_dss_signature(r, dsse.P256_ORDER - s)).decode()


def test_second_form_of_the_same_signature_is_refused() -> None:
    key = a_key()
    changed = rewritten(dsse.sign_statement(STATEMENT, key), other_form)
    signature = base64.b64decode(json.loads(changed)["signatures"][0]["sig"])
    signed = dsse.pae(dsse.PAYLOAD_TYPE, payload_of(changed))
    key.certificate.public_key().verify(signature, signed, ec.ECDSA(SHA256()))
    refused(changed, key, "does not fit")


def test_envelope_needs_exactly_one_signature_by_the_right_key() -> None:
    key, other = a_key(), a_key()
    data = dsse.sign_statement(STATEMENT, key)
    refused(rewritten(data, lambda result: result["signatures"].clear()), key, "one signature")
    refused(rewritten(data, lambda result: result["signatures"].extend(result["signatures"])), key)
    refused(dsse.sign_statement(STATEMENT, other), key, "another key")
    borrowed = json.loads(dsse.sign_statement(STATEMENT, other))["signatures"][0]["sig"]
    refused(
        rewritten(data, lambda result: result["signatures"][0].update(sig=borrowed)), key, "fit"
    )


def test_envelope_of_another_kind_is_refused() -> None:
    key = a_key()
    refused(dsse.envelope("text/plain", dsse.write_statement(STATEMENT), key), key, "text/plain")
    report = dsse.Statement(predicate_type=dsse.REPORT, subjects={}, predicate={})
    refused(dsse.sign_statement(report, key), key, "is wanted")
    twice = dsse.write_statement(STATEMENT).replace(b'{"_type"', b'{"_type":"x","_type"', 1)
    refused(dsse.envelope(dsse.PAYLOAD_TYPE, twice, key), key, "canonical form")
    for junk in (b"", b"{}", b"[]", b"null", b"{" * 5000, b'{"payload":1}', b"\xff"):
        refused(junk, key, "not a signed envelope")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_alone_can_check_an_envelope(tmp_path: Path) -> None:
    key = a_key()
    data = dsse.sign_statement(STATEMENT, key)
    public = key.certificate.public_key()
    (tmp_path / "key.pub").write_bytes(
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    signature = base64.b64decode(json.loads(data)["signatures"][0]["sig"])
    (tmp_path / "sig").write_bytes(signature)
    (tmp_path / "pae").write_bytes(dsse.pae(dsse.PAYLOAD_TYPE, payload_of(data)))
    words = ["openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "sig", "pae"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ PDF

FILES = {"plan.json": b"{}", "logs/gemm.1.stdout": b"", "journal.jsonl": b"line\n" * 999}


@pytest.fixture(scope="module")
def key() -> Key:
    return a_key()


@pytest.fixture(scope="module")
def signed(key: Key) -> bytes:
    return pades.sign_pdf(pdf(FILES), key, reason="ACCEPTED")


def rejected(data: bytes, key: Key, why: str | None = None) -> None:
    with pytest.raises(EvidenceError, match=why) as caught:
        pades.check_pdf(data, key.certificate)
    assert len(str(caught.value).splitlines()) == 1


def signature_at(data: bytes) -> tuple[int, int]:
    """Where the hexadecimal digits of the signature begin and end."""
    begin = data.index(b"/Contents <") + len(b"/Contents <")
    return begin, data.index(b">", begin)


def test_signed_pdf_is_sound_and_gives_its_files_back(signed: bytes, key: Key) -> None:
    pades.check_pdf(signed, key.certificate)
    assert pades.attachments(signed) == FILES
    assert b"ETSI.CAdES.detached" in signed


def test_pdf_can_be_signed_with_rsa(rsa_key: Key) -> None:
    data = pades.sign_pdf(pdf({}), rsa_key, reason="ACCEPTED")
    pades.check_pdf(data, rsa_key.certificate)
    assert pades.attachments(data) == {}


def test_pdf_is_never_signed_twice(signed: bytes, key: Key) -> None:
    with pytest.raises(ApplianceError, match="signed"):
        pades.sign_pdf(signed, key, reason="REJECTED")


def test_pdf_by_another_key_of_the_same_name_is_refused(signed: bytes) -> None:
    rejected(signed, a_key(), "another certificate")


def test_every_changed_digit_of_the_signature_is_found(signed: bytes, key: Key) -> None:
    begin, end = signature_at(signed)
    used = len(signed[begin:end].rstrip(b"0"))
    for position in [*range(begin - 1, begin + used + 3, 3), *range(begin, begin + 90), end - 1]:
        changed = bytearray(signed)
        changed[position] = ord("0") if changed[position] != ord("0") else ord("1")
        rejected(bytes(changed), key)


def test_every_changed_byte_of_the_pages_is_found(signed: bytes, key: Key) -> None:
    begin, end = signature_at(signed)
    inside = range(begin, end)
    for position in (at for at in range(0, len(signed), 67) if at not in inside):
        changed = bytearray(signed)
        changed[position] ^= 1
        rejected(bytes(changed), key)


def lower_case(data: bytes) -> bytes:
    begin, end = signature_at(data)
    return data[:begin] + data[begin:end].lower() + data[end:]


def junk_in_padding(data: bytes) -> bytes:
    _, end = signature_at(data)
    return data[: end - 8] + b"DEADBEEF" + data[end:]


def changed_info(data: bytes) -> bytes:
    writer = IncrementalPdfFileWriter(BytesIO(data))
    info = generic.DictionaryObject({generic.pdf_name("/Title"): generic.pdf_string("ACCEPTED")})
    writer.set_info(writer.add_object(info))
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def transplanted(data: bytes) -> bytes:
    """The signature of this PDF in another one of the same length."""
    begin, end = signature_at(data)
    other = data[:begin].replace(b"%PDF-1.7", b"%PDF-1.6", 1)
    return other + data[begin:end] + data[end:]


@pytest.mark.parametrize(
    "change",
    [
        lower_case,
        junk_in_padding,
        changed_info,
        transplanted,
        lambda data: data + b"% a comment\n",
        lambda data: data + data,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda _: pdf(FILES),
        lambda _: b"%PDF-1.7\n" + b"garbage " * 99,
        lambda _: b"%PDF-1.7\n",
    ],
    ids=[
        "lower_case",
        "junk_in_padding",
        "changed_info",
        "transplanted",
        "appended",
        "doubled",
        "cut_by_one",
        "cut_in_half",
        "unsigned",
        "garbage",
        "empty",
    ],
)
def test_pdf_that_is_not_exactly_what_was_signed_is_refused(
    change: Callable[[bytes], bytes], signed: bytes, key: Key
) -> None:
    assert change(signed) != signed
    rejected(change(signed), key)


def test_attachments_of_garbage_are_refused_in_a_sentence() -> None:
    with pytest.raises(EvidenceError, match="not the PDF that was written"):
        pades.attachments(b"%PDF-1.7\n" + b"garbage " * 99)


def test_attachments_that_inflate_without_end_are_refused(
    signed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, FILES.values()))
    monkeypatch.setattr(pades, "LARGEST_LOAD", size)
    assert pades.attachments(signed) == FILES
    monkeypatch.setattr(pades, "LARGEST_LOAD", size - 1)
    with pytest.raises(EvidenceError, match="too large"):
        pades.attachments(signed)


@pytest.mark.skipif(shutil.which("pdfsig") is None, reason="poppler's pdfsig is not installed")
def test_poppler_agrees_that_the_whole_document_is_signed(signed: bytes, tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(signed)
    done = subprocess.run(["pdfsig", tmp_path / "report.pdf"], capture_output=True, check=False)
    assert b"Signature is Valid." in done.stdout
    assert b"Total document signed" in done.stdout
