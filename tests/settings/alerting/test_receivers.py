"""Endpoints of receivers: each kind is read in full, and what is wrong with one is a line without its secret."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Feed
from sidecar.core.policy.routing import FEED_INTERVAL
from sidecar.net.endpoints import Alertmanager, AppriseUrl, Endpoint, Secret, Slack, Webhook
from sidecar.settings import SettingsError, load
from sidecar.settings.loader import read_rules
from tests.kit.certificates import Authority
from tests.kit.sidecar_process import command
from tests.settings.conftest import Write

TOKEN = "xoxb-1234567890-s3cret"


def endpoints(write: Write, text: str) -> dict[str, Endpoint]:
    """What a configuration with one receiver leads to."""
    return load(write(f"receivers:\n- name: ops\n  {text}\n"), {"zookeeper": "zk"}).endpoints()


def test_the_urls_of_a_receiver_come_first(write: Write) -> None:
    """Deliveries that were queued before a webhook was added keep their destination."""
    urls = endpoints(
        write,
        f"slack: {{token: {TOKEN}, channel: C0123456789}}\n  webhook: {{url: 'https://h/p'}}\n  urls: ['json://a', 'json://b']",
    )
    assert urls == {
        "ops#0": AppriseUrl(Secret("json://a")),
        "ops#1": AppriseUrl(Secret("json://b")),
        "ops#2": Webhook(Secret("https://h/p")),
        "ops#3": Slack(Secret(TOKEN), "C0123456789", "https://slack.com/api"),
    }
    assert "s3cret" not in repr(urls)
    assert "json:" not in repr(urls)


def test_a_webhook_has_all_its_settings(write: Write, tmp_path: Path) -> None:
    """Secrets may be in files of their own."""
    (tmp_path / "key").write_text("s3cret\n")
    webhook = "{url: 'https://h:8443/p?x=1', hmac_secret: 'file:key', username: flink, password: 'p:w'}"
    assert endpoints(write, f"webhook: {webhook}") == {
        "ops#0": Webhook(Secret("https://h:8443/p?x=1"), Secret("s3cret"), username="flink", password=Secret("p:w"))
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("webhook: {}", "FILE:3: receivers[0].webhook: url is missing"),
        ("webhook: {url: 'ftp://s3cret'}", "FILE:3: receivers[0].webhook.url: is not an http:// or https:// URL"),
        ("webhook: {url: 'https://h/s3c ret'}", "FILE:3: receivers[0].webhook.url: is not an http:// or https:// URL"),
        ("webhook: {url: 'https://h:s3cret/'}", "FILE:3: receivers[0].webhook.url: is not an http:// or https:// URL"),
        (
            "webhook: {url: 'https://u:s3cret@h/'}",
            "FILE:3: receivers[0].webhook.url: has credentials before the host: give them as keys of their own",
        ),
        (
            "webhook: {url: 'https://h', username: u}",
            "FILE:3: receivers[0].webhook.username: needs password: give it too, or remove this",
        ),
        (
            "webhook: {url: 'https://h', username: u, password: p, bearer_token: s3cret}",
            "FILE:3: receivers[0].webhook.bearer_token: is for requests without username: remove one of the two",
        ),
        (
            "webhook: {url: 'https://h', bearer_token: 's3 cret'}",
            "FILE:3: receivers[0].webhook.bearer_token: must be 1 to 4096 printable ASCII characters without blanks",
        ),
        (
            "webhook: {url: 'https://h', username: 'a:b', password: s3cret}",
            'FILE:3: receivers[0].webhook.username: "a:b" has a colon, which no user name of basic authentication may have',
        ),
        ("webhook: {url: 'https://h', ca_fil: x}", 'FILE:3: unknown key "ca_fil": did you mean "ca_file"?'),
        (
            "slack: {token: xoxp-s3cret-s3cret, channel: C0123456789}",
            "FILE:3: receivers[0].slack.token: is not the token of a bot: it begins with xoxb-",
        ),
        (
            f"slack: {{token: {TOKEN}, channel: ops}}",
            'FILE:3: receivers[0].slack.channel: "ops" must be the id of a channel, like C0123456789: see its details in Slack',
        ),
        (f"slack: {{token: {TOKEN}}}", "FILE:3: receivers[0].slack: channel is missing"),
        ("alertmanager: {}", "FILE:3: receivers[0].alertmanager: url is missing"),
        (
            "alertmanager: {url: 'http://am/api/v2/alerts'}",
            "FILE:3: receivers[0].alertmanager.url: must be where the Alertmanager is, like http://alertmanager:9093: leave the rest out",
        ),
        (
            "alertmanager: {url: 'http://am', event_duration: 10s}",
            'FILE:3: receivers[0].alertmanager.event_duration: "10s" is too short: give at least 1m',
        ),
        (
            "alertmanager: {url: 'http://am', certificate_file: x}",
            "FILE:3: receivers[0].alertmanager.certificate_file: needs key_file: give it too, or remove this",
        ),
        (
            "alertmanager: {url: 'http://am'}\n  send_resolved: false",
            "FILE:4: receivers[0].send_resolved: is not for a receiver with alertmanager: give it a receiver of its own",
        ),
        (
            "alertmanager: {url: 'http://am'}\n  urls: ['json://s3cret']",
            "FILE:4: receivers[0].urls: is not for a receiver with alertmanager: give it a receiver of its own",
        ),
    ],
)
def test_what_is_wrong_is_one_line_without_a_secret(write: Write, tmp_path: Path, text: str, problem: str) -> None:
    """It names the place."""
    with pytest.raises(SettingsError) as caught:
        endpoints(write, text)
    assert str(caught.value).replace(str(tmp_path / "sidecar.yaml"), "FILE") == problem


def test_a_ca_file_must_exist(write: Write, tmp_path: Path) -> None:
    """It is read at once, so that a mistake is known at the start."""
    with pytest.raises(SettingsError, match=r"webhook\.ca_file: .*ca\.pem cannot be read: No such file or directory"):
        endpoints(write, "webhook: {url: 'https://h', ca_file: ca.pem}")


def test_every_alertmanager_is_a_destination_that_is_fed(write: Write, tmp_path: Path) -> None:
    """With the settings of all, and a route that notifies of changes soon and repeats nothing."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("sidecar")
    own = f"certificate_file: {certificate}, key_file: {key}"
    settings = load(
        write(
            "route: {receiver: am, group_interval: 1h, routes: [{receiver: ops, matchers: ['severity=\"info\"']}]}\n"
            "receivers:\n- {name: ops, urls: ['json://a']}\n"
            "- name: am\n"
            f"  alertmanager: {{urls: ['http://a:9093/', 'https://b/p'], bearer_token: s3cret, event_duration: 5m, {own}}}\n"
        ),
        {"zookeeper": "zk"},
    )
    first = Alertmanager(Secret("http://a:9093"), str(certificate), str(key), bearer_token=Secret("s3cret"))
    assert settings.endpoints() == {
        "ops#0": AppriseUrl(Secret("json://a")),
        "am#0": first,
        "am#1": replace(first, url=Secret("https://b/p")),
    }
    policy = settings.policy()
    assert [each.feed for each in policy.receivers["am"]] == [Feed(300 * SECOND)] * 2
    assert [feed.name for feed in policy.feeds()] == ["am#0", "am#1"]
    assert policy.route.group_interval == FEED_INTERVAL
    assert policy.route.routes[0].group_interval == 3600 * SECOND
    assert "s3cret" not in repr(settings)


NOBODY = "route: {receiver: 'null', routes: [{receiver: ops, matchers: ['severity=\"critical\"']}]}\n"


def test_a_receiver_with_nothing_but_a_name_notifies_nobody(write: Write) -> None:
    """Alertmanager's way for alerts that nobody wants."""
    file = write(f"{NOBODY}receivers:\n- name: 'null'\n- {{name: ops, urls: ['json://a']}}\n")
    settings = load(file, {"zookeeper": "zk"})
    assert settings.policy().receivers["null"] == ()
    assert [*settings.endpoints()] == ["ops#0"]
    assert read_rules(file).policy_for("pod", {}).receivers["null"] == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            "{name: 'null', urls: []}",
            "the receiver has no endpoint: give it at least one of urls, webhook, slack, alertmanager",
        ),
        ("{name: 'null', heartbeat: 1m}", "heartbeat: is for a receiver with an endpoint: give it one, or remove this"),
    ],
)
def test_a_receiver_that_was_meant_to_notify_has_an_endpoint(write: Write, entry: str, problem: str) -> None:
    """An empty list, which a template may leave, is not taken for one that notifies nobody."""
    with pytest.raises(SettingsError, match=problem):
        load(write(f"{NOBODY}receivers:\n- {entry}\n- {{name: ops, urls: ['json://a']}}\n"), {"zookeeper": "zk"})


@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
@pytest.mark.parametrize("password", ["correct horse", " blanks ", "pässwörd", "密码", "a:b", "p$ss%&;#"])
def test_a_password_is_any_text(write: Write, kind: str, password: str) -> None:
    """RFC 7617 sends it as UTF-8."""
    text = f"{kind}: {{url: 'http://h', username: 'jürgen m', password: '{password}'}}"
    endpoint = endpoints(write, text)["ops#0"]
    assert isinstance(endpoint, Webhook | Alertmanager)
    assert (endpoint.username, endpoint.password) == ("jürgen m", Secret(password))


@pytest.mark.parametrize("password", ["''", "'file:gone'", '"a\\tb"', f"'{'x' * 4097}'"])
@pytest.mark.parametrize("kind", ["webhook", "alertmanager"])
def test_a_wrong_password_is_one_mistake(write: Write, tmp_path: Path, kind: str, password: str) -> None:
    """The user name does not lack it."""
    file = write(f"receivers:\n- name: ops\n  {kind}: {{url: 'http://h', username: u, password: {password}}}\n")
    ended = command("config", "check", "--config", str(file), "--zookeeper", "zk", "--state-dir", str(tmp_path))
    [line] = (line for line in ended.stderr.splitlines() if "receivers" in line)
    assert f"{kind}.password: " in line
