"""docs/reference/services.md and apprise-services.md name every service of Apprise, each once, and say what the code does."""

import re

from sidecar.net.endpoints import INCIDENT_SCHEMES
from tests.kit import services

TEXT = services.DESCRIBED.read_text(encoding="utf-8")


def test_every_service_of_apprise_is_in_one_of_the_pages_once() -> None:
    """By its scheme; the page says how many there are."""
    schemes = services.schemes()
    described = services.described()
    assert len(described) == len({*described})
    assert {*described} <= {*schemes}
    assert f"has {len(schemes)} schemes" in TEXT


def test_the_page_of_all_services_is_made_from_the_code() -> None:
    """`python -m tests.kit.services` writes it: each answer that the code knows, and each scheme without a row elsewhere."""
    assert services.PAGE.read_text(encoding="utf-8") == services.page()


def test_the_services_with_a_key_are_those_of_the_code() -> None:
    """What is documented to be closed is closed."""
    table = TEXT.partition("## With a key")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    assert {scheme for cell in cells for scheme in re.findall(r"`([a-z0-9]+)`", cell)} == INCIDENT_SCHEMES
