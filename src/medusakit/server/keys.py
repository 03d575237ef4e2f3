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
    """Keys as their SHA-256 digests. A key that is given with the mark and without may administrate."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Raises UsageError for a key without a character, which everybody would have."""
        self._tenants: dict[bytes, Tenant] = {}
        for key in sorted(keys, key=lambda key: key.startswith(ADMIN_MARK)):
            text, admin = key.removeprefix(ADMIN_MARK).strip(), key.startswith(ADMIN_MARK)  # no header has spaces there
            if not text:
                raise UsageError(
                    f"an API key is empty: {key!r}", hint=f"{ADMIN_MARK}KEY   or KEY, with some characters"
                )
            digest = _digest(text.encode())
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
        given = _digest(key.strip().encode("latin-1", "replace"))  # as which the header's bytes were read
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
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the API keys in {path}: {error}", hint=hint) from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise UsageError(f"{path} holds no API key", hint=hint)
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
