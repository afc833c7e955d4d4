"""Chat, push and SMS services that refuse with a status of 200, and what each answers."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tests.kit.paging import Desk, Reply

KEY: Final = "a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6"
UUID: Final = "8b799edf-6f98-4d3a-9be7-2862fb4e5752"
PHONE: Final = "15551234567"


class Service(NamedTuple):
    """One service, with what its documentation says that it answers."""

    url: str
    host: str
    refuses: Mapping[str, Any] | str
    reason: str
    """Part of what is reported."""
    accepts: Mapping[str, Any] | str
    outcome: str = "rejected"

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]


_FEISHU_REFUSES: Final = {"code": 19024, "msg": "Key Words Not Found", "data": {}}
_FEISHU_ACCEPTS: Final = {"code": 0, "data": {}, "msg": "success"}
_OLD_FEISHU: Final = {"Extra": None, "StatusCode": 0, "StatusMessage": "success"}

SERVICES: Final = (
    Service(
        f"dingtalk://{KEY}",
        "oapi.dingtalk.com",
        {"errcode": 310000, "errmsg": "keywords not in content"},
        "310000 keywords not in content",
        {"errcode": 0, "errmsg": "ok"},
    ),
    Service(
        f"dingtalk://{KEY}",
        "oapi.dingtalk.com",
        {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"},
        "130101 send too fast",
        {"errcode": 0, "errmsg": "ok"},
        "rate_limited",
    ),
    Service(f"feishu://{KEY}", "open.feishu.cn", _FEISHU_REFUSES, "19024 Key Words Not Found", _FEISHU_ACCEPTS),
    Service(f"lark://{KEY}", "open.larksuite.com", _FEISHU_REFUSES, "19024 Key Words Not Found", _OLD_FEISHU),
    Service(
        f"wecombot://{KEY}",
        "qyapi.weixin.qq.com",
        {"errcode": 93000, "errmsg": "invalid webhook url"},
        "93000 invalid webhook url",
        {"errcode": 0, "errmsg": "ok"},
    ),
    Service(
        f"schan://SCT{KEY}",
        "sctapi.ftqq.com",
        {"code": 40001, "message": "[AUTH]错误的Key", "info": "错误的Key"},
        "40001 [AUTH]错误的Key",
        {"code": 0, "message": "", "data": {"pushid": "1", "readkey": "r", "error": "SUCCESS", "errno": 0}},
    ),
    Service(
        f"pushplus://{KEY}",
        "www.pushplus.plus",
        {"code": 903, "msg": "无效的用户令牌"},
        "903 无效的用户令牌",
        {"code": 200, "msg": "请求成功", "data": "id"},
    ),
    Service(
        f"wpush://WPUSH{KEY[:27]}",
        "api.wpush.cn",
        {"code": 401, "message": "invalid apikey"},
        "401 invalid apikey",
        {"code": 0, "message": "ok"},
    ),
    Service(
        f"wxpusher://AT_{KEY}/UID_123",
        "wxpusher.zjiecode.com",
        {"code": 1001, "msg": "appToken is wrong", "success": False},
        "1001 appToken is wrong",
        {"code": 1000, "msg": "处理成功", "success": True, "data": []},
    ),
    Service(
        f"pushdeers://pushdeer.example/{KEY}",
        "pushdeer.example",
        {"code": 80501, "error": "wrong pushkey"},
        "80501 wrong pushkey",
        {"code": 0, "content": {"result": ["{}"]}},
    ),
    Service(f"pushme://{KEY}", "push.i-i.me", "push_key错误", "push_key错误", "success"),
    Service(
        f"qq://{KEY}",
        "qmsg.zendee.cn",
        {"success": False, "reason": "KEY不存在", "code": 500},
        "KEY不存在",
        {"success": True, "reason": "操作成功", "code": 0, "info": {}},
    ),
    Service(
        f"spugpush://{KEY}",
        "push.spug.dev",
        {"code": 400, "msg": "模板不存在"},
        "400 模板不存在",
        {"code": 200, "msg": "请求成功"},
    ),
    Service(
        f"barks://bark.example/{KEY}",
        "bark.example",
        {"code": 400, "message": "failed to get device token"},
        "400 failed to get device token",
        {"code": 200, "message": "success", "timestamp": 1},
    ),
    Service(
        f"onebots://{KEY}@onebot.example/123456",
        "onebot.example",
        {"status": "failed", "retcode": 100, "wording": "user not found"},
        "100 user not found",
        {"status": "async", "retcode": 1},
    ),
    Service(
        f"kook://{KEY}/123456789",
        "www.kookapp.cn",
        {"code": 40100, "message": "no such channel"},
        "40100 no such channel",
        {"code": 0, "message": "ok", "data": {}},
    ),
    Service(
        f"synologys://synology.example/{KEY}",
        "synology.example",
        {"error": {"code": 404, "errors": "invalid token"}, "success": False},
        "404 invalid token",
        {"success": True},
    ),
    Service(
        f"synologys://synology.example/{KEY}",
        "synology.example",
        {"error": {"code": 411, "errors": "create post too fast"}, "success": False},
        "411 create post too fast",
        {"success": True},
        "rate_limited",
    ),
    Service(
        f"join://{KEY}/{KEY}",
        "joinjoaomgcd.appspot.com",
        {"success": False, "errorMessage": "User Not Authenticated"},
        "User Not Authenticated",
        {"success": True, "userAuthError": False},
    ),
    Service(
        f"pover://{KEY[:30]}@{KEY[:30]}",
        "api.pushover.net",
        {"status": 0, "errors": ["application token is invalid"]},
        "application token is invalid",
        {"status": 1, "request": UUID},
    ),
    Service(
        f"psafers://{KEY[:20]}",
        "www.pushsafer.com",
        {"status": 250, "error": "Invalid or missing private key!"},
        "250 Invalid or missing private key!",
        {"status": 1, "success": "message transmitted"},
    ),
    Service(
        f"pushy://{KEY}/@device1234",
        "api.pushy.me",
        {"success": False, "error": "no devices"},
        "no devices",
        {"success": True, "id": "1", "info": {"devices": 1}},
    ),
    Service(
        f"viber://{KEY}/user1234?from=flink",
        "chatapi.viber.com",
        {"status": 6, "status_message": "notSubscribed"},
        "6 notSubscribed",
        {"status": 0, "status_message": "ok"},
    ),
    Service(
        f"zalo://12345:{KEY}/chat1234",
        "bot-api.zaloplatforms.com",
        {"ok": False, "description": "chat not found", "error_code": 404},
        "chat not found",
        {"ok": True, "result": {}},
    ),
    Service(
        f"onesignal://{UUID}@{KEY}/{UUID}",
        "api.onesignal.com",
        {"id": "", "errors": ["All included players are not subscribed"]},
        "All included players are not subscribed",
        {"id": UUID, "errors": {"invalid_player_ids": ["x"]}},
    ),
    Service(
        f"vonage://{KEY[:8]}:{KEY[:16]}@{PHONE}/{PHONE}",
        "rest.nexmo.com",
        {"message-count": "1", "messages": [{"status": "4", "error-text": "Bad Credentials"}]},
        "4 Bad Credentials",
        {"message-count": "1", "messages": [{"status": "0", "message-id": "1"}]},
    ),
    Service(
        f"seven://{KEY}/{PHONE}",
        "gateway.seven.io",
        {"success": "900", "messages": []},
        "900",
        {"success": "100", "messages": [{"success": True, "error": None}]},
    ),
    Service(
        f"msg91://{KEY}@{KEY}/{PHONE}",
        "control.msg91.com",
        {"type": "error", "message": "template not found"},
        "error template not found",
        {"type": "success", "message": "id"},
    ),
    Service(
        f"clicksend://user:{KEY}@{PHONE}",
        "rest.clicksend.com",
        {"http_code": 200, "response_code": "SUCCESS", "data": {"messages": [{"status": "INVALID_RECIPIENT"}]}},
        "INVALID_RECIPIENT",
        {"http_code": 200, "response_code": "SUCCESS", "data": {"messages": [{"status": "SUCCESS"}]}},
    ),
    Service(
        f"bulkvs://user:{KEY}@{PHONE}/{PHONE}",
        "portal.bulkvs.com",
        {"RefId": UUID, "Results": [{"To": PHONE, "Status": "FAILED"}]},
        "FAILED",
        {"RefId": UUID, "Results": [{"To": PHONE, "Status": "SUCCESS"}]},
    ),
    Service(
        f"burstsms://{KEY}:{KEY}@{PHONE}/{PHONE}",
        "api.transmitsms.com",
        {"error": {"code": "RECIPIENTS_ERROR", "description": "no valid recipients"}},
        "RECIPIENTS_ERROR no valid recipients",
        {"message_id": 1, "error": {"code": "SUCCESS", "description": "OK"}},
    ),
    Service(
        f"kavenegar://{KEY}/{PHONE}",
        "api.kavenegar.com",
        {"return": {"status": 411, "message": "invalid receptor"}, "entries": None},
        "411 invalid receptor",
        {"return": {"status": 200, "message": "ok"}, "entries": []},
    ),
    Service(
        f"atalk://user@{KEY}/+{PHONE}",
        "api.africastalking.com",
        {"SMSMessageData": {"Message": "InvalidSenderId", "Recipients": [{"statusCode": 402, "status": "Invalid"}]}},
        "402",
        {"SMSMessageData": {"Message": "Sent", "Recipients": [{"statusCode": 101, "status": "Success"}]}},
    ),
    Service(
        f"clickatell://{KEY}/{PHONE}",
        "platform.clickatell.com",
        {"messages": [{"accepted": False, "errorDescription": "Invalid destination"}], "error": None},
        "Invalid destination",
        {"messages": [{"accepted": True, "error": None}], "error": None},
    ),
    Service(
        f"smtp2go://flink@example.com/{KEY}/ops@example.com",
        "api.smtp2go.com",
        {"data": {"succeeded": 0, "failed": 1, "failures": ["recipient is suppressed"]}},
        "recipient is suppressed",
        {"data": {"succeeded": 1, "failed": 0, "failures": []}},
    ),
    Service(
        f"rockets://{KEY}/{KEY}@rocket.example",
        "rocket.example",
        {"success": False, "error": "invalid integration"},
        "invalid integration",
        {"success": True},
    ),
    Service(
        "kodis://kodi.example",
        "kodi.example",
        {"error": {"code": -32601, "message": "Method not found."}, "id": 1, "jsonrpc": "2.0"},
        "Method not found.",
        {"id": 1, "jsonrpc": "2.0", "result": "OK"},
    ),
    Service(
        f"notifiarr://{KEY}/123456789012",
        "notifiarr.com",
        {"result": "error", "details": {"response": "no such channel"}},
        "no such channel",
        {"result": "success", "details": {"response": "sent"}},
    ),
    Service(
        f"splunk://{KEY}@{UUID}",
        "alert.victorops.com",
        {"result": "failure", "message": "bad routing key"},
        "bad routing key",
        {"result": "success", "entity_id": "1"},
    ),
    Service(
        f"pagerduty://{KEY}@{KEY}",
        "events.pagerduty.com",
        {"status": "invalid event", "message": "Event object is invalid"},
        "Event object is invalid",
        {"status": "success", "message": "Event processed", "dedup_key": "1"},
    ),
    Service(f"smsmanager://{KEY}@{PHONE}", "http-api.smsmanager.cz", "ERROR|201", "ERROR|201", f"OK|1|{PHONE}"),
    Service(
        f"jsons://hooks.example/{KEY}",
        "hooks.example",
        {"code": 4011, "msg": "no such channel"},
        "4011 no such channel",
        {"code": 200, "msg": "ok"},
    ),
)


class Answering(Desk):
    """A host that gives the same answer to each request."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.body: Mapping[str, Any] | str = ""

    def answer(self, path: str, _headers: Mapping[str, str], body: bytes, /) -> Reply:
        self.requests.append((path, {"body": body}))
        return Reply(200, self.body)


def shown(service: Service) -> str:
    """What identifies the case."""
    return f"{service.scheme} {json.dumps(service.refuses)[:20]}"
