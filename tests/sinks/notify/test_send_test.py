"""`alert send-test` sends like an alert, and shows the operator whether the message arrived."""

from pathlib import Path

import pytest

from tests.kit.sidecar_process import command
from tests.lab.processes import free_port
from tests.lab.receivers import HttpReceiver, MailReceiver

SECRET = "xoxb-very-secret"


@pytest.fixture
def config(web: HttpReceiver, mail: MailReceiver, tmp_path: Path) -> Path:
    """Two receivers: `ops` with a webhook and a mailbox, `oncall` with a webhook that does not answer."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"""
zookeeper: {{quorum: "127.0.0.1:{free_port()}"}}
observer: pod-1
route: {{receiver: ops}}
receivers:
  - name: ops
    urls: ["{web.url}", "{mail.url}"]
  - name: oncall
    urls: ["json://{SECRET}@127.0.0.1:{free_port()}/"]
""")
    return file


@pytest.mark.covers("command:alert send-test", "receiver:urls")
def test_every_destination_gets_a_message_that_is_called_a_test(
    config: Path, web: HttpReceiver, mail: MailReceiver
) -> None:
    """It names the sidecar that sent it. If one does not arrive, the line has the reason, and the status is 1."""
    ended = command("alert", "send-test", "--config", str(config))

    *delivered, failed = ended.stdout.splitlines()
    assert delivered == ["ops#0  delivered", "ops#1  delivered"]
    assert failed.startswith("oncall#0  failed: ")
    assert "Connection refused" in failed
    assert SECRET not in ended.stdout + ended.stderr
    assert (ended.returncode, ended.stderr) == (1, "")
    for message in (*web.received, *mail.received):
        assert message.title == "[TEST] default: a test message, nothing happened"
        assert "observer: pod-1" in message.body.splitlines()
    assert "receiver: ops#0" in web.received[0].body.splitlines()
    assert "receiver: ops#1" in mail.received[0].body.splitlines()


def test_only_named_receivers_get_one(config: Path, web: HttpReceiver, mail: MailReceiver) -> None:
    """All of them arrived: the status is 0."""
    ended = command("alert", "send-test", "--config", str(config), "--receiver", "ops")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ops#0  delivered\nops#1  delivered\n", "")
    assert (len(web.received), len(mail.received)) == (1, 1)


def test_the_answer_of_the_service_is_printed(config: Path, web: HttpReceiver) -> None:
    """So that a wrong token is found before it matters."""
    web.status = 403
    ended = command("alert", "send-test", "--config", str(config), "--receiver", "ops")
    refused, delivered = ended.stdout.splitlines()
    assert refused.startswith("ops#0  rejected: ")
    assert "403" in refused
    assert delivered == "ops#1  delivered"
    assert ended.returncode == 1


def test_a_receiver_that_is_not_known_is_one_line(config: Path, web: HttpReceiver) -> None:
    """It names the nearest one; nothing is sent, also not to those that are known."""
    ended = command("alert", "send-test", "--config", str(config), "--receiver", "ops", "--receiver", "oncal")
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert 'no receiver is called "oncal"; did you mean "oncall"?' in line
    assert web.received == []


@pytest.mark.parametrize(
    ("receivers", "message"),
    [
        ("[]", "none is configured"),
        (f"[{{name: ops, urls: ['nonsense://{SECRET}@host/x']}}]", "no service is called nonsense://"),
        ("[{name: ops, ulrs: []}]", "urls"),
    ],
    ids=["nobody", "no such service", "unknown key"],
)
def test_a_configuration_without_receivers_is_one_line(receivers: str, message: str, tmp_path: Path) -> None:
    """The status is 2, and no secret is in it."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"zookeeper: {{quorum: '127.0.0.1:1'}}\nreceivers: {receivers}\n")
    ended = command("alert", "send-test", "--config", str(file))
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert message in line
    assert SECRET not in line


def test_a_receiver_that_notifies_nobody_has_nothing_to_test(config: Path) -> None:
    """If it is the only one that was named, that is said; with others it is left out."""
    config.write_text(config.read_text() + "  - name: nobody\n")
    alone = command("alert", "send-test", "--config", str(config), "--receiver", "nobody")
    among = command("alert", "send-test", "--config", str(config), "--receiver", "nobody", "--receiver", "ops")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "nobody: notifies nobody" in alone.stderr
    assert (among.returncode, among.stdout) == (0, "ops#0  delivered\nops#1  delivered\n")
