"""Materializations that are killed: whatever was asked in between had one of two answers, and what is completed is right."""

import random
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from sidecar.audit.ask.registration import register_views
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import own_session, tune
from sidecar.audit.upkeep import materialize as upkeep
from sidecar.audit.upkeep.materialize import materialize
from sidecar.core.records import AnyRecord
from tests.audit.killing import end_what_it_began, killed, running
from tests.audit.random_histories import random_history
from tests.audit.spooling import NOON, seal

_VIEW = "availability"
"""It is made of stretches and of coverage."""
_DAYS = 40


def materialize_before(spark: SparkSession, audit: str, before: str) -> None:
    """As `materialize`, with a date of the command line, in several runs of dates."""
    with patch.object(upkeep, "LITTLE", 0):
        materialize(spark, audit, before=date.fromisoformat(Path(before).name))


class Rounds:
    """A log that gets new and late records from round to round, and a materialization that is killed again and again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.spool, self.audit = folder / "spool", folder / "audit"
        self._chance = chance
        self._day = 2
        self._segment = 1
        self._seconds = 2.0
        records = [record for number in range(3) for record in random_history(chance, f"cluster-{number}", _DAYS)]
        self._late = [record for record in records if chance.random() < 0.1]
        late = {id(record) for record in self._late}
        self._new = [record for record in records if id(record) not in late]

    def play(self, spark: SparkSession, kills: int) -> None:
        """New and late records, so many kills, and then a run that is not killed."""
        self._fill(spark)
        before, limit = self._answer(spark), NOON.date() + timedelta(days=self._day)
        between = list[Counter[tuple[str, ...]]]()
        for _ in range(kills):
            with running(materialize_before, self.audit, Path(str(limit)), jvm_of=spark) as process:
                self._seconds = max(0.5, killed(process, self._chance, self._seconds))
            end_what_it_began(spark)
            between.append(self._answer(spark))
        materialize(spark, str(self.audit), before=limit)
        after = self._answer(spark)
        assert after == self._answer(spark, from_scratch=True)
        for seen in between:
            assert seen in (before, after)

    def _answer(self, spark: SparkSession, *, from_scratch: bool = False) -> Counter[tuple[str, ...]]:
        session = own_session(spark)
        tune(session, ())
        register_views(session, str(self.audit), {_VIEW}, from_scratch=from_scratch)
        return Counter(tuple(map(str, row)) for row in session.table(_VIEW).collect())

    def _fill(self, spark: SparkSession) -> None:
        """The records of the next days, and some late ones."""
        self._day += self._chance.randint(1, 4)
        limit = str(NOON + timedelta(days=self._day + 1)).replace(" ", "T")
        records: list[AnyRecord] = [record for record in self._new if record.observed_at < limit]
        self._new = [record for record in self._new if record.observed_at >= limit]
        late = [record for record in self._late if record.observed_at < limit and self._chance.random() < 0.3]
        self._late = [record for record in self._late if record not in late]
        seal(self.spool, "jm-0", self._segment, [*records, *late])
        self._segment += len(records) + len(late)
        ingest(spark, str(self.spool), str(self.audit))
