"""Observes how the JobManagers on this machine, or in this pod, end. It needs no API, and no right that is essential."""

from sidecar.drivers.processes.process_watch import ProcessWatch

__all__ = ["ProcessWatch"]
