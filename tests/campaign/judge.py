"""The judge: what was reported and recorded, held against what was done. It shares no code with the product, and reads files alone.

It reads, in the folder of one store: `truth.jsonl` (tests/campaign/diary.py), `messages.jsonl` (what the receiver kept), and of each
sidecar `NAME/sidecar.log` and `NAME/spool/NAME/FIRST-LAST.jsonl.gz`.
"""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

CLOCK_SLACK: Final = 1.0
"""Seconds between what the diary says and what another process may have read before."""
VACANCY_SECONDS: Final = 5.0
"""For how long nobody must have led before that may be reported: `for` of the rule."""

_CHANGE: Final = re.compile(r"^(\w+)\b.*→ (jm-\d{5})\b", re.MULTILINE)
_HOST: Final = re.compile(r"\bjm-\d{5}\b")
_REASON: Final = re.compile(r"^alert: (\w+).* \((\w+)\)$", re.MULTILINE)
_LABEL: Final = "This may be a duplicate"
_TRACEBACK: Final = "Traceback (most recent call last)"
_SEGMENT: Final = re.compile(r"(\d{16})-(\d{16})\.jsonl\.gz")
_JOB: Final = "ab" * 16
"""The job that is there all the time: others end after a moment."""
_GONE: Final = {"REVOKED", "RETIRED"}

Json = dict[str, Any]


class Term(NamedTuple):
    """One leader: from when to when (seconds since the epoch; no end: it leads still), and what it leads."""

    host: str
    session: str
    components: tuple[str, ...]
    since: float
    published: float
    until: float
    """When it began to go."""
    crashed: bool

    def stood(self, at: float) -> bool:
        return self.published <= at < self.until


class Round(NamedTuple):
    """One fault. `settled`: when everything was well again."""

    number: int
    kind: str
    began: float
    over: float
    settled: float
    blinds: bool
    loses_journal: bool
    recovered: bool
    recovery_seconds: float


class Finding(NamedTuple):
    """Something that must not be, and in which round."""

    what: str
    number: int
    kind: str
    text: str


class Verdict(NamedTuple):
    """Of one store."""

    findings: list[Finding]
    rounds: int
    terms: int
    messages: int
    records: int
    labelled: int
    by_kind: dict[str, dict[str, float]]
    """Of each kind: how often, what was found, and the longest recovery and delay in seconds."""
    skipped: dict[str, int]
    largest_mib: float
    most_threads: int

    def count(self, what: str) -> int:
        return sum(finding.what == what for finding in self.findings)


WHATS: Final = ("lost", "invented", "unlabelled duplicate", "false vacancy", "not recovered", "traceback", "wrong end")


def judge(folder: Path) -> Verdict:
    """The verdict on everything in `folder`."""
    return _Judge(folder).verdict()


class _Judge:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._facts = _lines(folder / "truth.jsonl")
        self._messages = _lines(folder / "messages.jsonl")
        self._rounds = _rounds(self._facts)
        self._terms = _terms(self._facts)
        self._by_session = {term.session: term for term in self._terms}
        self._observers = sorted(path.parent.name for path in folder.glob("*/sidecar.yaml"))
        self._findings: list[Finding] = []
        self._records = {name: list(self._by_our_clock(name, self._read_segments(name))) for name in self._observers}
        self._labelled = 0
        self._delays: dict[str, float] = {}

    def verdict(self) -> Verdict:
        self._judge_messages()
        self._judge_vacancies_reported()
        for name, records in self._records.items():
            self._judge_records(name, records)
        self._judge_ids()
        self._judge_processes()
        sizes = [fact for fact in self._facts if fact["fact"] == "size"]
        return Verdict(
            self._findings,
            len(self._rounds),
            len(self._terms),
            len(self._messages),
            sum(map(len, self._records.values())),
            self._labelled,
            self._figures(),
            dict(Counter(fact["kind"] for fact in self._facts if fact["fact"] == "skipped")),
            max((fact["rss_mib"] for fact in sizes), default=0.0),
            max((fact["threads"] for fact in sizes), default=0),
        )

    # -- messages ------------------------------------------------------------------------------------------------------

    def _judge_messages(self) -> None:
        """Every leader that had to be reported was, no other one was, and what came twice says so."""
        term_of = {term.host: term for term in self._terms}
        first: dict[str, float] = {}
        said: set[tuple[str, ...]] = set()
        set_back = [fact["at"] for fact in self._facts if fact["fact"] == "set_back"]
        for message in self._messages:
            body, at = message["body"], message["at"]
            if set_back and at >= set_back[0]:  # a leader of before stood there once more
                set_back.pop(0)
                said.clear()
            for host in {*_HOST.findall(body)} - term_of.keys():
                self._find("invented", at, f"a message names {host}, who never led")
            alert = _REASON.search(body)
            reason = alert[2] if alert else ""
            changes = [(component, host, reason) for component, host in _CHANGE.findall(body)]
            says: set[tuple[str, ...]] = {*changes} or {(_bare(body),)}
            if says <= said and _LABEL not in body:
                self._find("unlabelled duplicate", at, body)
            self._labelled += _LABEL in body
            said |= says
            for _, host in _CHANGE.findall(body):
                first.setdefault(host, at)
                if host in term_of and at < term_of[host].since - CLOCK_SLACK:
                    self._find("invented", at, f"{host} was reported before it led")
        for term in self._must_be_known()[1:]:  # the first leader of a cluster is no news
            if term.host not in first:
                self._find("lost", term.published, f"no message names {term.host} as the next leader")
            else:
                number = self._round_at(term.published)
                seen = max(term.published, number.over if number and number.blinds else 0.0)
                kind = number.kind if number else ""
                self._delays[kind] = max(self._delays.get(kind, 0.0), first[term.host] - seen)

    def _judge_vacancies_reported(self) -> None:
        """Nobody was called leaderless who was not, for as long as the rule wants."""
        for message in self._messages:
            alert = _REASON.search(message["body"])
            if alert and alert[1] == "FlinkNoLeader" and alert[2] not in {"RESOLVED", "SHRANK"}:
                longest = max((until - since for since, until in self._gaps(message["at"])), default=0.0)
                if longest < VACANCY_SECONDS - CLOCK_SLACK:
                    text = f"the longest vacancy of the last minutes was {longest:.1f} s: {message['body']}"
                    self._find("false vacancy", message["at"], text)

    def _gaps(self, at: float) -> Iterator[tuple[float, float]]:
        """Within five minutes before `at`: from when to when nobody led, or could be known to lead."""
        begun = [term for term in self._terms if term.since <= at]
        for before, after in zip(begun, [*begun[1:], None], strict=True):
            until = after.published if after else at
            if before.until < until and until > at - 300:
                yield before.until, min(until, at)
        for fact in self._facts:
            if fact["fact"] in {"lapsed", "spoiled"} and at - 300 < fact["at"] <= at:
                yield fact["since"], fact["at"]

    # -- records -------------------------------------------------------------------------------------------------------

    def _read_segments(self, name: str) -> Iterator[Json]:
        """All records of one sidecar in order; segments follow each other without a gap."""
        expected = None
        for file in sorted((self._folder / name / "spool" / name).glob("*.jsonl.gz")):
            parts = _SEGMENT.fullmatch(file.name)
            modified = file.stat().st_mtime
            if not parts:
                self._find("invented", modified, f"{name}: {file.name} is no segment")
                continue
            first, last = map(int, parts.groups())
            if expected is not None and first != expected and not self._journal_lost(modified):
                self._find("lost", modified, f"{name}: the segment after {expected - 1} is {file.name}")
            expected = last + 1
            try:
                lines = gzip.decompress(file.read_bytes()).splitlines()
            except (OSError, EOFError, zlib.error) as error:
                self._find("lost", modified, f"{name}: {file.name}: {error}")
                continue
            if len(lines) != last - first + 1:
                self._find("lost", modified, f"{name}: {file.name} has {len(lines)} lines")
            yield from map(json.loads, lines)

    def _by_our_clock(self, name: str, records: Iterable[Json]) -> Iterator[Json]:
        """The records, in order, with times by our own clock: a fault may have set that of the sidecar ahead or back for a while."""
        clocks = {fact["ahead"] for fact in self._facts if fact["fact"] == "clock" and fact["sidecar"] == name} | {0}
        last = self._facts[0]["at"]
        for record in records:
            for key in ("recorded_at", "observed_at"):  # what is recorded, is recorded soon after the record before
                if key in record and len(clocks) > 1:
                    at = min((_seconds(record[key]) - ahead for ahead in clocks), key=lambda each: abs(each - last))
                    record[key] = datetime.fromtimestamp(at, UTC).isoformat()
                    last = at if key == "recorded_at" else last
            yield record

    def _judge_records(self, name: str, records: Sequence[Json]) -> None:
        transitions = [record for record in records if record["type"] == "transition"]
        short = [record for record in transitions if record.get("job_id") not in {None, _JOB}]
        for record in short:
            if record["pattern"] == "?->null":
                self._find("false vacancy", _seconds(record["observed_at"]), f"{name}: {record['job_id']} has ended")
        transitions = [record for record in transitions if record.get("job_id") in {None, _JOB}]
        recorded = {(record["component"], record["after_session_id"]) for record in transitions}
        for term in self._must_be_known():
            if missing := [component for component in term.components if (component, term.session) not in recorded]:
                self._find("lost", term.published, f"{name}: no record that {term.host} leads {', '.join(missing)}")
        for record in transitions:
            self._judge_transition(name, record)

    def _judge_transition(self, name: str, record: Json) -> None:
        at = _seconds(record["observed_at"])
        line = f"{name}: {record['kind']} {record['pattern']} {record['component']} {record['id']}"
        for key in ("before_session_id", "after_session_id", "last_known_session_id"):
            if record[key] and record[key] not in self._by_session:
                self._find("invented", at, f"{line}: {key} {record[key]} never led")
        after = self._by_session.get(record["after_session_id"] or "")
        # What is found at first sight is dated when the store was asked: its answer may be seconds younger.
        known_at = _seconds(record["recorded_at"]) if record["kind"] == "DISCOVERED" else at
        if after and known_at < after.since - CLOCK_SLACK:
            self._find("invented", at, f"{line}: {after.host} did not lead yet")
        before = self._by_session.get(record["before_session_id"] or record["last_known_session_id"] or "")
        if record["kind"] in _GONE and before and not self._may_be_gone(before, at):
            self._find("false vacancy", at, f"{line}: {before.host} led: {record['reason']}")

    def _may_be_gone(self, term: Term, at: float) -> bool:
        if at >= term.until - CLOCK_SLACK:
            return True
        facts = [fact for fact in self._facts if fact["fact"] == "lapsed" and fact["session"] == term.session]
        return any(fact["since"] - CLOCK_SLACK <= at <= fact["at"] + 2 * CLOCK_SLACK for fact in facts)

    def _judge_ids(self) -> None:
        """One id is one happening, whoever recorded it."""
        happened: dict[str, tuple[Any, ...]] = {}
        for name, records in self._records.items():
            for record in records:
                if record["type"] != "transition":
                    continue
                # One that ended out of sight of this observer is known by its last leader.
                before = record["before_session_id"] or (
                    record["kind"] == "RETIRED" and record["last_known_session_id"]
                )
                what = (record["component"], record["kind"], before or None, record["after_session_id"])
                if happened.setdefault(record["id"], what) != what:
                    text = f"{name}: {record['id']} is {what} and {happened[record['id']]}"
                    self._find("lost", _seconds(record["observed_at"]), text)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _judge_processes(self) -> None:
        for fault in self._rounds:
            if not fault.recovered:
                why = next(
                    fact["why"]
                    for fact in self._facts
                    if fact["fact"] == "not_recovered" and fact["number"] == fault.number
                )
                self._findings.append(Finding("not recovered", fault.number, fault.kind, why))
        for fact in self._facts:
            if fact["fact"] == "ended" and fact["status"] != 0:
                self._find("wrong end", fact["at"], f"{fact['sidecar']}: exit status {fact['status']} after SIGTERM")
            if fact["fact"] == "overwritten":
                self._find("wrong end", fact["at"], f"{fact['sidecar']}: {fact['file']} was overwritten")
        for name in self._observers:
            log = (self._folder / name / "sidecar.log").read_text(errors="replace")
            for part in log.split(_TRACEBACK)[1:]:
                words = [line for line in part.splitlines() if line and not line.startswith(" ")]
                self._findings.append(Finding("traceback", 0, "", f"{name}: {words[0] if words else part[:200]}"))

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _must_be_known(self) -> list[Term]:
        """Leaders that somebody could see: who led when everything was well, or was published while nobody was blind."""
        return [
            term
            for number, term in enumerate(self._terms)
            if number == 0
            or any(term.stood(fault.settled) for fault in self._rounds)
            or ((found := self._round_at(term.published)) is not None and not found.blinds and self._lasted(term))
        ]

    @staticmethod
    def _lasted(term: Term) -> bool:
        """Long enough that it can be distinguished from nothing: shorter ones may be counted as unobserved."""
        return term.until - term.published > CLOCK_SLACK * 3

    def _journal_lost(self, at: float) -> bool:
        """Whether a sidecar's journal was damaged in the round of that time, or in the one before."""
        return any(fault.loses_journal and fault.began <= at <= fault.settled + CLOCK_SLACK for fault in self._rounds)

    def _round_at(self, at: float) -> Round | None:
        return next((fault for fault in reversed(self._rounds) if fault.began <= at), None)

    def _find(self, what: str, at: float, text: str) -> None:
        found = self._round_at(at)
        self._findings.append(Finding(what, found.number if found else 0, found.kind if found else "", text))

    def _figures(self) -> dict[str, dict[str, float]]:
        figures: dict[str, dict[str, float]] = {}
        for fault in self._rounds:
            figure = figures.setdefault(fault.kind, {"faults": 0, "recovery": 0.0, "delay": 0.0})
            figure["faults"] += 1
            figure["recovery"] = round(max(figure["recovery"], fault.recovery_seconds), 1)
            figure["delay"] = round(max(figure["delay"], self._delays.get(fault.kind, 0.0)), 1)
        for finding in self._findings:
            if finding.kind:
                figures[finding.kind][finding.what] = figures[finding.kind].get(finding.what, 0) + 1
        return figures


def _terms(facts: Sequence[Json]) -> list[Term]:
    gone = {fact["session"]: fact for fact in facts if fact["fact"] == "withdrawn"}
    return [
        Term(
            fact["host"],
            fact["session"],
            tuple(fact["components"]),
            fact["since"],
            fact["at"],
            gone[fact["session"]]["since"] if fact["session"] in gone else float("inf"),
            bool(gone.get(fact["session"], {}).get("crash")),
        )
        for fact in facts
        if fact["fact"] == "published"
    ]


def _rounds(facts: Sequence[Json]) -> list[Round]:
    def at(what: str, number: int) -> Json:
        return next((fact for fact in facts if fact["fact"] == what and fact.get("number") == number), {"at": 0.0})

    failed = {fact["number"] for fact in facts if fact["fact"] == "not_recovered"}
    return [
        Round(
            fact["number"],
            fact["kind"],
            fact["at"],
            at("over", fact["number"])["at"],
            at("settled", fact["number"])["at"],
            fact["blinds"],
            fact["loses_journal"],
            fact["number"] not in failed,
            at("settled", fact["number"]).get("seconds", 0.0),
        )
        for fact in facts
        if fact["fact"] == "began"
    ]


def _lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _bare(body: str) -> str:
    """A message without what distinguishes one attempt from another."""
    return re.sub(r"^(observer: .*|.*may be a duplicate.*)$", "", body, flags=re.MULTILINE).strip()


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
