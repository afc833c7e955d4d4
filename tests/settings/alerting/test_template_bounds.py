"""A template makes a short text in a short time, or is refused in one line when it is loaded."""

import pytest

from sidecar.core.alerting.compose import EXAMPLE
from sidecar.settings.alerting.templates import MOST_RESULT, template
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError

S = "cluster_id"


def made(text: str) -> str:
    return template(Setting(text, "rules.yaml:3: summary"))(EXAMPLE)


@pytest.mark.parametrize(
    "text",
    [
        "{% set s = " + S + " %}" + "{% set s = s ~ s %}" * 60 + "{{ s }}",
        "{% set s = " + S + " %}" + "{% set s = s + s %}" * 60,
        "{% set s = [1] %}" + "{% set s = s + s %}" * 60,
        "{% set s = [1] %}" + "{% set s = [s, s] %}" * 60 + "{{ s }}",
        "{% set s = [1] %}{% set t = [1] %}" + "{% set s = [s, s] %}{% set t = (t, t) %}" * 40 + "{{ s == t }}",
        "{% set s = {1: 1} %}" + "{% set s = {1: s, 2: s} %}" * 50 + "{{ s }}",
        "{% set s = " + S + " %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 40,
        "{% set s = " + S + " %}" + "{% set s = [s, s] | join %}" * 60,
        "{% for a in '0123456789' %}" * 9 + "{% endfor %}" * 9,
        "{% for a in '0123456789' %}" * 9 + "{{ a }}" + "{% endfor %}" * 9,
        "{% for a in '0123456789' %}" * 6 + "{{ loop.length }}" + "{% endfor %}" * 6,
    ],
)
def test_what_grows_without_bound_is_refused(text: str) -> None:
    """Doubling a text or a list, by whatever means, and loops within loops."""
    with pytest.raises(SettingsError) as caught:
        made(text)
    line = str(caught.value)
    assert line.startswith("rules.yaml:3: summary: fails on an example: it ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% set s = 'a' %}{% set s = s ~ 1 ~ s %}{{ s }}", "a1a"),
        ("{{ 1 + 2 }}{{ [1] + [2] }}{{ 'a' + 'b' }}", "3[1, 2]ab"),
        ("{% for a in ['x', 'y'] %}{{ loop.index }}/{{ loop.length }}{{ a }}{% endfor %}", "1/2x2/2y"),
        ("{% for a, b in [(1, 2)] %}{{ a }}{{ b }}{% else %}none{% endfor %}", "12"),
        ("{% set a, b = 1, 2 %}{{ a - b }}{{ {'k': 'v'}['k'] }}", "-1v"),
        ("{{ ['b', 'a'] | sort | join(', ') }}{{ none | default('x', true) }}{{ 'abc' | first }}", "a, bxa"),
        ("{% set x %}in {{ 1 }}{% endset %}{{ x | upper }}", "IN 1"),
    ],
)
def test_what_people_write_works(text: str, expected: str) -> None:
    """The same operators within the bounds."""
    assert made(text) == expected


def test_a_template_that_works_with_the_example_may_still_be_refused_later() -> None:
    """A bound holds in every rendering, and each rendering has all of it."""
    render = template(Setting("{{ cluster_id ~ cluster_id }}", "here"))
    for _ in range(100):
        assert render({**EXAMPLE, "cluster_id": "x" * 4000}) == "x" * 8000
    with pytest.raises(ValueError, match=f"more than {MOST_RESULT} characters"):
        render({**EXAMPLE, "cluster_id": "x" * 6000})
