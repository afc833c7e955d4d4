"""Random and mutated documents of the store: a few hundred in the gate, 100,000 in the long tier."""

import pytest

from tests.core.document_fuzz import fuzz

SEEDS = (1, 2, 3)
"""Kept, with the documents that each once failed with: their numbers are in FAILURES."""
DOCUMENTS = 100
LONG_SEEDS = range(11, 27)
FAILURES = ((2, 322), (2, 2857), (2, 3777), (2, 4060), (2, 5982), (2, 8976))
"""Ledgers that took seconds to write; counted failovers that were none."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_document_stops_slows_or_silences_a_sidecar(seed: int) -> None:
    """It is refused or adopted; time goes on, and when all leaders vanish afterwards people are notified."""
    assert [(number, outcome) for number, outcome, error in fuzz(seed, range(DOCUMENTS)) if error] == []


@pytest.mark.parametrize(("seed", "number"), FAILURES)
def test_documents_that_once_did_something_wrong_do_not_any_more(seed: int, number: int) -> None:
    """Found by longer runs."""
    [(_, outcome, error)] = fuzz(seed, range(number, number + 1))
    assert error is None, outcome


@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_a_hundred_thousand_documents_do_nothing_wrong(seed: int) -> None:
    """As many in all; `python -m tests.core.document_fuzz` takes another seed and number."""
    assert [
        (number, outcome) for number, outcome, error in fuzz(seed, range(100_000 // len(LONG_SEEDS))) if error
    ] == []
