"""Finds out if the body of an answer with a status of 2xx refuses the message: many services say so only there.

For a service whose documentation says what it answers, only that is an acceptance: SERVICES. Any other body is read by what is common, in
JSON and in XML: an explicit no, an error, a code that is neither 0 nor 2xx.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree


class ServiceAnswer(NamedTuple):
    """The way in which a service accepts a message. Paths have dots; `*` is every item of a list.

    Values are compared as text in lower case; `*` accepts what is not empty.
    """

    fields: Mapping[str, tuple[str, ...]]
    """The values that accept, by path. The first path that the answer has decides. Empty: the answer is a text."""
    reasons: tuple[str, ...] = ()
    """The path to the reason of a refusal."""
    later: tuple[str, ...] = ()
    """Values that ask to come back later: too many messages, or a busy service."""
    text: str = ""
    """The whole answer, where it is a text."""


SERVICES: Final[Mapping[str, ServiceAnswer]] = {
    "dingtalk": ServiceAnswer({"errcode": ("0",)}, ("errmsg",), ("-1", "130101", "410100")),
    **dict.fromkeys(
        ("feishu", "lark"),
        ServiceAnswer(
            {"code": ("0",), "StatusCode": ("0",)}, ("msg", "StatusMessage"), ("11232", "11233", "230020", "99991400")
        ),
    ),
    **dict.fromkeys(
        ("wecombot", "wechat"), ServiceAnswer({"errcode": ("0",)}, ("errmsg",), ("-1", "45009", "45033", "45047"))
    ),
    "schan": ServiceAnswer({"code": ("0",), "errno": ("0",)}, ("message", "info", "errmsg", "data.error")),
    **dict.fromkeys(("pushplus", "wecom"), ServiceAnswer({"code": ("200",)}, ("msg",), ("900",))),
    "wpush": ServiceAnswer({"code": ("0",)}, ("message", "msg")),
    "wxpusher": ServiceAnswer({"code": ("1000",)}, ("msg",)),
    **dict.fromkeys(("pushdeer", "pushdeers"), ServiceAnswer({"code": ("0",)}, ("error", "message"))),
    "pushme": ServiceAnswer({}, text="success"),
    "qq": ServiceAnswer({"success": ("true",)}, ("reason", "info")),
    "spugpush": ServiceAnswer({"code": ("0", "200")}, ("msg", "message")),
    **dict.fromkeys(("bark", "barks"), ServiceAnswer({"code": ("200",)}, ("message",), ("429",))),
    **dict.fromkeys(
        ("onebot", "onebots"),
        ServiceAnswer({"retcode": ("0", "1"), "status": ("ok", "async")}, ("wording", "message", "msg")),
    ),
    "kook": ServiceAnswer({"code": ("0",)}, ("message",), ("429",)),
    "zalo": ServiceAnswer({"ok": ("true",)}, ("description",), ("429",)),
    "viber": ServiceAnswer({"status": ("0",)}, ("status_message",), ("12",)),
    **dict.fromkeys(
        ("synology", "synologys"), ServiceAnswer({"error.code": (), "success": ("true",)}, ("error.errors",), ("411",))
    ),
    "join": ServiceAnswer({"success": ("true",)}, ("errorMessage",)),
    "pover": ServiceAnswer({"status": ("1",)}, ("errors",)),
    **dict.fromkeys(("psafer", "psafers"), ServiceAnswer({"status": ("1",)}, ("error",))),
    "pushy": ServiceAnswer({"success": ("true",)}, ("error",)),
    **dict.fromkeys(
        ("vonage", "nexmo"), ServiceAnswer({"messages.*.status": ("0",)}, ("messages.*.error-text",), ("1",))
    ),
    "seven": ServiceAnswer({"success": ("100",)}, ("messages.*.error_text",), ("903",)),
    "msg91": ServiceAnswer({"type": ("success",)}, ("message",)),
    "clicksend": ServiceAnswer(
        {"data.messages.*.status": ("success",), "response_code": ("success",)}, ("response_msg",), ("throttled",)
    ),
    "bulkvs": ServiceAnswer({"Results.*.Status": ("success",)}, ("Description",)),
    **dict.fromkeys(
        ("burstsms", "kudosity"), ServiceAnswer({"error.code": ("success",)}, ("error.description",), ("over_limit",))
    ),
    "kavenegar": ServiceAnswer({"return.status": ("200",)}, ("return.message",)),
    "atalk": ServiceAnswer(
        {"SMSMessageData.Recipients.*.statusCode": ("100", "101", "102")},
        ("SMSMessageData.Recipients.*.status", "SMSMessageData.Message"),
    ),
    "clickatell": ServiceAnswer(
        {"messages.*.accepted": ("true",)}, ("messages.*.errorDescription", "messages.*.error", "errorDescription")
    ),
    "onesignal": ServiceAnswer({"id": ("*",)}, ("errors",)),
    "smtp2go": ServiceAnswer({"data.failed": ("0",)}, ("data.failures", "data.error")),
}
"""By Apprise's scheme."""


_MOST_CHARACTERS: Final = 4096
"""Characters of a reason. Who reports it takes secrets out, and cuts it then: a secret that is cut is not recognized."""
_SHORT: Final = 300
"""Characters of a text that is a refusal as a whole."""
_DEEPEST: Final = 3
"""Levels of a body that are looked into."""
_MOST_ITEMS: Final = 100
"""The answers of a list that are looked at."""

_CODES: Final = frozenset(
    (
        *("code", "errcode", "errorcode", "errno", "err", "retcode", "ret", "returncode", "resultcode"),
        *("statuscode", "responsecode", "httpcode", "httpstatus"),
    )
)
"""Names of codes, in lower case and without separators."""
_ANSWERS: Final = frozenset(("ok", "success", "successful"))
"""Names of a yes or no."""
_FLAGS: Final = frozenset(("accepted", "delivered", "sent", "status", "result"))
"""Names of a yes or no, or of something else: only `false` refuses."""
_WORDS: Final = frozenset(("result", "status", "stat", "state", "type", "outcome", "code"))
"""Names of a word that says how it went."""
_WRAPPERS: Final = frozenset(
    ("meta", "ocs", "return", "response", "status", "header", "head", "baseresp", "baseresponse")
)
"""Names of objects that hold the above. Others may hold what we have sent."""
_ERRORS: Final = ("error", "errors", "errormessage", "err")
_TEXTS: Final = (
    *("errmsg", *_ERRORS, "message", "messages", "msg", "statusmessage"),
    *("description", "errordescription", "reason", "detail", "details", "text", "info", "wording"),
)
"""Names of the reason, the best first."""

_REFUSED: Final = "err|errors?|fail|failed|failure|invalid|denied|unauthori[sz]ed|forbidden"
"""Words of texts and of codes."""
_REFUSAL: Final = re.compile(rf"(?:{_REFUSED}|ko|nok|not[ _-]?ok|fails|rejected|refused)(?![a-z])", re.IGNORECASE)
"""The start of a refusal."""
_PING_REFUSED: Final = re.compile(r"ok \((not found|rate limited)\)", re.IGNORECASE)
"""Healthchecks answers so, with 200, for an unknown check and for too many pings."""
_LATER: Final = str(HTTPStatus.TOO_MANY_REQUESTS.value)
_NO: Final = frozenset(("false", "no", "0"))
_NO_ERROR: Final = frozenset(("", "0", "0.0", "none", "null", "false", "ok", "success", "no error"))
_NUMBER: Final = re.compile(r"-?[0-9]{1,50}(?:\.0+)?")
_NUMBERED: Final = re.compile(r"[A-E][_-]?0*[1-9][0-9]{2,50}")
"""A code such as E1001."""
_WORDS_OF_A_CODE: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_REFUSAL_IN_A_CODE: Final = re.compile(
    rf"\b(?:{_REFUSED}|illegal|deny|not found|missing|expired|limit|throttled|throttling|exceeded)\b"
)
"""In the words of a code such as InvalidParameter or isv.BUSINESS_LIMIT_CONTROL."""
_TITLE: Final = re.compile(r"<title>([^<]{0,300})</title>", re.IGNORECASE)
_LOGIN: Final = re.compile(r"(?:log|sign)[ -]?(?:in|on)\b", re.IGNORECASE)
"""The start of the title of a page that wants to know who asks."""
_MOST_XML: Final = 1 << 16
"""Characters of XML that are read."""


class Refusal(NamedTuple):
    """A message that was not accepted."""

    reason: str
    """One line, not scrubbed of secrets."""
    later: bool = False
    """True if the service asks to come back later."""

    @property
    def outcome(self) -> str:
        """A value of `DeliveryOutcome`."""
        return "rate_limited" if self.later else "rejected"


def refusal(content: bytes, scheme: str = "") -> Refusal | None:
    """Why the body refuses the message; None: it does not. `scheme`: Apprise's of the service, if it is one."""
    text = content.decode("utf-8-sig", errors="replace").strip()
    try:
        return _refusal(json.loads(text), text, scheme)
    except (ValueError, RecursionError):
        return _refusal(None, text, scheme)


def _refusal(body: object, text: str, scheme: str) -> Refusal | None:
    """`body`: None if the text is no JSON."""
    if service := SERVICES.get(scheme):
        return _service_refusal(service, body, text)
    if isinstance(body, dict):
        return _object_refusal(body)
    if isinstance(body, list):
        items = islice((item for item in body if isinstance(item, dict)), _MOST_ITEMS)
        refusals = [_object_refusal(item) for item in items]
        return refusals[0] if refusals and all(refusals) else None
    if body is None and text.startswith("<"):
        return _markup_refusal(text[:_MOST_XML])
    return _text_refusal(body if isinstance(body, str) else text)


def _service_refusal(service: ServiceAnswer, body: object, text: str) -> Refusal | None:
    if body is None and not service.fields:
        return None if text.lower() == service.text else Refusal(_line(text) or "the answer is empty")
    for path, accepted in service.fields.items():
        values = [*_values_at(body, path.split("."))]
        refused = [str(value) for value in values if not _accepts(value, accepted)]
        if refused:
            reason = next(
                filter(None, (_first_text([*_values_at(body, path.split("."))]) for path in service.reasons)), ""
            )
            return Refusal(_line(f"{refused[0]} {reason}"), refused[0].lower() in service.later)
        if values:
            return None
    common = _object_refusal(body) if isinstance(body, dict) else None
    return common or Refusal(_line(f"not an answer that the service documents: {text or 'an empty body'}"))


def _accepts(value: object, accepted: tuple[str, ...]) -> bool:
    return str(value).lower() in accepted or (accepted == ("*",) and bool(value))


def _values_at(value: object, path: list[str]) -> Iterator[object]:
    """The values at a path; `*` is every item of a list."""
    if not path:
        yield value
    elif path[0] == "*" and isinstance(value, list):
        for item in value:
            yield from _values_at(item, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _values_at(value[path[0]], path[1:])


def _object_refusal(body: Mapping[str, Any], depth: int = _DEEPEST) -> Refusal | None:
    fields = {_plain(name): value for name, value in body.items()}
    for name in sorted(_WRAPPERS & fields.keys()):
        if depth and isinstance(fields[name], dict) and (refusal := _object_refusal(fields[name], depth - 1)):
            return refusal
    code = _code(fields)
    answers = {str(fields[name]).lower() for name in _ANSWERS & fields.keys() if not isinstance(fields[name], dict)}
    is_error = "true" not in answers and any(_is_error(fields.get(name)) for name in _ERRORS)
    if code is None and not is_error and not _says_no(fields, answers):
        return None
    reason = next(filter(None, (_first_text([fields.get(name)]) for name in _TEXTS)), "it gives no reason")
    return Refusal(_line(reason if code is None else f"{code} {reason}"), code == _LATER)


def _code(fields: Mapping[str, Any]) -> str | None:
    """The first code that refuses; else a status as HTTP has them."""
    code = next(filter(None, (_refusing_code(fields[name]) for name in sorted(_CODES & fields.keys()))), None)
    status = _number(fields.get("status"))
    return str(status) if code is None and status is not None and 400 <= status < 600 else code


def _says_no(fields: Mapping[str, Any], answers: set[str]) -> bool:
    return (
        bool(answers & _NO)
        or any(fields[name] is False for name in _FLAGS & fields.keys())
        or any(_REFUSAL.match(word) for name in _WORDS & fields.keys() if isinstance(word := fields[name], str))
    )


def _text_refusal(text: str) -> Refusal | None:
    refused = len(text) <= _SHORT and (_REFUSAL.match(text) or _PING_REFUSED.fullmatch(text))
    return Refusal(_line(text), "rate limited" in text.lower()) if refused else None


def _markup_refusal(text: str) -> Refusal | None:
    """The refusal in XML or in a page of HTML, which stands for the service if something in front of it answers."""
    if match := _TITLE.search(text):
        title = match[1].strip()
        return Refusal(_line(title)) if _LOGIN.match(title) else _text_refusal(title)
    if "<!" in text:  # its own entities are not expanded
        return None
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  it has no entities of its own
    except (ElementTree.ParseError, RecursionError):
        return None
    [(name, body)] = _fields([root]).items()
    return _object_refusal({name: body}) or (_object_refusal(body) if isinstance(body, dict) else _text_refusal(body))


def _fields(elements: Iterable[ElementTree.Element], depth: int = _DEEPEST) -> dict[str, Any]:
    """Elements as JSON would have them, by name: each is what it holds and its attributes, or its text."""
    fields: dict[str, Any] = {}
    for element in islice(elements, _MOST_ITEMS if depth else 0):
        inner = {**element.attrib, **_fields(element, depth - 1)}
        fields[element.tag.rpartition("}")[2]] = inner or (element.text or "").strip()
    return fields


def _plain(name: str) -> str:
    return re.sub(r"[ _-]", "", name).lower()


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
        return None
    return int(str(value).partition(".")[0])


def _refusing_code(value: object) -> str | None:
    """The code as a text, if it refuses."""
    number = _number(value)
    if number is not None:
        return str(number) if number != 0 and not 200 <= number < 300 else None
    if not isinstance(value, str) or len(value) > _SHORT:
        return None
    words = " ".join(_WORDS_OF_A_CODE.findall(value)).lower()
    return value if _NUMBERED.fullmatch(value) or _REFUSAL_IN_A_CODE.search(words) else None


def _is_error(value: object) -> bool:
    """True if the value of `error` is one."""
    if isinstance(value, dict):
        codes = [code for name, code in value.items() if _plain(name) in _CODES]
        return bool(value) and not (codes and all(str(code).lower() in _NO_ERROR for code in codes))
    return bool(value) and str(value).strip().lower() not in _NO_ERROR


def _first_text(values: list[object], depth: int = _DEEPEST) -> str:
    """The first text among the values, or in them."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
        inner = [value.get(name) for name in _TEXTS] if isinstance(value, dict) else value
        if depth and isinstance(inner, list) and (text := _first_text(inner[:50], depth - 1)):
            return text
        if isinstance(value, dict) and value:
            return json.dumps(value)
    return ""


def _line(text: str) -> str:
    return " ".join(text[:_MOST_CHARACTERS].split())
