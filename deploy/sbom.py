"""Prints what an image is made of, as CycloneDX 1.5: Debian's packages, Python's, Spark's jars. It runs in the build and needs no network.

The same image gives the same text: there is no time in it and no random number.
"""

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import quote

Component = dict[str, object]


def debian() -> list[Component]:
    """Every installed package, from dpkg; none where the base has no dpkg."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    system, version = (release.get(key, "unknown").strip('"') for key in ("ID", "VERSION_ID"))
    shown = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"
    try:
        listed = subprocess.run(["dpkg-query", "--show", "-f", shown], capture_output=True, text=True, check=True)  # noqa: S607
    except FileNotFoundError:
        return []
    found = []
    for line in sorted(listed.stdout.splitlines()):
        status, name, number, architecture = line.split("\t")
        if status == "installed":
            place = f"pkg:deb/{system}/{quote(name)}@{quote(number)}?arch={architecture}&distro={system}-{version}"
            found.append(component(name, number, place))
    return found


def python() -> list[Component]:
    """Every package of this interpreter's environment, and nothing of the system's."""
    installed = {
        normal(each.name): each for each in distributions(path=[path for path in sys.path if "site-packages" in path])
    }
    found = []
    for name, each in sorted(installed.items()):
        one = component(name, each.version, f"pkg:pypi/{name}@{quote(each.version)}")
        if said := licence(each):
            one["licenses"] = [{"license": {"name": said}}]
        found.append(one)
    return found


def jars() -> list[Component]:
    """The files of pyspark/jars, and of the connector for S3, which are Maven's and stand in no list of packages."""
    folders = [(Path(path), "pyspark/jars") for path in sys.path] + [(Path(sys.prefix, "share/flink-ha-sidecar"), "s3")]
    return [
        {
            "type": "file",
            "bom-ref": f"{folder}/{jar.name}",
            "name": f"{folder}/{jar.name}",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(jar.read_bytes()).hexdigest()}],
        }
        for place, folder in folders
        for jar in sorted((place / folder).glob("*.jar"))
    ]


def component(name: str, version: str, place: str) -> Component:
    return {"type": "library", "bom-ref": place, "name": name, "version": version, "purl": place}


def normal(name: str) -> str:
    """As PyPI writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: Distribution) -> str | None:
    """Its expression, else its classifiers, else the first line of what it says."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [each for each in metadata.get_all("Classifier") or [] if each.startswith("License :: ")]
    said = [each.rpartition(" :: ")[2] for each in classifiers] or str(metadata.get("License") or "").splitlines()[:1]
    return " or ".join(said) or None


def main(name: str, version: str) -> None:
    described = {"type": "container", "bom-ref": "image", "name": name, "version": version}
    components = [*debian(), *python(), *jars()]
    print(  # noqa: T201
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.5",
                "version": 1,
                "metadata": {"component": described},
                "components": components,
                "dependencies": [{"ref": "image", "dependsOn": [each["bom-ref"] for each in components]}],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
