"""Accepts queries over the views of the audit log, and nothing else: what is accepted is listed in `allowed.json`.

Spark executes commands immediately, also those nested inside a statement, and it evaluates constants while it analyses a statement. So a
statement is checked as parsed, then analysed in a session that has only allowed functions, and checked again before it is executed.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import AuditError
from sidecar.audit.spark.spark_session import own_session
from sidecar.core.sanitize import clean

NO_FILES: Final = "a query reads no files (--with NAME=FILE.csv makes a table of one)"
"""That is so on purpose, whatever Spark says of a path."""
_ACCEPTED: Final = "SELECT, WITH, VALUES, TABLE, EXPLAIN, SHOW and DESCRIBE"
_CATALYST: Final = "org.apache.spark.sql.catalyst."
_NAMES: Final = {"UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView"}
"""What a query reads, or a command describes."""
_LEAVES: Final = (
    "expressions.Literal",
    "expressions.AttributeReference",
    "analysis.UnresolvedAttribute",
    "analysis.UnresolvedStar",
)
"""What most nodes are. They have nothing below them, and asking the JVM for it takes time."""
_INNER_PLANS: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""The attribute with the inner plan of these commands."""


class _Allowed(Struct, frozen=True):
    """What a query may consist of. Classes are those of Spark's Catalyst, by package."""

    functions: frozenset[str]
    """Functions of any kind, in lower case."""
    commands: frozenset[str]
    """Commands that only return metadata."""
    parsed: dict[str, frozenset[str]]
    """The plans that the parser makes of a query."""
    analysed: dict[str, frozenset[str]]
    """The plans and expressions that the analyser makes of it."""


_ALLOWED: Final = msgspec.json.decode((files("sidecar.audit.ask") / "allowed.json").read_bytes(), type=_Allowed)
FUNCTIONS: Final = _ALLOWED.functions
"""The functions that a query may call."""


class _Node(NamedTuple):
    """A plan or an expression."""

    node: Any
    package: str
    """Below Catalyst's, or the whole name of another one."""
    name: str
    is_plan: bool


class Asked(NamedTuple):
    """What a query needs."""

    views: frozenset[str] | None
    """The tables and views that it names, in lower case. None: all, because it lists what exists, as SHOW TABLES does."""
    described: bool
    """Whether it asks for metadata: columns and comments, no rows."""
    explained: bool = False
    """Whether it asks for Spark's plan, one text of many lines."""


def query_session(spark: SparkSession) -> SparkSession:
    """A session of its own in which a query can be analysed: it has no other functions than the allowed ones, and a path is no table."""
    session = own_session(spark)
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    state: Any = session._jsparkSession.sessionState()  # noqa: SLF001  the registries have no Python API
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        functions = registry.listFunction()
        names = functions.mkString("\n").split("\n")  # a single call, where a loop would make one for each
        for number, name in enumerate(names):
            if name.rpartition(".")[2] not in FUNCTIONS:
                registry.dropFunction(functions.apply(number))
    return session


def check_query(session: SparkSession, query: str) -> Asked:
    """What the query needs.

    Raises AuditError when the statement is not a query, and Spark's exception when Spark cannot parse it.
    """
    names = set[str]()
    lists_names = described = explained = False
    for node in _nodes(session, _parsed(session, query)):
        tree, name = node.node, node.name
        metadata = name in _ALLOWED.commands
        _check_function(tree, name)
        if name.endswith("WithUnresolvedIdentifier"):
            raise AuditError("cannot run the query: IDENTIFIER() hides the name; write the name itself")
        if name in _NAMES:
            names.add(_own_name(tree).lower())
        elif name == "UnresolvedNamespace" and _parts(tree) not in ([], ["default"]):
            raise AuditError(f"cannot run the query: {_written(tree)} is not of the audit log, which has no namespaces")
        elif node.is_plan and not metadata and not _is_in(_ALLOWED.parsed, node):
            problem = f"it is a command, or a part of it ({name}) is not of a query; accepted are {_ACCEPTED}"
            raise AuditError(f"cannot run the query: {problem}")
        explained |= name == "ExplainCommand"
        if metadata and name not in _INNER_PLANS:
            described = True
            children = tree.children()
            kinds = {children.apply(number).getClass().getSimpleName() for number in range(children.size())}
            lists_names |= kinds.isdisjoint(_NAMES)
    return Asked(None if lists_names else frozenset(names), described, explained)


def answer(session: SparkSession, query: str) -> DataFrame:
    """The rows of a query that `check_query` accepts, in a session of `query_session` with the views that it needs.

    Raises AuditError, before anything is executed, when it is more than a query over these views; and Spark's exception when Spark rejects
    it.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  plans have no Python API
    rows_of: Any = jvm.org.apache.spark.sql.classic.Dataset.ofRows
    jsession: Any = session._jsparkSession  # noqa: SLF001  the same
    plan = inner = _parsed(session, query)
    while (attribute := _INNER_PLANS.get(inner.getClass().getSimpleName())) is not None:
        inner = getattr(inner, attribute)()
    rows = None
    if inner.getClass().getSimpleName() not in _ALLOWED.commands:
        rows = rows_of(jsession, inner)  # executed when the rows are read
        _check_analysed(session, rows.queryExecution().analyzed())
    if rows is None or inner is not plan:
        rows = rows_of(jsession, plan)
    return DataFrame(rows, session)


def _parsed(session: SparkSession, query: str) -> Any:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  plans have no Python API
    jsession: Any = session._jsparkSession  # noqa: SLF001  the same
    # Spark's parser is configured by the active session, which may be one that replaces `${env:…}` in the query.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(jsession)
    return jsession.sessionState().sqlParser().parsePlan(query)


def _parts(node: Any) -> list[str]:
    identifier = node.multipartIdentifier()
    return [str(identifier.apply(number)) for number in range(identifier.size())]


def _written(node: Any) -> str:
    return clean(".".join(_parts(node)))


def _own_name(node: Any) -> str:
    """The name of a table or view. Raises AuditError if it is qualified: a catalog would be asked for it, or a path be read."""
    *qualified, name = _parts(node)
    if qualified:
        raise AuditError(
            f"cannot run the query: {_written(node)} is no table or view of the audit log: their names have no dot, and {NO_FILES}"
        )
    return name


def _check_function(node: Any, kind: str) -> None:
    match kind:
        case "UnresolvedFunction":
            name = str(node.nameParts().last())
        case "UnresolvedTableValuedFunction":
            name = str(node.name().last())
        case "UnresolvedGenerator":
            name = str(node.name().funcName())
        case _:
            return
    if name.lower() not in FUNCTIONS:
        problem = f"there is no function {clean(name)}, or it is not accepted (docs/explanation/audit.md#queries)"
        raise AuditError(f"cannot run the query: {problem}")


def _check_analysed(session: SparkSession, plan: Any) -> None:
    for node in _nodes(session, plan):
        if not _is_in(_ALLOWED.analysed, node) and not _is_view(node):
            problem = f"{node.name} is not accepted: a query reads the views and calls functions"
            raise AuditError(f"cannot run the query: {problem}")


def _is_view(node: _Node) -> bool:
    """Whether it is one of the session's views: queries cannot make any."""
    if (node.package, node.name) != ("plans.logical", "View"):
        return False
    return bool(node.node.isTempView() and node.node.desc().identifier().database().isEmpty())


def _is_in(allowed: dict[str, frozenset[str]], node: _Node) -> bool:
    return node.name in allowed.get(node.package, ())


def _nodes(session: SparkSession, root: Any) -> Iterator[_Node]:
    """Every node of a plan, also those of a subquery, a WITH, a WINDOW or an EXPLAIN; not those of the session's views."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  plans have no Python API
    kinds = [
        jvm.org.apache.spark.util.Utils.classForName(f"{_CATALYST}{name}", True, False)
        for name in ("plans.QueryPlan", "expressions.PlanExpression", "expressions.InheritAnalysisRules")
    ]
    kinds_of = dict[str, list[bool]]()
    """Each class, and which of these kinds it is."""
    pending = [root]
    while pending:
        node = pending.pop()
        full = str(node.getClass().getName()).removeprefix(_CATALYST)
        if full not in kinds_of:
            kinds_of[full] = [kind.isInstance(node) for kind in kinds]
        is_plan, has_plan, is_replaced = kinds_of[full]
        package, _, name = full.rpartition(".")
        wrapped = _Node(node, package, name, is_plan)
        yield wrapped
        if full in _LEAVES or _is_view(wrapped):
            continue
        # Such an expression stands for another one, which Spark itself made.
        children = [node.parameters() if is_replaced else node.children(), node.innerChildren()]
        if is_plan:
            children.append(node.expressions())
        if name == "WithWindowDefinition":
            children.append(node.windowDefinitions().values().toSeq())
        pending += [nodes.apply(number) for nodes in children for number in range(nodes.size())]
        if has_plan:
            pending.append(node.plan())
        if (attribute := _INNER_PLANS.get(name)) is not None:
            pending.append(getattr(node, attribute)())
