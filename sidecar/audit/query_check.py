"""Queries only: what Spark's own parser makes of a statement is looked at before Spark acts on it.

Spark carries out commands at once when it is asked, also those that stand deep inside a statement.
"""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError

_TAKEN: Final = "SELECT, WITH, VALUES, TABLE, EXPLAIN, SHOW and DESCRIBE"
_CATALYST: Final = "org.apache.spark.sql.catalyst"
_STATEMENTS: Final = (f"{_CATALYST}.plans.logical.Command", f"{_CATALYST}.plans.logical.ParsedStatement")
"""What does something is of one of these kinds, …"""
_ACTING: Final = {"InsertIntoDir", "ExecuteImmediateQuery", "UnresolvedExecuteImmediate", "CompoundBody", "Call"}
"""… but for these."""
_TELLING: Final = ("Show", "Describe", "Explain")
"""How the names of those begin that only tell something."""
_JAVA: Final = {"reflect", "java_method", "try_reflect"}
"""Functions that call any method of any class."""
_ABOUT: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""Where those have the plan that they are about."""


def check_query(session: SparkSession, query: str) -> set[str] | None:
    """Which tables and views the query names, in small letters; None when it asks what there is.

    Raises AuditError when the statement is more than a query; what Spark raises when it does not understand it.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  plans have no Python API
    plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(query)  # noqa: SLF001  the same
    statements = [_class(jvm, name) for name in _STATEMENTS]
    named = set[str]()
    asks_what_there_is = False
    for node in _nodes(jvm, plan):
        name = node.getClass().getSimpleName()
        tells = name.startswith(_TELLING)
        if name in _ACTING or (not tells and any(kind.isInstance(node) for kind in statements)):
            raise AuditError(f"cannot run the query: it is a command; taken are {_TAKEN}")
        if name == "ScriptTransformation":
            raise AuditError(f"cannot run the query: TRANSFORM with USING runs a program; taken are {_TAKEN}")
        if name == "UnresolvedFunction" and (function := str(node.nameParts().last()).lower()) in _JAVA:
            raise AuditError(f"cannot run the query: {function} runs any code; it is not taken")
        if name.endswith("WithUnresolvedIdentifier"):
            raise AuditError("cannot run the query: IDENTIFIER() hides what is meant; write the name itself")
        if name == "UnresolvedRelation":
            named.add(str(node.multipartIdentifier().last()).lower())
        asks_what_there_is |= tells and name not in _ABOUT
    return None if asks_what_there_is else named


def _nodes(jvm: Any, root: Any) -> Iterator[Any]:
    """Every plan and every expression in a plan, also those in a subquery, a WITH or an EXPLAIN."""
    query_plan, plan_expression = (
        _class(jvm, f"{_CATALYST}.{name}") for name in ("plans.QueryPlan", "expressions.PlanExpression")
    )
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        below = [node.children(), node.innerChildren()]
        if query_plan.isInstance(node):
            below.append(node.expressions())
        waiting += [nodes.apply(number) for nodes in below for number in range(nodes.size())]
        if plan_expression.isInstance(node):
            waiting.append(node.plan())
        if (about := _ABOUT.get(node.getClass().getSimpleName())) is not None:
            waiting.append(getattr(node, about)())


def _class(jvm: Any, name: str) -> Any:
    return jvm.org.apache.spark.util.Utils.classForName(name, True, False)
