"""The lab finds a Java that Flink can run on, or names what to install."""

from pathlib import Path

import pytest

from tests.lab.java import find_java
from tests.lab.lab_error import LabError


def _java(folder: Path, version: str) -> Path:
    """A program that answers `-version` as that Java does."""
    java = folder / "java"
    folder.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_comes_before_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME wins where its Java is new enough."""
    home = _java(tmp_path / "home" / "bin", "21.0.2")
    path = _java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert find_java() == home
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == path
    with pytest.raises(LabError, match=f"Java 18 or newer is needed to run Flink .{path} is Java 17."):
        find_java(18)


def test_too_old_a_java_home_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An old or broken JAVA_HOME does not hide the good Java on the PATH."""
    _java(tmp_path / "home" / "bin", "1.8.0_392")
    path = _java(tmp_path / "path", "25")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}")
    for home in (tmp_path / "home", tmp_path / "nowhere"):
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert find_java() == path


def test_without_a_java_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names what was found and how to install what is needed."""
    old = _java(tmp_path / "home" / "bin", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError) as caught:
        find_java()
    assert str(caught.value) == (
        f"Java 17 or newer is needed to run Flink ({old} is Java 8): "
        "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    )
