"""A picture of the dashboard during a real failover: `python -m tests.screenshots.dashboard FILE.png`.

Flink on ZooKeeper with one JobManager and a job, a sidecar, and a Prometheus that scrapes it each second. The JobManager is killed with
kill -9, and another one is started when it is missed. The queries of deploy/grafana/flink-ha-sidecar.json are asked, and their answers
plotted where the dashboard has its panels. It is a plot, not Grafana.
"""

import math
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import json
from plotly.offline import get_plotlyjs

from tests.kit.browser import chromium
from tests.kit.prometheus import Dashboard, Labels, Prometheus, Series, filled_in
from tests.kit.receivers import webhook
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.flink import Lab

_BEFORE_SECONDS: Final = 20.0
_AFTER_SECONDS: Final = 12.0
_WIDTH: Final = 1440
_ROW: Final = 30
"""Pixels of a row of the dashboard's grid."""
_COLOURS: Final = {"green": "#37872d", "red": "#c4162a", "orange": "#ff780a", "blue": "#1f60c4", "purple": "#8f3bb8"}
_LINES: Final = ("#1f60c4", "#fa6400", "#37872d", "#8f3bb8", "#c4162a", "#0b8a8a")
_PAGE: Final = """\
<!doctype html><meta charset="utf-8"><style>
body {{ width: {width}px; margin: 0; padding: 8px; background: #f4f5f5; font: 12px sans-serif; color: #24292e; }}
main {{ display: grid; grid-template-columns: repeat(24, minmax(0, 1fr)); grid-auto-rows: {row}px; gap: 6px; }}
section {{ background: #fff; border: 1px solid #dcdfe3; padding: 4px 6px; overflow: hidden; display: flex;
  flex-direction: column; }}
h2 {{ font-size: 12px; margin: 0 0 2px; }}
div {{ flex: 1; min-height: 0; }}
b {{ font-size: 22px; margin-right: 8px; white-space: nowrap; }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; padding: 3px 8px 3px 0; border-bottom: 1px solid #eee; font-size: 10px; }}
</style><main>{panels}</main><script>{plotly}</script><script>
Promise.all({figures}.map(([id, data, layout]) => Plotly.newPlot(id, data, layout, {{staticPlot: true}})))
  .then(() => document.documentElement.dataset.drawn = "all");
</script>
"""


class Recorded(NamedTuple):
    """A Prometheus that has what happened between two times (seconds since the epoch)."""

    prometheus: Prometheus
    start: float
    end: float

    def answers(self, panel: Mapping[str, Any]) -> list[list[Series]]:
        """What each query of a panel returns."""
        results = []
        for target in panel["targets"]:
            expression = filled_in(target["expr"], math.ceil(self.end - self.start), namespace=".*", cluster_id=".*")
            if target.get("instant"):
                results.append(self.prometheus.query(expression))
            else:
                results.append(self.prometheus.query_range(expression, self.start, self.end))
        return results

    def failovers(self) -> list[float]:
        """When the annotations are."""
        [query] = Dashboard().annotations()
        expression = filled_in(query.expression, 1, namespace=".*", cluster_id=".*")
        found = self.prometheus.query_range(expression, self.start, self.end)
        return sorted({value / 1000 for _, samples in found for _, value in samples})


def main(picture: Path) -> None:
    """Record a failover, and plot it."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        recorded = _record(folder, stack)
        page = folder / "dashboard.html"
        page.write_text(_page(recorded))
        with chromium() as browser:
            browser.open(page, _WIDTH)
            picture.write_bytes(browser.screenshot())
    print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


def _record(folder: Path, stack: ExitStack) -> Recorded:
    lab = stack.enter_context(Lab(folder / "lab", progress=print))
    lab.start(jobmanagers=1)
    lab.submit_job()
    people = stack.enter_context(webhook())
    sidecar = Sidecar(folder / "sidecar", f"flink_conf_dir: {lab.conf_dir}", [people.url])
    sidecar.start()
    stack.callback(sidecar.stop)
    sidecar.wait_ready()
    prometheus = Prometheus(folder / "prometheus", {"flink-jobmanager-0": f"127.0.0.1:{sidecar.port}"})
    stack.callback(prometheus.kill)
    prometheus.start()
    start = time.time()
    time.sleep(_BEFORE_SECONDS)
    lab.wait_for_leader().kill()
    wait_for("the vacancy", lambda: prometheus.query("flink_ha_vacant_seconds > 0"))
    lab.add_jobmanager()
    wait_for("the end of the failover", lambda: prometheus.query("flink_ha_last_episode_timestamp_seconds"))
    wait_for("the message", lambda: people.received)
    time.sleep(_AFTER_SECONDS)
    return Recorded(prometheus, start, time.time())


# -- the page ----------------------------------------------------------------------------------------------------------


def _page(recorded: Recorded) -> str:
    marks = recorded.failovers()
    panels, figures = [], []
    for panel in Dashboard().model["panels"]:
        grid, answers = panel["gridPos"], recorded.answers(panel)
        where = f"grid-area: {grid['y'] + 1} / {grid['x'] + 1} / span {grid['h']} / span {grid['w']}"
        identity = f"panel-{panel['id']}"
        match panel["type"]:
            case "stat":
                content = _stat(panel, answers)
            case "table":
                content = _table(panel, answers)
            case _:
                content = ""
                figures.append([identity, *_figure(panel, answers, recorded, marks)])
        title = escape(panel["title"])
        panels.append(f'<section style="{where}"><h2>{title}</h2><div id="{identity}">{content}</div></section>')
    drawn = json.encode(figures).decode().replace("</", "<\\/")
    return _PAGE.format(width=_WIDTH - 40, row=_ROW, panels="".join(panels), plotly=get_plotlyjs(), figures=drawn)


def _stat(panel: Mapping[str, Any], answers: Sequence[list[Series]]) -> str:
    unit = panel["fieldConfig"]["defaults"].get("unit", "short")
    shown = []
    for target, found in zip(panel["targets"], answers, strict=True):
        value = _text(found[0][1][-1][1], unit) if found else "-"
        shown.append(f"{escape(target.get('legendFormat', ''))} <b>{value}</b>")
    return " ".join(shown)


def _table(panel: Mapping[str, Any], answers: Sequence[list[Series]]) -> str:
    organize = next(step["options"] for step in panel["transformations"] if step["id"] == "organize")
    units = {
        override["matcher"]["options"]: override["properties"][0]["value"]
        for override in panel["fieldConfig"]["overrides"]
    }
    rows: dict[tuple[tuple[str, str], ...], dict[str, str | float]] = {}
    for target, found in zip(panel["targets"], answers, strict=True):
        name = "Value" if len(answers) == 1 else f"Value #{target['refId']}"
        for labels, samples in found:
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            row[name] = samples[-1][1]
    order = organize["indexByName"]
    columns = sorted((name for name in order if name not in organize["excludeByName"]), key=lambda name: order[name])
    heads = [organize["renameByName"].get(name, name) for name in columns]
    lines = [
        "".join(
            f"<td>{_text(row.get(name, ''), units.get(head, ''))}</td>"
            for name, head in zip(columns, heads, strict=True)
        )
        for row in rows.values()
    ]
    header = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return f"<table><tr>{header}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _text(value: str | float, unit: str) -> str:
    if isinstance(value, str):
        return escape(value)
    match unit:
        case "s":
            return f"{value:.1f} s"
        case "percentunit":
            return f"{value:.1%}"
        case "dateTimeAsIso":
            return datetime.fromtimestamp(value / 1000, UTC).strftime("%H:%M:%S")
        case _:
            return f"{value:.0f}"


def _figure(
    panel: Mapping[str, Any], answers: Sequence[list[Series]], recorded: Recorded, marks: Sequence[float]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    layout: dict[str, Any] = {
        "margin": {"l": 34, "r": 6, "t": 2, "b": 20},
        "font": {"size": 10},
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.16, "font": {"size": 9}},
        "xaxis": {"type": "date", "range": [_date(recorded.start), _date(recorded.end)]},
        "yaxis": {"rangemode": "tozero"},
        "shapes": [
            {"type": "line", "x0": _date(at), "x1": _date(at), "y0": 0, "y1": 1, "yref": "paper"}
            | {"line": {"color": "#c4162a", "width": 1, "dash": "dot"}}
            for at in marks
        ],
    }
    named = [*_named(panel, answers)]
    if panel["type"] == "bargauge":
        bars = {"x": [samples[-1][1] for _, samples in named], "y": [name for name, _ in named]}
        layout |= {"xaxis": {"rangemode": "tozero", "dtick": 1}, "shapes": [], "showlegend": False}
        layout["margin"]["l"] = 100
        return [{"type": "bar", "orientation": "h", "width": 0.4, **bars}], layout
    if panel["type"] == "state-timeline":
        layout["margin"]["l"] = 250
        return [_states(panel, named)], layout
    return [*_lines(panel, named, layout)], layout


def _named(
    panel: Mapping[str, Any], answers: Sequence[list[Series]]
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The series of a panel with the names of its legend."""
    for target, found in zip(panel["targets"], answers, strict=True):
        for labels, samples in found:
            yield _legend(target.get("legendFormat", ""), labels), samples


def _legend(template: str, labels: Labels) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), template)


def _states(panel: Mapping[str, Any], named: Sequence[tuple[str, list[tuple[float, float]]]]) -> dict[str, Any]:
    options = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    colours = {int(value): _COLOURS.get(each["color"], each["color"]) for value, each in options.items()}
    low, high = min(colours), max(colours)
    scale = [[(value - low) / (high - low), colour] for value, colour in sorted(colours.items())]
    times = sorted({at for _, samples in named for at, _ in samples})
    rows = [[dict(samples).get(at) for at in times] for _, samples in named]
    drawn = {"x": [*map(_date, times)], "y": [name for name, _ in named], "z": rows, "ygap": 6}
    return {"type": "heatmap", "zmin": low, "zmax": high, "colorscale": scale, "showscale": False, **drawn}


def _lines(
    panel: Mapping[str, Any], named: Sequence[tuple[str, list[tuple[float, float]]]], layout: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    custom = panel["fieldConfig"]["defaults"]["custom"]
    stacked = "stacking" in custom
    own = {
        override["matcher"]["options"]: _COLOURS[given["value"]["fixedColor"]]
        for override in panel["fieldConfig"]["overrides"]
        for given in override["properties"]
        if given["id"] == "color"
    }
    layout["barmode"] = "stack"
    layout["bargap"] = 0
    for number, (name, samples) in enumerate(named):
        values = [None if math.isnan(value) else value for _, value in samples]
        drawn: dict[str, Any] = {"name": name, "x": [_date(at) for at, _ in samples], "y": values}
        colour = own.get(name, _LINES[number % len(_LINES)])
        match custom["drawStyle"]:
            case "bars":
                if any(values):
                    yield drawn | {"type": "bar", "marker": {"color": colour}}
            case "points":
                yield drawn | {"mode": "markers", "marker": {"color": colour, "size": 6}}
            case _:
                stack = {"stackgroup": "all"} if stacked else {}
                yield drawn | {"mode": "lines", "line": {"color": colour, "width": 1.5}, **stack}


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
