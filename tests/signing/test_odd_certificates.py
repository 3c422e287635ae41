"""Certificates that are malformed, or that nobody may go by for documents: one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from asn1crypto import core
from asn1crypto import x509 as asn1
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support.program import called

from appliance.errors import EvidenceError
from appliance.signing import keys

NOW = datetime.now(UTC)  # `keys show` goes by the clock, so no day may be written here
LEAF_KEY, ROOT_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
LEAF = x509.BasicConstraints(ca=False, path_length=None)
CA = x509.BasicConstraints(ca=True, path_length=None)
ISSUES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=True,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def made(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    *,
    issuer: str = "Root",
    issuer_key: ec.EllipticCurvePrivateKey = ROOT_KEY,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return builder.sign(issuer_key, SHA256())


PLAIN = ((LEAF, True), (keys.SIGNS_DOCUMENTS, True))
ROOT = made("Root", ROOT_KEY, ((CA, True), (ISSUES, True)))


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def trust(certificate: x509.Certificate, authority: x509.Certificate) -> str:
    return keys.check_trust(certificate, [pem(authority)], allow_development=False, moment=NOW)


def purposes(*oids: x509.ObjectIdentifier) -> x509.Certificate:
    return made("Vendor", LEAF_KEY, (*PLAIN, (x509.ExtendedKeyUsage(oids), False)))


def test_a_key_for_documents_is_taken_and_one_for_servers_is_not() -> None:
    assert "certified by CN=Root" in trust(made("Vendor", LEAF_KEY, PLAIN), ROOT)
    for oid in (ExtendedKeyUsageOID.EMAIL_PROTECTION, x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36")):
        assert trust(purposes(ExtendedKeyUsageOID.SERVER_AUTH, oid), ROOT)
    with pytest.raises(EvidenceError, match="extended key usage has other purposes alone"):
        trust(purposes(ExtendedKeyUsageOID.SERVER_AUTH), ROOT)


def test_a_critical_extension_that_is_not_judged_is_not_passed_over() -> None:
    critical = made("Vendor", LEAF_KEY, (*PLAIN, (UNKNOWN, True)))
    with pytest.raises(EvidenceError, match=r"critical extension .*1\.3\.6\.1\.4\.1\.99999\.1"):
        trust(critical, ROOT)
    assert trust(made("Vendor", LEAF_KEY, (*PLAIN, (UNKNOWN, False))), ROOT)
    others = x509.NameConstraints([x509.DirectoryName(named("Somebody else"))], None)
    limited = made("Root", ROOT_KEY, ((CA, True), (ISSUES, True), (others, True)))
    with pytest.raises(EvidenceError, match="is not a trusted signer"):
        trust(made("Vendor", LEAF_KEY, PLAIN), limited)


def edited(change: Callable[[asn1.TbsCertificate], None]) -> bytes:
    """A certificate by its own key, changed in a way that no library writes."""
    own = made("Vendor", LEAF_KEY, PLAIN, issuer="Vendor", issuer_key=LEAF_KEY)
    fields = asn1.Certificate.load(own.public_bytes(Encoding.DER))["tbs_certificate"]
    change(fields)
    signed = fields.dump(force=True)
    whole = asn1.Certificate(
        {
            "tbs_certificate": asn1.TbsCertificate.load(signed),
            "signature_algorithm": {"algorithm": "sha256_ecdsa"},
            "signature_value": LEAF_KEY.sign(signed, ec.ECDSA(SHA256())),
        }
    )
    text = core.OctetString(whole.dump()).native
    from asn1crypto import pem as armoured  # noqa: PLC0415 - its name is taken

    return bytes(armoured.armor("CERTIFICATE", text))


def _twice(fields: asn1.TbsCertificate) -> None:
    own = [asn1.Extension.load(one.dump()) for one in fields["extensions"]]
    fields["extensions"] = [*own, own[-1]]


def _version(fields: asn1.TbsCertificate) -> None:
    fields["version"] = 8


def _serial(fields: asn1.TbsCertificate) -> None:
    fields["serial_number"] = -5


def test_a_malformed_certificate_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    for change, code, says in (
        (_twice, 2, "has names or extensions that cannot be read"),
        (_version, 2, "is not a certificate in PEM form"),
        (_serial, 0, "CN=Vendor"),
    ):
        file.write_bytes(edited(change))
        shown = called("keys", "show", str(file))
        assert shown.returncode == code
        assert says in shown.stderr + shown.stdout
        assert code == 0 or len(shown.stderr.splitlines()) == 1
    file.write_bytes(edited(_twice))
    with pytest.raises(EvidenceError, match="cannot be read"):
        keys.check_trust(
            x509.load_pem_x509_certificate(file.read_bytes()),
            [file.read_bytes()],
            allow_development=False,
            moment=NOW,
        )
