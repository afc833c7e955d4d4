"""An auditor of what people are notified of: he sees every step of one sidecar, and objects to what may never be."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar
from unittest.mock import patch

from msgspec.structs import replace

from sidecar.core.alerting import flushing, grouping
from sidecar.core.alerting.alerting_step import ReadSilences, Send
from sidecar.core.alerting.alerts import Alert, Alerts, Member, Notice, Reason
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.alerting.suppression import CLOCK_SKEW, PATIENCE
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import Moment
from sidecar.core.observations import HandoverRead, Observation, PolicyLoaded, Started, Ticked
from sidecar.core.policy.policy import Destination, Policy, Severity
from sidecar.core.policy.routing import Labels, Route, every, inhibitor, matching
from sidecar.core.records import Notification, record_id
from sidecar.core.state import Append, Effect, State
from sidecar.core.step import step
from tests.core.feed_auditor import AM, FeedAuditor
from tests.kit.core_sidecar import Sidecar
from tests.kit.fake_flink import Flink

PAGER: Final = Destination("oncall", 1, in_order=True, keeps_incidents=True)
SEVERITIES: Final = [severity.value for severity in Severity]
K = TypeVar("K")
Key = tuple[str, str]
"""A group and an alert in it."""


class Auditor:
    """Knows by himself who was notified of what, from what went to the outbox and to the records."""

    def __init__(self) -> None:
        self.effects: list[list[Effect]] = []
        self._began: set[str] = set()
        """Groups that were notified FIRST and are not forgotten."""
        self._notified_at: dict[str, int] = {}
        self._hastened_at: dict[str, int] = {}
        """When a group was notified sooner than after `group_interval`, because it got worse."""
        self._worst: dict[str, int] = {}
        """By group: how severe it was when it was notified last."""
        self._paced: set[str] = set()
        """Groups that were notified under the policy of now."""
        self._lasting: dict[str, set[str]] = {}
        """By group: alerts that it was notified of as lasting, last of all."""
        self._mentioned: dict[Key, int] = {}
        self._free_since: dict[Key, int] = {}
        self._owed: dict[Key, Alert] = {}
        """Events that are in a group and of which nothing has been said."""
        self._settled: dict[Key, str] = {}
        """Events: "notified" or "suppressed"."""
        self._told_over: dict[str, set[str]] = {}
        """By group: the alerts that people were notified to be over."""
        self._hidden: dict[Key, set[str]] = {}
        """The silences that hid an alert, as recorded."""
        self._present: set[tuple[Key, int]] = set()
        """All alerts in groups before, in and after the step, and when they began: one may end and begin anew in a step."""
        self._ticked_at = 0
        self._open: dict[tuple[str, str], str] = {}
        """Incidents that a service keeps open, by destination and key: their groups."""
        self._keys: dict[str, str] = {}
        """By group: the key of its incident."""

    def nothing_is_owed(self) -> None:
        assert self._owed == {}, "an event that nobody was notified of, and that is not recorded as suppressed"
        assert not any(self._lasting.values()), "somebody still believes in what is over"
        assert self._open == {}, "an incident is open, and nothing of it goes on"

    def saw(
        self,
        policy: Policy,
        before: State,
        after: State,
        observation: Observation,
        effects: Sequence[Effect],
        notices: Sequence[Notice],
        flushed: Sequence[Alerts],
    ) -> None:
        """`flushed`: the alerts before their groups were flushed in this step."""
        self.effects.append(list(effects))
        if isinstance(observation, Started) and not before.clusters:
            return  # on an empty disk: what was handed over follows, if anything was
        reloaded = isinstance(observation, PolicyLoaded | Started | HandoverRead)
        if reloaded:
            self._free_since.clear()
            self._paced.clear()
            self._hastened_at.clear()
        self._listen(policy, after.alerts, just_seen=not reloaded and not isinstance(observation, Ticked))
        if reloaded:
            self._rekey(after.alerts, policy)
            self._give_up(policy, before.alerts, effects)
        self._present = {
            ((fp, key), member.alert.began.wall)
            for alerts in (after.alerts, *flushed, before.alerts)
            for fp, group in alerts.groups.items()
            for key, member in group.members.items()
        }
        new = [delivery for key, delivery in after.outbox.items() if key not in before.outbox]
        for delivery in new:
            key = self._keys.setdefault(delivery.fingerprint, delivery.incident)
            assert key == delivery.incident, "an incident has another key than before"
        beside = {Reason.RESEND, Reason.CONFIGURATION_CHANGED}
        queued = [delivery for delivery in new if not delivery.is_closing and delivery.reason not in beside]
        self._check_quiet(policy, after, notices, observation.at)
        self._hear(policy, notices, queued, observation.at.steady)
        self._read(policy, [e.record for e in effects if isinstance(e, Append) and isinstance(e.record, Notification)])
        sent = (effect.delivery for effect in effects if isinstance(effect, Send))
        self._serve(after, (delivery for delivery in sent if delivery.destination != AM.name))
        contested = frozenset[ComponentId]().union(*(cluster.contested for cluster in after.clusters.values()))
        self._check_owed(after.alerts, contested, withdrawn_may_be=not isinstance(observation, Ticked))
        self._check_forgotten(policy, after.alerts, observation.at.steady, reloaded=reloaded)
        self._check_recorded(after.alerts)
        if isinstance(observation, Ticked):
            _check_rewrites(before.alerts, after.alerts)
            _check_blindness(before.alerts, after)
            self._check_silence(policy, after, observation)

    def _listen(self, policy: Policy, alerts: Alerts, *, just_seen: bool) -> None:
        """Take down new events, and that they are in the groups of the routes that they take."""
        for fingerprint, group in alerts.groups.items():
            for member in group.members.values():
                key = (fingerprint, member.alert.id)
                if member.alert.is_event and not member.notified and key not in self._settled and key not in self._owed:
                    self._owed[key] = member.alert
                    there = sorted(g.route for g in alerts.groups.values() if member.alert.id in g.members)
                    assert not just_seen or there == sorted(
                        route.key for route in matching(policy.route, member.alert.labels)
                    )

    def _rekey(self, alerts: Alerts, policy: Policy) -> None:
        """Another policy: what is owed is owed to those who get it now, unless the rule is gone."""
        rules = {rule.alert for rule in policy.rules}
        here = {(fp, key) for fp, group in alerts.groups.items() for key in group.members}
        for key, alert in list(self._owed.items()):
            if key not in here:
                assert alert.rule not in rules or any(other == alert.id for _, other in here), "lost in a reload"
                del self._owed[key]
        for fingerprint, group in alerts.groups.items():  # what moved to another group is notified there anew
            for member in group.members.values():
                if not member.notified:
                    self._settled.pop((fingerprint, member.alert.id), None)

    def _check_quiet(self, policy: Policy, after: State, notices: Sequence[Notice], at: Moment) -> None:
        """Nobody is notified of what may not be notified now."""
        firing = _firing(after)
        for notice in notices:
            assert not notice.route.is_muted(at.wall), "notified in a mute interval"
            for alert in notice.alerts:
                assert not _is_silenced(after, alert, at), "notified, and silenced"
            for alert in (alert for alert in notice.alerts if alert.ended is None):
                assert not inhibitor(policy.inhibit_rules, alert.labels, firing), "notified, and inhibited"
                is_lasting = alert.id in self._lasting.get(notice.fingerprint, ())
                assert not is_lasting or _in_sight(alert, after), "notified again as if it held, while blind"

    def _hear(self, policy: Policy, notices: Sequence[Notice], queued: Sequence[Delivery], now: int) -> None:
        notices = [notice for notice in notices if not notice.closes]
        expected = [
            (notice.fingerprint, notice.reason, destination.name)
            for notice in notices
            for destination in policy.receivers[notice.route.receiver]
            if notice.news or destination.send_resolved or notice.reason not in {Reason.RESOLVED, Reason.SHRANK}
        ]
        assert sorted(expected) == sorted((sent.fingerprint, sent.reason, sent.destination) for sent in queued)
        assert len({notice.fingerprint for notice in notices}) == len(notices), "a group was notified twice in a step"
        for notice in notices:
            assert len({"observer" in alert.labels for alert in notice.alerts}) == 1, "of one observer, and of all"
            fingerprint, reason = notice.fingerprint, notice.reason
            is_end = notice.settles and not notice.news  # the incident is over, and what fires besides is about none
            assert (reason is Reason.FIRST) == (fingerprint not in self._began), "FIRST twice, or not at first"
            if reason is not Reason.FIRST and fingerprint in self._paced and not is_end:
                repeated = reason is Reason.REPEAT_INTERVAL_ELAPSED
                pause = notice.route.repeat_interval if repeated else notice.route.group_interval
                if now < self._notified_at[fingerprint] + pause:
                    assert reason is not Reason.REPEAT_INTERVAL_ELAPSED, "notified again too soon, and nothing is new"
                    last = self._hastened_at.get(fingerprint)
                    is_worse = _worst(notice.alerts[: notice.news]) > self._worst[fingerprint]
                    assert last is None or now >= last + pause or is_worse, "too soon, not for the first time, no worse"
                    self._hastened_at[fingerprint] = now
            self._began.add(fingerprint)
            self._paced.add(fingerprint)
            self._notified_at[fingerprint] = now
            self._worst[fingerprint] = _worst(
                [alert for alert in notice.alerts if alert.ended is None or alert.is_event]
            )
            lasting = self._lasting.setdefault(fingerprint, set())
            assert len({alert.id for alert in notice.alerts}) == len(notice.alerts), "the same alert twice in a message"
            told_over = self._told_over.setdefault(fingerprint, set())
            assert {alert.id for alert in notice.closing} <= told_over - lasting, "over, of what nobody had heard"
            assert (reason is Reason.RESOLVED) >= (bool(notice.closing) and not notice.goes_on), "left open"
            if reason is Reason.RESOLVED:
                assert lasting or notice.closing
                assert all(alert.ended for alert in notice.alerts)
            for alert in notice.alerts:
                key = (fingerprint, alert.id)
                news = alert.is_event and key not in self._settled
                is_ended_with = is_end and alert.id in told_over
                assert not alert.ended or alert.id in lasting or news or is_ended_with, "over, of what nobody had heard"
                assert self._settled.get(key) != "suppressed", "suppressed, and notified"
                is_first = key not in self._settled
                assert alert.id in lasting or is_first or is_ended_with, "an event was notified twice"
                _check_downtime(alert)
                self._mentioned[key] = now
                self._owed.pop(key, None)
                if alert.is_event:
                    self._settled[key] = "notified"
                (lasting.discard if alert.ended else lasting.add)(alert.id)
                (told_over.add if alert.ended else told_over.discard)(alert.id)
            assert (reason is Reason.RESOLVED) <= (not lasting), "RESOLVED, and something lasts"

    def _serve(self, after: State, sent: Iterable[Delivery]) -> None:
        """What a service that keeps incidents makes of messages. One that has waited may be followed by the next of its group."""
        for delivery in sent:
            incident = delivery.destination, delivery.incident
            behind = [other for other in after.outbox.values() if (other.destination, other.incident) == incident]
            assert ("observer" in delivery.group_labels) == (not delivery.parts), "others may have the same incident"
            if delivery.destination != PAGER.name or delivery.reason is Reason.SHRANK:
                continue
            if delivery.reason is Reason.CONFIGURATION_CHANGED:
                assert incident in self._open, "nobody was notified of it"
                if not delivery.goes_on:
                    del self._open[incident]
            elif delivery.reason is Reason.RESOLVED:
                is_last = not behind or behind[-1].id == delivery.id
                is_current = is_last and self._keys.get(delivery.fingerprint) == delivery.incident
                assert not (is_current and self._lasting.get(delivery.fingerprint)), (
                    "closed, and something of it goes on"
                )
                self._open.pop(incident, None)
            else:
                self._open[incident] = delivery.fingerprint

    def _give_up(self, policy: Policy, before: Alerts, effects: Sequence[Effect]) -> None:
        """Incidents at a destination that is gone: that nobody can close them is on the record."""
        if PAGER.name in policy.incident_destinations():
            return
        records = (effect.record for effect in effects if isinstance(effect, Append))
        recorded = {
            record.fingerprint for record in records if isinstance(record, Notification) and record.outcome == "gave_up"
        }
        for incident, fingerprint in list(self._open.items()):
            group = before.groups.get(fingerprint)
            if group and any(member.notified for member in group.members.values()):
                assert fingerprint in recorded, "nobody can close it, and that is not recorded"
                del self._open[incident]

    def _read(self, policy: Policy, records: Sequence[Notification]) -> None:
        for record in records:
            if record.outcome == "suppressed":
                possible = {
                    record_id("suppressed", policy.observer, *key, alert.began.wall): key
                    for key, alert in self._owed.items()
                }
                if record.id in possible:
                    self._settled[possible[record.id]] = "suppressed"
                    del self._owed[possible[record.id]]
                if record.silence_id:
                    self._read_of_silence(policy, record, record.silence_id)

    def _read_of_silence(self, policy: Policy, record: Notification, silence_id: str) -> None:
        """That a silence hides an alert from now on."""
        assert record.reason == Reason.SUPPRESSED_BY_SILENCE
        [key] = [
            key
            for key, began in self._present
            if record.id == record_id("suppressed", policy.observer, *key, began, silence_id)
        ]
        assert silence_id not in self._hidden.get(key, ()) or key not in self._owed, "recorded twice"
        self._hidden.setdefault(key, set()).add(silence_id)

    def _check_recorded(self, alerts: Alerts) -> None:
        """No silence hides an alert without a record."""
        for fingerprint, group in alerts.groups.items():
            for key, member in group.members.items():
                assert (member.suppressed_by is Reason.SUPPRESSED_BY_SILENCE) == (member.silence is not None)
                assert member.silence is None or member.silence in self._hidden[fingerprint, key], (
                    "hidden, not recorded"
                )

    def _check_owed(self, alerts: Alerts, contested: Collection[ComponentId], *, withdrawn_may_be: bool) -> None:
        for fingerprint, alert in list(self._owed):
            group = alerts.groups.get(fingerprint)
            if (group is None or alert not in group.members) and (fingerprint, alert) in self._hidden:
                self._settled[fingerprint, alert] = "suppressed"  # it is over, and was hidden by a silence until then
                del self._owed[fingerprint, alert]
            elif group is None or alert not in group.members:
                # Taken back: a job that was the first of a failover, and the changes that showed a split.
                assert withdrawn_may_be, "an event was dropped"
                component = self._owed.pop((fingerprint, alert)).component
                assert component is not None
                assert component.component is Component.JOB or component in contested

    def _check_forgotten(self, policy: Policy, alerts: Alerts, now: int, *, reloaded: bool) -> None:
        """A group is forgotten when nothing lasts in it and a group interval has passed, or when the policy has changed."""
        intervals = {route.key: route.group_interval for route in every(policy.route)}
        shortest = min(intervals.values())
        for fingerprint in [group for group in self._began if group not in alerts.groups]:
            if not reloaded:
                assert not self._lasting[fingerprint], "forgotten, and somebody believes that it lasts"
                assert now >= self._notified_at[fingerprint] + shortest, "forgotten too soon"
            self._began.discard(fingerprint)
            self._keys.pop(fingerprint, None)
            self._lasting.pop(fingerprint)
            for key in [key for key in self._settled if key[0] == fingerprint]:
                del self._settled[key]
        for fingerprint, lasting in self._lasting.items():  # a rule that is gone takes its alerts with it
            if reloaded:
                lasting.intersection_update(alerts.groups[fingerprint].members)

    def _check_silence(self, policy: Policy, after: State, ticked: Ticked) -> None:
        now = ticked.at.steady
        # A group that is due waits for the document of silences, until the tick after that at the latest.
        waits = PATIENCE + now - self._ticked_at if policy.silence_documents else 0
        self._ticked_at = now
        free = {}
        for fingerprint, route, member in _free(policy, after, ticked):
            key = (fingerprint, member.alert.id)
            since = free[key] = self._free_since.get(key, now)
            if member.notified and not member.alert.ended:
                last = max(since, self._mentioned.get(key, since))
                assert now < last + route.repeat_interval + route.group_interval + waits, "silent for too long"
            else:
                since = max(since, member.alert.ended.steady if member.alert.ended else since)
                members = after.alerts.groups[fingerprint].members.values()
                for_cause = grouping.PATIENCE if any(other.alert.episode_id for other in members) else 0
                latest = since + route.group_interval + route.group_wait + waits + for_cause
                assert now < latest, "not notified in time"
        self._free_since = free


def _worst(alerts: Iterable[Alert]) -> int:
    return max((SEVERITIES.index(alert.labels["severity"]) for alert in alerts), default=-1)


def _free(policy: Policy, after: State, ticked: Ticked) -> Iterator[tuple[str, Route, Member]]:
    """What is due: what lasts, is in sight, not inhibited and not outvoted by other observers, and the end of what was notified, but not of
    an incident, which waits for its cluster. All that only while nobody is muted.
    """
    routes = {route.key: route for route in every(policy.route)}
    firing = _firing(after)
    for fingerprint, group in after.alerts.groups.items():
        route = routes[group.route]
        if not route.is_muted(ticked.at.wall):
            for member in group.members.values():
                alert = member.alert
                if _is_silenced(after, alert, ticked.at):
                    continue
                open_to = _in_sight(alert, after) and not alert.is_outvoted
                open_to = open_to and not inhibitor(policy.inhibit_rules, alert.labels, firing)
                if (member.notified and not member.closes) if alert.ended else open_to:
                    yield fingerprint, route, member


def _is_silenced(state: State, alert: Alert, at: Moment) -> bool:
    """Judged by the matchers as rules have them, over Python's own regular expressions; and by both clocks."""
    return any(
        silence.starts_at - CLOCK_SKEW <= at.wall < silence.ends_at
        and at.steady < silence.until
        and not silence.expired_at
        and all(matcher.matches(alert.labels) for matcher in silence.matchers)
        for document in state.silences.values()
        for silence in document.known.values()
    )


def _check_downtime(alert: Alert) -> None:
    """The bounds of the time without a working leader are in their order."""
    at_least, at_most = alert.downtime_seconds_at_least, alert.downtime_seconds_at_most
    assert at_most is None or (at_least is not None and at_least <= at_most)


def _firing(state: State) -> list[Labels]:
    members = (member for group in state.alerts.groups.values() for member in group.members.values())
    return [member.alert.labels for member in members if not member.alert.ended]


def _in_sight(alert: Alert, state: State) -> bool:
    cluster = state.clusters.get(alert.cluster_id)
    return cluster is None or cluster.view.complete or "observer" in alert.labels  # one that was removed is over


def _check_blindness(before: Alerts, after: State) -> None:
    """Of what nobody can see nothing begins and nothing ends."""
    for fingerprint, group in after.alerts.groups.items():
        for key, member in group.members.items():
            if not _in_sight(member.alert, after):
                earlier = before.groups[fingerprint].members[key]
                assert earlier.alert.ended == member.alert.ended, "it ended, and nobody could see"


def _check_rewrites(before: Alerts, after: Alerts) -> None:
    """What stayed the same is the same object: nothing is written to the journal that says nothing new."""
    _check_same(before.groups, after.groups)
    _check_same(before.pending, after.pending)
    _check_same(before.failovers, after.failovers)


def _check_same(before: Mapping[K, object], after: Mapping[K, object]) -> None:
    for key, value in after.items():
        assert value is before.get(key) or value != before.get(key), "rewritten as it was"


class Audited(Sidecar):
    """A sidecar under audit, with a wall clock that may jump."""

    def __init__(self, flink: Flink, policy: Policy) -> None:
        self.audit = Auditor()
        self.feed = FeedAuditor()
        self.wall_ahead = 0
        self.steps: list[tuple[Policy, Observation]] = []
        self.notices: list[Notice] = []
        super().__init__(flink, policy)

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now + self.wall_ahead)

    def loads(self, policy: Policy) -> None:
        """The operator decides anew."""
        self.policy = policy
        self.observe(PolicyLoaded(self.moment, policy))

    def again(self) -> list[list[Effect]]:
        """What the same observations give once more, with alerts that were on disk between all of them."""
        state, all_effects = State(), []
        following = [*(observation for _, observation in self.steps[1:]), None]
        for (policy, observation), later in zip(self.steps, following, strict=True):
            if isinstance(observation, Started):
                empty = isinstance(later, HandoverRead)  # nothing was on its disk
                state, _ = assemble(() if empty else changes(State(), state))
            state, effects = step(policy, state, observation)
            all_effects.append(effects)
            kept, problems = assemble(changes(State(), State(alerts=state.alerts)))
            assert problems == []
            state = replace(state, alerts=replace(kept.alerts, beats=state.alerts.beats))  # which no disk has
        return all_effects

    def _step(self, observation: Observation) -> None:
        before, notices, flushed = self.state, list[Notice](), list[Alerts]()

        def recording_flush(alerts: Alerts, *rest: Any) -> flushing.Flushed:
            result = _flush(alerts, *rest)
            notices.extend(result[1])
            flushed.append(alerts)
            return result

        with patch.object(flushing, "flush", recording_flush):  # overheard, not changed
            self.state, effects = step(self.policy, before, observation)
        self.steps.append((self.policy, observation))
        self.notices += notices
        self.audit.saw(self.policy, before, self.state, observation, effects, notices, flushed)
        for effect in effects:
            if isinstance(effect, Append):
                self.records.append(effect.record)
            elif isinstance(effect, Send):
                self.feed.take(effect.delivery, self.now)
                self._send(effect.delivery)
            elif isinstance(effect, ReadSilences):
                self._read_silences(effect.document)
        self.feed.saw(self.policy, self.state, observation)


_flush = flushing.flush
