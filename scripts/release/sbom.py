"""What the sidecar is made of, as CycloneDX: the locked packages with the hashes of their files.

Written here, not by a tool: the lock has all that there is to say, and the tools that were looked at add a time and a random number, which
no two releases have in common. An image lists in addition what its base brings, in itself (deploy/sbom.py).
"""

import json
import re
from typing import Final
from urllib.parse import quote

from scripts.release.version import Version

_PACKAGE: Final = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAME: Final = "flink-ha-sidecar"

Component = dict[str, object]


def bill(lock: str, version: Version) -> str:
    """The JSON document for one lock."""
    components = [_component(*found) for found in _PACKAGE.findall(lock)]
    own = _purl(_NAME, version)
    return (
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {
                    "component": {
                        "type": "application",
                        "bom-ref": own,
                        "name": _NAME,
                        "version": version,
                        "purl": own,
                        "licenses": [{"license": {"id": "Apache-2.0"}}],
                    }
                },
                "components": components,
                "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in components]}],
            },
            indent=1,
        )
        + "\n"
    )


def _component(name: str, version: str, rest: str) -> Component:
    purl = _purl(name, version)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        # One for each file that the lock allows: a source archive, and wheels for processors and versions of Python.
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in _HASH.findall(rest)],
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{quote(version)}"
