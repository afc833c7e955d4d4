"""One incident stays one: it is opened, updated and closed by one key, at every service in its own way, whatever fails in between.

More random runs, with the sender in a process of its own: `python -m tests.sinks.notify.test_incidents [RUNS]`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest

from sidecar.endpoints import Endpoint, Slack
from sidecar.secret import Secret
from tests.kit import paging
from tests.kit.incident_scene import VACANT, Scene, one_incident, played
from tests.kit.paging import CHANNEL, TOKEN, Desk, ILert, Internet, Jira, Opsgenie, PagerDuty
from tests.kit.receivers import apprise
from tests.kit.serving import serving

SERVICES: dict[str, type[Desk]] = {each.__name__: each for each in (PagerDuty, Opsgenie, Jira, ILert, paging.Slack)}
RUNS = 5


def endpoint_of(service: type[Desk]) -> Endpoint:
    """How the service is configured."""
    if service is paging.Slack:
        return Slack(Secret(TOKEN), CHANNEL, "https://slack.com/api")
    return apprise(service.url)


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Where the services are."""
    with serving(Internet(tmp_path_factory.mktemp("internet"), *(each() for each in SERVICES.values()))) as served:
        yield served


def play(internet: Internet, name: str, seed: int, *, children: bool = False) -> Scene:
    """One random history with one vacancy. Raises AssertionError unless the service has had exactly one incident, which is closed."""
    service = SERVICES[name]
    desk = internet.services[service.host] = service()
    with (
        patch.dict("os.environ", internet.environment),
        played(lambda: Scene(endpoint_of(service), internet, seed, VACANT, children=children)) as scene,
    ):
        one_incident(scene)
    assert [each.is_open for each in desk.incidents] == [False], f"{name}, seed {seed}"
    for sidecar in scene.sidecars:
        assert sidecar.state.outbox == {}
    return scene


@pytest.mark.parametrize("name", SERVICES)
def test_one_incident_is_opened_and_closed_whatever_happens(internet: Internet, name: str) -> None:
    """Three sidecars, outages of the service, answers that are lost, and kill -9 between request and mark."""
    for seed in range(RUNS):
        play(internet, name, seed)


if __name__ == "__main__":
    runs = int(sys.argv[1]) if sys.argv[1:] else 50
    with (
        TemporaryDirectory() as folder,
        serving(Internet(Path(folder), *(each() for each in SERVICES.values()))) as all_,
    ):
        for chosen in SERVICES:
            scenes = [play(all_, chosen, 1000 + number, children=True) for number in range(runs)]
            kills, sent = sum(each.kills for each in scenes), sum(len(s.sent) for each in scenes for s in each.sidecars)
            print(f"{chosen}: {runs} runs, {sent} attempts, {kills} kills: one incident each, closed")  # noqa: T201
