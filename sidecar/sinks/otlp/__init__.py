"""Failovers and metrics for OpenTelemetry collectors: OTLP over HTTP, in protobuf. Imported only where it is configured: it is an extra."""
