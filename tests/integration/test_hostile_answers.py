"""Whatever an API server answers: values of ours, or ValueError, which the driver takes for an answer that is none."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.drivers.kubernetes.objects import (
    OF_OBJECTS,
    ConfigMap,
    ConfigMapList,
    WatchEvent,
    read_config_map,
    read_config_map_list,
    read_message,
    read_watch_event,
)
from tests.kit import hostile
from tests.kit.groups import examples

METADATA = hostile.objects(
    {
        "name": st.just("demo-cluster-config-map") | hostile.texts(),
        "uid": hostile.texts(),
        "resourceVersion": st.just("7") | hostile.texts(),
        "labels": st.dictionaries(hostile.texts(), hostile.texts(), max_size=2),
        "annotations": st.dictionaries(
            st.just("control-plane.alpha.kubernetes.io/leader"), hostile.values(), max_size=1
        ),
    }
)
OBJECTS = hostile.objects(
    {
        "metadata": METADATA,
        "data": st.dictionaries(hostile.texts(), hostile.values(), max_size=3),
        "code": hostile.numbers(),
        "message": hostile.texts(),
    }
)
EVENTS = hostile.objects(
    {"type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]), "object": OBJECTS}
)
LISTS = hostile.objects({"metadata": METADATA, "items": st.lists(OBJECTS, max_size=3)})
WHOLE = {
    "metadata": {"name": "a", "uid": "b", "resourceVersion": "1", "labels": {}, "annotations": {}},
    "data": {"k": "v"},
}


@given(hostile.documents(EVENTS | LISTS | OBJECTS))
@settings(deadline=None, max_examples=examples(150))
def test_any_answer_is_one_of_ours_or_none(body: bytes) -> None:
    """What is read can be handed on: its texts are texts, and what is no text in it was left out."""
    assert isinstance(read_message(body), str)
    with suppress(ValueError):
        assert isinstance(read_config_map_list(body), ConfigMapList)
    with suppress(ValueError):
        _check(read_config_map(body))
    with suppress(ValueError):
        event = read_watch_event(body)
        assert isinstance(event, WatchEvent)
        assert (event.item is not None) == (event.kind in OF_OBJECTS)
        if event.item:
            _check(event.item)


def _check(config_map: ConfigMap) -> None:
    texts = [*config_map.data.items(), *config_map.labels.items()]
    assert [pair for pair in texts if not all(isinstance(text, str) for text in pair)] == []
    assert config_map.leader is None or isinstance(config_map.leader, str)


NOT_UTF_8 = [
    b'{"message": "\x80"}',
    b'{"metadata": {"name": "\xff", "uid": "b", "resourceVersion": "1"}}',
    b'{"type": "\x80", "object": {}}',
]


NESTED = [*hostile.nested(WHOLE), *hostile.nested({"type": "ADDED", "object": WHOLE})]


@pytest.mark.parametrize("body", [*NOT_UTF_8, *NESTED])
def test_an_answer_that_is_not_text_or_nested_too_deep_is_none(body: bytes) -> None:
    """As any other that is no JSON; a refusal is one all the same, without its message."""
    for read in (read_config_map_list, read_config_map, read_watch_event):
        with pytest.raises(ValueError, match=r"^no "):
            read(body)
    assert read_message(body) == ""
