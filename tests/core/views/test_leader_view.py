"""Since when: what nobody saw begin has no beginning, and our own start is none."""

from sidecar.core.moment import timestamp
from sidecar.core.views.leader_view import Leader, leaders
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import DISPATCHER, REST_SERVER, A
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.fake_flink import Flink


def of(sidecar: Sidecar) -> dict[str, Leader]:
    rows = leaders(Snapshot(sidecar.moment, sidecar.state))
    return {leader.component: leader for leader in rows if leader.job_id is None}


def test_a_vacancy_that_was_there_before_has_no_beginning() -> None:
    """Seen to begin, it has one; seen for the first time, also after a restart, it has been so since before."""
    flink, sidecar = watching()
    flink.vacate(DISPATCHER)
    began = timestamp(sidecar.now)
    sidecar.sees_changes()
    dispatcher = of(sidecar)["dispatcher"]
    assert (dispatcher.state, dispatcher.since, dispatcher.observed_since) == ("vacant", began, began)
    sidecar.is_killed(down_for=5)
    again = timestamp(sidecar.now)
    sidecar.connects()
    dispatcher = of(sidecar)["dispatcher"]
    assert (dispatcher.state, dispatcher.since) == ("vacant", None)
    assert dispatcher.observed_since >= again


def test_a_leader_that_was_there_before_has_led_since_it_wrote_itself() -> None:
    """ZooKeeper knows when that was."""
    flink = Flink().elect(A)
    sidecar = Sidecar(flink).connects()
    node = flink.znodes.tree.nodes[flink.znodes.path(REST_SERVER)]
    assert of(sidecar)["rest_server"].since == timestamp(node.position.mtime * 1000)
