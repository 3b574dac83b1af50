"""A certificate for tests, signed by itself."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """Make one for ``name`` (``DNS:…`` or ``IP:…``). Gives what a server needs, and the file to trust it by."""
    key, file = folder / "key.pem", folder / "cert.pem"
    options = f"-x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName={name}"
    command = ["openssl", "req", *options.split(), "-keyout", key, "-out", file]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return context, file
