"""The documents of the fuzzer have all that a handover may have."""

from random import Random

import pytest
from msgspec import json

from sidecar.core.handover import schema
from tests.core.document_fuzz import handovers
from tests.core.handover_fields import document, fields, filled

DOCUMENTS = 40


@pytest.fixture(scope="module")
def made() -> list[dict[str, object]]:
    """Documents with every optional field."""
    return [document(Random(number), handovers()[2]) for number in range(DOCUMENTS)]


def test_the_schema_accepts_each(made: list[dict[str, object]]) -> None:
    """They are what another sidecar could have left: it is not refused before it can do anything wrong."""
    for each in made:
        json.decode(json.encode(each), type=schema.Document)


def test_every_field_of_the_schema_is_in_one(made: list[dict[str, object]]) -> None:
    """Also one that is added later."""
    assert set(fields()) - {field for each in made for field in filled(each)} == set()
