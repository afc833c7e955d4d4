"""Watches the JobManagers that are visible on this machine or in this pod, and observes how their processes end."""

from sidecar.drivers.processes.process_ends import ProcessEnds

__all__ = ["ProcessEnds"]
