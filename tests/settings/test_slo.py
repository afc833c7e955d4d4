"""The setting `slo`: of all clusters, and of one of several."""

import pytest

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Objective
from sidecar.settings import SettingsError, load
from tests.settings.conftest import Write

DAY = 24 * 3600 * SECOND


def test_the_objective_of_a_cluster_is_its_own_or_that_of_all(write: Write) -> None:
    """Without either there is none."""
    own = "{zookeeper: {quorum: zk, cluster_id: a}, slo: {leadership: 99.95, window: 7d}}"
    clusters = f"clusters: [{own}, {{zookeeper: {{quorum: zk, cluster_id: b}}}}]\n"
    policy = load(write(f"slo: {{leadership: 99}}\n{clusters}"), {}).policy()
    assert policy.objective_of("a") == Objective(99.95, 7 * DAY)
    assert policy.objective_of("b") == Objective(99.0, 30 * DAY)
    assert load(write(clusters), {}).policy().objective_of("b") is None
    assert load(write("zookeeper: {quorum: zk}\n"), {}).policy().objective_of("default") is None


@pytest.mark.parametrize(
    ("slo", "problem"),
    [
        ("{leadership: 100}", '"100" must be a percentage like 99.9, with at most four decimals'),
        ("{leadership: 0}", '"0" must be more than 0 and less than 100 percent'),
        ("{leadership: 0.0000}", '"0.0000" must be more than 0 and less than 100 percent'),
        ("{leadership: -1}", '"-1" must be a percentage like 99.9'),
        ("{leadership: 99.99999}", "at most four decimals"),
        ("{leadership: nan}", "must be a percentage"),
        ("{leadership: 1e1}", "must be a percentage"),
        ("{window: 30d}", "leadership is missing"),
        ("{leadership: 99, window: 23h}", "window"),
        ("{leadership: 99, window: 91d}", "window"),
        ("{leadership: 99, windows: 1d}", 'unknown key "windows": did you mean "window"?'),
        ("99.9", "must be a mapping"),
    ],
)
def test_an_objective_that_cannot_be_meant_is_refused(write: Write, slo: str, problem: str) -> None:
    """At the top level and in a list, with its line."""
    for text in (
        f"slo: {slo}\nzookeeper: {{quorum: zk}}\n",
        f"clusters: [{{zookeeper: {{quorum: zk}}, slo: {slo}}}]\n",
    ):
        with pytest.raises(SettingsError) as refused:
            load(write(text), {})
        assert problem in str(refused.value)
        assert "sidecar.yaml:1" in str(refused.value)
