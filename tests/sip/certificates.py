"""Certificates made for a test: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key, and what is in them."""

    certificate: Path
    key: Path
    _key: ec.EllipticCurvePrivateKey
    _certificate: x509.Certificate


class Authority:
    """Signs certificates, and writes them to a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._own = self._make(name, None, authority=True)
        self.file = self._own.certificate

    def sign(
        self,
        name: str,
        *hosts: str,
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 90 * DAY,
        client_only: bool = False,
        password: bytes = b"",
    ) -> Pair:
        """A certificate for hosts (names or addresses)."""
        return self._make(
            name,
            self._own,
            hosts,
            begins=begins,
            ends=ends,
            client_only=client_only,
            password=password,
        )

    def _make(
        self,
        name: str,
        issuer: Pair | None,
        hosts: tuple[str, ...] = (),
        *,
        authority: bool = False,
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = 90 * DAY,
        client_only: bool = False,
        password: bytes = b"",
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer._certificate.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if issuer is not None:
            own = issuer._key.public_key()
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False
            )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False
            )
        if authority:
            builder = builder.add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=True,
                    crl_sign=True,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        else:
            uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
            if not client_only:
                uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        certificate = builder.sign(issuer._key if issuer else key, hashes.SHA256())
        files = (self.folder / f"{name}.pem", self.folder / f"{name}.key")
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password)
                if password
                else serialization.NoEncryption(),
            )
        )
        files[1].chmod(0o600)
        return Pair(*files, key, certificate)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
