"""The section `evidence`: what is captured at a failover, and what becomes of the files."""

import traceback
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.core.policy.policy import Source, Store
from sidecar.settings import Secret, SettingsError, TlsSettings, load
from sidecar.settings.file.durations import DAY, HOUR, SECOND
from sidecar.settings.loader import read_rules
from sidecar.settings.model import EvidenceSettings
from tests.kit.certificates import Authority
from tests.settings.conftest import Write

SECRET = "xoxbHUNTER2"
BOTH = frozenset({Source.PROCESSES, Source.FLINK_REST})


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Makes certificates."""
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


def evidence(config: Path) -> EvidenceSettings:
    """What a configuration says of it; no secret of it shows."""
    settings = load(config, {"zookeeper": "zk"})
    assert SECRET not in repr(settings)
    return settings.evidence


def error_of(config: Path) -> str:
    """The line, in which no secret shows, nor in the traceback that --debug shows."""
    with pytest.raises(SettingsError) as error:
        load(config, {"zookeeper": "zk"})
    assert SECRET not in "".join(traceback.format_exception(error.value))
    return str(error.value).replace(str(config), "FILE").replace(str(config.parent), "DIR")


def test_flink_s_rest_server_alone_is_asked_unless_more_is_said(write: Write, tmp_path: Path) -> None:
    """No process is touched. The limits are there all the same."""
    folder, rest = Path("/var/lib/flink-ha-sidecar/evidence"), frozenset({Source.FLINK_REST})
    default = EvidenceSettings(rest, folder, 7 * DAY / SECOND, 200_000_000)
    settings = load(None, {"zookeeper": "zk"})
    assert (settings.evidence, settings.policy().evidence) == (default, rest)
    assert evidence(write("evidence: {}\n")) == default
    assert evidence(write("evidence: {capture: []}\nstate_dir: state\n")) == replace(
        default, folder=tmp_path / "state" / "evidence"
    )


def test_the_folder_is_in_the_state_folder_wherever_that_was_named(write: Write) -> None:
    """On the command line too."""
    settings = load(write("state_dir: /from/file\n"), {"zookeeper": "zk", "state_dir": "/from/line"})
    assert settings.evidence.folder == Path("/from/line/evidence")


def test_everything_that_can_be_said(write: Write, tmp_path: Path, authority: Authority) -> None:
    """Both sources, a folder of its own, limits, TLS with a secret from a file; relative paths begin at the file they stand in."""
    certificate, key = authority.issue("me", password=SECRET)
    for name, source in {"ca.pem": authority.ca, "me.pem": certificate, "me.key": key}.items():
        (tmp_path / name).write_text(source.read_text())
    (tmp_path / "password").write_text(f"{SECRET}\n")
    config = write("""
        evidence:
          capture: [processes, flink_rest]
          dir: found
          keep: 1d12h
          keep_megabytes: 5
          tls: {ca_file: ca.pem, certificate_file: me.pem, key_file: me.key, key_password: "file:password"}
        """)
    tls = TlsSettings(tmp_path / "ca.pem", tmp_path / "me.pem", tmp_path / "me.key", Secret(SECRET))
    assert evidence(config) == EvidenceSettings(BOTH, tmp_path / "found", 36 * HOUR / SECOND, 5_000_000, tls)
    assert load(config, {"zookeeper": "zk"}).policy().evidence == BOTH


def test_how_often_flink_is_asked_reaches_the_policy(write: Write) -> None:
    """And how long a recovery is assessed; by default every ten seconds, for ten minutes."""
    for text, expected in (("interval: 5s, patience: 2m", (5, 120)), ("", (10, 600))):
        config = write(f"evidence: {{capture: [flink_rest], flink_rest: {{{text}}}}}\n")
        policy = load(config, {"zookeeper": "zk"}).policy()
        assert (policy.picture_interval, policy.recovery_patience) == tuple(each * SECOND for each in expected)


def test_flink_s_rest_server_can_be_left_alone(write: Write) -> None:
    """By one word; `auto` is the default, and so is what a list of sources does not name."""
    for text, sources in (
        ("{flink_rest: never}", set()),
        ("{flink_rest: never, capture: [processes]}", {Source.PROCESSES}),
        ("{flink_rest: auto}", {Source.FLINK_REST}),
        ("{capture: [processes]}", BOTH),
    ):
        assert load(write(f"evidence: {text}\n"), {"zookeeper": "zk"}).policy().evidence == sources


def test_a_folder_may_have_the_observer_s_name(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that several share a volume."""
    monkeypatch.setenv("POD_NAME", "jm-0")
    assert evidence(write("evidence: {dir: '/evidence/${POD_NAME}'}\n")).folder == Path("/evidence/jm-0")


def test_empty_tls_is_tls_with_the_cas_of_this_system(write: Write) -> None:
    """As for ZooKeeper."""
    assert evidence(write("evidence: {tls: {}}\n")).tls == TlsSettings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("capture: [process]", 'evidence.capture[0]: "process" is unknown: did you mean "processes"?'),
        (
            "capture: [heap]",
            'evidence.capture[0]: "heap" is unknown: expected one of flink_rest, leader_thread_dump, processes',
        ),
        ("capture: processes", "evidence.capture: must be a list"),
        ("capture: [processes, flink_rest, processes]", "evidence.capture: names a source twice"),
        ("flink_rest: always", 'evidence.flink_rest: "always" is unknown: expected one of auto, never'),
        (
            "capture: [flink_rest], flink_rest: never",
            "evidence.flink_rest: says never, and capture names it: remove one of the two",
        ),
        ("flink_rest: {interval: 1s}", 'evidence.flink_rest.interval: "1s" is too short: give at least 2s'),
        ("flink_rest: {interval: 11m}", 'evidence.flink_rest.interval: "11m" is too long: give at most 10m'),
        ("flink_rest: {patience: 59s}", 'evidence.flink_rest.patience: "59s" is too short: give at least 1m'),
        ("flink_rest: {patience: 2h}", 'evidence.flink_rest.patience: "2h" is too long: give at most 1h'),
        ("dir: ''", "evidence.dir: is empty: give a path"),
        ("log: /opt/flink/log", "evidence.log: is read when a JobManager ends, which takes capture: [processes]"),
        ("keep: 59m", 'evidence.keep: "59m" is too short: give at least 1h'),
        ("keep: 366d", 'evidence.keep: "366d" is too long: give at most 52w1d'),
        ("keep: 7", 'evidence.keep: "7" is not a duration: write it like "10s", "1h30m" or "250ms"'),
        ("keep_megabytes: 0", 'evidence.keep_megabytes: "0" is not a whole number from 1 to 100000'),
        ("keep_megabytes: 100001", 'evidence.keep_megabytes: "100001" is not a whole number from 1 to 100000'),
        ("tls: true", "evidence.tls: must be a mapping of keys to values"),
        ("tls: {ca_file: gone.pem}", 'evidence.tls.ca_file: "gone.pem" cannot be read: No such file or directory'),
        ("tls: {ca_file: sidecar.yaml}", "evidence.tls: FILE has no certificate in PEM format"),
        (
            "tls: {key_password: xoxbHUNTER2}",
            "evidence.tls.key_password: needs certificate_file: give it too, or remove this",
        ),
        (
            "tls: {key_password: 'file:gone'}",
            'evidence.tls.key_password: "file:gone" cannot be read: No such file or directory',
        ),
        ("tls: {key_password: '${GONE}'}", "evidence.tls.key_password: the environment variable GONE is not set"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(write: Write, text: str, message: str) -> None:
    """What is wrong, and what there is."""
    assert error_of(write(f"evidence: {{{text}}}\n")) == f"FILE:1: {message}"


def test_the_log_is_a_path_beside_the_configuration(write: Write, tmp_path: Path) -> None:
    """As every path; without it no log is read."""
    assert evidence(write("evidence: {capture: [processes], log: flink/log}\n")).log == tmp_path / "flink/log"
    assert evidence(write("evidence: {capture: [processes]}\n")).log is None


def test_an_unknown_key_is_reported_with_what_was_meant(write: Write) -> None:
    """In the section and in its TLS."""
    assert error_of(write("evidence: {folder: x}\n")).startswith(
        'FILE:1: unknown key "folder": expected one of capture, dir'
    )
    assert error_of(write("evidence: {tls: {cafile: x}}\n")) == 'FILE:1: unknown key "cafile": did you mean "ca_file"?'


@pytest.mark.parametrize(
    ("folder", "key"),
    [
        *(("state", "state_dir"), ("state/../state", "state_dir"), ("link", "state_dir")),
        *((".", "state_dir"), ("/", "state_dir"), ("spool", "spool.url")),
    ],
)
def test_old_evidence_is_removed_from_a_folder_of_its_own(write: Write, tmp_path: Path, folder: str, key: str) -> None:
    """Not where the journal or the spool is, by whatever name."""
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    config = write(f"state_dir: state\nspool: {{url: {tmp_path}/spool}}\nevidence:\n  dir: {folder}\n")
    assert error_of(config) == (
        f"FILE:4: evidence.dir: old evidence is removed from it, and {key} is the same folder or in it: give another"
    )


def test_a_folder_beside_them_is_its_own(write: Write, tmp_path: Path) -> None:
    """Or in them; and a spool in an object store is in no folder."""
    for folder in ("state/found", "spool-found"):
        config = write(f"state_dir: state\nspool: {{url: {tmp_path}/spool}}\nevidence: {{dir: {folder}}}\n")
        assert evidence(config).folder == tmp_path / folder
    assert evidence(write("spool: {url: 's3://bucket/spool'}\nevidence: {dir: found}\n")).folder == tmp_path / "found"


def test_a_rehearsal_captures_nothing(write: Write) -> None:
    """`rules test` and `replay` take the whole configuration, and there is nothing that they could look at."""
    rules = read_rules(write("evidence: {capture: [processes, flink_rest], tls: {ca_file: not-here.pem}}\n"))
    assert rules.policy_for("observer", {"default": Store.ZOOKEEPER}).evidence == frozenset()
