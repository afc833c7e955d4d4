"""Records as OTLP log events, and metrics as OTLP metrics: the messages that opentelemetry-proto publishes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import to_builtins
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from sidecar import __version__
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.records.record_lines import record_line
from sidecar.core.ha.finding import Verdict
from sidecar.core.moment import parsed
from sidecar.core.records import Death, EpisodeRecord, HaCheck, Recovery, TransitionRecord

Event = TransitionRecord | EpisodeRecord | Death | Recovery | HaCheck
"""The records that are exported: what happens to leaders, and what it did. The audit log has the others too."""

_SCOPE: Final = InstrumentationScope(name="flink-ha-sidecar", version=__version__)
_PREFIX: Final = "flink_ha_"
_INT64: Final = range(-(1 << 63), 1 << 63)
_UINT64: Final = range(1 << 64)
_LOSSES: Final = frozenset({Kind.REVOKED.value, Kind.OBSCURED.value})
_OF_RECOVERIES: Final = {"recovered": SeverityNumber.SEVERITY_NUMBER_INFO, "lost": SeverityNumber.SEVERITY_NUMBER_ERROR}
_RENAMED: Final = {"recovery": {"name": "job_name"}}
"""Names of Flink's metric reporters where a record has another one."""
_NOT_ATTRIBUTES: Final = frozenset({"type", "external_labels"})
"""The one is the event's name, the other belongs to the resource."""


def resource(observer: str, external_labels: Mapping[str, str]) -> Resource:
    """This sidecar, with the external labels of its configuration."""
    own = {"service.name": "flink-ha-sidecar", "service.version": __version__, "service.instance.id": observer}
    return Resource(attributes=_attributes({**external_labels, **own}))


def logs(origin: Resource, events: Iterable[Event]) -> ExportLogsServiceRequest:
    """A log event for each record: `flink.ha.transition`, … Attributes are the record's fields; those that are null are absent."""
    scope = ScopeLogs(scope=_SCOPE, log_records=map(_log_record, events))
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=origin, scope_logs=[scope])])


def metrics(origin: Resource, families: Iterable[Metric], started_at: int, now: int) -> ExportMetricsServiceRequest:
    """The same metrics as at /metrics: `flink.ha.…` becomes `flink_ha_…` again in Prometheus. Times in nanoseconds since the epoch."""
    converted = [_metric(family, started_at, now) for family in families if family.samples]
    scope = metrics_pb2.ScopeMetrics(scope=_SCOPE, metrics=converted)
    return ExportMetricsServiceRequest(
        resource_metrics=[metrics_pb2.ResourceMetrics(resource=origin, scope_metrics=[scope])]
    )


def _log_record(event: Event) -> LogRecord:
    fields: dict[str, Any] = to_builtins(event)
    renamed = _RENAMED.get(fields["type"], {})
    attributes = {renamed.get(name, name): value for name, value in fields.items() if name not in _NOT_ATTRIBUTES}
    severity = _severity(event)
    return LogRecord(
        time_unix_nano=_nanoseconds(event.observed_at),
        observed_time_unix_nano=_nanoseconds(event.recorded_at),
        severity_number=severity,
        severity_text=SeverityNumber.Name(severity).removeprefix("SEVERITY_NUMBER_"),
        event_name=f"flink.ha.{fields['type']}",
        body=AnyValue(string_value=record_line(event)),
        attributes=_attributes(attributes),
    )


def _nanoseconds(recorded: str) -> int:
    """Since the epoch; 0, which is OTLP's unknown, for what is no time that OTLP can express."""
    try:
        time = parsed(recorded) * 1000
    except ValueError:
        return 0
    return time if time in _UINT64 else 0


def _severity(event: Event) -> SeverityNumber.ValueType:
    match event:
        case TransitionRecord(kind=kind):
            is_loss = kind in _LOSSES
        case EpisodeRecord(planned=planned):
            is_loss = not planned
        case Death():
            is_loss = True
        case HaCheck(verdict=verdict):
            is_loss = verdict == Verdict.RISK
        case Recovery(verdict=verdict):
            return _OF_RECOVERIES.get(verdict, SeverityNumber.SEVERITY_NUMBER_WARN)
    return SeverityNumber.SEVERITY_NUMBER_WARN if is_loss else SeverityNumber.SEVERITY_NUMBER_INFO


def _attributes(values: Mapping[str, Any], prefix: str = "") -> list[KeyValue]:
    """Nested names are joined with a dot."""
    attributes = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            attributes += _attributes(value, f"{prefix}{name}.")
        elif value is not None:
            attributes.append(KeyValue(key=prefix + name, value=_value(value)))
    return attributes


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int() if value in _INT64:
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
        case _:
            return AnyValue(string_value=str(value))


def _metric(family: Metric, started_at: int, now: int) -> metrics_pb2.Metric:
    name = f"flink.ha.{family.name.removeprefix(_PREFIX)}{'_info' if family.type == 'info' else ''}"
    metric = metrics_pb2.Metric(
        name=name, description=family.documentation, unit="s" if name.endswith("_seconds") else ""
    )
    if family.type == "histogram":
        metric.histogram.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.histogram.data_points.extend(_histograms(family.samples, started_at, now))
        return metric
    points = [
        metrics_pb2.NumberDataPoint(
            attributes=_attributes(sample.labels), time_unix_nano=now, as_double=float(sample.value)
        )
        for sample in family.samples
    ]
    if family.type == "counter":
        metric.sum.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.is_monotonic = True
        for point in points:
            point.start_time_unix_nano = started_at
        metric.sum.data_points.extend(points)
    else:
        metric.gauge.data_points.extend(points)
    return metric


def _histograms(samples: Sequence[Sample], started_at: int, now: int) -> Iterator[metrics_pb2.HistogramDataPoint]:
    """Prometheus' buckets add up; those of OTLP do not."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        by_labels.setdefault(labels, []).append(sample)
    for labels, series in by_labels.items():
        buckets = [sample for sample in series if "le" in sample.labels]
        [total] = [sample.value for sample in series if sample.name.endswith("_sum")]
        counts = [0, *(round(bucket.value) for bucket in buckets)]
        yield metrics_pb2.HistogramDataPoint(
            attributes=_attributes(dict(labels)),
            start_time_unix_nano=started_at,
            time_unix_nano=now,
            count=counts[-1],
            sum=total,
            explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
            bucket_counts=[after - before for before, after in pairwise(counts)],
        )
