"""Templates of operators: Jinja2 in a sandbox, with the documented fields only.

The only importer of jinja2 among the settings. Other modules import this one only when a rule has a template, because jinja2 is slow to
import.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2 import Template as Compiled
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sidecar.core.alerting.template_fields import EXAMPLE
from sidecar.core.policy.policy import Template
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import did_you_mean

MOST_CHARACTERS: Final = 2000
"""The most characters of a template."""
MOST_RESULT: Final = 10_000
"""Characters of the result and of every intermediate value."""
_MOST_WORK: Final = 300_000
"""Characters of all values of one rendering together. Each loop item counts as `_EACH_ITEM`."""
_EACH_ITEM: Final = 100
_COUNTED: Final = "counted by the sandbox"
"""A filter name that no template can write."""
_FILTERS: Final = frozenset(
    (
        *("abs", "capitalize", "d", "default", "first", "int", "join", "last", "length", "lower", "max", "min"),
        *("round", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper"),
    )
)


class _Generator(CodeGenerator):
    """Generates code in which `_Sandbox` measures every text and collection that a template builds."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  as jinja2 names it
        self.write("environment.concatenate((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self._measured(super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx == "load":
            self._measured(super().visit_Tuple, node, frame)
        else:  # names that are assigned to
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self._measured(super().visit_Dict, node, frame)

    def _measured(self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.measured(")
        visit(node, frame)
        self.write(")")


class _Sandbox(ImmutableSandboxedEnvironment):
    """No calls, no multiplication, few filters; each value is bounded, and so are all values together."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    code_generator_class = _Generator

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False)
        self.globals.clear()
        self.filters = {name: self._measuring(function) for name, function in self.filters.items() if name in _FILTERS}
        self.filters[_COUNTED] = self._counted
        self._spent = 0

    def begin(self) -> None:
        """Reset the budget before a rendering."""
        self._spent = 0

    def measured(self, value: Any) -> Any:
        """`value`. Raises SecurityError if it exceeds its bound or the budget of the rendering."""
        weight, rest = 0, [value]
        while rest and weight <= MOST_RESULT:
            part = rest.pop()
            if isinstance(part, str):
                weight += len(part)
            elif isinstance(part, Mapping):
                rest += [*part.keys(), *part.values()]
            elif isinstance(part, list | tuple):
                rest += part
            weight += 1
        if weight > MOST_RESULT:
            raise SecurityError(f"it makes more than {MOST_RESULT} characters")
        self._spend(weight)
        return value

    def concatenate(self, parts: Sequence[Any]) -> str:
        """The result of `~`."""
        return str(self.measured("".join(map(str, parts))))

    def concat(self, parts: Iterable[str]) -> str:
        """The text of a block or of the whole template."""
        texts = []
        size = 0
        for part in parts:
            size += len(part)
            texts.append(self.measured(part))
            if size > MOST_RESULT:
                raise SecurityError(f"it makes more than {MOST_RESULT} characters")
        return "".join(texts)

    def is_safe_callable(self, obj: Any) -> bool:  # noqa: ARG002  nothing is callable
        return False

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator != "+":
            raise SecurityError(f"{operator} is not allowed here")
        return self.measured(super().call_binop(context, operator, left, right))

    def _measuring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def filtered(*arguments: Any, **options: Any) -> Any:
            return self.measured(function(*arguments, **options))

        return filtered

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items of a loop."""
        for item in items:
            self._spend(_EACH_ITEM)
            yield item

    def _spend(self, weight: int) -> None:
        self._spent += weight
        if self._spent > _MOST_WORK:
            raise SecurityError("it takes too many steps")


def template(setting: Setting) -> Template:
    """The compiled template. Raises SettingsError: a syntax error, an unknown field, or it fails on the example."""
    if len(setting.text) > MOST_CHARACTERS:
        raise setting.error(f"is longer than {MOST_CHARACTERS} characters")
    sandbox = _Sandbox()
    try:
        parsed = sandbox.parse(setting.text)
        for loop in parsed.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
        unknown = meta.find_undeclared_variables(parsed) - EXAMPLE.keys()
        render = _rendering(sandbox, sandbox.from_string(parsed))
    except (TemplateError, RecursionError) as error:
        raise setting.error(f"is not a Jinja2 template: {_one_line(error)}") from error
    if unknown:
        first = min(unknown)
        raise setting.error(f"there is no field {first}: {did_you_mean(EXAMPLE, first)}")
    try:
        render(EXAMPLE)
    except ValueError as error:
        raise setting.error(f"fails on an example: {error}") from error
    return render


def _rendering(sandbox: _Sandbox, compiled: Compiled) -> Template:
    def render(fields: Mapping[str, object]) -> str:
        sandbox.begin()
        try:
            return compiled.render(fields)
        except Exception as error:  # a template may raise any Python exception: report it in one line
            raise ValueError(_one_line(error)) from error

    return render


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
