"""Panels and their queries, in the few forms that our dashboards need.

Grafana's own builders are used throughout; the ClickHouse plugin has none, so its targets are the
JSON that the plugin reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders import barchart, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import dashboard as model

PROMETHEUS = model.DataSourceRef(type_val="prometheus", uid="windtunnel-prometheus")
CLICKHOUSE = model.DataSourceRef(type_val="grafana-clickhouse-datasource", uid="windtunnel-store")
_GREEN, _ORANGE, _RED = "green", "orange", "red"


class Sql(Dataquery):
    """A statement for the ClickHouse plugin. Column `time` makes it a series."""

    def __init__(self, sql: str, ref_id: str = "A") -> None:
        self.sql = " ".join(sql.split())
        self.ref_id = ref_id
        self.is_series = " AS time" in self.sql

    def to_json(self) -> dict[str, Any]:
        return {
            "datasource": {"type": CLICKHOUSE.type_val, "uid": CLICKHOUSE.uid},
            "editorType": "sql",
            "format": 0 if self.is_series else 1,
            "pluginVersion": "4.0.0",
            "queryType": "timeseries" if self.is_series else "table",
            "rawSql": self.sql,
            "refId": self.ref_id,
        }


class _Target(Builder[Sql]):
    def __init__(self, query: Sql) -> None:
        self._query = query

    def build(self) -> Sql:
        return self._query


def sql(text: str) -> _Target:
    """A query of the store."""
    return _Target(Sql(text))


def prom(expression: str, legend: str = "", ref_id: str = "A") -> prometheus.Dataquery:
    """A query of Prometheus; in `legend` labels stand in double braces."""
    return (
        prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(ref_id)
        .datasource(PROMETHEUS).range()
    )  # fmt: skip


def thresholds(*steps: float, falling: bool = False) -> dashboard.ThresholdsConfig:
    """Green, then orange, then red as the value rises; with `falling` the other way round."""
    colors = [_GREEN, _ORANGE, _RED]
    if len(steps) == 1:
        colors = [_GREEN, _RED]
    if falling:
        colors.reverse()
    bounds: list[float | None] = [None, *steps]
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(v, c) for v, c in zip(bounds, colors, strict=True)])
    )


def _placed(panel: Any, title: str, about: str, width: int, height: int, source: Any) -> Any:
    return panel.title(title).description(about).span(width).height(height).datasource(source)


def series(
    title: str,
    about: str,
    *targets: Any,
    unit: str = "short",
    width: int = 12,
    bounds: dashboard.ThresholdsConfig | None = None,
) -> timeseries.Panel:
    """Lines over time."""
    panel = _placed(timeseries.Panel(), title, about, width, 8, _source_of(targets))
    panel.unit(unit).fill_opacity(10).min(0)
    if bounds is not None:
        panel.thresholds(bounds)
    for target in targets:
        panel.with_target(target)
    return panel  # type: ignore[no-any-return]


def number(
    title: str,
    about: str,
    target: Any,
    *,
    unit: str = "short",
    width: int = 4,
    bounds: dashboard.ThresholdsConfig | None = None,
) -> stat.Panel:
    """One figure."""
    panel = _placed(stat.Panel(), title, about, width, 4, _source_of([target])).unit(unit)
    if bounds is not None:
        panel.thresholds(bounds)
    return panel.with_target(target)  # type: ignore[no-any-return]


def word(title: str, about: str, target: Any, *, width: int = 4) -> stat.Panel:
    """One word, such as a verdict, in its colour."""
    colors = {"PASS": _GREEN, "FAIL": _RED, "INCONCLUSIVE": _ORANGE}
    panel = _placed(stat.Panel(), title, about, width, 4, _source_of([target]))
    panel.mappings([_words(colors)]).reduce_options(
        _Reduce({"calcs": ["lastNotNull"], "fields": "/.*/", "values": False})
    )
    return panel.with_target(target)  # type: ignore[no-any-return]


def rows(
    title: str,
    about: str,
    target: Any,
    *,
    width: int = 24,
    height: int = 9,
    units: dict[str, str] | None = None,
    links: dict[str, tuple[str, str]] | None = None,
) -> table.Panel:
    """A table. `units` by column; `links` by column as (what it says, the address)."""
    panel = _placed(table.Panel(), title, about, width, height, _source_of([target]))
    for column, unit in (units or {}).items():
        panel.override_by_name(column, [model.DynamicConfigValue("unit", unit)])
    for column, (says, url) in (links or {}).items():
        link = {"title": says, "url": url, "targetBlank": True}
        panel.override_by_name(column, [model.DynamicConfigValue("links", [link])])
    return panel.with_target(target)  # type: ignore[no-any-return]


def bars(
    title: str, about: str, target: Any, *, unit: str = "short", width: int = 12
) -> barchart.Panel:
    """A bar for each row: the first column names it."""
    panel = _placed(barchart.Panel(), title, about, width, 8, _source_of([target]))
    return panel.unit(unit).min(0).with_target(target)  # type: ignore[no-any-return]


def choice(name: str, label: str, query: str, *, every: bool = True) -> dashboard.QueryVariable:
    """A variable whose values are the store's."""
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(CLICKHOUSE)
        .query({"rawSql": " ".join(query.split()), "editorType": "sql"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(every)
        .multi(every)
    )
    if every:
        variable.current(model.VariableOption(text=["All"], value=["$__all"], selected=True))
    return variable


def board(uid: str, title: str, about: str, *, variables: Sequence[Any] = ()) -> Any:
    """A dashboard without panels, which links to the others."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["windtunnel"])
        .timezone("utc")
        .refresh("30s")
        .time("now-24h", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Windtunnel")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["windtunnel"])
            .as_dropdown(True)
            .keep_time(True)
        )
    )
    for variable in variables:
        made.with_variable(variable)
    return made.annotation(_verdicts())


class _Verdicts(Builder[model.AnnotationQuery]):
    def build(self) -> model.AnnotationQuery:
        made = model.AnnotationQuery(
            name="Verdicts", datasource=CLICKHOUSE, enable=True, icon_color=_RED
        )
        query = Sql(
            "SELECT fromUnixTimestamp64Milli(decided_at_ms) AS time, concat(run_id, ' ', verdict) "
            "AS text, verdict AS tags FROM v_verdicts "
            "WHERE decided_at_ms BETWEEN $__from AND $__to ORDER BY time",
            "Verdicts",
        )
        made.target = query  # type: ignore[assignment]  # the plugin's own form
        return made


def _verdicts() -> Builder[model.AnnotationQuery]:
    return _Verdicts()


class _Reduce(Builder[Any]):
    """Which values a stat shows; the builder's own form knows no pattern of fields."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    def build(self) -> Any:
        return self._options


def _words(colors: dict[str, str]) -> Any:
    options = {
        text: model.ValueMappingResult(text=text, color=color, index=index)
        for index, (text, color) in enumerate(colors.items())
    }
    return model.ValueMap(options=options)


def _source_of(targets: Sequence[Any]) -> model.DataSourceRef:
    return CLICKHOUSE if isinstance(targets[0], _Target) else PROMETHEUS
