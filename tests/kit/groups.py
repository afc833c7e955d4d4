"""Which tests `make test` and `make test-long` run, and which of them run one after the other on one worker (pytest-xdist).

A plugin of pytest, loaded by tests/conftest.py. `make test` is the gate: every feature once, on the real thing; what repeats it or takes
long is in `make test-long`. A group is what shares a costly server, else a file. Those that take longest begin first.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

_GROUPS: Final = {
    "Spark, writing": tuple(
        f"audit/test_{name}"
        for name in ("ingest", "poison", "verify", "schema", "compact", "retention", "segment_log", "visible_ids")
    ),
    "Spark, object stores": tuple(f"audit/test_{name}" for name in ("object_store", "bucket_changes", "readers")),
    "Kubernetes": (
        "deploy/test_kubernetes",
        "integration/test_drivers",
        "integration/test_fake_flink",
        "integration/test_kubernetes",
        "integration/test_ledgers",
        "integration/test_no_such_cluster",
        "integration/test_silences",
        "integration/test_trickling_stores",
    ),
    "documents": ("core/test_document_fuzz",),
    "campaign": ("campaign/test_short",),
    "Spark, questions": tuple(
        f"audit/test_{name}"
        for name in ("answers", "comments", "cookbook", "queries_only", "report", "shell", "sql", "warm_up")
    ),
    "Spark, closed dates and crashes": ("audit/test_materialized", "audit/test_crash"),
    "Flink's listeners": ("e2e/test_flink_listener",),
    "ZooKeeper": tuple(f"integration/test_zookeeper_{name}" for name in ("driver", "ledger", "watches")),
}
"""What shares a server, or takes minutes, by the beginnings of the ids of its tests; all else is a group by file. They begin in this order,
in which those that compute and those that wait take turns: a worker that begins a long group late is the one that all others wait for.
"""


class Tier(StrEnum):
    """Which command runs a test. Without `--tier`, pytest runs all."""

    GATE = "gate"
    """`make test`."""
    LONG = "long"
    """`make test-long`."""


LONG: Final[dict[str, tuple[str, ...]]] = {
    "this table": ("test_tiers.py::test_every_row", "test_tiers.py::test_every_test"),
    "random faults on whole systems": ("campaign/test_short",),
    "one scenario of the night": ("night/test_short",),
    "killed and damaged, again and again": (
        "audit/test_compact.py::test_dying",
        "audit/test_compact.py::test_killed",
        "audit/test_compact.py::test_readers",
        "audit/test_crash",
        "audit/test_collected.py::test_of_a_jvm",
        "audit/test_ingest.py::test_a_lost_checkpoint",
        "audit/test_ingest.py::test_following",
        "audit/test_ingest.py::test_of_a_damaged_segment",
        "audit/test_poison",
        "audit/test_shell.py::test_from_a_pipe",
        "audit/test_verify.py::test_a_full_disk",
        "audit/test_verify.py::test_each_thing",
        "audit/test_verify.py::test_with_a_dead_jvm",
        "core/test_document_fuzz.py::test_a_hundred_thousand",
        "e2e/test_handover.py::test_a_sidecar_that_is_killed",
        "e2e/test_hostile_handover",
        "e2e/test_kill",
    ),
    "the audit's answers over every history, and how they are computed; the gate has the cookbook, and each command": (
        "audit/test_answers",
        "audit/test_comments.py::test_audit_sql",
        "audit/test_comments.py::test_describe",
        "audit/test_compact.py::test_a_",
        "audit/test_compact.py::test_columns",
        "audit/test_compact.py::test_each_closed_date",
        "audit/test_compact.py::test_late_records",
        "audit/test_compact.py::test_our_own_query",
        "audit/test_compact.py::test_what_was",
        "audit/test_compilers",
        "audit/test_cookbook.py::test_the_script",
        "audit/test_ingest.py::test_a_transition",
        "audit/test_ingest.py::test_an_id",
        "audit/test_ingest.py::test_rows_of",
        "audit/test_ingest.py::test_two_spools",
        "audit/test_ingest.py::test_what_is_seen_twice_is_there_once[many",
        "audit/test_materialized",
        "audit/test_leadership_slo",
        "audit/test_months.py::test_a_month",
        "audit/test_months.py::test_an_id",
        "audit/test_months.py::test_compact",
        "audit/test_months.py::test_every_reader",
        "audit/test_months.py::test_verify",
        "audit/test_own_tables.py::test_a_file_is",
        "audit/test_queries_only.py::test_folders_are_listed",
        "audit/test_queries_only.py::test_a_query_finds",
        "audit/test_readers.py::test_an_example_prints_the_same",
        "audit/test_readers.py::test_an_example_prints_what_it_says[duckdb",
        "audit/test_queries_only.py::test_nothing_can_be_written",
        "audit/test_queries_only.py::test_only_what_is_described",
        "audit/test_queries_only.py::test_spark_answers",
        "audit/test_queries_only_functions.py::test_spark_s_examples",
        "audit/test_queries_only_hostile.py::test_hostile_queries",
        "audit/test_queries_only_shell",
        "audit/test_recent_leadership",
        "audit/test_report.py::test_a_time_without",
        "audit/test_report.py::test_a_condition",
        "audit/test_report.py::test_a_week",
        "audit/test_report.py::test_it_stays_small",
        "audit/test_report.py::test_the_figures",
        "audit/test_report.py::test_what_cannot_be_reported",
        "audit/test_session",
        "audit/test_sql.py::test_a_question_is_small",
        "audit/test_sql.py::test_what_is_interpreted",
        "audit/test_visible_ids",
        "audit/test_warm_up.py::test_an_archive",
    ),
    "object stores, a Spark cluster": (
        "audit/test_cluster",
        "audit/test_bucket_changes",
        "audit/test_bucket_errors.py::test_a_segment",
        "audit/test_bucket_errors.py::test_a_store_that_refuses",
        "audit/test_bucket_errors.py::test_an_ingest",
        "audit/test_bucket_errors.py::test_both_names",
        "audit/test_bucket_errors.py::test_jars",
        "audit/test_bucket_errors.py::test_rows",
        "audit/test_bucket_errors.py::test_what_the_store",
        "audit/test_bucket_errors.py::test_without",
        "audit/test_object_store",
        "audit/test_readers.py::test_a_reader_of_a_bucket",
        "audit/test_readers.py::test_an_example_prints_what_it_says[bucket",
    ),
    "versions of Flink beside 2.3.0, and the judgement of Flink's own listener": (
        "deploy/test_forms.py::test_flink_makes_its_pods_from_the_template[1",
        "e2e/test_failover",
        "e2e/test_flink_listener",
        "e2e/test_kubernetes_failover.py::test_a_config_map_for_each_component",
        "e2e/test_kubernetes_failover.py::test_each_way_in_which_a_leader_goes[1",
        "integration/test_flink_pictures.py::test_pictures_of_a_failover_are_true[1",
        "integration/test_kubernetes_replay",
        "integration/test_zookeeper_replay",
        "lab/test_flink",
        "lab/test_job",
        "settings/cluster/test_odd_flink_conf.py::test_flink_reads_them_so",
    ),
    "the chart, value by value": ("deploy/test_chart.py::test_no_value",),
    "a command or a service in one way more": (
        "e2e/test_command_line.py::test_an_interrupted_command_cannot_tell[verb1",
        "e2e/test_command_line.py::test_an_interrupted_command_cannot_tell[verb2",
        "e2e/test_command_options.py::test_debug",
        "e2e/test_ha_check.py::test_what_cannot",
        "e2e/test_rules_test.py::test_the_shipped",
        "integration/test_against_alertmanager",
        "integration/test_kubernetes_ha_checks.py::test_a_component_that_was_erased",
        "integration/test_kubernetes_run.py::test_sidecars_in",
        "integration/test_kubernetes_status.py::test_a_leader_that_died",
        "integration/test_ledgers.py::test_it_outlives_a_restart_of_its_server[kubernetes",
        "integration/test_ledgers.py::test_no_increment_is_lost[kubernetes",
        "shell/test_annotate.py::test_what_is_no_printable",
        "shell/test_annotate.py::test_where_there_is_nothing",
        "shell/test_spool_chain.py::test_what_unpacks",
        "sinks/evidence/test_flink_rest.py::test_a_real_flink",
        "sinks/notify/test_incidents.py::test_failovers_that_are_over",
        "sinks/notify/test_incidents.py::test_one_incident_is_opened_and_closed_whatever_happens[ILert",
        "sinks/notify/test_incidents.py::test_one_incident_is_opened_and_closed_whatever_happens[Jira",
        "sinks/notify/test_incidents.py::test_one_incident_is_opened_and_closed_whatever_happens[Opsgenie",
        "sinks/notify/test_incidents.py::test_rules_that_come",
        "sinks/notify/test_refusals.py::test_send_test",
        "sinks/notify/test_send_test.py::test_a_",
        "core/alerting/test_outbox.py::test_a_delivery_that_fails_is_tried_again",
        "test_document_site",
    ),
    "images, releases and browsers": (
        "audit/test_report_page",
        "deploy/test_image_build",
        "deploy/test_release",
        "shell/test_page_in_browser",
        "sinks/notify/test_formatting.py::test_a_mail_is_readable",
    ),
    "long outages and days, many servers, many observers": (
        "e2e/test_alertmanager.py::test_an_alert_is_one_everywhere",
        "e2e/test_leader_silent",
        "e2e/test_drill",
        "e2e/test_ha_check_of_flink.py::test_the_session_timeout",
        "e2e/test_one_voice.py::test_three_sidecars",
        "e2e/test_planned_failovers.py::test_without",
        "e2e/test_found_clusters.py::test_two_finders",
        "e2e/test_recovery",
        "e2e/test_six_failovers",
        "audit/test_ingest_places.py::test_names_that_mean",
        "core/failover/test_silent_leader.py::test_a_busy_day",
        "e2e/test_state_dir.py::test_the_second_sidecar_refuses",
        "integration/test_drills.py::test_a_drill_is_one_message_of_two_sidecars",
        "integration/test_kubernetes_finder.py::test_large_config_maps",
        "integration/test_kubernetes_finder.py::test_what_an_outage_hides",
        "integration/test_kubernetes_outages",
        "integration/test_load_balancer",
        "integration/test_peers.py::test_a_",
        "integration/test_silences.py::test_a_document",
        "integration/test_ledgers.py::test_a_claim_is_renewed_while_its_holder_lives_and_then_taken_over[kubernetes",
        "integration/test_silences.py::test_a_known_silence",
        "integration/test_zookeeper_driver.py::test_a_thousand",
        "integration/test_zookeeper_driver.py::test_all_of_a_thousand",
        "integration/test_silences.py::test_an_alert_that_still_fires",
        "integration/test_silences.py::test_one_silence_holds_for_every_sidecar[kubernetes",
        "integration/test_trickling_stores",
        "integration/test_zookeeper_ensemble",
        "integration/test_zookeeper_ha_checks.py::test_an_ensemble_without_a_quorum",
        "integration/test_zookeeper_ha_servers.py::test_servers_with_tls",
        "integration/test_zookeeper_finder.py::test_whatever_comes_and_goes",
        "shell/test_ha_checks_shown.py::test_a_cluster_is_checked_also",
    ),
}
"""Why tests are in `make test-long` alone, and the beginnings of their ids; so are those that assert seconds. All others are the gate's. A
property is in both: with few examples in the gate, with all in the long tier. tests/test_tiers.py holds the gate to a test of each feature.
"""
_FEW: Final = 10
"""One example of so many is tried in the gate."""

_ROOMS: Final = ("audit", "e2e", "campaign", "integration", "deploy", "lab", "sinks", "shell")
"""The order of the files: first those whose tests take long."""

_FAST_ROOMS: Final = tuple(f"tests/{room}/" for room in ("core", "settings", "simulation", "shell", "sinks"))
_SERVERS: Final = {"java", "zookeeper", "lab", "spark"}
"""Fixtures that a test of the fast lane does without. Whoever runs a JVM asks for `java`."""
_API_SERVER: Final = ("apiserver", "[kubernetes")
"""A fixture, and how the parameters of a test begin that asks for it only then."""

_tier: Tier | None = None


def examples(number: int) -> int:
    """With how many examples a property is tried: `number` of them, and a tenth in the gate."""
    return max(1, number // _FEW) if _tier is Tier.GATE else number


def tiers_of(item: pytest.Item) -> set[Tier]:
    """Which commands run the test."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return {*Tier}
    name = item.nodeid.removeprefix("tests/")
    late = item.get_closest_marker("timing") or any(name.startswith(begins) for begins in LONG.values())
    return {Tier.LONG if late else Tier.GATE}


def group_of(nodeid: str) -> str:
    """The name of the group that a test belongs to."""
    name = nodeid.removeprefix("tests/")
    return next((group for group, begins in _GROUPS.items() if name.startswith(begins)), name.partition("::")[0])


def _turn(nodeid: str) -> tuple[int, int]:
    """When a test's group is begun."""
    group, room = group_of(nodeid), nodeid.split("/")[1]
    return (
        [*_GROUPS].index(group) if group in _GROUPS else len(_GROUPS),
        _ROOMS.index(room) if room in _ROOMS else len(_ROOMS),
    )


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """Gives each worker whole groups, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Called in the process that shares out the tests. (`--dist loadgroup` does not group under pytest 9.2: pytest-xdist's issue 1386.)"""
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `make test`, `make test-long` and the tests of both give."""
    parser.addoption("--collected", metavar="FILE", type=Path, help="write the tests and what each covers, as JSON")
    parser.addoption(
        "--tier", type=Tier, choices=[*Tier], help="the tests of one command alone, see tests/kit/groups.py"
    )
    parser.addoption("--explore", action="store_true", help="property tests try other inputs than in the last run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier, put the groups that take longest first, and mark what needs no server, and what needs an API server."""
    if _tier:
        others = [item for item in items if _tier not in tiers_of(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _tier in tiers_of(item)]
    for item in items:
        fixtures: Sequence[str] = getattr(item, "fixturenames", ())
        fast = item.nodeid.startswith(_FAST_ROOMS) and not item.get_closest_marker("timing")
        if fast and not _SERVERS & {*fixtures}:
            item.add_marker(pytest.mark.fast)
        if _API_SERVER[0] in fixtures or _API_SERVER[1] in item.nodeid:
            item.add_marker(pytest.mark.apiserver)
    items.sort(key=lambda item: _turn(item.nodeid))
    if file := config.getoption("--collected"):
        marks = {item.nodeid: [*item.iter_markers("covers")] for item in items}
        file.write_text(
            json.dumps({test: [name for mark in covers for name in mark.args] for test, covers in marks.items()})
        )


class Progress:
    """Prints a line when a group has run: the log of a run on several workers, in place of a dot for each test."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._sizes = Counter[str]()
        self._done = Counter[str]()
        self._failed = Counter[str]()
        self._seconds = defaultdict[str, float](float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Called for each worker: they all collect the same."""
        self._sizes = Counter(map(group_of, ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for each phase of each test."""
        group = group_of(report.nodeid)
        self._seconds[group] += report.duration
        self._failed[group] += report.failed
        if report.when != "teardown":
            return
        self._done[group] += 1
        if self._done[group] == self._sizes[group]:
            failed = f", {self._failed[group]} failed" if self._failed[group] else ""
            share = 100 * self._done.total() // self._sizes.total()
            line = f"{share:3}% {group}: {self._sizes[group]} tests{failed}, {self._seconds[group]:.0f} s"
            self._terminal.write_line(f"{time.strftime('%H:%M:%S')} {line}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dot for a test that passed."""
        return ("passed", "", "") if report.passed and report.when == "call" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called once in each process, when there is a terminal."""
    global _tier  # noqa: PLW0603  one for each process; `examples` is asked for while modules of tests are imported
    _tier = config.getoption("--tier")
    # What a run says is about the code alone: the same code has the same answer. What others may find is looked for with --explore.
    few = examples(hypothesis.settings().max_examples)
    hypothesis.settings.register_profile("tier", max_examples=few, derandomize=not config.getoption("--explore"))
    hypothesis.settings.load_profile("tier")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal and config.getoption("numprocesses", None):
        config.pluginmanager.register(Progress(terminal), "progress-of-groups")
