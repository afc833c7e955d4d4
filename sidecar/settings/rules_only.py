"""Rules, route and receivers by themselves: for commands that try them out, and need neither a cluster nor a secret."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.policy.labels import Operator
from sidecar.core.policy.policy import Policy, Store
from sidecar.settings.alerting.alerting import Alerting, read_alerting
from sidecar.settings.alerting.matchers import matchers
from sidecar.settings.file import schema
from sidecar.settings.file.document import parse, read_text
from sidecar.settings.file.nodes import Items, Node, Scalar, Table
from sidecar.settings.file.schema import Keys
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given
from sidecar.settings.loader import external_labels

_URL: Final = "json://127.0.0.1"
"""Of every receiver: nothing is sent."""
_ANYBODY: Final = f"receivers: [{{name: ops, urls: ['{_URL}']}}]"
"""Who is told where nobody says who is."""


class Offline(Struct, frozen=True):
    """What of a configuration decides who is told what."""

    alerting: Alerting
    external_labels: Mapping[str, str]

    def policy(self, observer: str, stores: Mapping[str, Store], labels: Mapping[str, str] | None = None) -> Policy:
        """The policy of a sidecar that watches `stores`. `labels`: the external labels, where the configuration gives none.

        Each receiver is one destination, and nobody is told that somebody watches.
        """
        return Policy(
            observer,
            stores,
            dict(self.external_labels or labels or {}),
            rules=self.alerting.rules,
            route=self.alerting.route,
            inhibit_rules=self.alerting.inhibit_rules,
            receivers={receiver.name: receiver.destinations() for receiver in self.alerting.receivers},
        )


def read_offline(config: Path | None) -> Offline:
    """What the file `config` says, a rule file or a whole configuration, with the rule files that it names; without one: the shipped rules.

    Raises SettingsError.
    """
    nothing = Section(Table({}, {}, 1), schema.CONFIG, "the configuration", None)
    return offline(document(config, schema.CONFIG) if config else nothing)


def offline(file: Section) -> Offline:
    """What `file` says, with the rule files that it names: each may be a whole configuration with rule files. Raises SettingsError."""
    named = [document(given.path(), schema.CONFIG) for given in file.texts("rule_files")]
    below = [document(given.path(), schema.RULE_FILE) for whole in named for given in whole.texts("rule_files")]
    documents = [file, *named, *below]
    if not any("receivers" in each for each in documents):
        documents.append(Section(parse(_ANYBODY, "defaults"), schema.RULE_FILE, "defaults", None))
    labels = {name: text for each in documents for name, text in external_labels(each).items()}
    return Offline(read_alerting(documents, labels), labels)


def labels_in(given: Given) -> dict[str, str]:
    """The labels of an alert, written as matchers: `alert="X",severity="critical"`, whatever their names. Raises SettingsError."""
    found = matchers(given, _Anything()) if given.text.strip() else []
    for matcher in found:
        if matcher.operator is not Operator.EQUAL:
            raise given.error(f'an alert has labels, not conditions: write {matcher.label}="…"')
    return {matcher.label: matcher.value for matcher in found}


class _Anything(AbstractSet[str]):
    """Every label there could be."""

    def __contains__(self, label: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def document(path: Path, known: Keys) -> Section:
    """The file at `path`, without the URLs of its receivers: they are secrets, and nobody is told. Raises SettingsError."""
    table = parse(read_text(path), str(path))
    receivers = table.entries.get("receivers")
    if isinstance(receivers, Items):
        listed = Items(tuple(map(_without_urls, receivers.items)), receivers.line)
        table = replace(table, entries={**table.entries, "receivers": listed})
    return Section(table, known, str(path), path.absolute().parent)


def _without_urls(receiver: Node) -> Node:
    urls = receiver.entries.get("urls") if isinstance(receiver, Table) else None
    if not isinstance(receiver, Table) or not isinstance(urls, Items) or not urls.items:
        return receiver
    one = Items((Scalar(_URL, urls.line, plain=False),), urls.line)
    return replace(receiver, entries={**receiver.entries, "urls": one})
