"""Rejects every statement that is not a query, by the plan of Spark's own parser.

Spark executes commands immediately, also those nested inside a statement.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError

_ACCEPTED: Final = "SELECT, WITH, VALUES, TABLE, EXPLAIN, SHOW and DESCRIBE"
_CATALYST: Final = "org.apache.spark.sql.catalyst"
_STATEMENTS: Final = (f"{_CATALYST}.plans.logical.Command", f"{_CATALYST}.plans.logical.ParsedStatement")
"""Commands are of one of these classes, …"""
_OTHER_COMMANDS: Final = {
    "InsertIntoDir",
    "ExecuteImmediateQuery",
    "UnresolvedExecuteImmediate",
    "CompoundBody",
    "Call",
}
"""… except these."""
_METADATA_PREFIXES: Final = ("Show", "Describe", "Explain")
"""The prefixes of commands that only return metadata."""
_JAVA: Final = {"reflect", "java_method", "try_reflect"}
"""Functions that call any method of any Java class."""
_NAMES: Final = {"UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView"}
"""What a query reads, or a command describes."""
_INNER_PLANS: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""The attribute with the inner plan of these commands."""


class Asked(NamedTuple):
    """What a query needs."""

    views: frozenset[str] | None
    """The tables and views that it names, in lower case. None: all, because it lists what exists, as SHOW TABLES does."""
    described: bool
    """Whether it asks for metadata: columns and comments, no rows."""


def check_query(session: SparkSession, query: str) -> Asked:
    """What the query needs.

    Raises AuditError when the statement is not a query, and Spark's exception when Spark cannot parse it.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  plans have no Python API
    plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(query)  # noqa: SLF001  the same
    statements = [_class(jvm, name) for name in _STATEMENTS]
    named = set[str]()
    lists_names = described = False
    for node in _nodes(jvm, plan):
        name = node.getClass().getSimpleName()
        metadata = name.startswith(_METADATA_PREFIXES)
        if name in _OTHER_COMMANDS or (not metadata and any(kind.isInstance(node) for kind in statements)):
            raise AuditError(f"cannot run the query: it is a command; accepted are {_ACCEPTED}")
        if name == "ScriptTransformation":
            raise AuditError(f"cannot run the query: TRANSFORM with USING runs a program; accepted are {_ACCEPTED}")
        if name == "UnresolvedFunction" and (function := str(node.nameParts().last()).lower()) in _JAVA:
            raise AuditError(f"cannot run the query: {function} runs any code; it is not accepted")
        if name.endswith("WithUnresolvedIdentifier"):
            raise AuditError("cannot run the query: IDENTIFIER() hides the name; write the name itself")
        if name in _NAMES:
            named.add(str(node.multipartIdentifier().last()).lower())
        if metadata and name not in _INNER_PLANS:
            described = True
            children = node.children()
            kinds = {children.apply(number).getClass().getSimpleName() for number in range(children.size())}
            lists_names |= kinds.isdisjoint(_NAMES)
    return Asked(None if lists_names else frozenset(named), described)


def _nodes(jvm: Any, root: Any) -> Iterator[Any]:
    """Every node of a plan, also those of a subquery, a WITH or an EXPLAIN."""
    query_plan, plan_expression = (
        _class(jvm, f"{_CATALYST}.{name}") for name in ("plans.QueryPlan", "expressions.PlanExpression")
    )
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        children = [node.children(), node.innerChildren()]
        if query_plan.isInstance(node):
            children.append(node.expressions())
        pending += [nodes.apply(number) for nodes in children for number in range(nodes.size())]
        if plan_expression.isInstance(node):
            pending.append(node.plan())
        if (attribute := _INNER_PLANS.get(node.getClass().getSimpleName())) is not None:
            pending.append(getattr(node, attribute)())


def _class(jvm: Any, name: str) -> Any:
    return jvm.org.apache.spark.util.Utils.classForName(name, True, False)
