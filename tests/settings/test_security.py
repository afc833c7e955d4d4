"""How the connection to ZooKeeper is secured: what is said, where, and that no secret of it is ever shown."""

import logging
import os
import ssl
import traceback
from pathlib import Path
from unittest.mock import patch

import pytest

from sidecar.settings import SaslSettings, Secret, SettingsError, TlsSettings, ZooKeeperSettings, load, load_cluster
from tests.kit.certificates import Authority
from tests.settings.conftest import Write, in_zookeeper

SECRET = "xoxbHUNTER2"
AUTHORIZATION = "high-availability.zookeeper.client.authorization"
FLINK = "high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: zk\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Makes certificates."""
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)


def zookeeper(config: Path) -> ZooKeeperSettings:
    """What a configuration says of it; no secret of it shows."""
    settings = in_zookeeper(load(config, {}).clusters[0])
    assert SECRET not in repr(settings)
    return settings


def error_of(config: Path) -> str:
    """The line, in which no secret shows, nor in the traceback that --debug shows."""
    with pytest.raises(SettingsError) as error:
        load(config, {})
    assert SECRET not in "".join(traceback.format_exception(error.value))
    return str(error.value).replace(str(config), "FILE").replace(str(config.parent), "DIR")


def flink_conf(folder: Path, text: str, name: str = "config.yaml") -> dict[str, str]:
    """What Flink's configuration authorizes with."""
    (folder / name).write_text(FLINK + text)
    settings = in_zookeeper(load_cluster({"flink_conf": folder}))
    assert SECRET not in repr(settings)
    return {scheme: secret.reveal() for scheme, secret in settings.authorization.items()}


# -- our own configuration ---------------------------------------------------------------------------------------------


def test_nothing_is_secured_unless_it_is_said(write: Write) -> None:
    """As with Flink."""
    settings = zookeeper(write("zookeeper: {quorum: zk}\n"))
    assert (settings.tls, settings.sasl, settings.authorization) == (None, None, {})


def test_everything_that_can_be_said(write: Write, tmp_path: Path, authority: Authority) -> None:
    """Secrets from the environment and from files; relative paths begin at the file they stand in."""
    certificate, key = authority.issue("me", password=SECRET)
    for name, source in {"ca.pem": authority.ca, "me.pem": certificate, "me.key": key}.items():
        (tmp_path / name).write_text(source.read_text())
    (tmp_path / "password").write_text(f"{SECRET}\n")
    text = """
        zookeeper:
          quorum: zk
          tls: {ca_file: ca.pem, certificate_file: me.pem, key_file: me.key, key_password: "file:password"}
          sasl: {username: me, password: "file:password"}
          authorization: {digest: "me:${PASSWORD}"}
        """
    settings = zookeeper(write(text))
    assert settings.tls == TlsSettings(tmp_path / "ca.pem", tmp_path / "me.pem", tmp_path / "me.key", Secret(SECRET))
    assert settings.sasl == SaslSettings("me", Secret(SECRET))
    assert settings.authorization == {"digest": Secret(f"me:{SECRET}")}


def test_empty_tls_is_tls_with_the_cas_of_this_system(write: Write) -> None:
    """And only with a CA of one's own are those not trusted; the server is always verified, and its host's name."""
    tls = zookeeper(write("zookeeper: {quorum: zk, tls: {}}\n")).tls
    assert tls == TlsSettings()
    context = tls.context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_ca_of_ones_own_takes_the_place_of_the_systems(authority: Authority) -> None:
    """Who has a CA for ZooKeeper does not want a certificate of any other to do."""
    (only,) = TlsSettings(authority.ca).context().get_ca_certs()
    assert only["subject"] == ((("commonName", "ca"),),)


def test_the_key_may_stand_in_the_file_of_its_certificate(write: Write, tmp_path: Path, authority: Authority) -> None:
    """As many tools write it."""
    certificate, key = authority.issue("both")
    (tmp_path / "both.pem").write_text(key.read_text() + certificate.read_text())
    tls = zookeeper(write("zookeeper: {quorum: zk, tls: {certificate_file: both.pem}}\n")).tls
    assert tls == TlsSettings(certificate_file=tmp_path / "both.pem")


def test_a_cluster_of_flinks_configuration_is_secured_in_the_same_way(write: Write, conf_dir: Path) -> None:
    """What is said beside the folder completes it, and has precedence."""
    (conf_dir / "config.yaml").write_text(FLINK + f"{AUTHORIZATION}: {{digest: 'flink:x', other: y}}\n")
    text = f"""
        flink_conf_dir: {conf_dir}
        zookeeper: {{tls: {{}}, sasl: {{username: me, password: "${{PASSWORD}}"}}, authorization: {{digest: "me:${{PASSWORD}}"}}}}
        """
    settings = zookeeper(write(text))
    assert (settings.tls, settings.sasl) == (TlsSettings(), SaslSettings("me", Secret(SECRET)))
    assert settings.authorization == {"digest": Secret(f"me:{SECRET}"), "other": Secret("y")}


def test_credentials_are_for_the_cluster_that_they_stand_beside(write: Write, conf_dir: Path) -> None:
    """Who names another cluster on the command line does not send them there."""
    config = write("zookeeper: {quorum: zk, tls: {}, sasl: {username: me, password: '${PASSWORD}'}}\n")
    settings = in_zookeeper(load(config, {"flink_conf": conf_dir}).clusters[0])
    assert (settings.tls, settings.sasl) == (None, None)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("tls: {cafile: x}", 'FILE:1: unknown key "cafile": did you mean "ca_file"?'),
        ("sasl: {user: x}", 'FILE:1: unknown key "user": did you mean "username"?'),
        ("authorization: {digset: '${PASSWORD}'}", 'FILE:1: unknown key "digset": did you mean "digest"?'),
        ("tsl: {}", 'FILE:1: unknown key "tsl": did you mean "tls"?'),
        ("tls: true", "FILE:1: zookeeper.tls: must be a mapping of keys to values"),
        ("tls: ~", "FILE:1: zookeeper.tls: must be a mapping of keys to values"),
        ("sasl: '${PASSWORD}'", "FILE:1: zookeeper.sasl: must be a mapping of keys to values"),
        ("sasl: {password: '${PASSWORD}'}", "FILE:1: zookeeper.sasl: username is missing"),
        ("sasl: {username: me}", "FILE:1: zookeeper.sasl: password is missing"),
        (
            "sasl: {username: '', password: '${PASSWORD}'}",
            "FILE:1: zookeeper.sasl.username: is empty: give a value, or remove it",
        ),
        ("sasl: {username: me, password: ''}", "FILE:1: zookeeper.sasl.password: is empty: give a value, or remove it"),
        (
            "sasl: {username: me, password: 'file:none'}",
            'FILE:1: zookeeper.sasl.password: "file:none" cannot be read: No such file or directory',
        ),
        (
            "sasl: {username: me, password: 'file:lines'}",
            'FILE:1: zookeeper.sasl.password: "file:lines" must hold one value, in one line',
        ),
        (
            "sasl: {username: me, password: '${NOT_SET}'}",
            "FILE:1: zookeeper.sasl.password: the environment variable NOT_SET is not set",
        ),
        ("authorization: {digest: '${PASSWORD}'}", "FILE:1: zookeeper.authorization.digest: must be user:password"),
        ("authorization: {digest: ':${PASSWORD}'}", "FILE:1: zookeeper.authorization.digest: must be user:password"),
        (
            "tls: {key_password: '${PASSWORD}'}",
            "FILE:1: zookeeper.tls.key_password: needs certificate_file: give it too, or remove this",
        ),
        ("tls: {key_file: k}", "FILE:1: zookeeper.tls.key_file: needs certificate_file: give it too, or remove this"),
        ("tls: {ca_file: ''}", "FILE:1: zookeeper.tls.ca_file: is empty: give a path"),
        ("tls: {ca_file: none}", 'FILE:1: zookeeper.tls.ca_file: "none" cannot be read: No such file or directory'),
        ("tls: {ca_file: .}", 'FILE:1: zookeeper.tls.ca_file: "." cannot be read: Is a directory'),
        (
            "tls: {ca_file: '${PASSWORD}'}",
            'FILE:1: zookeeper.tls.ca_file: "${PASSWORD}" cannot be read: No such file or directory',
        ),
        ("tls: {ca_file: lines}", "FILE:1: zookeeper.tls: DIR/lines has no certificate in PEM format"),
        (
            "tls: {certificate_file: none}",
            'FILE:1: zookeeper.tls.certificate_file: "none" cannot be read: No such file or directory',
        ),
    ],
)
def test_every_mistake_is_one_clear_line(write: Write, tmp_path: Path, section: str, message: str) -> None:
    """It names the place, and never what a secret is."""
    (tmp_path / "lines").write_text(f"{SECRET}\n{SECRET}\n")
    assert error_of(write(f"zookeeper: {{quorum: zk, {section}}}\n")).startswith(message)


@pytest.mark.parametrize(
    ("key_of", "password", "password_line"),
    [("me", SECRET, ""), ("me", SECRET, ", key_password: wrong"), ("another", "", "")],
    ids=["no password", "a wrong password", "another's key"],
)
def test_a_key_that_cannot_be_used_is_one_clear_line(
    write: Write, authority: Authority, key_of: str, password: str, password_line: str
) -> None:
    """And nobody is asked for a password on the terminal."""
    certificate, key = authority.issue("me", password=password or None)
    if key_of != "me":
        _, key = authority.issue(key_of)
    line = error_of(
        write(f"zookeeper: {{quorum: zk, tls: {{certificate_file: {certificate}, key_file: {key}{password_line}}}}}\n")
    )
    assert line == (
        f"FILE:1: zookeeper.tls: {certificate} and its private key {key} cannot be used: both must be PEM, belong together, and the "
        f"key_password must be {'right' if password_line else 'given where the key is encrypted'}"
    )


# -- Flink's configuration: the expected values are what Configuration.get of 1.20.5 and 2.3.0 answered ------------------


@pytest.mark.parametrize(
    ("value", "authorization"),
    [
        (": digest:'user:password'", {"digest": "user:password"}),
        (": \"digest:'user:password',ip:x\"", {"digest": "user:password", "ip": "x"}),
        (": '{digest: \"user:password\", b: c}'", {"digest": "user:password", "b": "c"}),
        (": {digest: user:password}", {"digest": "user:password"}),
        ('.digest: "user:password"', {"digest": "user:password"}),
        (":\n  digest: user:password", {"digest": "user:password"}),
        (': "{digest: user:password}"', {"digest": "user:password"}),
        (': "digest: user:password"', {"digest": "user:password"}),
        (": {}", {}),
        (": digest:'user:p''x'", {"digest": "user:p'x"}),
        (": digest:'user:p''x' \n" + f"{AUTHORIZATION}.other: y", {"digest": "user:p'x"}),
        (": {digest: 'u:x'}\n" + f"{AUTHORIZATION}.other: y", {"digest": "u:x", "other": "y"}),
        (": ' digest : \"u:x\" , y : z'", {"digest": "u:x", "y": "z"}),
        (": 'a:b,'", {"a": "b"}),
    ],
)
def test_flinks_map_is_read_as_flink_reads_it(tmp_path: Path, value: str, authorization: dict[str, str]) -> None:
    """`config.yaml`: quotes, YAML in a text, YAML, keys of their own."""
    assert flink_conf(tmp_path, f"{AUTHORIZATION}{value}\n") == authorization


@pytest.mark.parametrize(
    ("value", "authorization"),
    [
        (": digest:'user:password'", {"digest": "user:password"}),
        (".digest: user:password", {"digest": "user:password"}),
        (": 'digest:\"user:a,b\"'", {"digest": "user:a,b"}),
        (":\n  digest: user:password", {}),
    ],
)
def test_flinks_old_file_has_its_own_way(tmp_path: Path, value: str, authorization: dict[str, str]) -> None:
    """`flink-conf.yaml` is no YAML: quotes are the map's, and nothing is nested."""
    assert flink_conf(tmp_path, f"{AUTHORIZATION}{value}\n", "flink-conf.yaml") == authorization


@pytest.mark.parametrize(
    "value",
    [
        f"digest:user:{SECRET}",
        f"'a:{SECRET},a:c'",
        f"'digest:\"u:{SECRET}'",
        f"'a\"{SECRET}\"b'",
        f"'{SECRET}:'",
        f"'{{digest: [{SECRET}]}}'",
    ],
)
def test_a_map_that_flink_does_not_take_is_one_clear_line(tmp_path: Path, value: str) -> None:
    """Flink would not start with it either; the line does not show it."""
    (tmp_path / "config.yaml").write_text(f"{FLINK}{AUTHORIZATION}: {value}\n")
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": tmp_path})
    assert str(error.value) == (
        f"{tmp_path}/config.yaml:3: {AUTHORIZATION} is not a map: write it like digest:'user:password'"
    )
    assert SECRET not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [("digest", "must be user:password"), ("sasl", "sasl is not an authorization scheme: use zookeeper.sasl")],
)
def test_an_authorization_that_cannot_work_is_one_clear_line(tmp_path: Path, scheme: str, message: str) -> None:
    """Before anything is connected to."""
    (tmp_path / "config.yaml").write_text(f"{FLINK}{AUTHORIZATION}: {{{scheme}: {SECRET}}}\n")
    with pytest.raises(SettingsError) as error:
        load_cluster({"flink_conf": tmp_path})
    assert str(error.value) == f"{tmp_path}/config.yaml:3: {AUTHORIZATION}: {message}"


def test_a_secret_of_flinks_is_no_file_and_no_variable(tmp_path: Path) -> None:
    """Flink takes it as it stands, so that is what it is."""
    assert flink_conf(tmp_path, f"{AUTHORIZATION}.digest: 'file:${{PASSWORD}}'\n") == {"digest": "file:${PASSWORD}"}


def test_an_acl_of_the_creator_asks_for_credentials(
    tmp_path: Path, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says what to give, where there is nothing that the server could know us by."""
    with caplog.at_level(logging.INFO, "sidecar"):
        flink_conf(tmp_path, "high-availability.zookeeper.client.acl: Creator\n")
    (line,) = caplog.messages
    assert line == (
        f"{tmp_path}/config.yaml:3: high-availability.zookeeper.client.acl is creator: only Flink's own identity may read "
        "its leaders. Configure zookeeper.sasl, zookeeper.authorization or zookeeper.tls.certificate_file with that identity"
    )
    caplog.clear()
    with caplog.at_level(logging.INFO, "sidecar"):
        zookeeper(write(f"flink_conf_dir: {tmp_path}\nzookeeper: {{sasl: {{username: me, password: x}}}}\n"))
        flink_conf(tmp_path, "high-availability.zookeeper.client.acl: open\n")
        flink_conf(tmp_path, f"high-availability.zookeeper.client.acl: creator\n{AUTHORIZATION}.digest: 'a:b'\n")
    assert caplog.messages == []


def test_two_files_that_authorize_otherwise_disagree(tmp_path: Path) -> None:
    """It depends on Flink's version who it is."""
    for name, user in {"config.yaml": "a", "flink-conf.yaml": "b"}.items():
        (tmp_path / name).write_text(f"{FLINK}{AUTHORIZATION}.digest: {user}:{SECRET}\n")
    with pytest.raises(SettingsError, match="disagree") as error:
        load_cluster({"flink_conf": tmp_path})
    assert SECRET not in str(error.value)
    with patch.dict(os.environ, {"FLINK_HA_SIDECAR_ZOOKEEPER": "zk"}):
        assert in_zookeeper(load_cluster({})).authorization == {}
