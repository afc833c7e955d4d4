"""The API server that takes what is deployed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.test_kubernetes_manifests import NAMESPACE
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.serving import serving


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> Iterator[Kubernetes]:
    """One with the namespace."""
    with serving(Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver)) as server:
        server.namespace(NAMESPACE)
        yield server
