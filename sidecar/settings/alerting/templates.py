"""Templates of operators: Jinja2 in a sandbox, over documented fields and nothing else.

The only importer of jinja2 here, and itself imported where a rule has a template: others need not pay for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2 import Template as Compiled
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sidecar.core.alerting.message import EXAMPLE
from sidecar.core.policy.policy import Template
from sidecar.settings.file.errors import expected
from sidecar.settings.file.value import Given

MOST_CHARACTERS: Final = 2000
"""Of a template."""
MOST_RESULT: Final = 10_000
"""Characters of what a template makes, and of every value on the way there."""
_MOST_WORK: Final = 300_000
"""Characters of all values of one rendering together; an item of a loop counts for `_EACH_ITEM`."""
_EACH_ITEM: Final = 100
_COUNTED: Final = "counted by the sandbox"
"""No name that a template could write."""
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


class _Generator(CodeGenerator):
    """Has every text and every list that a template builds measured by its `_Sandbox`."""

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
    """No call, no multiplication, few filters; and whatever a template builds is bounded, each value and all of them together."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})
    code_generator_class = _Generator

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False)
        self.globals.clear()
        self.filters = {name: self._measuring(made) for name, made in self.filters.items() if name in _FILTERS}
        self.filters[_COUNTED] = self._counted
        self._spent = 0

    def begin(self) -> None:
        """A rendering begins."""
        self._spent = 0

    def measured(self, value: Any) -> Any:
        """The value. Raises SecurityError: it is too large, or it is all together."""
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
        """What `~` gives."""
        return str(self.measured("".join(map(str, parts))))

    def concat(self, parts: Iterable[str]) -> str:
        """The text of a block, and that of the whole template."""
        made = []
        size = 0
        for part in parts:
            size += len(part)
            made.append(self.measured(part))
            if size > MOST_RESULT:
                raise SecurityError(f"it makes more than {MOST_RESULT} characters")
        return "".join(made)

    def is_safe_callable(self, obj: Any) -> bool:  # noqa: ARG002  nothing is called, whatever it is
        return False

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator != "+":
            raise SecurityError(f"{operator} is not allowed here")
        return self.measured(super().call_binop(context, operator, left, right))

    def _measuring(self, made: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(made)
        def filtered(*arguments: Any, **options: Any) -> Any:
            return self.measured(made(*arguments, **options))

        return filtered

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """What a loop goes through."""
        for item in items:
            self._spend(_EACH_ITEM)
            yield item

    def _spend(self, weight: int) -> None:
        self._spent += weight
        if self._spent > _MOST_WORK:
            raise SecurityError("it takes too many steps")


def _parsed(sandbox: _Sandbox, text: str) -> nodes.Template:
    """With loops that are counted."""
    parsed = sandbox.parse(text)
    for loop in parsed.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    return parsed


def template(given: Given) -> Template:
    """The template that somebody gave. Raises SettingsError: it cannot be read, asks for what there is not, or fails on an example."""
    if len(given.text) > MOST_CHARACTERS:
        raise given.error(f"is longer than {MOST_CHARACTERS} characters")
    sandbox = _Sandbox()
    try:
        parsed = _parsed(sandbox, given.text)
        unknown = meta.find_undeclared_variables(parsed) - EXAMPLE.keys()
        made = _rendering(sandbox, sandbox.from_string(parsed))
    except (TemplateError, RecursionError) as error:
        raise given.error(f"is no template of Jinja2: {_said(error)}") from error
    if unknown:
        first = min(unknown)
        raise given.error(f"there is no field {first}: {expected(EXAMPLE, first)}")
    try:
        made(EXAMPLE)
    except ValueError as error:
        raise given.error(f"does not work: {error}") from error
    return made


def _rendering(sandbox: _Sandbox, compiled: Compiled) -> Template:
    def made(fields: Mapping[str, object]) -> str:
        sandbox.begin()
        try:
            return compiled.render(fields)
        except Exception as error:  # a template may raise whatever Python does: people get one line
            raise ValueError(_said(error)) from error

    return made


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
