"""A status of 200 is no delivery if the body refuses the message: by the service's own rule, or by what answers have in common."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from apprise import plugins

from sidecar.sinks.notify.refusals import SERVICES, Refusal, refusal
from tests.kit import refusing_services
from tests.kit.paging import Internet
from tests.kit.receivers import send_by_url
from tests.kit.refusing_services import Answering, Service, shown
from tests.kit.serving import serving
from tests.kit.sidecar_process import command

# Apprise's mail plugin, which some schemes make it import, imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

BATCHES = 5
HOSTS = {service.host for service in refusing_services.SERVICES}


@pytest.fixture(scope="module")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    """Where the services are."""
    with serving(Internet(tmp_path_factory.mktemp("internet"), *map(Answering, HOSTS))) as served:
        yield served


def environment(internet: Internet) -> dict[str, str]:
    """What leads a process there, also without TLS."""
    return {**internet.environment, "HTTP_PROXY": internet.environment["HTTPS_PROXY"]}


def answering(internet: Internet, service: Service) -> Answering:
    """The service's host."""
    found = internet.services[service.host]
    assert isinstance(found, Answering)
    return found


@pytest.mark.parametrize("service", refusing_services.SERVICES, ids=shown)
def test_a_service_refuses_and_accepts_as_documented(internet: Internet, service: Service) -> None:
    """By its real plugin: the reason is reported, and what it accepts is delivered."""
    host = answering(internet, service)
    outcomes = []
    with patch.dict("os.environ", environment(internet)):
        for host.body in (service.refuses, service.accepts):
            outcomes.append(send_by_url(service.url, "title", "body", "failure", 20.0))
    refused, accepted = outcomes
    assert (refused.outcome, accepted.outcome) == (service.outcome, "delivered"), outcomes
    assert service.reason in refused.detail
    assert refusing_services.KEY not in refused.detail


@pytest.mark.parametrize("service", [each for each in refusing_services.SERVICES if each.scheme in SERVICES], ids=shown)
@pytest.mark.parametrize("page", ["<!doctype html><title>Log in</title>", "", "{}", "[]"])
def test_the_page_of_a_proxy_is_no_acceptance(page: str, service: Service) -> None:
    """A service whose answers are documented accepts with nothing else."""
    found = refusal(page.encode(), service.scheme)
    assert found is not None
    assert found.outcome == "rejected"


def test_every_documented_service_is_tried() -> None:
    """Each scheme is one of Apprise's, and has a case, or shares its rule with one that has."""
    tried = {id(SERVICES[each.scheme]) for each in refusing_services.SERVICES if each.scheme in SERVICES}
    assert [scheme for scheme, rule in SERVICES.items() if id(rule) not in tried] == []
    assert [scheme for scheme in SERVICES if scheme not in plugins.N_MGR] == []


def test_a_list_of_many_answers_is_read_to_a_bound() -> None:
    """What follows its first hundred answers is not looked at."""
    refused, accepted = '{"code":5,"msg":"x"}', '{"code":0}'
    assert refusal(f"[{','.join([refused] * 100 + [accepted])}]".encode()) == Refusal("5 x")
    assert refusal(f"[{','.join([refused] * 99 + [accepted])}]".encode()) is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"errcode":310000,"errmsg":"keywords not in content"}', "310000 keywords not in content"),
        ('{"code":19024,"msg":"Key Words Not Found"}', "19024 Key Words Not Found"),
        ('{"code":"40001","message":"bad token"}', "40001 bad token"),
        ('{"code":-1}', "-1 it gives no reason"),
        ('{"code":1.0,"detail":"no"}', "1 no"),
        ('{"Error_Code":7,"error_description":"expired"}', "7 expired"),
        ('{"statusCode":404,"message":"no such hook"}', "404 no such hook"),
        ('{"status":500,"error":"oops"}', "500 oops"),
        ('{"code":99999999999999999999}', "99999999999999999999 it gives no reason"),
        ('{"code":5,"msg":' + "[" * 900 + "]" * 900 + "}", "5 it gives no reason"),
        ('{"meta":{"code":400,"message":"bad"}}', "400 bad"),
        ('{"ocs":{"meta":{"status":"failure","statuscode":997,"message":"not logged in"}}}', "997 not logged in"),
        ('{"error":{"code":7,"message":"no such room"}}', "no such room"),
        ('{"error":"invalid_token"}', "invalid_token"),
        ('{"errors":["a","b"]}', "a"),
        ('{"ok":"false","description":"no"}', "no"),
        ('{"success":0,"reason":"gone"}', "gone"),
        ('{"accepted":false}', "it gives no reason"),
        ('{"status":"invalid_credentials"}', "it gives no reason"),
        ('{"type":"error","message":"no flow"}', "no flow"),
        ('{"status":false,"reason":"bad token"}', "bad token"),
        ('{"result":false,"message":"no such chat"}', "no such chat"),
        ('{"status":{"code":3,"message":"no such topic"}}', "3 no such topic"),
        ('{"result":"KO","details":{"text":"quota"}}', "quota"),
        ('[{"code":5,"msg":"x"}]', "5 x"),
        ('\ufeff{"code":5,"msg":"x"}', "5 x"),
        ("ERROR: no such channel", "ERROR: no such channel"),
        ('"invalid token"', "invalid token"),
        ("OK (not found)", "OK (not found)"),
        ('{"code":"E1001","message":"bad token"}', "E1001 bad token"),
        ('{"code":"A0400","msg":"no such robot"}', "A0400 no such robot"),
        ('{"Code":"isv.BUSINESS_LIMIT_CONTROL","Message":"too many"}', "isv.BUSINESS_LIMIT_CONTROL too many"),
        ('{"code":"InvalidParameter"}', "InvalidParameter it gives no reason"),
        ('{"errorCode":"channelNotFound","detail":"#ops"}', "channelNotFound #ops"),
        ("<result><code>7</code><message>bad key</message></result>", "7 bad key"),
        ('<?xml version="1.0"?><rsp stat="fail"><err code="96" msg="Invalid signature"/></rsp>', "Invalid signature"),
        ('<a:r xmlns:a="x"><a:success>false</a:success><a:reason>gone</a:reason></a:r>', "gone"),
        ('<response><status code="401"><message>no</message></status></response>', "401 no"),
        ("<error>no such user</error>", "no such user"),
        ("<!doctype html><html><head><title>Sign in to Example</title></head></html>", "Sign in to Example"),
        ("<html><head><title>Error 1020: access denied</title></head></html>", "Error 1020: access denied"),
    ],
)
def test_an_unknown_answer_that_refuses_is_a_refusal(body: str, reason: str) -> None:
    """With what it says."""
    assert refusal(body.encode()) == Refusal(reason)


@pytest.mark.parametrize("body", ['{"code":429,"msg":"slow down"}', "OK (rate limited)"])
def test_an_unknown_answer_may_ask_to_come_back_later(body: str) -> None:
    """That is no mistake of the operator's."""
    found = refusal(body.encode())
    assert found is not None
    assert found.outcome == "rate_limited"


@pytest.mark.parametrize(
    "body",
    [
        *("", "ok", "{", "[]", "[false]", "null", "0", "1", "<html>Welcome</html>", "errorless", "\x00\xff"),
        *('{"code":0}', '{"code":200,"msg":"ok"}', '{"code":"0"}', '{"code":"00000"}', '{"code":201}', '{"code":null}'),
        *(
            '{"errcode":0,"errmsg":"ok"}',
            '{"error":null}',
            '{"error":""}',
            '{"errors":[]}',
            '{"error":{}}',
            '{"err":0}',
        ),
        *('{"error":{"code":"SUCCESS"}}', '{"ok":true,"errors":["a warning"]}', '{"status":1}', '{"status":"queued"}'),
        *('{"responseCode":"NEW_ALERT_CREATED"}', '{"state":"open","id":7}', '{"type":0}', '{"status":{"code":290}}'),
        *('{"result":"Request will be processed"}', '{"status":"failover received"}', '[{"code":5},{"code":0}]'),
        *('{"code":"A00000"}', '{"code":"OK"}', '{"code":"E0"}', '{"code":"terrific"}', '{"code":"abc123"}'),
        *("<r><code>0</code></r>", "<r>ok</r>", "<r/>", "<r><code>5</r>", "<r><data><code>5</code></data></r>"),
        '<!DOCTYPE r [<!ENTITY a "5">]><r><code>&a;</code></r>',
        "<r>" * 20_000,
        '{"data":{"code":5,"status":"error"}}',  # what was sent, perhaps
        *('{"sent":0,"queued":1}', '{"delivered":0}', '{"state":false}', '{"status":0}', '{"status":{"code":0}}'),
        "[" * 100_000,
        '{"data":' + "[" * 900 + "]" * 900 + "}",
        '{"meta":' * 100_000,
        '{"code":' + "9" * 5000 + "}",
    ],
)
def test_an_unknown_answer_that_does_not_refuse_is_a_delivery(body: str) -> None:
    """However odd it is."""
    assert refusal(body.encode("utf-8", errors="replace")) is None


@pytest.mark.parametrize("batch", range(BATCHES))
def test_send_test_fails_where_a_service_refuses(internet: Internet, tmp_path: Path, batch: int) -> None:
    """`alert send-test` names each service that does, with its reason, and ends with 1."""
    refusing = {each.host: each for each in refusing_services.SERVICES if each.outcome == "rejected"}
    services = [*refusing.values()][batch::BATCHES]
    for service in services:
        answering(internet, service).body = service.refuses
    status, lines = sent_tests(internet, tmp_path, services)
    assert status == 1
    for place, (service, line) in enumerate(zip(services, lines, strict=True)):
        assert line.startswith(f"ops#{place}  rejected: {service.scheme}:// answered with 200, but refused: ")
        assert service.reason in line
        assert refusing_services.KEY not in line


def test_send_test_succeeds_where_all_accept(internet: Internet, tmp_path: Path) -> None:
    """With the answers of the same services."""
    services = [refusing_services.SERVICES[0], refusing_services.SERVICES[2]]
    for service in services:
        answering(internet, service).body = service.accepts
    assert sent_tests(internet, tmp_path, services) == (0, ["ops#0  delivered", "ops#1  delivered"])


def sent_tests(internet: Internet, folder: Path, services: Sequence[Service]) -> tuple[int, list[str]]:
    """The status and the lines of `alert send-test`, with one receiver for all services."""
    urls = ", ".join(f"'{service.url}'" for service in services)
    file = folder / "sidecar.yaml"
    file.write_text(f"zookeeper: {{quorum: '127.0.0.1:1'}}\nreceivers: [{{name: ops, urls: [{urls}]}}]\n")
    ended = command("alert", "send-test", "--config", str(file), environment=environment(internet))
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()
