"""Endpoints of receivers: each kind is read in full, and what is wrong with one is a line without its secret."""

from pathlib import Path

import pytest

from sidecar.endpoints import AppriseUrl, Endpoint, Slack, Webhook
from sidecar.secret import Secret
from sidecar.settings import SettingsError, load
from tests.settings.conftest import Write

TOKEN = "xoxb-1234567890-s3cret"


def endpoints(write: Write, text: str) -> dict[str, Endpoint]:
    """What a configuration with one receiver leads to."""
    return load(write(f"receivers:\n- name: ops\n  {text}\n"), {"zookeeper": "zk"}).endpoints()


def test_the_urls_of_a_receiver_come_first(write: Write) -> None:
    """Deliveries that were queued before a webhook was added keep their destination."""
    found = endpoints(
        write,
        f"slack: {{token: {TOKEN}, channel: '#ops'}}\n  webhook: {{url: 'https://h/p'}}\n  urls: ['json://a', 'json://b']",
    )
    assert found == {
        "ops#0": AppriseUrl(Secret("json://a")),
        "ops#1": AppriseUrl(Secret("json://b")),
        "ops#2": Webhook(Secret("https://h/p")),
        "ops#3": Slack(Secret(TOKEN), "#ops", "https://slack.com/api"),
    }
    assert "s3cret" not in repr(found)
    assert "json:" not in repr(found)


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
        (
            "webhook: {url: 'https://h', ca_fil: x}",
            'FILE:3: unknown key "ca_fil": did you mean "ca_file"?',
        ),
        (
            "slack: {token: xoxp-s3cret-s3cret, channel: '#ops'}",
            "FILE:3: receivers[0].slack.token: is not the token of a bot: it begins with xoxb-",
        ),
        (
            f"slack: {{token: {TOKEN}, channel: ops}}",
            'FILE:3: receivers[0].slack.channel: "ops" must be a channel like #alerts, or its id like C0123456789',
        ),
        (f"slack: {{token: {TOKEN}}}", "FILE:3: receivers[0].slack: channel is missing"),
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
