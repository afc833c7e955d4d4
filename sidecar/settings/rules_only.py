"""The alerting settings alone, for commands that try them out. They need no cluster and no secret."""

from pathlib import Path
from typing import Final

from sidecar.core.policy.labels import Operator
from sidecar.settings.alerting.alerting import RULE_FILE, read_alerting
from sidecar.settings.alerting.matchers import matchers
from sidecar.settings.alerting.receivers import UNUSED_URL
from sidecar.settings.file.document import parse
from sidecar.settings.file.section import ReadFile, Section, read_file
from sidecar.settings.file.setting import Setting
from sidecar.settings.loader import CONFIG, external_labels
from sidecar.settings.model import Alerting

_DEFAULT_RECEIVER: Final = f"receivers: [{{name: ops, urls: ['{UNUSED_URL}']}}]"


def read_rules(config: Path | None) -> Alerting:
    """The alerting settings of `config` (a rule file or a whole configuration) and its rule files; None: the shipped rules.

    Raises SettingsError.
    """
    return rules_in(read_file(config, CONFIG))


def rules_in(file: Section, read: ReadFile = read_file) -> Alerting:
    """The alerting settings of `file` and its rule files; each may be a whole configuration with rule files. Raises SettingsError."""
    configurations = [read(setting.path(), CONFIG) for setting in file.texts("rule_files")]
    rule_files = [setting for document in configurations for setting in document.texts("rule_files")]
    documents = [file, *configurations, *(read(setting.path(), RULE_FILE) for setting in rule_files)]
    if not any("receivers" in document for document in documents):
        documents.append(Section(parse(_DEFAULT_RECEIVER, "defaults"), RULE_FILE, "defaults"))
    labels = {name: text for document in documents for name, text in external_labels(document).items()}
    return read_alerting(documents, labels, secrets=False)


def labels_in(setting: Setting) -> dict[str, str]:
    """The labels of an alert, written as matchers: `alert="X",severity="critical"`. Any name is accepted. Raises SettingsError."""
    pairs = matchers(setting, None) if setting.text.strip() else []
    for matcher in pairs:
        if matcher.operator is not Operator.EQUAL:
            raise setting.error(f'an alert has labels, not conditions: write {matcher.label}="…"')
    return {matcher.label: matcher.value for matcher in pairs}
