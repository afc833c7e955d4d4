"""What a driver reported that watches ConfigMaps."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from sidecar.core.observations import ConfigMapObserved
from sidecar.drivers.kubernetes import KubernetesDriver
from tests.kit import driver_recorder
from tests.kit.kubernetes_server import Json
from tests.kit.waiting import PATIENCE_SECONDS


class Recorder(driver_recorder.Recorder):
    """An observer that keeps what a KubernetesDriver reported, in order."""

    def __init__(self, driver: KubernetesDriver) -> None:
        super().__init__(driver)  # type: ignore[arg-type]  # it is kept and not looked at

    def config_maps(self, name: str | None = None) -> list[ConfigMapObserved]:
        """All that was reported of one ConfigMap, or of all."""
        observed = [observation for observation in list(self.all) if isinstance(observation, ConfigMapObserved)]
        return [config_map for config_map in observed if name in {None, config_map.name}]

    def versions(self, name: str | None = None) -> list[tuple[str, str | None, str]]:
        """Name, uid and resource version of what was reported, without what was reported again."""
        versions = [
            (config_map.name, config_map.uid, config_map.resource_version) for config_map in self.config_maps(name)
        ]
        last: dict[str, tuple[str, str | None, str]] = {}
        news = []
        for version in versions:
            if last.get(version[0]) != version:
                news.append(version)
            last[version[0]] = version
        return news

    def wait_version(self, config_map: Json, timeout: float = PATIENCE_SECONDS) -> ConfigMapObserved:
        """Wait until this, as the API server answered it, was reported."""
        version = version_of(config_map)
        self.wait(lambda: version in self.versions(version[0]), timeout)
        return next(
            config_map for config_map in self.config_maps(version[0]) if config_map.resource_version == version[2]
        )

    def wait_last(self, version: tuple[str, str | None, str], timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until this is the version reported last."""
        self.wait(lambda: self.versions()[-1:] == [version], timeout)

    def wait_gone(self, name: str, timeout: float = PATIENCE_SECONDS) -> None:
        self.wait(lambda: [config_map.uid for config_map in self.config_maps(name)][-1:] == [None], timeout)


def drivers() -> AbstractContextManager[Callable[[KubernetesDriver], Recorder]]:
    """Starts drivers, each with its recorder, and stops them at the end."""
    return driver_recorder.recorders(Recorder)


def said(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    """The lines of the log that have this part."""
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def version_of(config_map: Json) -> tuple[str, str, str]:
    """Name, uid and resource version of what the API server answered."""
    metadata = config_map["metadata"]
    return metadata["name"], metadata["uid"], metadata["resourceVersion"]
