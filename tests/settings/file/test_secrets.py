"""Whatever a configuration has become by mistake: it is settings or one clear line, and no line holds a secret."""

import os
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.settings import Settings, SettingsError, load
from tests.kit.groups import examples

SECRET = "xoxbHUNTER2"
SOUND = f"""\
zookeeper:
  quorum: "zk:2181"
  session_timeout: 10s
  tls:
    ca_file: ca.pem
  sasl:
    username: me
    password: ${{ZOOKEEPER_PASSWORD}}
  authorization:
    digest: me:${{ZOOKEEPER_PASSWORD}}
observer: jm-0
external_labels: {{env: prod}}
spool: {{url: "file:///var/spool/x", roll_interval: 10s, roll_records: 1000}}
ledger: {{mode: auto}}
trust_window: 3s
http: {{host: 127.0.0.1, port: 9250}}
evidence:
  capture: [processes, flink_rest]
  dir: found
  keep: 7d
  tls:
    ca_file: ca.pem
rules:
  - alert: FlinkNoLeader
    on: vacant
    for: 30s
    severity: critical
route:
  receiver: ops
  group_by: [cluster_id]
  repeat_interval: 4h
receivers:
  - name: ops
    urls:
      - slack://{SECRET}/{SECRET}/{SECRET}
      - "mailto://me:{SECRET}@mail.example?to=you"
      - json://ops.example/?+X-Token={SECRET}
      - ${{SLACK_URL}}
      - file:url
    send_resolved: true
"""
# A certificate that nobody has the key of.
CA = """\
-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUL5QPYeD4NeyfGuwsT6XpB0PI0LcwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyMDEzNTA0MloYDzIxMjYxMDI3MTM1
MDQyWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AASasnRGAd3foeup5rNE2KjFkWmPJqzlYcE/bBvMn2Ba+nkuDe1oNXjpScZLrus0
Q8grSnc99PoXSkirSVGfkGY3o1MwUTAdBgNVHQ4EFgQUc+TSKmttVP0KY9wY/3sR
2eOkpPIwHwYDVR0jBBgwFoAUc+TSKmttVP0KY9wY/3sR2eOkpPIwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAiGMiLxIbG/gODi4nlEndDnraUICz
nfjw1TV51z5n/JoCIHZeh/HnItb9tXsum9pP9WDE1dy+iTL6vEvWSbpNQJQJ
-----END CERTIFICATE-----
"""
LINES = SOUND.splitlines()
ENVIRONMENT: Final = {"SLACK_URL": f"slack://{SECRET}", "ZOOKEEPER_PASSWORD": SECRET}
TOKENS = [*":{}[]\"'#|>~%0 \n\t", "- ", "-1", "&a ", "*a", "!x ", "${", "${X}", "$${"]


@st.composite
def mistakes(draw: st.DrawFn) -> str:
    """SOUND after a few slips: lines moved, doubled, dropped or indented, values under other keys, stray characters."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        here, there = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["move", "double", "drop", "indent", "swap values", "character", "replace"])):
            case "move":
                lines.insert(there, lines.pop(here))
            case "double":
                lines.insert(there, lines[here])
            case "drop" if len(lines) > 1:
                lines.pop(here)
            case "indent":
                lines[here] = draw(st.sampled_from(["  ", "- ", "    "])) + lines[here]
            case "swap values":
                (a, _, x), (b, _, y) = (lines[place].rpartition(" ") for place in (here, there))
                lines[here], lines[there] = f"{a} {y}", f"{b} {x}"
            case "character":
                place = draw(st.integers(0, len(lines[here])))
                if SECRET not in lines[here] or place <= lines[here].index("://"):
                    lines[here] = lines[here][:place] + draw(st.sampled_from(TOKENS)) + lines[here][place:]
            case _:
                lines[here] = draw(st.sampled_from(TOKENS)) + draw(st.text(max_size=5))
    return "\n".join(lines)


def outcome(config: Path | None, overrides: dict[str, object]) -> Settings | SettingsError:
    """What `load` answers; nothing but these two is an answer."""
    try:
        return load(config, overrides)
    except SettingsError as error:
        return error


@settings(max_examples=examples(500), deadline=None)
@given(mistakes())
def test_any_mistake_is_settings_or_one_line_without_a_secret(text: str) -> None:
    """No other exception, no second line, and no secret: not in the message, nor in the traceback that --debug shows."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, ENVIRONMENT, clear=True):
        config = Path(folder) / "sidecar.yaml"
        config.write_bytes(text.encode("utf-8", "surrogatepass"))
        (Path(folder) / "url").write_text(f"slack://{SECRET}/file\n")
        (Path(folder) / "ca.pem").write_text(CA)
        answer = outcome(config, {"cluster_id": "x"})
    if isinstance(answer, SettingsError):
        assert str(answer).isprintable()
        assert SECRET not in "".join(traceback.format_exception(answer))
    else:
        assert SECRET not in repr(answer.receivers)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200))
def test_any_file_is_settings_or_one_line(content: bytes) -> None:
    """Also a file that never was a configuration, ours or Flink's."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, clear=True):
        for name in ("sidecar.yaml", "config.yaml", "flink-conf.yaml"):
            (Path(folder) / name).write_bytes(content)
        answers = [outcome(Path(folder) / "sidecar.yaml", {"zookeeper": "zk"}), outcome(None, {"flink_conf": folder})]
    for answer in answers:
        assert isinstance(answer, Settings) or str(answer).isprintable()
