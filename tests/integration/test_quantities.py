"""Memory limits of containers, as Kubernetes writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from sidecar.drivers.kubernetes.pod_objects import memory_limit

MOST = 2**63 - 1


def limit_of(memory: object) -> int | None:
    return memory_limit({"resources": {"limits": {"memory": memory}}})


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1600Mi", 1600 << 20),
        ("1717986918400m", 1717986919),
        ("2e9", 2 * 10**9),
        ("2E9", 2 * 10**9),
        ("2.5e+3", 2500),
        ("1500e-3", 2),
        ("1Ei", 1 << 60),
        ("2E", 2 * 10**18),
        ("1.5Gi", 3 << 29),
        ("1.Gi", 1 << 30),
        (".5Gi", 1 << 29),
        ("+1k", 1000),
        ("7u", 1),
        ("1000000000n", 1),
        ("9223372036854775807", MOST),
        ("8Ei", MOST),
        ("1e99", MOST),
        (1073741824, 1 << 30),
        ("00512M", 512 * 10**6),
    ],
)
def test_a_limit_is_read_in_each_of_its_spellings(written: object, size: int) -> None:
    """Up to the next whole byte, and to the largest quantity that there is."""
    assert limit_of(written) == size


NO_LIMITS = [
    *(
        "",
        "0",
        "0Mi",
        "-1Gi",
        "Mi",
        ".",
        "1ki",
        "1KB",
        "1 Gi",
        "1Gi ",
        "1e",
        "1e5Mi",
        "1_000",
        "0x10",
        "NaN",
        "Infinity",
    ),
    *("\u0661", "1" * 50, True, None, 1.5, ["1Gi"]),
]


@pytest.mark.parametrize("written", NO_LIMITS)
def test_what_is_no_limit_is_none(written: object) -> None:
    """0 is Kubernetes' word for no limit; everything else here is no quantity."""
    assert limit_of(written) is None


@given(
    st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,6})?", fullmatch=True),
    st.sampled_from(["n", "u", "m", "", *"kMGTPE", *(f"{prefix}i" for prefix in "KMGTPE"), "e3", "E-2"]),
)
def test_it_is_what_the_client_library_reads(number: str, suffix: str) -> None:
    """With any number and any unit, within a byte and the largest quantity."""
    exact = parse_quantity(number + suffix)  # type: ignore[no-untyped-call]  # is untyped
    assert -1 < exact.min(MOST) - (limit_of(number + suffix) or 0) <= 0
