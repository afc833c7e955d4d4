"""What the image is made of, as far as it can be known without building it; deploy/README.md has the measured part."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tests import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOGICAL_LINES = [
    " ".join(line.split())
    for line in re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line.strip()
]
STAGES = {
    part.split(maxsplit=1)[0]: part.splitlines()
    for part in re.split(r"^FROM \S+ AS ", "\n".join(LOGICAL_LINES), flags=re.MULTILINE)[1:]
}


def commands(pattern: str) -> list[str]:
    """The shell commands of all RUN lines in which the pattern is found."""
    shell = [part.strip() for line in LOGICAL_LINES if line.startswith("RUN ") for part in line.split(";")]
    return [command for command in shell if re.search(pattern, command)]


def test_both_images_end_as_the_user_65532() -> None:
    """The last user of each target is the unprivileged one, by number, so that runAsNonRoot can check it."""
    last = {name: [line for line in STAGES[name] if line.startswith("USER ")][-1] for name in ("sidecar", "audit")}
    assert last == {"sidecar": "USER 65532:65532", "audit": "USER 65532:65532"}


def test_the_image_serves_stores_and_stops_as_the_manifests_expect() -> None:
    """Port, volumes, entry point and stop signal are those of the contract, for both targets."""
    runtime = STAGES["runtime"]
    assert 'VOLUME ["/var/lib/flink-ha-sidecar", "/var/spool/flink-ha-sidecar"]' in runtime
    assert "EXPOSE 9250" in runtime
    assert "STOPSIGNAL SIGTERM" in runtime
    assert 'ENTRYPOINT ["flink-ha-sidecar"]' in runtime
    assert 'ENTRYPOINT ["audit-entrypoint"]' in STAGES["audit"]
    assert 'CMD ["run"]' in STAGES["sidecar"]
    assert [f"FROM runtime AS {name}" in LOGICAL_LINES for name in ("sidecar", "audit")] == [True, True]


def test_nothing_is_installed_that_no_lock_names() -> None:
    """Every pip command checks hashes, or asks no index at all."""
    pips = commands(r"/pip\b.* (install|wheel) ")
    assert len(pips) == 7
    assert [command for command in pips if ("--require-hashes" in command) == ("--no-index" in command)] == []


def test_each_stage_that_asks_an_index_is_given_its_address() -> None:
    """The build arguments for pip are declared in every stage that downloads: not every engine lets a stage inherit them."""
    downloads = [name for name, lines in STAGES.items() if any("--require-hashes" in line for line in lines)]
    assert downloads == ["tools", "sidecar-env", "audit-env"]
    declared = "ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT"
    assert [name for name in downloads if declared not in STAGES[name]] == []


def test_no_package_index_is_written_down() -> None:
    """Where packages come from is the builder's affair: no file names a host for them but the README's example.com."""
    files = [ROOT / "Dockerfile", *(ROOT / "requirements").iterdir(), *(ROOT / "deploy").rglob("*")]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    hosts = {host.rpartition("@")[2] for host in re.findall(r"https?://([^\s\"'/]+)", text)}
    # Of a schema, of a namespace of XML, and of the API server.
    names = {"github.com", "json-schema.org", "maven.apache.org", "kubernetes.default.svc"}
    assert {host for host in hosts if not host.startswith("$(") and not host.endswith(".example.com")} == names
    assert (
        re.findall(r"^--.*", "\n".join(file.read_text() for file in files if file.suffix == ".lock"), re.MULTILINE)
        == []
    )


def test_everything_that_is_copied_reaches_the_builder() -> None:
    """.dockerignore lets nothing through but by name; each source of a COPY is named there."""
    rules = (ROOT / ".dockerignore").read_text().split("\n")
    let_through = [rule[1:] for rule in rules if rule.startswith("!")]
    copies = [line.split()[1:-1] for line in LOGICAL_LINES if line.startswith("COPY ") and "--from" not in line]
    sources = [source for copy in copies for source in copy]
    assert sorted(sources) == sorted(let_through)
    assert [source for source in sources if not (ROOT / source).exists()] == []


def imports(path: Path, package: str) -> Iterator[str]:
    """The absolute names of all modules that a source file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_what_the_image_leaves_out_is_imported_by_nothing() -> None:
    """No source of the locked packages or of the sidecar, outside the removed folders, imports from them."""
    removed = [
        path for command in commands("^rm -r ") if not command.startswith("rm -rf") for path in command.split()[2:]
    ]
    modules = tuple(path.replace("/", ".") for path in removed)
    assert "kubernetes.aio" in modules

    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "audit.lock").read_text(), flags=re.MULTILINE)
    installed = [file for name in names for file in importlib.metadata.files(name) or () if file.suffix == ".py"]
    # What pip has built from source without `wheel` lists its sources, too.
    site = {str(file): path for file in installed if (path := Path(str(file.locate()))).is_file()}
    own = {str(path.relative_to(ROOT)): path for path in (ROOT / "sidecar").rglob("*.py")}
    last_words = {module.rpartition(".")[2].encode() for module in modules}
    offenders = [
        (relative, name)
        for relative, path in (site | own).items()
        if not any(fnmatch(relative, f"{folder}/*") for folder in removed)
        and any(word in path.read_bytes() for word in last_words)
        for name in imports(path, str(Path(relative).parent).replace("/", "."))
        if f"{name}.".startswith(tuple(f"{module}." for module in modules))
    ]
    assert offenders == []
