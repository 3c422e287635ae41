"""Who signs and what: keys, which signers a reader trusts, and the two statements of a bundle.

Signing says who vouches for the evidence and makes later changes show; it does not make the
figures true. Without a key of its own a run is signed with a development key that lives in
memory alone and is named so on page 1; nobody trusts it unless he says so. P-256 and RSA from
3072 bits are taken, because every PDF reader checks them; Ed25519 is not, because poppler and
Acrobat of 2026 cannot. The forms of the signatures are in dsse.py and pades.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.records.json import sha256
from appliance.records.plan import Plan
from appliance.records.signer import Signer
from appliance.records.verdict import Verdict
from appliance.roles import Role
from appliance.signing import certificates
from appliance.signing.dsse import (
    ACCEPTANCE,
    PAYLOAD_TYPE,
    REPORT,
    Statement,
    is_supported,
    key_id,
    lower_form,
    open_envelope,
    sign_statement,
)
from appliance.storage import input_file

DEVELOPMENT_NAME = "UNTRUSTED DEVELOPMENT KEY"
DEVELOPMENT_DAYS = 7
ORGANISATION_DAYS = 365
LONGEST_NAME = 64  # RFC 5280, ub-common-name
REASON = "Hardware acceptance report"
"""Why a PDF is signed, as its signature says."""
CLOCK_SKEW = timedelta(minutes=5)  # a verifier's clock may be a little behind the signer's
SIGNS_DOCUMENTS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=True,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""Key usage of a certificate that signs documents and nothing else."""
WANTED = "make one with `bench keys create`, or use P-256 or RSA of 3072 bits or more"

KEY_MARK, CERTIFICATE_MARK = b"PRIVATE KEY-----", b"BEGIN CERTIFICATE-----"
"""What PEM files of private keys and of certificates have."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Key:
    """A private key with its certificate; the private part is never shown or written."""

    private: PrivateKey
    certificate: x509.Certificate

    def sign(self, data: bytes) -> bytes:
        """Signature over sha256 of `data`: ECDSA in DER, its lower form, or RSA PKCS#1 v1.5."""
        if isinstance(self.private, rsa.RSAPrivateKey):
            return self.private.sign(data, padding.PKCS1v15(), SHA256())
        return lower_form(self.private.sign(data, ec.ECDSA(SHA256())))

    def __repr__(self) -> str:
        return f"Key({key_id(self.certificate)})"


# ------------------------------------------------------------------ keys


def development_key() -> Key:
    """A key in memory for a few days, which nobody trusts; made when none is named."""
    private = ec.generate_private_key(ec.SECP256R1())
    return Key(private, _self_signed(private, DEVELOPMENT_NAME, DEVELOPMENT_DAYS))


def create_key(name: str, folder: Path, passphrase: bytes | None = None) -> tuple[Path, Path]:
    """Make an organisation's key, valid for a year: paths of the key and of its certificate.

    Raises UsageError for a name that says nothing, OutputError if a file is there already.
    """
    name = name.strip()
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(f"a signer's name has 1 to {LONGEST_NAME} printable characters")
    if name == DEVELOPMENT_NAME:
        raise UsageError(f'"{name}" is what keys without an owner are called: name the signer')
    private = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(private, name, ORGANISATION_DAYS)
    hidden: KeySerializationEncryption = (
        BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    )
    key_file, certificate_file = folder / "key.pem", folder / "certificate.pem"
    _write_new(key_file, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden), 0o600)
    _write_new(certificate_file, certificate.public_bytes(Encoding.PEM), 0o644)
    return key_file, certificate_file


def load_key(key_file: Path, certificate_file: Path, passphrase: bytes | None = None) -> Key:
    """A key from its file and the certificate that belongs to it.

    Raises UsageError if the key is readable by others, cannot be opened, is of a kind that PDF
    readers cannot check, does not belong to the certificate, or may not sign now.
    """
    private = _private_key(key_file, passphrase)
    certificate = _certificate(certificate_file)
    if private.public_key() != certificate.public_key():
        raise UsageError(
            f"{certificate_file} belongs to another key than {key_file}: name two files that "
            "`bench keys create` made together"
        )
    if not is_supported(certificate):
        raise UsageError(f"{key_file} is too short or on another curve: {WANTED}")
    fault = _usage_fault(certificate) or _time_fault(certificate, datetime.now(UTC))
    if fault:
        raise UsageError(f"{certificate_file} {fault}")
    return Key(private, certificate)


def _private_key(path: Path, passphrase: bytes | None) -> PrivateKey:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(input_file.LARGEST)
    except OSError as error:
        raise UsageError(
            f"key file {path} cannot be read ({error.strerror}); {input_file.advice(error)}"
        ) from None
    if CERTIFICATE_MARK in data and KEY_MARK not in data:
        raise UsageError(f"key file {path} is a certificate: give the private key that it is of")
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"key file {path} is open to others: chmod 600 {path}")
    try:
        private = load_pem_private_key(data, passphrase)
    except TypeError:
        locked = f"needs a passphrase, and no verb asks for one: `openssl pkey -in {path} -out KEY`"
        word = locked if passphrase is None else "has no passphrase: give none"
        raise UsageError(f"key file {path} {word}") from None
    except (ValueError, UnsupportedAlgorithm):
        none = "is not a private key in PEM form: `bench keys create` makes one"
        word = none if passphrase is None else "does not open"
        raise UsageError(f"key file {path} {word}") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise UsageError(f"key file {path} is of a kind that PDF readers cannot check: {WANTED}")
    return private


def _certificate(path: Path) -> x509.Certificate:
    data = input_file.read(path, what="certificate")
    return certificates.load(data, UsageError(f"{path} {no_certificate(data)}"))


def no_certificate(data: bytes) -> str:
    """Why a file is no certificate, and what to give in its place."""
    if KEY_MARK in data:
        return "is a private key, which is shown to nobody: give the certificate made with it"
    return "is not a certificate in PEM form: give the certificate.pem of the signer"


def _self_signed(private: PrivateKey, name: str, days: int) -> x509.Certificate:
    """A certificate that vouches for itself, for signing documents and nothing else."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, name),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    begin = datetime.now(UTC) - CLOCK_SKEW
    public = private.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(SIGNS_DOCUMENTS, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(private, SHA256())
    )


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(data)
    except FileExistsError:
        why = "exists already, and a key is never written over"
        if not path.parent.is_dir():
            path, why = path.parent, "is a file, and no folder for keys"
        raise OutputError(f"{path} {why}: name another folder with --out") from None
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror}): name another folder with --out"
        ) from None


# ------------------------------------------------------------------ statements


class Judged(Protocol):
    """What the statements say of a bundle."""

    @property
    def files(self) -> Mapping[str, bytes]: ...
    @property
    def data(self) -> Mapping[str, bytes]: ...
    @property
    def digests(self) -> Mapping[str, str]: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def verdict(self) -> Verdict | None: ...
    @property
    def signer(self) -> Signer | None: ...


def predicate(bundle: Judged) -> Mapping[str, str]:
    """What both statements say; UsageError unless the run is judged and its signer fixed."""
    if bundle.verdict is None or bundle.signer is None:
        raise UsageError("only a judged run with a signer can be signed: run `bench report` first")
    return {
        "plan": bundle.digests["plan.json"],
        "role": bundle.signer.role,
        "run_id": bundle.plan.run_id,
        "scope": bundle.verdict.scope,
        "verdict": bundle.verdict.verdict,
    }


def sign_data(bundle: Judged, key: Key) -> bytes:
    """statement.dsse.json: the verdict, over the sha256 of every data file."""
    subjects = {name: bundle.digests[name] for name in bundle.data}
    return _sign(bundle, subjects, key, ACCEPTANCE)


def sign_report(bundle: Judged, subjects: Mapping[str, str], key: Key) -> bytes:
    """report.dsse.json: the verdict, over the sha256 of the pages and of the data's statement."""
    return _sign(bundle, subjects, key, REPORT)


def _sign(bundle: Judged, subjects: Mapping[str, str], key: Key, kind: str) -> bytes:
    statement = Statement(predicate_type=kind, subjects=subjects, predicate=predicate(bundle))
    if bundle.signer != signer_record(key, bundle.signer.role if bundle.signer else "tester"):
        raise UsageError(
            "the report names another signer: sign with his key, or make it for this one by "
            "`bench report --signer CERTIFICATE`"
        )
    return sign_statement(statement, key)


def sign_pdf(data: bytes, key: Key, *, reason: str = REASON) -> bytes:
    """The PDF with a PAdES signature of this key (see pades.py)."""
    from appliance.signing import pades  # noqa: PLC0415 - half a second, which keys do not need

    return pades.sign_pdf(data, key, reason=reason)


# ------------------------------------------------------------------ signers


def signer_record(key: Key, role: Role) -> Signer:
    """What signer.json says of the holder of this key."""
    return _signer(key.certificate, role)


def signer_of(pem: bytes, role: Role) -> Signer:
    """What signer.json says of a certificate's holder; UsageError if it may not sign now."""
    certificate = certificates.load(pem, UsageError(f"the signer's file {no_certificate(pem)}"))
    fault = _usage_fault(certificate) or _time_fault(certificate, datetime.now(UTC))
    if fault or not is_supported(certificate):
        raise UsageError(
            f"the signer's certificate {fault or f'has another kind of key: {WANTED}'}"
        )
    return _signer(certificate, role)


def _signer(certificate: x509.Certificate, role: Role) -> Signer:
    return Signer(
        certificate_pem=certificate.public_bytes(Encoding.PEM).decode(),
        subject=certificate.subject.rfc4514_string(),
        sha256=fingerprint(certificate),
        not_after_utc=_utc(certificate.not_valid_after_utc),
        role=role,
        is_development=is_development(certificate),
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """sha256 of the certificate, as `openssl x509 -fingerprint -sha256` gives it."""
    return sha256(certificate.public_bytes(Encoding.DER))


def is_development(certificate: x509.Certificate) -> bool:
    """Whether the certificate names itself a development key."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(name.value == DEVELOPMENT_NAME for name in names)


def certificate_of(signer: Signer) -> x509.Certificate:
    """The signer's certificate; EvidenceError if signer.json says of it what is not so."""
    try:
        certificate = certificates.of_pem(signer.certificate_pem.encode())
        again = _signer(certificate, signer.role)
    except certificates.UNREADABLE:
        raise EvidenceError("signer.json holds no certificate in PEM form") from None
    if again != signer:
        raise EvidenceError("signer.json does not say what its certificate says")
    if not is_supported(certificate):
        raise EvidenceError("signer.json: the key is neither P-256 nor RSA of 3072 bits or more")
    return certificate


def check_trust(
    certificate: x509.Certificate,
    trusted: Sequence[bytes],
    *,
    allow_development: bool,
    moment: datetime,
) -> str:
    """Why this signer is trusted, in a sentence; EvidenceError if he is not.

    `trusted` are PEM files: the signer's own certificate, or the one of the authority that
    issued it. At `moment` the certificate must be valid, since no third party vouches for the
    time of signing.
    """
    name = certificate.subject.rfc4514_string()
    fault = _usage_fault(certificate) or _time_fault(certificate, moment)
    if fault:
        raise EvidenceError(f"the certificate of {name} {fault}")
    for authority in (one for pem in trusted for one in _certificates(pem)):
        if authority == certificate:
            return f"signed by {name}, whose certificate you trust"
        if _has_issued(authority, certificate, moment):
            return f"signed by {name}, certified by {authority.subject.rfc4514_string()}"
    if not is_development(certificate):
        raise EvidenceError(
            f"{name} is not a trusted signer: compare the fingerprint {fingerprint(certificate)} "
            "with the one that he gave you, then verify with --trust CERTIFICATE"
        )
    if not allow_development:
        raise EvidenceError(
            "signed with a development key, which anyone can make, so the signer is not trusted: "
            "ask for a bundle signed by name, or check all the rest with --allow-dev"
        )
    return "signed with a development key: it shows that nothing changed since, not who signed"


def signer_among(
    trusted: Sequence[bytes], envelope: bytes, name: str, *, wanted: str = PAYLOAD_TYPE
) -> x509.Certificate:
    """Whose of the trusted certificates signed the envelope called `name`, a payload so `wanted`.

    EvidenceError if none did, UsageError for a file of `trusted` that is no certificate.
    """
    known = [one for pem in trusted for one in _certificates(pem)]
    for certificate in filter(is_supported, known):
        with suppress(EvidenceError):
            open_envelope(envelope, certificate, name, wanted=wanted)
            return certificate
    raise EvidenceError(
        f"{name} was signed by none whose certificate you trust: name the signer's own "
        "certificate with --trust, or verify the folder"
    )


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        with certificates.quiet():
            return x509.load_pem_x509_certificates(pem)
    except certificates.UNREADABLE:
        raise UsageError(f"a file given with --trust {no_certificate(pem)}") from None


def _has_issued(
    authority: x509.Certificate, certificate: x509.Certificate, moment: datetime
) -> bool:
    """Whether this authority, itself valid, may issue certificates and issued this one."""
    if certificates.fault(authority):
        return False
    try:
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
        certificate.verify_directly_issued_by(authority)
    except (x509.ExtensionNotFound, TypeError, InvalidSignature, *certificates.UNREADABLE):
        return False
    return constraints.ca and usage.key_cert_sign and not _time_fault(authority, moment)


def _usage_fault(certificate: x509.Certificate) -> str:
    """Why readers of PDF would not take signatures of this certificate, or nothing."""
    if fault := certificates.fault(certificate):
        return fault
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return "states no key usage: it needs digitalSignature and contentCommitment"
    if not (usage.digital_signature and usage.content_commitment):
        return "may not sign documents: its key usage needs digitalSignature and contentCommitment"
    return certificates.purpose_fault(certificate)


def _time_fault(certificate: x509.Certificate, moment: datetime) -> str:
    if moment > certificate.not_valid_after_utc:
        return (
            f"expired on {_utc(certificate.not_valid_after_utc)}, and nothing shows that it "
            "signed before: sign again with a valid one"
        )
    if moment < certificate.not_valid_before_utc:
        begin = _utc(certificate.not_valid_before_utc)
        return f"is not valid before {begin}: check the clock of this machine"
    return ""


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
