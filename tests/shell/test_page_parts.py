"""Parts of pages: troubleshooting, the link to Flink's UI, and how receivers are named."""

import re
import tomllib
from pathlib import Path

import pytest

from sidecar.app import checking
from sidecar.core.cluster import advice
from sidecar.core.failover.causes import Cause
from sidecar.core.policy.triggers import Trigger
from sidecar.core.views.leader_view import web_ui
from sidecar.net.endpoints import AppriseUrl, Secret
from sidecar.settings import load
from sidecar.web.templating import receiver
from tests import ROOT
from tests.kit.core_sidecar import watching
from tests.shell.reading import Markup, said, show
from tests.shell.site import Site


def test_troubleshooting_is_a_page(site: Site) -> None:
    """docs/how-to/troubleshooting.md, with the sections that other pages link to; it is in an installed wheel too."""
    page = site.get("/troubleshooting")[1]
    text = said(page)
    assert "FlinkNoLeader Means: a component has had no published leader for 30 s ( on: vacant )." in text
    anchors = set(re.findall(r'<h3 id="([^"]+)">', page))
    assert {advice.anchor(trigger) for trigger in Trigger} | set(map(str, Cause)) <= anchors
    links = {link[1:] for link in Markup(page).links if link.startswith("#")}
    assert links <= {*anchors, *re.findall(r'<h2 id="([^"]+)">', page)}
    assert not re.search(r"[`\[\]]|\*\*", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert shipped["docs/how-to/troubleshooting.md"] == "sidecar/web/troubleshooting.md"


def test_the_link_to_flinks_ui_is_a_plain_url(site: Site) -> None:
    """The address of the leading REST server, which a cluster's store may hold anything for."""
    _, sidecar = watching()
    show(site, sidecar)
    assert "http://jm-a:8081" in Markup(site.get("/")[1]).links
    for address in (
        "javascript:alert(1)",
        'http://jm-a:8081/"onclick=1',
        "http://user:secret@jm-a/",
        "ftp://jm-a",
        "http://",
    ):
        assert web_ui(address) is None
    assert web_ui("https://[fd00::1]:8081") == "https://[fd00::1]:8081"


@pytest.mark.parametrize(
    ("destination", "shown"),
    [
        ("ops#0", "slack <bdi>ops</bdi> (number 1)"),
        ("ops#1", "mailtos <bdi>ops</bdi> (number 2)"),
        ("desk#0", "webhook <bdi>desk</bdi>"),
        ("gone#0", "<bdi>gone</bdi>"),
        ("oncall", "<bdi>oncall</bdi>"),
    ],
)
def test_a_receiver_is_shown_by_its_service_and_name(destination: str, shown: str) -> None:
    """With a number only where it has several; one that is no longer configured by its name."""
    assert receiver(destination, {"ops#0": "slack", "ops#1": "mailtos", "desk#0": "webhook"}) == shown


def test_the_service_of_a_receiver_is_no_secret(tmp_path: Path) -> None:
    """Only Apprise's own name of it, never what may be a token."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "receivers: [{name: a, urls: ['Slack://token/in/it', 'tgram://x'], webhook: {url: 'http://h/x'}}]\n"
    )
    services = load(file, {"zookeeper": "zk"}).policy().services()
    assert services == {"a#0": "slack", "a#1": "tgram", "a#2": "webhook"}
    assert AppriseUrl(Secret("aSecretWithoutAnyScheme")).service == ""


def test_the_service_of_its_own_url_is_shown_by_its_name(tmp_path: Path) -> None:
    """As a sidecar and the commands that show it know it: Apprise is asked once, for all that only it can know."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "receivers: [{name: a, urls: ['https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/T0kenInPathT0kenInPath12', 'json://x']}]\n"
    )
    settings = load(file, {"zookeeper": "zk"})
    assert settings.policy().services() == {"a#0": "https", "a#1": "json"}
    checked, mistakes = checking.checked(settings)
    assert mistakes == []
    for known in (checked, checking.identified(settings)):
        assert known.policy().services() == {"a#0": "slack", "a#1": "json"}
        assert [destination.service for destination in known.receivers[0].destinations()] == ["slack", "json"]
