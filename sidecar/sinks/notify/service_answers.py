"""What services answer to a message that they accept, with a status of 2xx, by their documentation. Anything else is a refusal.

Only services that may refuse with a status of 2xx are here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class ServiceAnswer(NamedTuple):
    """How a service accepts a message. Paths have dots; `*` is every item of a list.

    Values are compared as text in lower case; `*` accepts what is not empty.
    """

    fields: Mapping[str, tuple[str, ...]]
    """The values that accept, by path. The first path that the answer has decides. Empty: the answer is a text."""
    reasons: tuple[str, ...] = ()
    """Where the reason of a refusal is."""
    later: tuple[str, ...] = ()
    """Values that ask to come back later: too many messages, or a busy service."""
    text: str = ""
    """The whole answer, where it is a text."""


_DINGTALK: Final = ServiceAnswer({"errcode": ("0",)}, ("errmsg",), ("-1", "130101", "410100"))
_WECOM: Final = ServiceAnswer({"errcode": ("0",)}, ("errmsg",), ("-1", "45009", "45033", "45047"))
_FEISHU: Final = ServiceAnswer(
    {"code": ("0",), "StatusCode": ("0",)}, ("msg", "StatusMessage"), ("11232", "11233", "230020", "99991400")
)
_PUSHPLUS: Final = ServiceAnswer({"code": ("200",)}, ("msg",), ("900",))
_ONEBOT: Final = ServiceAnswer({"retcode": ("0", "1"), "status": ("ok", "async")}, ("wording", "message", "msg"))
_BARK: Final = ServiceAnswer({"code": ("200",)}, ("message",), ("429",))
_PUSHDEER: Final = ServiceAnswer({"code": ("0",)}, ("error", "message"))
_SYNOLOGY: Final = ServiceAnswer({"error.code": (), "success": ("true",)}, ("error.errors",), ("411",))
_VONAGE: Final = ServiceAnswer({"messages.*.status": ("0",)}, ("messages.*.error-text",), ("1",))
_BURSTSMS: Final = ServiceAnswer({"error.code": ("success",)}, ("error.description",), ("over_limit",))
_PUSHSAFER: Final = ServiceAnswer({"status": ("1",)}, ("error",))

SERVICES: Final[Mapping[str, ServiceAnswer]] = {
    "dingtalk": _DINGTALK,
    "feishu": _FEISHU,
    "lark": _FEISHU,
    "wecombot": _WECOM,
    "wechat": _WECOM,
    "schan": ServiceAnswer({"code": ("0",), "errno": ("0",)}, ("message", "info", "errmsg", "data.error")),
    "pushplus": _PUSHPLUS,
    "wecom": _PUSHPLUS,
    "wpush": ServiceAnswer({"code": ("0",)}, ("message", "msg")),
    "wxpusher": ServiceAnswer({"code": ("1000",)}, ("msg",)),
    "pushdeer": _PUSHDEER,
    "pushdeers": _PUSHDEER,
    "pushme": ServiceAnswer({}, text="success"),
    "qq": ServiceAnswer({"success": ("true",)}, ("reason", "info")),
    "spugpush": ServiceAnswer({"code": ("0", "200")}, ("msg", "message")),
    "bark": _BARK,
    "barks": _BARK,
    "onebot": _ONEBOT,
    "onebots": _ONEBOT,
    "kook": ServiceAnswer({"code": ("0",)}, ("message",), ("429",)),
    "zalo": ServiceAnswer({"ok": ("true",)}, ("description",), ("429",)),
    "viber": ServiceAnswer({"status": ("0",)}, ("status_message",), ("12",)),
    "synology": _SYNOLOGY,
    "synologys": _SYNOLOGY,
    "join": ServiceAnswer({"success": ("true",)}, ("errorMessage",)),
    "pover": ServiceAnswer({"status": ("1",)}, ("errors",)),
    "psafer": _PUSHSAFER,
    "psafers": _PUSHSAFER,
    "pushy": ServiceAnswer({"success": ("true",)}, ("error",)),
    "vonage": _VONAGE,
    "nexmo": _VONAGE,
    "seven": ServiceAnswer({"success": ("100",)}, ("messages.*.error_text",), ("903",)),
    "msg91": ServiceAnswer({"type": ("success",)}, ("message",)),
    "clicksend": ServiceAnswer(
        {"data.messages.*.status": ("success",), "response_code": ("success",)}, ("response_msg",), ("throttled",)
    ),
    "bulkvs": ServiceAnswer({"Results.*.Status": ("success",)}, ("Description",)),
    "burstsms": _BURSTSMS,
    "kudosity": _BURSTSMS,
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
