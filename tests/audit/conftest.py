"""One Spark for all tests of the audit."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.audit.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as the commands start it."""
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool that no observer has written to yet."""
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """Where an audit log will be."""
    return tmp_path / "audit"
