"""The section `otlp`: a collector, the headers that it wants, and mistakes in one line."""

import traceback
from pathlib import Path

import pytest

from sidecar.app.checking import checked
from sidecar.core.errors import installing
from sidecar.settings import Secret, SettingsError, TlsSettings, load
from sidecar.settings.model import OtlpSettings
from tests.kit.certificates import Authority
from tests.settings.conftest import Write

SECRET = "xoxbHUNTER2"


def otlp(config: Path) -> OtlpSettings | None:
    """What a configuration says of it; no secret of it shows."""
    settings = load(config, {"zookeeper": "zk"})
    assert SECRET not in repr(settings)
    return settings.otlp


def test_nothing_is_exported_unless_a_collector_is_named(write: Write) -> None:
    """An endpoint is enough."""
    assert otlp(write("trust_window: 3s\n")) is None
    assert otlp(write("otlp: {endpoint: 'http://collector:4318/'}\n")) == OtlpSettings("http://collector:4318")


def test_everything_that_can_be_said(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets come from the environment or from files."""
    monkeypatch.setenv("TOKEN", SECRET)
    (tmp_path / "key").write_text(f"{SECRET}-2\n")
    ca_file = Authority(tmp_path / "ca").ca
    config = write(
        "otlp:\n"
        "  endpoint: https://otlp.example/base\n"
        "  headers: {Authorization: 'Bearer ${TOKEN}', api-key: 'file:key'}\n"
        f"  tls: {{ca_file: {ca_file}}}\n"
    )
    assert otlp(config) == OtlpSettings(
        "https://otlp.example/base",
        {"Authorization": Secret(f"Bearer {SECRET}"), "api-key": Secret(f"{SECRET}-2")},
        TlsSettings(ca_file=ca_file),
    )


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{headers: {}}", "FILE:1: otlp: endpoint is missing"),
        ("{endpoint: collector:4317}", "FILE:1: otlp.endpoint: is not an http:// or https:// URL"),
        (
            "{endpoint: 'http://collector:4318/v1/logs'}",
            "FILE:1: otlp.endpoint: must be where the collector is, like http://collector:4318: leave the rest out",
        ),
        (
            f"{{endpoint: 'http://a:{SECRET}@collector:4318'}}",
            "FILE:1: otlp.endpoint: has credentials before the host: give them as keys of their own",
        ),
        (
            "{endpoint: 'http://collector:4318', headers: {'a b': c}}",
            "FILE:1: otlp.headers: the name of a header has letters, digits, - and _",
        ),
        (
            f"{{endpoint: 'http://collector:4318', headers: {{a: \"{SECRET}\\tb\"}}}}",
            "FILE:1: otlp.headers.a: must be one line of printable text",
        ),
        (
            "{endpoint: 'http://collector:4318', headers: {a: Grüße}}",
            "FILE:1: otlp.headers.a: must be 1 to 4096 printable ASCII characters",
        ),
    ],
)
def test_a_mistake_is_one_line_without_a_secret(write: Write, section: str, expected: str) -> None:
    """Where, what, and what to do."""
    config = write(f"otlp: {section}\n")
    with pytest.raises(SettingsError) as error:
        load(config, {"zookeeper": "zk"})
    assert SECRET not in "".join(traceback.format_exception(error.value))
    assert str(error.value).replace(str(config), "FILE") == expected


def test_without_the_extra_it_is_a_mistake_that_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.setattr("sidecar.app.checking.find_spec", lambda _name: None)
    _, mistakes = checked(load(write("otlp: {endpoint: 'http://collector:4318'}\n"), {"zookeeper": "zk"}))
    assert [str(mistake) for mistake in mistakes] == [f"otlp: needs one more package: {installing('otlp')}"]
