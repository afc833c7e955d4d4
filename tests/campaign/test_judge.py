"""The judge finds what it is there to find, and nothing in what went well. What it reads here is written by hand."""

import ast
import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import judge as judging
from tests.campaign.campaign import why
from tests.campaign.judge import judge

BEGAN = 1_795_161_600.0
COMPONENTS = ["resource_manager", "dispatcher"]


def timestamp(at: float) -> str:
    """`at` seconds after the beginning, as records have it."""
    return f"2026-11-20T08:{int(at) // 60:02}:{at % 60:09.6f}Z"


def session(term: int) -> str:
    return f"00000000-0000-0000-0000-{term:012}"


class Evidence:
    """Two sidecars, a first leader, and one failover at second 20 that both saw and one reported. To be changed before `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: list[dict[str, Any]] = [
            self.published(1, 1.0),
            {"at": 15.0, "fact": "began", "number": 1, "kind": "failover", "blinds": False, "loses_journal": False},
            {"at": 20.1, "fact": "withdrawn", "since": 20.0, "session": session(1), "crash": False},
            self.published(2, 21.0),
            {"at": 22.0, "fact": "over", "number": 1},
            {"at": 30.0, "fact": "settled", "number": 1, "host": "jm-00002", "seconds": 8.0},
        ]
        self.messages: list[dict[str, Any]] = [{"at": 22.5, "body": self.body(2)}]
        self.records = {name: [*self.grants(1, 1.2), *self.revokes(1, 20.1), *self.grants(2, 21.2)] for name in "ab"}
        self.log = ""

    @staticmethod
    def published(term: int, at: float) -> dict[str, Any]:
        known = {"host": f"jm-{term:05}", "session": session(term), "components": COMPONENTS}
        return {"at": at + 0.2, "fact": "published", "since": at, **known}

    @staticmethod
    def body(term: int, reason: str = "FIRST") -> str:
        moved = "\n".join(f"{component}: jm-{term - 1:05}:6123 → jm-{term:05}:6123 at …" for component in COMPONENTS)
        return f"{moved}\n\nalert: FlinkLeaderChanged ({reason})\nobserver: a\nenv: test"

    @staticmethod
    def transition(kind: str, component: str, at: float, before: int, after: int) -> dict[str, Any]:
        return {
            "type": "transition",
            "id": f"{kind}-{component}-{before}-{after}",
            "kind": kind,
            "pattern": "?",
            "component": component,
            "observed_at": timestamp(at),
            "recorded_at": timestamp(at),
            "reason": None,
            "last_known_session_id": None,
            "before_session_id": session(before) if before else None,
            "after_session_id": session(after) if after else None,
        }

    def grants(self, term: int, at: float) -> list[dict[str, Any]]:
        return [self.transition("GRANTED", component, at, 0, term) for component in COMPONENTS]

    def revokes(self, term: int, at: float) -> list[dict[str, Any]]:
        return [self.transition("REVOKED", component, at, term, 0) for component in COMPONENTS]

    def write(self) -> None:
        (self.folder / "truth.jsonl").write_text("".join(f"{json.dumps(self._real(fact))}\n" for fact in self.facts))
        (self.folder / "messages.jsonl").write_text(
            "".join(f"{json.dumps(self._real(message))}\n" for message in self.messages)
        )
        for name, records in self.records.items():
            spool = self.folder / name / "spool" / name
            spool.mkdir(parents=True)
            (self.folder / name / "sidecar.yaml").touch()
            (self.folder / name / "sidecar.log").write_text(self.log)
            half = len(records) // 2
            for first, part in ((1, records[:half]), (half + 1, records[half:])):
                lines = "".join(f"{json.dumps(record)}\n" for record in part)
                (spool / f"{first:016}-{first + len(part) - 1:016}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))

    @staticmethod
    def _real(fact: dict[str, Any]) -> dict[str, Any]:
        return fact | {key: fact[key] + BEGAN for key in ("at", "since") if key in fact}


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path)


def kinds_of_findings(evidence: Evidence) -> set[str]:
    """What the judge finds, by kind."""
    evidence.write()
    return {finding.what for finding in judge(evidence.folder).findings}


def test_what_went_well_has_no_findings(evidence: Evidence) -> None:
    """And is counted."""
    evidence.write()
    verdict = judge(evidence.folder)
    assert (verdict.findings, verdict.rounds, verdict.terms, verdict.messages, verdict.records) == ([], 1, 2, 1, 12)
    assert verdict.by_kind == {"failover": {"faults": 1, "recovery": 8.0, "delay": 1.3}}


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_a_sidecar_whose_clock_was_wrong_is_judged_by_ours(ahead: int, evidence: Evidence) -> None:
    """From when its clock is set ahead or back, its records are dated by it; those before are not."""
    evidence.facts.append({"at": 19.0, "fact": "clock", "sidecar": "b", "ahead": ahead})
    for record in evidence.records["b"][2:]:
        for key in ("observed_at", "recorded_at"):
            record[key] = (datetime.fromisoformat(record[key]) + timedelta(seconds=ahead)).isoformat()
    assert kinds_of_findings(evidence) == set()


def _no_message(evidence: Evidence) -> None:
    evidence.messages.clear()


def _no_record(evidence: Evidence) -> None:
    evidence.records["b"][-1] = {"type": "coverage"}


def _one_id_twice(evidence: Evidence) -> None:
    evidence.records["a"][-1]["id"] = evidence.records["a"][0]["id"]


def _gap(evidence: Evidence) -> None:
    evidence.write()
    spool = evidence.folder / "a" / "spool" / "a"
    min(spool.iterdir()).rename(spool / f"{0:016}-{1:016}.jsonl.gz")


@pytest.mark.parametrize("spoil", [_no_message, _no_record, _one_id_twice])
def test_what_nobody_reported_or_recorded_is_lost(spoil: Callable[[Evidence], None], evidence: Evidence) -> None:
    """Also where two happenings have one id, since the second one is dropped wherever ids are unique."""
    spoil(evidence)
    assert kinds_of_findings(evidence) == {"lost"}


def test_a_segment_that_is_missing_is_lost(evidence: Evidence) -> None:
    """Segments follow each other by their numbers."""
    _gap(evidence)
    assert {finding.what for finding in judge(evidence.folder).findings} == {"lost"}


def test_a_leader_that_never_was_is_invented(evidence: Evidence) -> None:
    """In a message, or in a record."""
    evidence.messages.append({"at": 25.0, "body": evidence.body(9)})
    assert kinds_of_findings(evidence) == {"invented"}


def test_a_record_of_a_leader_that_never_was_is_invented(evidence: Evidence) -> None:
    """Also one that was recorded before it led."""
    evidence.records["a"].insert(2, evidence.transition("GRANTED", "dispatcher", 2.0, 0, 7))
    evidence.records["a"].insert(2, evidence.transition("GRANTED", "dispatcher", 3.0, 0, 2))
    assert kinds_of_findings(evidence) == {"invented"}


def test_a_message_that_comes_twice_has_to_say_so(evidence: Evidence) -> None:
    """With the label it is a labelled duplicate, without it a finding; another reason is another message."""
    evidence.messages.append({"at": 26.0, "body": evidence.body(2, "GREW")})
    evidence.messages.append({"at": 27.0, "body": evidence.body(2) + "\n\nThis may be a duplicate: …"})
    evidence.write()
    verdict = judge(evidence.folder)
    assert (verdict.findings, verdict.labelled) == ([], 1)
    with (evidence.folder / "messages.jsonl").open("a") as file:
        file.write(json.dumps({"at": BEGAN + 28.0, "body": evidence.body(2)}) + "\n")
    assert [finding.what for finding in judge(evidence.folder).findings] == ["unlabelled duplicate"]


def test_what_a_restored_store_brings_back_is_news(evidence: Evidence) -> None:
    """A leader of before stands there once more, and that is reported once more."""
    evidence.messages.append({"at": 27.0, "body": evidence.body(2)})
    evidence.facts.append({"at": 26.0, "fact": "set_back"})
    assert kinds_of_findings(evidence) == set()


def test_a_leader_that_led_is_not_to_be_called_gone(evidence: Evidence) -> None:
    """A record that it was revoked while it stood."""
    evidence.records["a"].insert(2, evidence.transition("REVOKED", "dispatcher", 10.0, 1, 0))
    assert kinds_of_findings(evidence) == {"false vacancy"}


def test_a_lease_that_was_not_renewed_is_a_reason_to_call_it_gone(evidence: Evidence) -> None:
    """What the injector itself was late with is not held against anybody."""
    evidence.records["a"].insert(2, evidence.transition("REVOKED", "dispatcher", 10.0, 1, 0))
    evidence.facts.append({"at": 11.0, "fact": "lapsed", "session": session(1), "since": 4.0})
    assert kinds_of_findings(evidence) == set()


def test_an_alert_of_a_vacancy_that_was_too_short_is_false(evidence: Evidence) -> None:
    """A second without a leader is none to call anybody for."""
    body = "dispatcher of cluster x has had no leader\n\nalert: FlinkNoLeader (FIRST)\nobserver: a"
    evidence.messages.append({"at": 25.0, "body": body})
    assert kinds_of_findings(evidence) == {"false vacancy"}


def test_what_ended_wrongly_is_found(evidence: Evidence) -> None:
    """A fault that was not recovered from, a traceback, an exit status."""
    evidence.facts.append({"at": 29.0, "fact": "not_recovered", "number": 1, "why": "a has ended"})
    evidence.facts.append({"at": 29.5, "fact": "ended", "sidecar": "a", "status": 1})
    evidence.log = "Traceback (most recent call last):\n  File …\nKeyError: 1\n"
    assert kinds_of_findings(evidence) == {"not recovered", "wrong end", "traceback"}


def test_what_nobody_could_see_need_not_be_reported(evidence: Evidence) -> None:
    """A leader that came and went while the store could not be seen; the one that stood when it could, has to be."""
    evidence.facts[1]["blinds"] = True
    evidence.facts[3:3] = [
        evidence.published(3, 20.3),
        {"at": 20.8, "fact": "withdrawn", "since": 20.7, "session": session(3), "crash": False},
    ]
    assert kinds_of_findings(evidence) == set()


def test_the_judge_knows_nothing_of_the_product() -> None:
    """It imports the standard library alone."""
    tree = ast.parse(Path(judging.__file__).read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in modules} <= {
        *("collections", "datetime", "gzip", "json", "pathlib", "re", "typing", "zlib")
    }


def test_a_process_that_ended_says_why_in_the_last_line_of_its_log() -> None:
    """Its first line is that it began. Without any, the error has a name."""
    log = "12:00 INFO sidecar: watches campaign\nflink-ha-sidecar: unexpected ImportError: no Beyond\n\n"
    assert why(AssertionError(log)) == "AssertionError: flink-ha-sidecar: unexpected ImportError: no Beyond"
    assert why(TimeoutError()) == "TimeoutError"
