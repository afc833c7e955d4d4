"""The report's charts, as plotly figures. Text from a cluster is untrusted, and plotly interprets HTML: it has to be escaped."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Any, Final, NamedTuple

from plotly import graph_objects as go

from sidecar.audit.report_data import EDGES, NO_CAUSE, Findings, Lane
from sidecar.core.flink.leadership import host_port
from sidecar.core.sanitize import clean

VACANT: Final = "#d6336c"
UNSEEN: Final = "#adb5bd"
LED: Final = "#2f9e6e"
_LEADERS: Final = ("#3b6fd4", "#0c9aa6", "#7a5bd0", "#2f9e6e", "#5c7cfa", "#b07a1e")
"""Successive leaders have different colours."""
COLOURS: Final = {
    "dispatcher": "#3b6fd4",
    "resource_manager": "#7a5bd0",
    "rest_server": "#0c9aa6",
    "job": "#e8930c",
    "jobmanager_lost": "#d6336c",
    "restarted_in_place": "#f0803c",
    "graceful_handover": "#2f9e6e",
    "rolling_upgrade": "#8cc152",
    "same_process_reelection": "#3b6fd4",
    "lease_renewal_failed": "#0c9aa6",
    "store_outage": "#7a5bd0",
    "store_reelection": "#b197e8",
    "split_leadership": "#8f1d3f",
    "tampered": "#5a4636",
    "rewritten_by_flink": "#b07a1e",
    "unknown": "#868e96",
    NO_CAUSE: "#ced4da",
}
"""Colours of components and causes, in the order in which they are shown."""
_INK: Final = "#212938"
_HATCHED: Final = {"shape": "/", "size": 5, "bgcolor": "#f4f6f9"}
_FAINT: Final = "#e6e9ef"
_FONT: Final = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": _INK}
_AXIS: Final = {"automargin": True, "gridcolor": _FAINT, "zeroline": False, "fixedrange": True}
_COUNTS: Final = {"rangemode": "tozero", "tickformat": ",d", "nticks": 6}
"""The vertical axis of a chart that shows counts."""
_LANE_PIXELS: Final = 50
_DAYS_NAMED: Final = 6
_BAR_PART: Final = 0.85
_LABEL_CHARACTERS: Final = 40


class _Leader(NamedTuple):
    """A host in one term, and the lanes in which it had that term."""

    colour: str
    lanes: set[int]


def plain(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """Untrusted text as one printable line of bounded length."""
    shown = clean(text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def lane_name(lane: Lane) -> str:
    """The label of a lane."""
    leadership = f"job {plain(lane.job_id, 8)}" if lane.job_id else plain(lane.component, 20)
    return f"{plain(lane.cluster_id, 24)} · {leadership}"


def leadership(found: Findings) -> Any:
    """Who led, over time: one lane per leadership."""
    bars: dict[str, list[tuple[int, datetime, datetime, str]]] = defaultdict(list)
    colours = {
        cluster_id: _colours(found.lanes, cluster_id) for cluster_id in {lane.cluster_id for lane in found.lanes}
    }
    for nth, lane in enumerate(found.lanes):
        for interval in lane.intervals:
            colour = VACANT if interval.address is None else colours[lane.cluster_id][nth, interval.session_id or ""]
            bars[colour].append((nth, interval.began, interval.ended, interval.address or ""))
        bars[UNSEEN] += [(nth, gap.began, gap.ended, "") for gap in lane.unobserved]
    marks = [(nth, at) for nth, lane in enumerate(found.lanes) for at in lane.failovers]
    failover_marks = go.Scatter(
        x=[_js(at) for _, at in marks],
        y=[nth - 0.27 for nth, _ in marks],
        mode="markers",
        marker={"symbol": "triangle-down", "size": 8, "color": _INK},
        hovertext=[f"failover {_js(at)}" for _, at in marks],
        hoverinfo="text",
    )
    traces = [_bars(bars.get(colour, []), colour) for colour in (*_LEADERS, VACANT, UNSEEN)]
    count = len(found.lanes)
    figure = _figure([*traces, failover_marks], count * _LANE_PIXELS + 40, range=[count - 0.5, -0.95], visible=False)
    place = {"x": 0, "xref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    for nth, lane in enumerate(found.lanes):
        figure.add_annotation(place, y=nth - 0.36, text=escape(lane_name(lane)), font={"size": 11})
    figure.update_xaxes(type="date", range=[_js(found.begin), _js(found.end)], showgrid=True, side="bottom", nticks=6)
    figure.update_layout(barmode="overlay", uniformtext={"minsize": 9, "mode": "hide"})
    return figure


def failovers(found: Findings) -> Any:
    """The number of failovers on each day, by cause."""
    traces = []
    for cause in in_order(row[1] for row in found.failovers):
        rows = [(day, n) for day, which, n in found.failovers if which == cause]
        traces.append(_stack(cause, [_noon(day) for day, _ in rows], [n for _, n in rows]))
    return _by_day(_figure(traces, 260, **_COUNTS), found)


def vacancies(found: Findings) -> Any:
    """Durations of vacancies, by component."""
    traces = []
    for component in in_order(row[0] for row in found.vacancies):
        counts = {place: n for which, place, n in found.vacancies if which == component}
        traces.append(_stack(component, *_histogram(counts, [row[1] for row in found.vacancies])))
    return _figure(traces, 260, **_COUNTS).update_layout(barmode="stack", bargap=0.12)


def availability(found: Findings) -> Any:
    """Each day: led, vacant and unobserved, as parts of the day."""
    traces = []
    for name, colour, seconds in (
        ("led", LED, [day.led for day in found.days]),
        ("no leader", VACANT, [day.vacant for day in found.days]),
        ("unobserved", UNSEEN, [day.unobserved for day in found.days]),
    ):
        bar = go.Bar(
            name=name,
            x=[_noon(day.day) for day in found.days],
            y=[
                part / (day.led + day.vacant + day.unobserved or 1.0)
                for part, day in zip(seconds, found.days, strict=True)
            ],
            marker=_marker(colour),
            hovertemplate="%{x|%Y-%m-%d}: %{y:.3%}<extra>" + name + "</extra>",
        )
        traces.append(bar)
    return _by_day(_figure(traces, 260, range=[0, 1], tickformat=".0%", nticks=6), found)


def delays(found: Findings) -> Any:
    """The time from queued to delivered, for all destinations."""
    counts = dict(found.delays)
    trace = _stack("delivered", *_histogram(counts, list(counts)))
    return _figure([trace], 240, **_COUNTS).update_layout(bargap=0.12)


def _bars(bars: Sequence[tuple[int, datetime, datetime, str]], colour: str) -> Any:
    what = {VACANT: "no leader", UNSEEN: "unobserved"}.get(colour)
    hosts = [escape(plain(host_port(address))) if address else "" for *_, address in bars]
    return go.Bar(
        orientation="h",
        base=[_js(began) for _, began, _, _ in bars],
        x=[(ended - began).total_seconds() * 1000 for _, began, ended, _ in bars],
        y=[nth for nth, *_ in bars],
        width=0.4,
        marker=_marker(colour),
        text=hosts,
        textposition="inside",
        insidetextanchor="start",
        textfont={"color": "#ffffff", "size": 11},
        hovertext=[
            f"{what or host}<br>{_js(began)}<br>{_js(ended)} UTC"
            for host, (_, began, ended, _) in zip(hosts, bars, strict=True)
        ],
        hoverinfo="text",
    )


def _colours(lanes: Sequence[Lane], cluster_id: str) -> dict[tuple[int, str], str]:
    """The colour of each term of a cluster, by lane and session id: one per leader, in all lanes.

    A leader is a host in one term: after a restart or a new election it is another one. Its components share a session id; where each has
    its own, they are matched by host.
    """
    terms = sorted(
        (interval.began, nth, interval.session_id or "", host_port(interval.address).partition(":")[0])
        for nth, lane in enumerate(lanes)
        if lane.cluster_id == cluster_id
        for interval in lane.intervals
        if interval.address
    )
    leaders = list[_Leader]()
    of_session, of_host = dict[str, _Leader](), dict[str, _Leader]()
    last, found = dict[int, str](), dict[tuple[int, str], str]()
    for _, nth, session_id, host in terms:
        leader = of_session.get(session_id) or of_host.get(host)
        if leader is None or (session_id not in of_session and nth in leader.lanes):
            free = (_LEADERS[(len(leaders) + more) % len(_LEADERS)] for more in range(len(_LEADERS)))
            leader = _Leader(next(colour for colour in free if colour != last.get(nth)), set())
            leaders.append(leader)
        leader.lanes.add(nth)
        of_session[session_id] = of_host[host] = leader
        found[nth, session_id] = last[nth] = leader.colour
    return found


def _by_day(figure: Any, found: Findings) -> Any:
    """Lay out `figure` with a bar for each UTC day of the period, and labels for some of the days."""
    first, last = found.begin.date(), found.end.date()
    named = range(0, (last - first).days + 1, (last - first).days // _DAYS_NAMED + 1)
    days = [first + timedelta(days=number) for number in named]
    figure.update_traces(width=_BAR_PART * 86_400_000)
    figure.update_xaxes(
        type="date",
        range=[str(first), str(last + timedelta(days=1))],
        tickvals=[_noon(day) for day in days],
        ticktext=[f"{day:%b} {day.day}" for day in days],
    )
    return figure.update_layout(barmode="stack")


def _noon(day: date) -> str:
    return f"{day} 12:00"


def _stack(name: str, x: Sequence[str], y: Sequence[int]) -> Any:
    return go.Bar(name=escape(plain(name)), x=x, y=y, marker=_marker(COLOURS.get(name, _LEADERS[0])))


def _marker(colour: str) -> dict[str, Any]:
    return {"color": colour, "line": {"width": 0}, "pattern": _HATCHED if colour == UNSEEN else {}}


def in_order(names: Iterable[str]) -> list[str]:
    """Components or causes without repetitions, those with a colour first."""
    order = list(COLOURS)
    return sorted(set(names), key=lambda name: (order.index(name) if name in order else len(order), name))


def _histogram(counts: dict[int, int], places: Sequence[int]) -> tuple[list[str], list[int]]:
    """Labels and counts, from the lowest to the highest of `places`."""
    labels = [
        f"< {_short(EDGES[0])}",
        *(f"{_short(low)} to {_short(high)}" for low, high in pairwise(EDGES)),
        f"≥ {_short(EDGES[-1])}",
    ]
    span = range(min(places, default=0), max(places, default=0) + 1)
    return [labels[place] for place in span], [counts.get(place, 0) for place in span]


def _short(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def _js(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _figure(traces: Sequence[Any], height: int, **vertical_axis: Any) -> Any:
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8, "pad": 4},
        font=_FONT,
        paper_bgcolor="#ffffff",
        plot_bgcolor="#ffffff",
        showlegend=False,
        colorway=list(_LEADERS),
        hoverlabel={"bgcolor": "#ffffff", "bordercolor": _FAINT, "font": _FONT, "align": "left"},
        dragmode=False,
    )
    figure.update_xaxes(_AXIS, showline=True, linecolor=_FAINT, tickcolor=_FAINT)
    figure.update_yaxes(_AXIS, **vertical_axis)
    return figure
