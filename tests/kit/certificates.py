"""A certificate authority."""

import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in `folder`; makes certificates with `openssl`, which every Debian with CA certificates has."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.ca = folder / "ca.pem"
        self._ca_key = folder / "ca.key"
        self._run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={folder.name}", "-keyout", str(self._ca_key), "-out", str(self.ca)),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        # With the line above, what RFC 5280 asks for and Python 3.13 checks.
        self._extensions = folder / "extensions.cnf"
        self._extensions.write_text("authorityKeyIdentifier = keyid\n")

    def issue(
        self, name: str, *alternative_names: str, days: int = 2, password: str | None = None
    ) -> tuple[Path, Path]:
        """Certificate and private key (encrypted where there is a `password`) for `DNS:…` and `IP:…` names.

        `days` below zero: it has expired.
        """
        certificate, key, request = (self._folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr"))
        self._run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={name}"),
            *(("-passout", f"pass:{password}") if password else ("-nodes",)),
            *(("-addext", f"subjectAltName={','.join(alternative_names)}") if alternative_names else ()),
            *("-keyout", str(key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._ca_key), "-CAcreateserial"),
            *(
                "-days",
                str(days),
                "-copy_extensions",
                "copy",
                "-extfile",
                str(self._extensions),
                "-out",
                str(certificate),
            ),
        )
        return certificate, key

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)  # noqa: S607
