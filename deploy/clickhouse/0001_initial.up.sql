-- Windtunnel's tables. They run on current ClickHouse, on the embedded engine and on 18.16:
-- milliseconds are Int64 (no DateTime64), JSON is String, no LowCardinality, no codecs, no TTL.
--
-- Every table is a ReplacingMergeTree over deterministic ids: of the rows with one key, that with the
-- greatest version stays (with equal versions, the last inserted). Read through the v_ views, which
-- see that state at once and not only after a merge.
--
-- event_date follows from a recorded time and need not be given. Only the two large tables are
-- partitioned, so that old months can be dropped cheaply.

CREATE TABLE IF NOT EXISTS runs (
    run_id String,
    suite String,
    suite_hash String,
    suite_version String,
    agent_id String,
    agent_name String,
    agent_fingerprint String,
    seed Int64,
    trials UInt32,
    requested_by String,
    requested_at_ms Int64,
    completed_at_ms Nullable(Int64),
    planned UInt64,
    ended UInt64,
    scored UInt64,
    state String,
    pins_json String,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY run_id;

CREATE TABLE IF NOT EXISTS sessions (
    run_id String,
    session_id String,
    scenario_id String,
    category String,
    trial UInt32,
    conversation_count UInt32,
    persona String,
    started_at_ms Int64,
    ended_at_ms Nullable(Int64),
    end_reason String,
    end_detail String,
    turns UInt32,
    tool_calls UInt32,
    injected_failures UInt32,
    agent_latency_ms_total Float64,
    agent_latency_ms_max Float64,
    input_tokens UInt64,
    output_tokens UInt64,
    cost_usd Float64,
    valid UInt8,
    passed Nullable(UInt8),
    version UInt64,
    event_date Date DEFAULT toDate(toDateTime(intDiv(started_at_ms, 1000)), 'UTC')
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(event_date) ORDER BY (run_id, session_id);

CREATE TABLE IF NOT EXISTS trajectory_events (
    run_id String,
    session_id String,
    scenario_id String,
    position Int64,
    partition Int32,
    event_id String,
    kind String,
    conversation UInt32,
    turn UInt32,
    actor String,
    tool String,
    source String,
    injection String,
    latency_ms Nullable(Float64),
    text String,
    payload_json String,
    at_ms Int64,
    event_date Date DEFAULT toDate(toDateTime(intDiv(at_ms, 1000)), 'UTC'),
    version UInt64
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(event_date)
ORDER BY (run_id, session_id, event_id);

CREATE TABLE IF NOT EXISTS scores (
    run_id String,
    session_id String,
    scenario_id String,
    category String,
    trial UInt32,
    dimension String,
    kind String,
    value Nullable(Float64),
    passed Nullable(UInt8),
    status String,
    reason String,
    citations Array(String),
    evaluator String,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (run_id, session_id, dimension);

-- The key has the category as well, so that a row may stand for a category or for the whole run
-- (with an empty scenario_id, or both empty).
CREATE TABLE IF NOT EXISTS score_aggregates (
    run_id String,
    suite String,
    agent_name String,
    scenario_id String,
    category String,
    dimension String,
    kind String,
    sessions UInt64,
    scored UInt64,
    unscored UInt64,
    passed UInt64,
    failed UInt64,
    invalid UInt64,
    mean Nullable(Float64),
    variance Nullable(Float64),
    min Nullable(Float64),
    max Nullable(Float64),
    p50 Nullable(Float64),
    p90 Nullable(Float64),
    p99 Nullable(Float64),
    pass_rate Nullable(Float64),
    pass_hat_k_k Array(UInt32),
    pass_hat_k_value Array(Float64),
    computed_at_ms Int64,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (run_id, dimension, category, scenario_id);

CREATE TABLE IF NOT EXISTS verdicts (
    run_id String,
    suite String,
    suite_version String,
    agent_id String,
    agent_name String,
    agent_fingerprint String,
    baseline_run_id String,
    verdict String,
    reasons Array(String),
    diff_json String,
    decided_at_ms Int64,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY run_id;

-- The key keeps the history: accepting run A, then B, then A again is three rows.
CREATE TABLE IF NOT EXISTS baselines (
    name String,
    run_id String,
    author String,
    reason String,
    accepted_at_ms Int64,
    diff_json String,
    version UInt64
) ENGINE = ReplacingMergeTree(version) ORDER BY (name, accepted_at_ms, run_id);

-- The columns of a view are fixed when it is made: a migration that adds one makes its view anew.
CREATE VIEW IF NOT EXISTS v_runs AS SELECT * FROM runs FINAL;
CREATE VIEW IF NOT EXISTS v_sessions AS SELECT * FROM sessions FINAL;
CREATE VIEW IF NOT EXISTS v_trajectory_events AS SELECT * FROM trajectory_events FINAL;
CREATE VIEW IF NOT EXISTS v_scores AS SELECT * FROM scores FINAL;
CREATE VIEW IF NOT EXISTS v_score_aggregates AS SELECT * FROM score_aggregates FINAL;
CREATE VIEW IF NOT EXISTS v_verdicts AS SELECT * FROM verdicts FINAL;
CREATE VIEW IF NOT EXISTS v_baseline_history AS SELECT * FROM baselines FINAL;

-- What is in force now: the last acceptance of each name.
CREATE VIEW IF NOT EXISTS v_baselines AS
SELECT * FROM baselines FINAL ORDER BY accepted_at_ms DESC, version DESC LIMIT 1 BY name;
