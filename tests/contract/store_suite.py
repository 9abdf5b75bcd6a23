"""What every store must do. Inherit ``StoreSuite`` and give a ``backend`` fixture."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from services.runtime.store import (
    MigrationRefused,
    Store,
    StoreRejected,
    StoreUnavailable,
    migrations,
    open_store,
)

TABLES = {
    "runs",
    "sessions",
    "trajectory_events",
    "scores",
    "score_aggregates",
    "verdicts",
    "baselines",
}
HOSTILE = [
    "it's",
    'double "quotes"',
    "back\\slash\\'",
    "'; DROP TABLE runs; --",
    "') OR 1=1 /*",
    "\\",
    "%(other)s %% %s",
    "nul \0 bell \a escape \x1b tab \t line \r\n del \x7f",
    "{x:String} ${y} `z`",
    "zażółć 漢字 🧪 \u202e \u2028 e\u0301",
    "",
]

_databases = (f"test_{number}" for number in itertools.count())


class Backend(Protocol):
    """A store's process, which a test may kill and start again over the same data."""

    def url(self, database: str) -> str: ...
    def unreachable_url(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


class StoreSuite:
    @pytest.fixture
    def store(self, backend: Backend) -> Iterator[Store]:
        """A store on a database of its own, without tables."""
        store = open_store(backend.url(next(_databases)), deadline_s=20, create_database=True)
        yield store
        store.close()

    @pytest.fixture
    def migrated(self, store: Store) -> Store:
        migrations.migrate(store)
        return store

    # Values

    def test_hostile_text_survives_insert_query_and_parameters(self, migrated: Store) -> None:
        names = ("run_id", "pins_json", "version")
        migrated.insert("runs", names, [(f"r{i}", text, 1) for i, text in enumerate(HOSTILE)])
        for number, text in enumerate(HOSTILE):
            found = migrated.query(
                "SELECT run_id, pins_json FROM v_runs WHERE pins_json = %(text)s", {"text": text}
            )
            assert found.rows == [(f"r{number}", text)]
            assert migrated.query("SELECT %(text)s", {"text": text}).rows == [(text,)]
        assert migrated.query("SELECT count() FROM v_runs").rows == [(len(HOSTILE),)]

    def test_megabyte_strings(self, migrated: Store) -> None:
        text = "ł\n\\'\0" * 200_000
        migrated.insert("trajectory_events", ("run_id", "payload_json"), [("r", text)])
        assert migrated.query("SELECT payload_json FROM v_trajectory_events").rows == [(text,)]

    def test_every_type_comes_back_as_it_went(self, store: Store) -> None:
        store.command(
            "CREATE TABLE every (i Int64, u UInt64, f Float64, s String, d Date, n Nullable(Int64),"
            " b Nullable(UInt8), a Array(String), k Array(UInt32), v Array(Float64))"
            " ENGINE = MergeTree ORDER BY i"
        )
        day = dt.date(2026, 2, 28)
        rows = [
            (-(2**63), 2**64 - 1, 1 / 3, "x", day, None, None, [], [], []),
            (-1, 0, -0.5, "", day, -5, 1, HOSTILE, [0, 2**32 - 1], [1e-300, -1.5]),
            (2**63 - 1, 1, math.inf, "y", day, 2**63 - 1, 0, ["a", "a"], [1], [math.nan]),
        ]
        store.insert("every", ("i", "u", "f", "s", "d", "n", "b", "a", "k", "v"), rows)
        result = store.query("SELECT * FROM every ORDER BY i")
        assert repr(result.rows) == repr(rows)
        assert result.columns[:3] == (("i", "Int64"), ("u", "UInt64"), ("f", "Float64"))
        assert result.columns[7] == ("a", "Array(String)")

    def test_parameters_of_every_kind(self, store: Store) -> None:
        result = store.query(
            "SELECT 1 -%(minus)s, %(float)s, isNull(%(none)s), %(list)s, 5 IN %(tuple)s, %(yes)s,"
            " toDate(%(day)s), '100 %%'",
            {"minus": -1, "float": 1e22, "none": None, "list": ["a'", "\\"], "tuple": (5, 6)}
            | {"yes": True, "day": dt.date(2026, 1, 2), "unused": "x"},
        )
        day = dt.date(2026, 1, 2)
        assert result.rows == [(2, 1e22, 1, ["a'", "\\"], 1, 1, day, "100 %")]

    def test_a_missing_or_unwritable_parameter_is_named(self, store: Store) -> None:
        with pytest.raises(StoreRejected, match="other"):
            store.query("SELECT %(other)s", {"one": 1})
        with pytest.raises(StoreRejected, match="object"):
            store.query("SELECT %(one)s", {"one": object()})

    def test_without_parameters_a_per_cent_sign_is_itself(self, store: Store) -> None:
        assert store.query("SELECT '%(x)s 5%'").rows == [("%(x)s 5%",)]

    # Inserting

    def test_a_repeated_insert_counts_once(self, migrated: Store) -> None:
        names = ("run_id", "session_id", "event_id", "position", "at_ms", "version")
        rows = [("r", f"s{i % 7}", f"e{i}", i, 1_790_000_000_000, 1) for i in range(100)]
        for _ in range(3):
            migrated.insert("trajectory_events", names, rows)
        count = "SELECT count(), uniqExact(event_id) FROM v_trajectory_events"
        assert migrated.query(count).rows == [(100, 100)]

    def test_the_greatest_version_wins_across_partitions(self, migrated: Store) -> None:
        names = ("run_id", "session_id", "started_at_ms", "turns", "version")
        migrated.insert("sessions", names, [("r", "s", 1_790_000_000_000, 2, 2)])
        migrated.insert("sessions", names, [("r", "s", 1_700_000_000_000, 1, 1)])
        found = migrated.query("SELECT turns, event_date FROM v_sessions").rows
        assert found == [(2, dt.date(2026, 9, 21))]

    def test_the_baseline_in_force_and_its_history(self, migrated: Store) -> None:
        names = ("name", "run_id", "accepted_at_ms", "version")
        rows = [("shop/a", "r1", 10, 1), ("shop/a", "r2", 20, 1), ("shop/a", "r1", 30, 1)]
        migrated.insert("baselines", names, [*rows, ("shop/b", "r9", 5, 1)])
        migrated.insert("baselines", names, rows)
        now = migrated.query("SELECT name, run_id FROM v_baselines ORDER BY name").rows
        assert now == [("shop/a", "r1"), ("shop/b", "r9")]
        assert migrated.query("SELECT count() FROM v_baseline_history").rows == [(4,)]

    def test_a_hundred_thousand_rows(self, migrated: Store) -> None:
        names = ("run_id", "session_id", "dimension", "value", "passed", "citations", "version")
        rows = [
            ("r", f"session-{i:08}", "tone", i / 8, None if i % 3 else 1, ["e1", "e2"], 1)
            for i in range(100_000)
        ]
        migrated.insert("scores", names, rows)
        found = migrated.query("SELECT count(), sum(value), count(passed) FROM v_scores").rows
        assert found == [(100_000, sum(i / 8 for i in range(100_000)), 33_334)]

    def test_no_rows_is_no_work(self, migrated: Store) -> None:
        migrated.insert("runs", ("run_id",), [])

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("trials", "three"),
            ("trials", -1),
            ("trials", 2**32),
            ("trials", None),
            ("seed", 1.5),
            ("seed", 2**63),
            ("suite", None),
            ("suite", 5),
            ("suite", "\ud800"),
            ("completed_at_ms", "soon"),
        ],
    )
    def test_a_bad_value_names_table_and_column(
        self, migrated: Store, column: str, value: object
    ) -> None:
        with pytest.raises(StoreRejected, match=rf"runs.*{column}"):
            migrated.insert("runs", ("run_id", column), [("r1", value), ("r2", value)])
        migrated.insert("runs", ("run_id",), [("after",)])
        assert migrated.query("SELECT run_id FROM v_runs").rows == [("after",)]

    def test_bad_arrays_are_named(self, migrated: Store) -> None:
        for bad in ("text", [None], [1], None):
            with pytest.raises(StoreRejected, match=r"scores.*citations"):
                migrated.insert("scores", ("run_id", "citations"), [("r", bad)])

    def test_an_unknown_column_or_table_is_named(self, migrated: Store) -> None:
        with pytest.raises(StoreRejected, match=r"runs.*nonsense"):
            migrated.insert("runs", ("run_id", "nonsense"), [("r", 1)])
        with pytest.raises(StoreRejected, match="nowhere"):
            migrated.insert("nowhere", ("run_id",), [("r",)])
        with pytest.raises(StoreRejected, match=r"runs.*row 1"):
            migrated.insert("runs", ("run_id", "suite"), [("r", "s"), ("r",)])

    def test_bad_sql_is_rejected_and_the_store_still_works(self, store: Store) -> None:
        for act in (store.query, store.command):
            with pytest.raises(StoreRejected) as caught:
                act("SELECT FROM WHERE")
            assert caught.value.code == 62
        assert store.query("SELECT 1").rows == [(1,)]

    def test_a_column_added_later_can_be_written(self, migrated: Store) -> None:
        migrated.insert("verdicts", ("run_id",), [("r1",)])
        migrated.command("ALTER TABLE verdicts ADD COLUMN extra Int64")
        migrated.insert("verdicts", ("run_id", "extra"), [("r2", 7)])
        assert migrated.query("SELECT max(extra) FROM verdicts").rows == [(7,)]

    # Availability

    def test_acknowledged_rows_survive_kill_and_the_client_recovers(
        self, migrated: Store, backend: Backend
    ) -> None:
        for batch in range(5):
            rows = [(f"r{batch}-{i}", 1) for i in range(1000)]
            migrated.insert("runs", ("run_id", "version"), rows)
        backend.kill()
        backend.start()
        assert migrated.query("SELECT count() FROM v_runs").rows == [(5000,)]
        backend.kill()
        backend.start()
        migrated.insert("runs", ("run_id", "version"), [("late", 1)])
        assert migrated.query("SELECT count() FROM v_runs").rows == [(5001,)]

    def test_a_writer_outlives_its_stores_death_and_nothing_acknowledged_is_lost(
        self, migrated: Store, backend: Backend
    ) -> None:
        acknowledged: list[int] = []

        def write() -> None:
            for batch in range(60):
                rows = [(f"r{batch:03}-{i}", 1) for i in range(500)]
                migrated.insert("runs", ("run_id", "version"), rows)
                acknowledged.append(batch)

        writer = threading.Thread(target=write)
        writer.start()
        while len(acknowledged) < 20:
            time.sleep(0.001)
        backend.kill()
        before = set(acknowledged)
        backend.start()
        other = open_store(backend.url("default"), deadline_s=20)
        other.ping()
        other.close()
        found = "SELECT DISTINCT substring(run_id, 2, 3) FROM v_runs"
        assert {int(str(row[0])) for row in migrated.query(found).rows} >= before
        writer.join()
        assert migrated.query("SELECT count() FROM v_runs").rows == [(30_000,)]

    def test_a_silent_store_is_given_up_at_the_deadline(self, backend: Backend) -> None:
        url = backend.unreachable_url()
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", int(url.partition("127.0.0.1:")[2].partition("/")[0])))
            silent.listen()
            store = open_store(url, deadline_s=1)
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.query("SELECT 1")
            assert time.monotonic() - begun < 2
            store.close()

    def test_unreachable_is_said_within_the_deadline(self, backend: Backend) -> None:
        store = open_store(backend.unreachable_url(), deadline_s=1)
        for act in (
            lambda: store.query("SELECT 1"),
            lambda: store.insert("runs", ("run_id",), [("r",)]),
            lambda: store.command("SELECT 1"),
            store.ping,
        ):
            begun = time.monotonic()
            with pytest.raises(StoreUnavailable) as caught:
                act()
            assert time.monotonic() - begun < 2
            assert not caught.value.maybe_applied
            assert "hunter2" not in f"{caught.value!r} {store!r}"
        store.close()

    def test_ping_and_closing_twice(self, store: Store) -> None:
        store.ping()
        store.close()
        store.close()

    # Migrations

    def test_migrations_go_up_and_down_and_up(self, store: Store) -> None:
        assert [step.direction for step in migrations.migrate(store, dry_run=True)] == ["up"]
        assert _tables(store) == set()
        assert len(migrations.migrate(store)) == 1
        assert _tables(store) >= TABLES | {"v_sessions", "v_baselines", "schema_migrations"}
        assert migrations.migrate(store) == []
        assert len(migrations.rollback(store, 0, dry_run=True)) == 1
        assert _tables(store) >= TABLES
        assert len(migrations.rollback(store, 0)) == 1
        assert _tables(store) == {"schema_migrations"}
        assert len(migrations.migrate(store)) == 1
        assert _tables(store) >= TABLES

    def test_a_changed_migration_is_refused(self, store: Store, tmp_path: Path) -> None:
        directory = _copied(tmp_path)
        migrations.migrate(store, directory=directory)
        up = directory / "0001_initial.up.sql"
        up.write_text(up.read_text() + "\n-- changed\n")
        with pytest.raises(MigrationRefused, match=r"0001_initial.*changed"):
            migrations.migrate(store, directory=directory)
        assert migrations.migrate(store, directory=directory, allow_dangerous=True) == []

    def test_a_dangerous_migration_is_refused(self, store: Store, tmp_path: Path) -> None:
        directory = _copied(tmp_path)
        (directory / "0002_less.up.sql").write_text("ALTER TABLE runs DROP COLUMN suite;")
        (directory / "0002_less.down.sql").write_text("ALTER TABLE runs ADD COLUMN suite String;")
        with pytest.raises(MigrationRefused, match=r"0002_less.*DROP COLUMN"):
            migrations.migrate(store, directory=directory)
        assert _tables(store) == set()
        assert len(migrations.migrate(store, 1, directory=directory)) == 1
        assert len(migrations.migrate(store, directory=directory, allow_dangerous=True)) == 1
        assert [s.number for s in migrations.rollback(store, 1, directory=directory)] == [2]
        migrations.migrate(store, directory=directory, allow_dangerous=True)
        with pytest.raises(MigrationRefused, match=r"0002_less.*not in this checkout"):
            migrations.migrate(store)


def _tables(store: Store) -> set[str]:
    return {str(row[0]) for row in store.query("SHOW TABLES").rows if "inner" not in str(row[0])}


def _copied(tmp_path: Path) -> Path:
    directory = tmp_path / "migrations"
    directory.mkdir()
    for path in migrations.DIRECTORY.glob("*.sql"):
        shutil.copy(path, directory)
    return directory
