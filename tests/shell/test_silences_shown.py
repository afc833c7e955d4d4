"""Silences on the page, in the API and as metrics."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.app import history
from sidecar.core.alerting.silence_document import LONGEST_TEXT
from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import Matcher, Operator
from sidecar.core.views.snapshot import Snapshot
from sidecar.sinks.metrics import SnapshotCollector
from tests.core.alerting.test_silences import SILENCED, silence
from tests.core.drills.test_drills import DRILLING, drill
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar, fail_over, watching
from tests.kit.metric_families import WELL
from tests.shell.reading import Markup, read, show
from tests.shell.remembering import HOSTILE, remember
from tests.shell.site import Site


@pytest.fixture
def silenced() -> Sidecar:
    """One that has hidden a failover that is not over: its job has no leader yet."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.silenced_by(silence(), replace(silence(number=2, starts=-3600, lasts=60), author="bob"))
    fail_over(flink, sidecar).waits(5.5)
    return sidecar


def test_a_silence_as_data(site: Site, silenced: Sidecar) -> None:
    """Who, until when, what it hides and has hidden; those that have ended come last."""
    show(site, silenced)
    active, ended = site.data("/api/v1/silences")
    assert active == {
        "id": silence().id,
        "state": "active",
        "matchers": ['alert!=""'],
        "starts_at": "2026-11-20T08:00:00.000000Z",
        "ends_at": "2026-11-20T10:00:00.000000Z",
        "author": "ann",
        "comment": "upgrade",
        "clusters": [CLUSTER],
        "hides": 0,
        "hid": 3,
        "drill": None,
    }
    assert (ended["id"], ended["state"], ended["author"], ended["hid"]) == (silence(number=2).id, "expired", "bob", 0)
    assert site.get("/api/v1/silences", "POST")[0] == 405


def test_what_a_silence_hides_now(site: Site) -> None:
    """As long as it fires."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.silenced_by(silence())
    sidecar.sees(flink.vacate()).waits(40)
    show(site, sidecar)
    [shown] = site.data("/api/v1/silences")
    assert shown["hides"] == shown["hid"] == 4
    assert 'alert!="" 2026-11-20 10:00:00.000 (in 1 h 58 min) ann : upgrade (00000000) 4 now, 4 in all' in read(site)


def test_a_silence_on_an_alert_that_was_notified_hides_it_everywhere(site: Site) -> None:
    """At once, not only when the alert would have been notified again."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.sees(flink.vacate()).waits(60)
    sidecar.silenced_by(silence())
    sidecar.waits(15)
    show(site, sidecar)
    assert {each["state"] for each in site.data("/api/v1/alerts")} == {"silenced"}
    [shown] = site.data("/api/v1/silences")
    assert shown["hides"] == shown["hid"] == 4


def test_the_command_counts_what_a_silence_hides_now(tmp_path: Path) -> None:
    """Also an alert that was notified before, of which no record says that it is hidden."""
    flink, sidecar = watching(policy=SILENCED)
    sidecar.sees(flink.vacate()).waits(60)
    sidecar.silenced_by(silence())
    sidecar.waits(45)
    remember(tmp_path, sidecar)
    assert history.hidden(tmp_path, SILENCED) == {silence().id: 4}


def test_a_silence_on_the_page(site: Site, silenced: Sidecar) -> None:
    """Only those that hold; and whether they could be read."""
    show(site, silenced)
    page = read(site)
    assert 'Silences Alerts that match are not notified Alerts Until By Hides alert!=""' in page
    assert "bob" not in page
    silenced.silences[CLUSTER] = None
    silenced.waits(20)
    show(site, silenced)
    page = read(site)
    assert "Silences cannot be read" in page
    assert "default : out of reach" in page
    assert "ann" in page
    site.snapshot = replace(site.snapshot, state=replace(site.snapshot.state, silences={}))
    assert "Silences None." in read(site)


def test_hostile_texts_of_a_silence_are_text(site: Site) -> None:
    """They make no markup, and no control character reaches a reader."""
    _, sidecar = watching(policy=SILENCED)
    text = (HOSTILE * 10)[:LONGEST_TEXT]
    matcher = Matcher("alert", Operator.NOT_EQUAL, text)
    sidecar.silenced_by(replace(silence(matcher), author=text[:100], comment=text))
    sidecar.waits(20)
    show(site, sidecar)
    assert len(site.data("/api/v1/silences")) == 1
    status, page = site.get("/")
    assert status == 200
    assert not Markup(page).tags & {"script", "img", "iframe"}
    assert page.replace("\n", "").isprintable()


@pytest.mark.covers("metric:flink_ha_silences", "metric:flink_ha_silences_up")
def test_silences_as_metrics(silenced: Sidecar) -> None:
    """How many are active, and whether they can be read."""

    def samples() -> dict[str, float]:
        snapshot = Snapshot(silenced.moment, silenced.state)
        families = SnapshotCollector(lambda: snapshot, str, lambda: WELL).collect()
        return {s.name: s.value for family in families for s in family.samples if "silences" in s.name}

    assert samples() == {"flink_ha_silences": 1, "flink_ha_silences_up": 1}
    silenced.silences[CLUSTER] = None
    silenced.waits(20)
    assert samples() == {"flink_ha_silences": 1, "flink_ha_silences_up": 0}
    silenced.now += 7200 * SECOND
    assert samples()["flink_ha_silences"] == 0
    assert json.dumps(samples())


def test_a_drill_on_the_page_and_as_data(site: Site) -> None:
    """That it runs, until when, and what it hides; nothing of it once it is over."""
    _, sidecar = watching(policy=DRILLING)
    sidecar.silenced_by(drill())
    sidecar.waits(15)
    show(site, sidecar)
    assert 'Drill in progress of cluster_id="default" until 2026-11-20 08:16:00.000' in read(site)
    [shown] = site.data("/api/v1/silences")
    assert (shown["drill"], shown["state"], shown["author"]) == ("failover", "active", "ann")
    sidecar.waits(900)
    show(site, sidecar)
    assert "Drill in progress" not in read(site)
