"""Records as OTLP log events: the messages that opentelemetry-proto publishes."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import to_builtins
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from sidecar import __version__
from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.records.record_lines import record_line
from sidecar.core.ha.finding import Verdict
from sidecar.core.moment import parsed
from sidecar.core.records import Death, EpisodeRecord, HaCheck, Recovery, TransitionRecord

Event = TransitionRecord | EpisodeRecord | Death | Recovery | HaCheck
"""The records that are exported: what happens to leaders, and what it did. The audit log has the others too."""

_SCOPE: Final = InstrumentationScope(name="flink-ha-sidecar", version=__version__)
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
