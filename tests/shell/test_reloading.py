"""Rules, routes and receivers anew without a restart: right ones count at once, wrong ones change nothing and are said."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from sidecar.app import reloading
from sidecar.app.reloading import NEEDS_RESTART, RELOADED, Reloader
from sidecar.settings import Settings, load

ONE = "rules: [{alert: A, on: vacant}]\nreceivers: [{name: ops, urls: ['json://127.0.0.1/']}]\n"
TWO = "rules: [{alert: A, on: vacant}, {alert: B, on: split}]\nreceivers: [{name: ops, urls: ['json://127.0.0.1/']}]\n"
WRONG = "rules: [{alert: A, on: vacent}]\n"


class House:
    """A reloader of one configuration file, and what came of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "sidecar.yaml"
        self.file.write_text(ONE)
        self.adopted: Queue[Settings] = Queue()
        self.said: Queue[str | None] = Queue()
        self.reloader = Reloader(self.load(), self.load, self.adopted.put, self.said.put)
        self.reloader.start()

    def load(self) -> Settings:
        return load(self.file, {"zookeeper": "zk"})

    def replaced(self, text: str) -> None:
        """As an editor and a mounted ConfigMap do it."""
        aside = self.file.with_suffix(".new")
        aside.write_text(text)
        aside.replace(self.file)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Looks at its file many times a second."""
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.02)
    made = House(tmp_path)
    yield made
    made.reloader.stop()


def test_a_file_that_changed_is_loaded(house: House) -> None:
    """Nobody has to say anything."""
    house.replaced(TWO)
    assert [rule.alert for rule in house.adopted.get(timeout=10).rules] == ["A", "B"]
    assert house.said.get(timeout=10) is None


def test_a_bad_file_keeps_the_rules_of_before_and_says_so(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """One line with the place; when it is mended, that is said too."""
    house.replaced(WRONG)
    problem = f'{house.file}:1: rules[0].on: "vacent" is unknown: did you mean "vacant"?'
    assert house.said.get(timeout=10) == problem
    assert [record.getMessage() for record in caplog.records] == [
        f"reload failed, keeping the previous rules: {problem}"
    ]
    assert house.adopted.empty()
    house.replaced(TWO)
    assert len(house.adopted.get(timeout=10).rules) == 2
    assert house.said.get(timeout=10) is None


def test_a_file_that_is_gone_keeps_the_rules_of_before(house: House) -> None:
    """An editor may remove it before it writes it anew."""
    house.file.unlink()
    assert house.said.get(timeout=10) == f"{house.file}: cannot be read: No such file or directory"
    house.replaced(ONE)
    assert house.said.get(timeout=10) is None


def test_files_are_loaded_when_asked_also_unchanged(house: House) -> None:
    """SIGHUP: a secret in a file beside it may have changed."""
    house.reloader.ask()
    assert len(house.adopted.get(timeout=10).rules) == 1


def test_a_reload_changes_each_setting_or_asks_for_a_restart() -> None:
    """A setting that is new belongs to one of the two."""
    assert {*NEEDS_RESTART, *RELOADED} == {*Settings.__struct_fields__}


def test_an_objective_follows_the_reload(house: House) -> None:
    """No restart for another percentage."""
    house.replaced(ONE + "slo: {leadership: 99.5, window: 7d}\n")
    objective = house.adopted.get(timeout=10).policy().objective_of("default")
    assert objective
    assert (objective.leadership, objective.window) == (99.5, 7 * 24 * 3600 * 1_000_000)


def test_a_server_that_would_listen_elsewhere_asks_for_a_restart(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Or be asked by another name. Links in messages follow the reload."""
    house.replaced(ONE + "http: {external_url: 'http://127.0.0.1/sidecar'}\n")
    assert house.adopted.get(timeout=10).policy().link == "http://127.0.0.1/sidecar"
    house.replaced(ONE + "http: {external_url: 'http://flink.example.com/sidecar'}\n")
    house.adopted.get(timeout=10)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "http has changed: restart the sidecar to apply that"
    ] * 2


def test_what_takes_a_restart_is_said(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing by itself, and the rest counts."""
    house.replaced(TWO + "trust_window: 9s\nexternal_labels: {env: prod}\nevidence: {capture: [processes]}\n")
    house.adopted.get(timeout=10)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "external_labels has changed: restart the sidecar to apply that",
        "trust_window has changed: restart the sidecar to apply that",
        "evidence has changed: restart the sidecar to apply that",
    ]


def test_a_reload_says_which_rules_came_and_went(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Compared with those that were in use, also after a second reload."""
    caplog.set_level("INFO")
    house.replaced(ONE.replace("alert: A", "alert: Another"))
    house.adopted.get(timeout=10)
    assert house.said.get(timeout=10) is None
    house.replaced(ONE)
    house.adopted.get(timeout=10)
    assert house.said.get(timeout=10) is None
    house.reloader.stop()
    assert [record.getMessage() for record in caplog.records if record.getMessage().startswith("reloaded")] == [
        "reloaded: 1 rule (new: Another; removed: A), 1 receiver",
        "reloaded: 1 rule (new: A; removed: Another), 1 receiver",
    ]


def test_new_rule_files_are_watched_too(house: House) -> None:
    """From the moment in which the configuration names them."""
    more = house.file.with_name("more.yaml")
    more.write_text("rules: [{alert: M, on: split}]\n")
    house.replaced(ONE + "rule_files: [more.yaml]\n")
    assert [rule.alert for rule in house.adopted.get(timeout=10).rules] == ["A", "M"]
    time.sleep(0.01)  # the times of a file system may be 4 ms coarse
    more.write_text("rules: [{alert: N, on: split}, {alert: O, on: split}]\n")
    assert [rule.alert for rule in house.adopted.get(timeout=10).rules] == ["A", "N", "O"]


def test_stopping_is_boring(tmp_path: Path) -> None:
    """Twice, and before it was started."""
    house = House(tmp_path)
    house.reloader.stop()
    house.reloader.stop()
    unstarted = Reloader(house.load(), house.load, house.adopted.put, house.said.put)
    unstarted.stop()


def test_a_signal_handler_may_ask(house: House) -> None:
    """As the sidecar does it."""
    before = signal.signal(signal.SIGHUP, lambda _signal, _frame: house.reloader.ask())
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        assert len(house.adopted.get(timeout=10).rules) == 1
    finally:
        signal.signal(signal.SIGHUP, before)
