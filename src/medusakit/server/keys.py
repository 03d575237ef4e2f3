"""API keys: who asks, compared in constant time. No keys at all: everybody is the one anonymous tenant."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import UsageError

ADMIN_MARK = "admin:"


@dataclass(frozen=True, slots=True)
class Tenant:
    """id: of the key, says nothing about it. admin: may replace heads and switch speculation."""

    id: str
    admin: bool


ANONYMOUS = Tenant("", admin=True)


class Keyring:
    """Keys as their SHA-256 digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._tenants: dict[bytes, Tenant] = {}
        for key in keys:
            text, admin = key.removeprefix(ADMIN_MARK), key.startswith(ADMIN_MARK)
            digest = _digest(text)
            self._tenants[digest] = Tenant(digest.hex()[:12], admin)

    @property
    def open(self) -> bool:
        """True: no key is needed."""
        return not self._tenants

    def tenant(self, authorization: str | None) -> Tenant | None:
        """Of an `Authorization` header; None if it holds no valid key. Every key is compared, whatever was found."""
        if self.open:
            return ANONYMOUS
        scheme, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip())
        found = [tenant for digest, tenant in self._tenants.items() if hmac.compare_digest(digest, given)]
        return found[0] if found and scheme.lower() == "bearer" else None


def read_keys(path: str | None, env: Mapping[str, str]) -> Keyring:
    """Keys of a file (one a line, `#` begins a comment, `admin:KEY` may administrate) and of MEDUSA_API_KEY.

    Raises UsageError for a file that cannot be read or holds no key: nobody should serve openly by mistake.
    """
    keys = [env["MEDUSA_API_KEY"]] if env.get("MEDUSA_API_KEY") else []
    if path is not None:
        keys += _of_file(Path(path).expanduser())
    return Keyring(keys)


def _of_file(path: Path) -> list[str]:
    hint = "--api-keys FILE   with one key a line"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the API keys in {path}: {error}", hint=hint) from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise UsageError(f"{path} holds no API key", hint=hint)
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
