"""The JSON API: alerts as data, its OpenAPI document, and requests that are not understood."""

import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json, to_builtins

from sidecar.core.views.alert_view import alerts
from sidecar.web.api_paths import API, OPENAPI_PATH, ApiPath, openapi_document
from tests import ROOT
from tests.core.alerting.test_silences import SILENCED, silence
from tests.core.views.test_alert_view import vacant
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import Sidecar
from tests.kit.groups import examples
from tests.shell.reading import show
from tests.shell.remembering import hostile_records, remember, two_failovers
from tests.shell.site import Site, captured

COMPONENT = "component=rest_server, dispatcher or resource_manager"


def existing(site: Site, path: ApiPath) -> str:
    """The path of something that exists."""
    ids = {"episode": site.data("/api/v1/episodes")[-1]["id"], "cluster": CLUSTER}
    return path.path.replace("{id}", ids[path.id_of]) if path.id_of else path.path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Behind it a failover that is over, with evidence and messages, and one that is not."""
    folder = tmp_path_factory.mktemp("api")
    running = Site(folder)
    sidecar = two_failovers()
    remember(folder, sidecar, [*hostile_records(sidecar), captured(sidecar)])
    show(running, sidecar)
    yield running
    running.stop()


@pytest.fixture
def silenced() -> Sidecar:
    """No leader for a while, and a silence."""
    sidecar = vacant(SILENCED)
    sidecar.silenced_by(silence())
    return sidecar.waits(15)


def test_alerts_as_data(tmp_path: Path, silenced: Sidecar) -> None:
    """What fires, is suppressed, and why."""
    site = Site(tmp_path)
    try:
        show(site, silenced)
        found = site.data("/api/v1/alerts")
        assert found == to_builtins(alerts(site.snapshot))
        assert {(each["alert"], each["state"], each["silence_id"]) for each in found} == {
            ("FlinkNoLeader", "silenced", silence().id)
        }
    finally:
        site.stop()


# -- the OpenAPI document ----------------------------------------------------------------------------------------------


def test_the_document_is_the_code(site: Site) -> None:
    """Each path under /api is in it and nothing else; each answer has the fields that it says, and all that it requires."""
    found = site.data(OPENAPI_PATH)
    assert found == json.decode(json.encode(openapi_document()))
    answered = {path for path in site.get("/nothing")[1].split() if path.startswith("/api/")}
    assert {path.replace("{id}", "ID") for path in found["paths"]} == answered
    for path in API:
        body = site.get(existing(site, path))[1]
        assert json.decode(json.encode(json.decode(body, type=path.answers))) == json.decode(body)


def test_the_document_says_which_fields_there_are(site: Site) -> None:
    """Of every object in every answer."""
    schemas = site.data(OPENAPI_PATH)["components"]["schemas"]

    def check(schema: dict[str, Any], value: Any) -> None:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            schema = next(option for option in schema["anyOf"] if (option.get("type") == "null") == (value is None))
            return check(schema, value)
        kind = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": type(None)}
        match schema.get("type"):
            case "object" if "properties" in schema:
                assert set(schema["required"]) <= set(value) <= set(schema["properties"])
                for name, element in value.items():
                    check(schema["properties"][name], element)
            case "array":
                for element in value:
                    check(schema["items"], element)
            case str(name) if name in kind:
                assert isinstance(value, kind[name])
        return None

    for path in API:
        answer = site.data(OPENAPI_PATH)["paths"][path.path]["get"]["responses"]["200"]
        check(answer["content"]["application/json"]["schema"], site.data(existing(site, path)))


def test_every_path_is_documented() -> None:
    """docs/reference/status-page.md has each one, and no other."""
    text = (ROOT / "docs" / "reference" / "status-page.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(/api/v1/[^`?]+)", text, re.MULTILINE)
    assert sorted(table) == sorted([*(path.path.replace("{id}", "ID") for path in API), OPENAPI_PATH])


# -- what is not understood --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "takes"),
    [
        *((path.path, "no parameters") for path in API if not path.takes and not path.id_of),
        *((path, "no parameters") for path in (OPENAPI_PATH, "/troubleshooting")),
        *((f"{prefix}ID", "no parameters") for prefix in ("/api/v1/episodes/", "/episodes/")),
        *((path.path, "last=N, from 1 to 1000, and nothing else") for path in API if path.takes == "last"),
        ("/api/v1/clusters/ID/leader", f"{COMPONENT}, and nothing else"),
        *((path, f"{COMPONENT} and cluster_id=ID, and nothing else") for path in ("/leader", "/standby")),
        ("/", "cluster=ID and hours=1, 6 or 24, and nothing else"),
    ],
)
def test_an_unknown_parameter_is_refused(site: Site, path: str, takes: str) -> None:
    """In one line, which says what there is. Nothing is ignored."""
    for query in ("lats=5", "last=5&x=1", "x"):
        assert site.get(f"{path.replace('ID', 'c22b78ce')}?{query}") == (400, f"{path} takes {takes}\n")


def test_programs_may_add_parameters(site: Site) -> None:
    """To health and metrics: monitoring tools do."""
    for path in ("/metrics", "/livez"):
        assert site.get(f"{path}?verbose=1&name[]=x")[0] == 200


def test_an_unknown_cluster_is_not_found(site: Site) -> None:
    """The page of one cluster is the page of a watched one."""
    assert site.get("/?cluster=default")[0] == 200
    assert site.get("/?cluster=orders") == (404, "no cluster 'orders' is watched\n")


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/", "/episodes/{id}", "/metrics", "/leader", OPENAPI_PATH, *(path.path for path in API)]),
    name=st.text(max_size=40) | st.from_regex(r"[0-9a-f-]{1,40}", fullmatch=True),
    parameter=st.sampled_from(["last", "cluster", "cluster_id", "component", "x", ""]),
    value=st.text(max_size=40) | st.integers().map(str),
    raw=st.booleans(),
)
def test_no_request_breaks_it(site: Site, path: str, name: str, parameter: str, value: str, raw: bool) -> None:
    """Any name, any parameter, any bytes: an answer, or one line of text that says what is wrong."""
    whole = f"{path.replace('{id}', name)}?{parameter}={value}"
    target = quote(whole, safe="/?=" if not raw else "/?=&%;+~!*'()", errors="replace")
    connection = HTTPConnection("127.0.0.1", site.server.port, timeout=10)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    assert answer.status in {200, 400, 404, *([503] if path == "/leader" else [])}, body
    if answer.status != 200:
        assert body.count(b"\n") == 1
        assert body.decode().rstrip("\n").isprintable()
