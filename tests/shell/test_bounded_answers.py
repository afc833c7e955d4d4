"""Whatever others wrote into the store or the journal, an answer is printable and has a bound in bytes."""

from pathlib import Path

from msgspec import json, to_builtins
from msgspec.structs import replace

from sidecar.core.flink.leadership import Component, ComponentId, Held, LeaderInformation
from sidecar.core.records import record_id
from sidecar.core.state import State
from sidecar.core.views.explain import MOST_BYTES_KEPT, find
from sidecar.core.views.snapshot import Snapshot
from sidecar.sinks.metrics import SnapshotCollector, renderer
from sidecar.web.application import MOST_BYTES
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar, watching
from tests.kit.metric_families import WELL
from tests.shell.reading import show
from tests.shell.remembering import remember, two_failovers
from tests.shell.site import Site

LONG = "pekko.tcp://flink@" + "x" * 65_000
"""An address as older versions believed it."""
ACTING = "http://\x1b[2J\x07\N{RIGHT-TO-LEFT OVERRIDE}\x9b2J\N{ZERO WIDTH SPACE}:8081"
"""An address that acts on a terminal, and hides."""


def led_from(sidecar: Sidecar, address: str, jobs: int = 0) -> State:
    """Each component is led from `address`, and so many jobs more."""
    cluster = sidecar.state.clusters[CLUSTER]
    components = {}
    like = next(state for component, state in cluster.components.items() if component.job_id)
    more = {ComponentId(Component.JOB, f"{n:032x}"): like for n in range(jobs)}
    for component, state in {**cluster.components, **more}.items():
        assert state.last_known
        assert state.last_position
        leader = LeaderInformation(address, state.last_known.session_id)
        components[component] = replace(state, last_known=leader, leadership=Held(leader, state.last_position))
    return replace(sidecar.state, clusters={CLUSTER: replace(cluster, components=components)})


def test_a_journal_of_long_addresses_makes_no_long_answer(tmp_path: Path, site: Site) -> None:
    """Of an older version's journal with 13 MB of addresses each page and each answer is a few megabytes at most, and says what it can."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0]
    moved = next(transition for transition in sidecar.transitions() if transition.episode_id == episode.id)
    long = [replace(moved, id=record_id(n), before_address=LONG, after_address=LONG) for n in range(100)]
    remember(tmp_path, sidecar, [*sidecar.records, *long])
    show(site, sidecar)
    site.snapshot = replace(site.snapshot, state=led_from(sidecar, LONG))
    answers = {
        path: site.get(path)
        for path in (
            "/",
            f"/episodes/{episode.id}",
            f"/api/v1/episodes/{episode.id}",
            "/api/v1/transitions?last=1000",
            "/api/v1/episodes",
            "/api/v1/leaders",
            "/api/v1/alerts",
        )
    }
    assert {status for status, _ in answers.values()} == {200}
    assert {path: len(body) for path, body in answers.items() if len(body) > MOST_BYTES} == {}
    assert max(len(body) for path, body in answers.items() if "/api/" not in path) < 300_000
    details = json.decode(answers[f"/api/v1/episodes/{episode.id}"][1])
    assert 0 < len(details["transitions"]) < details["transitions_total"]
    assert len(json.decode(answers["/api/v1/transitions?last=1000"][1])) == (4 << 20) // len(json.encode(long[0]))


def test_an_answer_that_would_be_too_large_is_refused_in_one_line(site: Site) -> None:
    """A part of the leaders would look like all of them."""
    _, sidecar = watching()
    site.snapshot = Snapshot(sidecar.moment, led_from(sidecar, "x" * 1024, jobs=5_000))
    assert site.get("/api/v1/leaders") == (503, "the answer would be larger than 8 MiB\n")


def test_an_explanation_keeps_a_bounded_part_of_long_records() -> None:
    """The first ones; all are counted, and the messages still have room."""
    sidecar = two_failovers()
    episode = sidecar.episodes()[0]
    moved = next(transition for transition in sidecar.transitions() if transition.episode_id == episode.id)
    long = [replace(moved, id=record_id(n), before_address=LONG) for n in range(100)]
    explained = find([*long, *sidecar.records], episode.id)
    assert sum(len(json.encode(transition)) for transition in explained.transitions) <= MOST_BYTES_KEPT
    assert explained.transitions_total > 100
    assert to_builtins(episode).items() <= to_builtins(explained.episode).items()


def test_json_and_metrics_have_nothing_that_acts_on_a_terminal(site: Site) -> None:
    """JSON keeps its meaning; in labels of metrics, whose format has no escapes, it is replaced."""
    _, sidecar = watching()
    site.snapshot = Snapshot(sidecar.moment, led_from(sidecar, ACTING))
    body = site.get("/api/v1/leaders")[1]
    assert body.isprintable()
    assert {each["leader_address"] for each in json.decode(body)} == {ACTING}
    metrics = renderer(SnapshotCollector(lambda: site.snapshot, lambda _: "zookeeper", lambda: WELL))().decode()
    assert [line for line in metrics.splitlines() if not line.isprintable()] == []
    assert 'leader_address="http://\N{REPLACEMENT CHARACTER}[2J' in metrics
