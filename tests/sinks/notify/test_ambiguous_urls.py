"""A URL that Apprise reads otherwise than it was meant is refused by name, and no part of its password is shown or looked up."""

import socket
from pathlib import Path
from typing import Any

import pytest

from sidecar.net.endpoints import Secret, Webhook
from sidecar.sinks.notify import apprise_sender
from sidecar.sinks.notify.http_client import Client
from sidecar.sinks.notify.sender_protocol import Answer
from tests.kit.receivers import apprise, send_by_url
from tests.kit.sidecar_process import command

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

MAIL = "from=a@example.com&to=b@example.com"
SEVERAL_AT = 'has more than one "@" before the host: write each "@" of a user name or password as %40'
SEVERAL_COLONS = 'has more than one ":" before the host: write each ":" of a user name or password as %3A'
ENDS_EARLY = 'has "?" or "#" before the "@": write them as %3F and %23 in a user name or password'
AMBIGUOUS = [
    ("mailto://alice:Winter@SecretTail9@mx.example", SEVERAL_AT),
    ("mailtos://alice:Winter@Secret:Tail9@mx.example", SEVERAL_AT),
    ("mailto://alice:@SecretTail9@mx.example?to=b@example.com", SEVERAL_AT),
    ("json://bob:Winter@SecretTail9@mx.example/hook", SEVERAL_AT),
    ("ntfys://Winter@SecretTail9@mx.example/topic", SEVERAL_AT),
    ("mailto://alice:Winter:SecretTail9@mx.example", SEVERAL_COLONS),
    ("jsons://bob:Winter:SecretTail9@mx.example/hook", SEVERAL_COLONS),
    ("json://SecretTail9?x@mx.example/hook", ENDS_EARLY),
    ("json://SecretTail9#x@mx.example/hook", ENDS_EARLY),
]


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up, all in vain."""
    names: list[str] = []

    def unknown(host: str, *_: object, **__: object) -> list[Any]:
        names.append(host)
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return names


@pytest.mark.parametrize(("url", "why"), AMBIGUOUS)
def test_an_ambiguous_url_is_refused_and_never_tried(looked_up: list[str], url: str, why: str) -> None:
    """The error says what to write instead, and shows nothing of the URL but its service."""
    problem = f"{url.partition(':')[0]}:// {why}"
    assert apprise_sender.problem(apprise(url)) == problem
    assert send_by_url(url, "title", "body", "failure", 5.0) == Answer("undeliverable", problem)
    assert looked_up == []


@pytest.mark.parametrize(
    ("password", "number"),
    [("12;34", 3), ("p&ss", 3), ("p&secret=9", 3), ("p;SecretTail9", 3), ("p&S=9", 3), ("p&%73ecret=x", 3)],
)
def test_the_rest_of_a_password_is_not_an_option(password: str, number: int) -> None:
    """A separator ends it, and Apprise would ignore what follows; that is not shown."""
    url = f"mailto://mx.example?user=a@example.com&pass={password}&{MAIL}"
    assert apprise_sender.problem(apprise(url)) == (
        f"mailto:// has no such option as number {number} of its options (within a value, write & as %26 and ; as %3B): "
        "see https://appriseit.com/services/mailto/"
    )


@pytest.mark.parametrize(
    "url",
    [
        f"mailto://mx.example?user=a@example.com&pass=p%26s%3Bs%40&{MAIL}",
        f"mailto://alice:p&s;s=%40%3A%3F@mx.example?{MAIL}",
        "mailto://mx.example/b@example.com?from=a@example.com&name=flink",
        "json://mx.example/@users/hook?+X-Tok=a&-x=b&:c=d&format=text",
        "json://mx.example/?&&",
        "jsons://bob:secret%3Atail@mx.example:8443/",
        "tgram://123456789:ABCdefghijklmnopqrstuvwxyz123456789/12345",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
    ],
)
def test_what_is_encoded_is_accepted(url: str) -> None:
    """And so is an "@" after the host."""
    assert apprise_sender.problem(apprise(url)) is None


@pytest.mark.parametrize("url", ["json://SecretTail9/x@mx.example/hook", "forms://SecretTail9/x@mx.example"])
def test_a_host_that_may_be_part_of_a_password_is_not_shown(looked_up: list[str], url: str) -> None:
    """A slash in a password ends the host for every reader of URLs."""
    answer = send_by_url(url, "title", "body", "failure", 5.0)
    assert answer.outcome == "failed"
    assert "secrettail9" not in answer.detail.lower()
    assert looked_up


def test_a_webhook_does_not_show_it_either(looked_up: list[str]) -> None:
    """Its URL is read in the same way."""
    webhook = Webhook(Secret("https://SecretTail9/x@mx.example/hook"))
    answer = Client(5.0, secrets=[webhook.url.reveal(), "SecretTail9"]).send(webhook.url.reveal(), b"{}", {})
    assert isinstance(answer, Answer)
    assert answer.detail.startswith("the service did not answer")
    assert looked_up


def test_config_check_names_the_mistake(tmp_path: Path) -> None:
    """With file and line, and without the secret."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"zookeeper: {{quorum: '127.0.0.1:1'}}\nreceivers:\n- name: ops\n  urls: [\"{AMBIGUOUS[0][0]}\"]\n")
    ended = command("config", "check", "--config", str(file))
    assert ended.returncode == 2
    assert f"mailto:// {SEVERAL_AT}" in ended.stdout + ended.stderr
    assert f"{file}:4:" in ended.stdout + ended.stderr
    assert "Secret" not in ended.stdout + ended.stderr
