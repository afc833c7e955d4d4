"""Templates of operators: Jinja2 in a sandbox, over documented fields and nothing else.

The only importer of jinja2 here, and itself imported where a rule has a template: others need not pay for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError, meta
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sidecar.core.notifications import EXAMPLE
from sidecar.core.policy import Template
from sidecar.settings.errors import expected
from sidecar.settings.given import Given

MOST_CHARACTERS: Final = 2000
"""Of a template."""
_FILTERS: Final = frozenset(
    {
        "abs",
        "capitalize",
        "d",
        "default",
        "first",
        "int",
        "join",
        "last",
        "length",
        "lower",
        "max",
        "min",
        "round",
        "sort",
    }
    | {"string", "sum", "title", "trim", "truncate", "unique", "upper"}
)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Without anything that could make more of a text than stands in the template: no call, no multiplication, few filters."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False)
        self.globals.clear()
        self.filters = {name: made for name, made in self.filters.items() if name in _FILTERS}

    def is_safe_callable(self, obj: Any) -> bool:  # noqa: ARG002  nothing is called, whatever it is
        return False

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002  as jinja2 declares it
        raise SecurityError(f"{operator} is not allowed here")


def template(given: Given) -> Template:
    """The template that somebody gave. Raises SettingsError: it cannot be read, asks for what there is not, or fails on an example."""
    if len(given.text) > MOST_CHARACTERS:
        raise given.error(f"is longer than {MOST_CHARACTERS} characters")
    sandbox = _Sandbox()
    try:
        unknown = meta.find_undeclared_variables(sandbox.parse(given.text)) - EXAMPLE.keys()
        made = _rendering(sandbox.from_string(given.text).render)
    except TemplateError as error:
        raise given.error(f"is no template of Jinja2: {_said(error)}") from error
    if unknown:
        first = min(unknown)
        raise given.error(f"there is no field {first}: {expected(EXAMPLE, first)}")
    try:
        made(EXAMPLE)
    except ValueError as error:
        raise given.error(f"does not work: {error}") from error
    return made


def _rendering(render: Callable[[Mapping[str, object]], str]) -> Template:
    def made(fields: Mapping[str, object]) -> str:
        try:
            return render(fields)
        except Exception as error:  # a template may raise whatever Python does: people get one line
            raise ValueError(_said(error)) from error

    return made


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
