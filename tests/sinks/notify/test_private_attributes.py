"""What the code sets and calls of Apprise's objects beside its interface: where a version of Apprise renames it, this says which."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from apprise import Apprise, NotifyBase

from sidecar.sinks.notify import apprise_plugins
from tests.kit.paging import KEY
from tests.sinks.notify.test_incidents import WORDS

# Apprise's mail plugin imports it before Python 3.13.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
URLS = {
    **{scheme: about[0] for scheme, about in WORDS.items()},
    **{scheme: WORDS[f"{scheme}s"][0].replace("s://", "://") for scheme in ("goalert", "opsimate")},
    **{scheme: f"{scheme}://{KEY}" for scheme in ("opsgenie", "jira")},
}


def service(url: str) -> Any:
    """The plugin's object, as Apprise makes it."""
    made = Apprise.instantiate(url)
    assert isinstance(made, NotifyBase), url
    return made


def reads(plugin: Any) -> Iterator[str]:
    """The attributes of `self` that the plugin's own methods name."""
    for _, method in inspect.getmembers(type(plugin), inspect.isfunction):
        yield from method.__code__.co_names


@pytest.mark.parametrize("scheme", apprise_plugins.KEYS)
def test_a_plugin_has_the_key_and_the_action_that_are_set(scheme: str) -> None:
    """They are there before they are set, and its methods read them: another name would be set and never sent."""
    plugin = service(URLS[scheme])
    for attribute in (apprise_plugins.KEYS[scheme], "action"):
        assert attribute in vars(plugin)
        assert attribute in {*reads(plugin)}


@pytest.mark.parametrize("scheme", ["splunk", "victorops"])
def test_the_key_of_splunk_is_unset_as_expected(scheme: str) -> None:
    """A key of its own is distinguished from one that a URL gives."""
    plugin = service(URLS[scheme])
    assert plugin.entity_id == f"{plugin.app_id}/{plugin.routing_key}"


@pytest.mark.parametrize("scheme", ["opsgenie", "jira"])
def test_a_note_and_a_close_find_what_they_call(scheme: str) -> None:
    """`_fetch` takes the method, the URL, the payload and the parameters; there is an address for the region."""
    plugin = service(URLS[scheme])
    assert [*inspect.signature(plugin._fetch).parameters] == ["method", "url", "payload", "params"]
    addresses = vars(import_module(type(plugin).__module__))[f"{scheme.upper()}_API_LOOKUP"]
    assert addresses[plugin.region_name].startswith("https://")
    assert plugin.app_desc


def test_every_object_has_what_is_replaced_for_one_attempt() -> None:
    """Apprise's own retries and pauses are the outbox's; a URL may not call its destination optional."""
    plugin = service("json://127.0.0.1/")
    assert (plugin.retry, plugin.optional) == (0, False)
    assert callable(plugin.throttle)


def test_a_mail_has_what_makes_a_thread() -> None:
    """Headers to add, and the function that makes a Message-ID."""
    plugin = service("mailto://127.0.0.1/?from=a@example.com&to=b@example.com")
    assert isinstance(plugin.headers, dict)
    module = import_module("apprise.plugins.email.base")
    assert callable(vars(module)["make_msgid"])
    assert "make_msgid" in inspect.getsource(type(plugin)) + inspect.getsource(module)
