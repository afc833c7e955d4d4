"""Every function of Spark is allowed in a query, or refused for a reason that is written here."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.query_check import FUNCTIONS, answer, check_query, query_session

pytestmark = pytest.mark.spark

_BUILTIN = "system.builtin."
_SKETCHES = """
    approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg
    theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg
"""
_KLL = (
    "merge_agg",
    "sketch_agg",
    "sketch_get_n",
    "sketch_get_quantile",
    "sketch_get_rank",
    "sketch_merge",
    "sketch_to_string",
)
_TUPLE = """
    difference difference_theta intersection intersection_agg intersection_theta sketch_agg sketch_estimate sketch_summary sketch_theta
    union union_agg union_theta
"""
REFUSED = {
    "calls any static method of any Java class": {"reflect", "java_method", "try_reflect"},
    "reads files that the query names, or loads classes": {
        *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
        *("from_xml", "to_xml", "schema_of_xml", "xpath"),
        *(f"xpath_{kind}" for kind in ("boolean", "double", "float", "int", "long", "number", "short", "string")),
    },
    "decodes bytes of the query in native memory": {
        *_SKETCHES.split(),
        *(f"kll_{name}_{kind}" for name in _KLL for kind in ("bigint", "double", "float")),
        *(f"tuple_{name}_{kind}" for name in _TUPLE.split() for kind in ("double", "integer")),
    },
    "reads the logs of Python's workers": {"python_worker_logs"},
    "is about what an audit log has not: places, metric views": {
        *("st_asbinary", "st_geogfromwkb", "st_geomfromwkb", "st_setsrid", "st_srid", "measure")
    },
}


def functions(session: SparkSession) -> dict[str, str]:
    """The functions of a session of any kind, and Spark's examples of each."""
    state: Any = session._jsparkSession.sessionState()
    examples_of: dict[str, str] = {}
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        names = registry.listFunction()
        for name in (names.apply(number) for number in range(names.size())):
            examples = str(registry.lookupFunction(name).get().getExamples())
            examples_of[name.unquotedString().removeprefix(_BUILTIN)] = examples
    return examples_of


def queries(examples: str) -> Iterator[str]:
    """The queries among Spark's examples of a function."""
    return (found[1] for found in re.finditer(r"^\s*> (SELECT .*?);\s*$", examples, re.MULTILINE | re.DOTALL))


def test_every_function_is_allowed_or_refused(spark: SparkSession) -> None:
    """A new version of Spark with a new function fails here, until somebody has decided."""
    refused = {name for names in REFUSED.values() for name in names}
    names_of_spark = set(functions(spark.newSession()))
    assert names_of_spark - refused == FUNCTIONS
    assert refused <= names_of_spark
    assert set(functions(query_session(spark))) == FUNCTIONS


def test_spark_s_examples_of_allowed_functions_are_accepted_and_no_others(spark: SparkSession) -> None:
    """Whatever classes they consist of; what Spark itself cannot resolve does not count."""
    asking = query_session(spark)
    wrong, refused = list[str](), set[str]()
    for name, examples in functions(spark.newSession()).items():
        for query in queries(examples):
            try:
                check_query(asking, query)
                answer(asking, query)
            except (AuditError, AnalysisException, ParseException) as error:
                is_refusal = isinstance(error, AuditError)
                if is_refusal and name in FUNCTIONS and not mentions_a_refused_function(query):
                    wrong.append(f"{query}: {error}")
                refused |= {name} if is_refusal else set()
            except Exception as error:  # noqa: BLE001  of a feature that Spark has switched off
                assert "FEATURE_NOT_ENABLED" in str(error)  # noqa: PT017  others are failures of Spark
            else:
                wrong += [query] if name not in FUNCTIONS else []
    assert wrong == []
    assert refused >= {name for names in REFUSED.values() for name in names} - {"python_worker_logs"}


def mentions_a_refused_function(query: str) -> bool:
    """Whether an example of an allowed function calls a refused one, too."""
    called = {name.lower() for name in re.findall(r"(\w+)\s*\(", query)}
    return any(called & names for names in REFUSED.values())
