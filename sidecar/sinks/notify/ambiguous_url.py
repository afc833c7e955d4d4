"""Apprise URLs that Apprise reads otherwise than they were meant: a part of a password becomes the host, or is lost.

No message shows a part of the URL: it may be of the password.
"""

import re
from typing import Final
from urllib.parse import unquote

_AUTHORITY_ENDS: Final = re.compile(r"[/?#]")


def ambiguity(url: str) -> str | None:
    """What makes the URL ambiguous, and what to write instead; None: nothing."""
    authority, after = _split(url)
    if authority.count("@") > 1:
        return 'has more than one "@" before the host: write each "@" of a user name or password as %40'
    name = re.split("[=&;]", after, maxsplit=1)[0]
    if "@" not in authority and after.startswith(("?", "#")) and "@" in name:
        return 'has "?" or "#" before the "@": write them as %3F and %23 in a user name or password'
    return None


def cut_password(url: str, password: object) -> str | None:
    """What to write instead, if Apprise took only the beginning of the password before the host; None: it took all of it."""
    credentials, at_sign, _ = _split(url)[0].rpartition("@")
    written = unquote(credentials.partition(":")[2])
    if not at_sign or not isinstance(password, str) or not password:
        return None
    if ":" in credentials.partition(":")[2] and written != password and written.startswith(password):
        return 'has more than one ":" before the host: write each ":" of a user name or password as %3A'
    return None


def host_may_be_secret(url: str) -> bool:
    """Whether what is read as the host may be the beginning of a password with a slash in it."""
    authority, after = _split(url)
    return "@" not in authority and "@" in after.partition("?")[0]


def _split(url: str) -> tuple[str, str]:
    """The authority, and what follows it."""
    rest = url.strip().partition("://")[2]
    end = match.start() if (match := _AUTHORITY_ENDS.search(rest)) else len(rest)
    return rest[:end], rest[end:]
