"""All that is done in a night, by name, in an order in which each can follow the one before it."""

from collections.abc import Mapping
from typing import Final

from tests.night.deployments import BROKEN, DEPLOYMENTS
from tests.night.failures import FAILURES
from tests.night.planned import PLANNED
from tests.night.scenario import Scenario

SCENARIOS: Final[Mapping[str, Scenario]] = {**PLANNED, **FAILURES, **DEPLOYMENTS, **BROKEN}


def of_store(store: str) -> Mapping[str, Scenario]:
    """Those that can be done where the leaders are in this store."""
    return {name: scenario for name, scenario in SCENARIOS.items() if store in scenario.stores}
