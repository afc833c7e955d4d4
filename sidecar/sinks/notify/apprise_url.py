"""URLs for Apprise that are not written as it reads them, and what to write instead: of services, as they give them out, and those in which
a part of a password becomes the host, or is lost.

No message shows a part of the URL: it may be of the password."""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

_AUTHORITY_ENDS: Final = re.compile(r"[/?#]")


def ambiguity(url: str) -> str | None:
    """The part that makes the URL ambiguous, and what to write instead; None: nothing."""
    authority, after = _split(url)
    if authority.count("@") > 1:
        return 'has more than one "@" before the host: write each "@" of a user name or password as %40'
    name = re.split("[=&;]", after, maxsplit=1)[0]
    if "@" not in authority and after.startswith(("?", "#")) and "@" in name:
        return 'has "?" or "#" before the "@": write them as %3F and %23 in a user name or password'
    return None


def cut_password(url: str, password: object) -> str | None:
    """The text to write instead, if Apprise took only the beginning of the password before the host; None: it took all of it."""
    credentials, at_sign, _ = _split(url)[0].rpartition("@")
    written = unquote(credentials.partition(":")[2])
    if not at_sign or not isinstance(password, str) or not password:
        return None
    if ":" in credentials.partition(":")[2] and written != password and written.startswith(password):
        return 'has more than one ":" before the host: write each ":" of a user name or password as %3A'
    return None


def host_may_be_secret(url: str) -> bool:
    """True if what is read as the host may be the beginning of a password with a slash in it."""
    authority, after = _split(url)
    return "@" not in authority and "@" in after.partition("?")[0]


def _split(url: str) -> tuple[str, str]:
    """The authority, and what follows it."""
    rest = url.strip().partition("://")[2]
    end = match.start() if (match := _AUTHORITY_ENDS.search(rest)) else len(rest)
    return rest[:end], rest[end:]


class PastedUrl(NamedTuple):
    """One spelling of one service's URLs."""

    pattern: re.Pattern[str]
    """Matches the whole URL without its scheme."""
    write: str
    """In Apprise's spelling: `{name}` is the part of that name of the pattern; a capital word is not in the URL."""


def _row(pattern: str, write: str) -> PastedUrl:
    return PastedUrl(re.compile(pattern, re.IGNORECASE), write)


_HOST: Final = r"(?P<host>[^/?#@]+)"
_WORD: Final = r"(?P<token>[\w-]+)"
_END: Final = r"/?(?:[?&#].*)?"

PASTED_URLS: Final = (
    _row(rf"open\.feishu\.cn/open-apis/bot/(?:v2/)?hook/{_WORD}{_END}", "feishu://{token}"),
    _row(rf"open\.larksuite\.com/open-apis/bot/(?:v2/)?hook/{_WORD}{_END}", "lark://{token}"),
    _row(rf"oapi\.dingtalk\.com/robot/send/?\?(?:.*&)?access_token={_WORD}(?:&.*)?", "dingtalk://{token}"),
    _row(rf"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send/?\?(?:.*&)?key={_WORD}(?:&.*)?", "wecombot://{token}"),
    _row(
        rf"(?:(?:canary|ptb|www)\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/(?P<id>\d+)/{_WORD}{_END}",
        "discord://{id}/{token}",
    ),
    _row(rf"api\.incident\.io/v2/alert_events/http/(?P<source>\w+){_END}", "incidentio://{source}/TOKEN"),
    _row(rf"api\.telegram\.org/bot(?P<token>\d+:[\w-]+)/sendMessage{_END}", "tgram://{token}/CHAT_ID"),
    _row(rf"events\.pagerduty\.com/(?:v2/enqueue|integration/\w+/enqueue){_END}", "pagerduty://INTEGRATION_KEY@API_KEY"),
    _row(r"api\.opsgenie\.com/.*", "opsgenie://API_KEY"),
    _row(r"api\.eu\.opsgenie\.com/.*", "opsgenie://API_KEY?region=eu"),
    _row(
        rf"alert\.victorops\.com/integrations/generic/\d+/alert/{_WORD}{_END}",
        "splunk://ROUTING_KEY@{token}",
    ),
    _row(rf"(?:connect|account)\.signl4\.com/webhook/{_WORD}{_END}", "signl4://{token}"),
    _row(r"api\.ilert\.com/api/.*", "ilert://KEY"),
    _row(r"api\.pushover\.net/1/messages\.json.*", "pover://USER_KEY@TOKEN"),
    _row(r"(?P<organization>[\w-]+)\.zulipchat\.com/api/.*", "zulip://BOT_NAME@{organization}/TOKEN"),
    _row(rf"sctapi\.ftqq\.com/{_WORD}\.send{_END}", "schan://{token}"),
    _row(rf"(?P<host>api\.day\.app)/{_WORD}(?:/.*)?", "barks://{host}/{token}"),
    _row(rf"{_HOST}/message/?\?(?:.*&)?token=(?P<token>[\w.-]+)(?:&.*)?", "gotifys://{host}/{token}"),
    # Rocket.Chat's has an id before the token, Mattermost's is 26 characters.
    _row(rf"{_HOST}/hooks/(?P<id>[a-z0-9]{{17,32}})/(?P<token>[a-z0-9]+)/?", "rockets://{id}/{token}@{host}"),
    _row(r"(?P<host>[^/?#@]+(?:/[^?#@]+?)?)/hooks/(?P<token>[a-z0-9]{26})/?", "mmosts://{host}/{token}"),
)  # fmt: skip
_RETIRED: Final = (
    "belongs to the connectors of Office 365, which Microsoft has retired: make a workflow in Teams that takes webhook requests, and give "
    "the https:// URL that it shows"
)
_WEB: Final = ("http://", "https://")
_OTHER: Final = (
    "names no service that Apprise knows by this URL: write it as Apprise spells its service, or write webhook: {url: …} in place of "
    "urls, to post Alertmanager's payload to it"
)
_TEAMS: Final = re.compile(
    r"msteams://.*|https?://(?:[\w-]+\.webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/.*",
    re.IGNORECASE,
)


def instead(url: str) -> str | None:
    """The problem of a URL that Apprise does not take, and what to write, without a part of it. None: nothing is known."""
    if _TEAMS.fullmatch(url.strip()):
        return _RETIRED
    row = row_of(url)
    if row is None:
        return _OTHER if url.lower().lstrip().startswith(_WEB) else None
    words = {name: name.upper() for name in row.pattern.groupindex}
    parts = f", with {' and '.join(words.values())} of this URL" if words else ""
    return f"is not how Apprise spells this service: write {row.write.format_map(words)}{parts}"


def row_of(url: str) -> PastedUrl | None:
    """The first row that the URL belongs to."""
    rest = url.strip().partition("://")[2]
    if not url.lower().lstrip().startswith(_WEB):
        return None
    return next((row for row in PASTED_URLS if row.pattern.fullmatch(rest)), None)
