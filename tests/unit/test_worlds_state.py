"""What a world's state may be besides JSON: tables and files; and what a tool asks for first."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.trajectory import USER_ACTED, TrajectoryEvent, UserActed
from schemas.world_setup import WorldSetup
from services.tool_proxy.answer import Outcome, execute
from services.tool_proxy.session import ProxyCore
from services.tool_proxy.user_calls import answer_user
from services.tool_proxy.world import Context, ToolError, World, WorldError, requires
from services.tool_proxy.world_state_files import MAX_FILE_BYTES
from tests.support.tool_proxy import Bench, MemoryLog, answer_of, make_brief, specs, started
from tests.support.worlds import SHOP, TABLES, has_open_order, make_shop

pytestmark = pytest.mark.req("V05", "V04")

NOW = datetime(2026, 1, 15, 9, tzinfo=UTC)


def context(state: dict[str, Any] | None = None, now: datetime = NOW) -> Context:
    return Context(state if state is not None else SHOP.initial_state, now, random.Random(1), 1)


def run(tool: str, ctx: Context | None = None, **arguments: Any) -> Any:
    found = SHOP.find(tool)
    assert found is not None
    return SHOP.call(found, ctx or context(), orjson.dumps(arguments))


def refused(tool: str, ctx: Context | None = None, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as error:
        run(tool, ctx, **arguments)
    return error.value


def test_rows_are_state_by_their_keys_and_types() -> None:
    row = {"id": 1, "customer": "c1", "total": 12.5, "open": True, "tags": ["new"],
           "made_at": "2026-01-01"}  # fmt: skip
    state = SHOP.initial_state
    assert state["tables"]["orders"] == {"1": row}
    assert state["tables"]["customers"]["c2"] == {"id": "c2", "name": "Bo"}
    assert (state["files"], state["sequences"]) == ({"docs": {"a.txt": "alpha"}}, {"orders": 1})


def test_a_change_of_the_tables_is_a_change_of_the_state_at_the_worlds_time() -> None:
    ctx = context(now=datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert run("order", ctx, customer="c2", total=3) == 2
    made = ctx.state["tables"]["orders"]["2"]
    assert (made["made_at"], made["open"], made["tags"]) == ("2026-03-01 12:00:00", True, None)
    assert ctx.state["sequences"] == {"orders": 2}
    # The state is all there is: from it alone, the next call goes on.
    again = context(orjson.loads(orjson.dumps(ctx.state)))
    assert run("order", again, customer="c1", total=1) == 3


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH DATABASE '/tmp/stolen.db' AS other",
        "VACUUM INTO '/tmp/stolen.db'",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT writefile('/tmp/x', 'y')",
        "SELECT readfile('/etc/passwd')",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = 1",
        "PRAGMA foreign_keys = OFF",
        "PRAGMA temp_store_directory = '/tmp'",
        "CREATE TABLE mine (x)",
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN x",
        "CREATE TEMP TRIGGER t AFTER INSERT ON orders BEGIN SELECT 1; END",
        "INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)",
        "SELECT * FROM pragma_database_list",
        "SELECT 1; SELECT 2",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT zeroblob(2000000000)",
        "INSERT INTO orders (customer, total) VALUES ('nobody', 1)",
    ],
)
def test_sql_of_an_agent_cannot_leave_its_tables_or_go_on_forever(query: str) -> None:
    ctx = context()
    before = orjson.dumps(ctx.state)
    assert refused("sql", ctx, query=query).code in ("sql", "conflict")
    assert orjson.dumps(ctx.state) == before


def test_sql_has_the_worlds_clock_and_chance_alone() -> None:
    query = (
        "SELECT date('now') AS d, datetime('now', '+1 day') AS t, CURRENT_TIMESTAMP AS c, "
        "strftime('%Y', 'now') AS y, datetime('now', 'localtime') AS l, random() AS r"
    )
    (first,), (second,) = run("sql", query=query), run("sql", query=query)
    assert first == second
    assert (first["d"], first["t"], first["y"]) == ("2026-01-15", "2026-01-16 09:00:00", "2026")
    assert first["c"] == first["l"] == "2026-01-15 09:00:00"


def test_what_a_world_starts_with_may_not_depend_on_when_it_is_loaded() -> None:
    script = "CREATE TABLE t (x TEXT); INSERT INTO t VALUES (datetime('now'));"
    with pytest.raises(WorldError, match="database"):
        World("clock", database=script)
    with pytest.raises(WorldError, match="virtual"):
        World("fts", database="CREATE VIRTUAL TABLE t USING fts5(x)")
    with pytest.raises(WorldError, match="syntax"):
        World("typo", database="CREAT TABLE t (x)")


def test_a_condition_that_does_not_hold_is_an_error_as_data_and_nothing_is_done() -> None:
    assert run("close", order_id=1) == "closed"
    ctx = context()
    run("close", ctx, order_id=1)
    error = refused("close", ctx, order_id=1)
    assert (error.code, error.message) == ("precondition_failed", "The order must still be open.")
    assert error.details == {"condition": "has_open_order"}
    assert refused("close", order_id=5).code == "not_found"
    tool = SHOP.find("close")
    assert tool is not None
    assert tool.input_schema["required"] == ["order_id"]
    with pytest.raises(WorldError, match="must not change anything"):
        run("broken")


def test_conditions_are_checked_from_the_top_down_when_a_tool_is_defined_and_called() -> None:
    world = World("w")
    with pytest.raises(WorldError, match="no argument order_id"):

        @requires(has_open_order)
        def other(ctx: Context, name: str) -> str:
            return name

    with pytest.raises(WorldError, match="docstring"):

        @requires(lambda ctx: True)
        def third(ctx: Context) -> str:
            return ""

    with pytest.raises(WorldError, match="below the decorator"):

        @requires(lambda ctx: True, message="No.")
        @world.tool
        def late(ctx: Context) -> str:
            return ""


@pytest.mark.parametrize(
    "path",
    ["../a", "/etc/passwd", "a/../../b", "", ".", "a//b", "a\\b", "a\0b", "./a", "a/",
     "x" * 300, "/".join("a" * 40), "\ud800"],
)  # fmt: skip
def test_no_path_leads_out_of_a_worlds_files(path: str) -> None:
    ctx = context()
    ctx.begin(SHOP._kinds)
    with pytest.raises(ToolError) as error:
        ctx.files.write(path, "x")
    assert error.value.code == "invalid_path"
    assert ctx.state["files"] == {"docs": {"a.txt": "alpha"}}


def test_files_are_bounded_texts_in_folders() -> None:
    ctx = context()
    assert run("write", ctx, path="docs/new/b.txt", text="beta") == ["docs/a.txt", "docs/new/b.txt"]
    assert run("read", ctx, path="docs/new/b.txt") == "beta"
    assert refused("read", ctx, path="docs").code == "is_a_directory"
    assert refused("read", ctx, path="docs/c").code == "not_found"
    assert refused("write", ctx, path="docs/a.txt/x", text="").code == "not_a_directory"
    assert refused("write", ctx, path="big", text="x" * (MAX_FILE_BYTES + 1)).code == "too_large"
    assert ctx.state["files"]["docs"]["new"] == {"b.txt": "beta"}


def test_a_real_directory_is_read_back_and_links_are_refused() -> None:
    ctx = context()
    ctx.begin(SHOP._kinds)
    with ctx.files.directory(ignore=["**/__pycache__"]) as root:
        assert (root / "docs/a.txt").read_text() == "alpha"
        (root / "docs/a.txt").unlink()
        (root / "out.txt").write_text("made")
        (root / "__pycache__").mkdir()
        (root / "__pycache__/x.pyc").write_bytes(b"\xff")
    assert ctx.state["files"] == {"docs": {}, "out.txt": "made"}
    with pytest.raises(ToolError) as error, ctx.files.directory() as root:
        (root / "link").symlink_to("/etc/passwd")
    assert error.value.code == "invalid_path"
    assert ctx.state["files"] == {"docs": {}, "out.txt": "made"}


def test_a_session_may_change_rows_and_files_that_it_starts_with() -> None:
    patch = {
        "tables": {"orders": {"1": None, "7": {"customer": "c2", "tags": {"gift": True}}}},
        "files": {"docs/b.txt": "beta", "docs/a.txt": None},
    }
    state = SHOP.seeded(patch, NOW, random.Random(1))
    (row,) = state["tables"]["orders"].values()
    assert (row["id"], row["open"], row["tags"]) == (7, True, {"gift": True})
    assert row["made_at"] == "2026-01-15 09:00:00"
    assert state["files"] == {"docs": {"b.txt": "beta"}}


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        ({"tables": {"parcels": {}}}, "no table 'parcels'"),
        ({"tables": {"orders": {"7": {"customer": "c9"}}}}, "refers to one of customers"),
        ({"tables": {"orders": {"7": {"customer": "c1", "colour": "red"}}}}, "no column 'colour'"),
        ({"tables": {"orders": {"7": {"customer": "c1", "total": -1}}}}, "CHECK"),
        ({"files": {"../x": ""}}, "relative path"),
        ({"files": {"a": 7}}, "text or a folder"),
        ({"files": {"big": "x" * 3_000_000}}, "too many"),
    ],
)
def test_state_that_cannot_be_spoils_the_session_and_says_why(
    patch: dict[str, Any], complaint: str
) -> None:
    brief = make_brief(world="shop", state=patch, tools=specs(SHOP))
    state = ProxyCore({"shop": SHOP}).start(started(brief))
    assert (state.fault, state.initial) == ("world_failed", None)
    assert complaint in state.fault_detail
    unread = brief.model_copy(update={"world": WorldSetup(name="shop", files=("a.json",))})
    assert "without reading" in ProxyCore({"shop": SHOP}).start(started(unread)).fault_detail


def test_the_users_tools_are_the_worlds_and_never_the_agents() -> None:
    assert SHOP.user_tools() == ("look",)
    brief = make_brief(world="shop", tools=specs(SHOP), user_tools=("look",))
    log = MemoryLog(ProxyCore({"shop": SHOP}))
    log.put(started(brief))
    state = log.table["s1"]
    assert "look" not in state.tools
    acted = TrajectoryEvent(
        event_id="s1:c1", session_id="s1", run_id="run", kind=USER_ACTED, turn=1, at_ms=1,
        user_acted=UserActed(call=1, tool="look"),
    )  # fmt: skip
    log.put(acted)
    assert log.core.wants(state) is not None
    from services.tool_proxy.user_calls import _call_of

    outcome = answer_user(state, _call_of(acted))
    assert (outcome.error_code, outcome.response) == (None, "1 orders at 09:00:00")


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("order"),
            st.fixed_dictionaries(
                {"customer": st.sampled_from(["c1", "c2", "c3"]), "total": st.integers(-1, 50)}
            ),
        ),
        st.tuples(st.just("close"), st.fixed_dictionaries({"order_id": st.integers(1, 4)})),
        st.tuples(
            st.just("write"),
            st.fixed_dictionaries(
                {"path": st.sampled_from(["a", "b/c", "b", "../x"]), "text": st.text(max_size=8)}
            ),
        ),
        st.tuples(
            st.just("sql"),
            st.fixed_dictionaries(
                {"query": st.sampled_from([
                    "UPDATE orders SET total = total + abs(random() % 7)",
                    "DELETE FROM orders WHERE open = 0", "SELECT random() AS r", "DROP TABLE x",
                    "INSERT INTO customers VALUES ('c3', datetime('now'))",
                ])}
            ),
        ),
    ),
    max_size=6,
)  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(one=STEPS, other=STEPS, seed=st.integers(0, 3))
def test_sessions_are_isolated_and_equal_seeds_make_equal_states(
    one: list[Any], other: list[Any], seed: int
) -> None:
    """Two sessions of one world, in turns, come to what each comes to alone, and so does a
    replica that has only the log."""

    async def played(*sessions: tuple[str, list[Any]]) -> Bench:
        bench = Bench(log=MemoryLog(ProxyCore({"shop": make_shop()})))
        for session_id, _ in sessions:
            brief = make_brief(
                world="shop", tools=specs(SHOP), seed=seed, state={"mails": [session_id[:1]]}
            )
            bench.log.put(started(brief, session_id))
        for number in range(6):
            for session_id, steps in sessions:
                if number < len(steps):
                    tool, arguments = steps[number]
                    await bench.call(tool, arguments, session_id=session_id)
        bench.close()
        return bench

    def end(bench: Bench, session_id: str) -> tuple[bytes | None, list[tuple[str, str | None]]]:
        called = [e.tool_called for e in bench.log.events() if e.session_id == session_id]
        calls = [(c.response, c.state_hash) for c in called if c is not None]
        return bench.log.table[session_id].current, calls

    both = asyncio.run(played(("s1", one), ("s2", other)))
    alone = asyncio.run(played(("s1", one)))
    assert end(both, "s1") == end(alone, "s1")
    assert end(both, "s2") == end(asyncio.run(played(("s2", other))), "s2")
    rebuilt = MemoryLog(ProxyCore({"shop": make_shop()}))
    rebuilt.records = list(both.log.records)
    rebuilt.read_back()
    for session_id in ("s1", "s2"):
        assert rebuilt.table[session_id].current == both.log.table[session_id].current
    assert SHOP.initial_state == make_shop().initial_state


def test_time_passes_by_turns_calls_and_between_conversations() -> None:
    world = World("clock")

    @world.tool
    def time(ctx: Context) -> str:
        """What time it is."""
        return f"{ctx.now:%d %H:%M}"

    setup = WorldSetup(
        name="clock", now="2026-01-15T10:00:00+01:00", turn_takes="5m", call_takes="1m"
    )
    brief = make_brief(tools=specs(world), elapsed_s=(0, 86400)).model_copy(update={"world": setup})

    async def times() -> list[str]:
        bench = Bench(brief, log=MemoryLog(ProxyCore({"clock": world})))
        moments = [(1, 1), (1, 1), (2, 1), (3, 2)]
        told = [
            answer_of(await bench.call("time", turn=turn, conversation=conversation, key=str(n)))
            for n, (turn, conversation) in enumerate(moments)
        ]
        bench.close()
        return [reply["response"] for reply in told]

    assert asyncio.run(times()) == ["15 09:00", "15 09:01", "15 09:07", "16 09:13"]


def test_a_world_without_tables_or_files_says_so() -> None:
    plain = World("plain")

    @plain.tool
    def query(ctx: Context) -> str:
        """Asks for what is not there."""
        return str(ctx.db)

    @plain.tool
    def files(ctx: Context) -> str:
        """Asks for what is not there."""
        return str(ctx.files)

    for tool in plain.tools:
        with pytest.raises(WorldError, match="this world has no"):
            plain.call(tool, context({}), b"{}")
    with pytest.raises(WorldError, match="come from"):
        World("both", {"tables": {}}, database=TABLES)


def test_a_tool_that_the_world_lacks_spoils_the_session() -> None:
    from schemas.briefs import ToolSpec
    from services.tool_proxy.answer import Call
    from services.tool_proxy.session import Posting

    brief = make_brief(world="shop", tools=[ToolSpec(name="fly", input_schema={})])
    state = ProxyCore({"shop": SHOP}).start(started(brief))
    outcome = execute(state, Call("fly", "{}", {}, Posting(1, "d"), 1, 1))
    assert isinstance(outcome, Outcome)
    assert (outcome.error_code, outcome.fault) == (
        "tool_unavailable",
        "the world has no such tool",
    )
