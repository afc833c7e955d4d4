"""Secrets in texts that other programs wrote, such as Flink's log, are replaced before anybody else sees them."""

import re
from typing import Final

MASK: Final = "<secret>"
_WORDS: Final = (
    r"password|passwd|passphrase|pwd|secret|token|credentials?|signature|authorization|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|account[_-]?key|private[_-]?key"
)
_VALUE: Final = r"""(?:"[^"]{0,1000}"?|'[^']{0,1000}'?|(?:Bearer |Basic )?[^\s"',;&)\]}]{1,1000})"""

_PATTERNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s@]{1,500}@", rf"\1{MASK}@"),
        # `s3.secret-key: x`, `"password": "x"`, `sasl.password=x`, `&X-Amz-Signature=x`; no class, such as FencingTokenException: …
        (rf"""((?:{_WORDS})["']?\s{{0,3}}:\s{{0,3}}){_VALUE}""", rf"\1{MASK}"),
        (rf"""((?:{_WORDS}|secret[\w.-]{{1,30}})["']?\s{{0,3}}=\s{{0,3}}){_VALUE}""", rf"\1{MASK}"),
        # `--password x`
        (rf"""((?<!\S)-{{1,2}}[\w.-]{{0,100}}(?:{_WORDS})["',]{{0,2}}\s{{1,3}}){_VALUE}""", rf"\1{MASK}"),
        (rf"""(\bsecret[._-]?key["']?\s{{0,3}}:\s{{0,3}}){_VALUE}""", rf"\1{MASK}"),
        (r"(\bBearer )[\w.~+/=-]{8,2000}", rf"\1{MASK}"),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MASK),
        (r"\beyJ[\w-]{10,4000}\.[\w-]{1,4000}\.[\w-]{0,4000}", MASK),
    )
)


def masked(text: str) -> str:
    """The text without what looks like a secret: passwords in addresses, values of keys that are named like one, tokens."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
