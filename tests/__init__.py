"""Tests, room by room as the code."""

from hypothesis import HealthCheck, settings

# A busy machine is slow, not wrong: what a property promises is not how fast it is shown.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
