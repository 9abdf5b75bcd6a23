-- Takes everything away, data included. A view goes by DROP TABLE: 18.16 knows no DROP VIEW.
DROP TABLE IF EXISTS v_baselines;
DROP TABLE IF EXISTS v_baseline_history;
DROP TABLE IF EXISTS v_verdicts;
DROP TABLE IF EXISTS v_score_aggregates;
DROP TABLE IF EXISTS v_scores;
DROP TABLE IF EXISTS v_trajectory_events;
DROP TABLE IF EXISTS v_sessions;
DROP TABLE IF EXISTS v_runs;
DROP TABLE IF EXISTS baselines;
DROP TABLE IF EXISTS verdicts;
DROP TABLE IF EXISTS score_aggregates;
DROP TABLE IF EXISTS scores;
DROP TABLE IF EXISTS trajectory_events;
DROP TABLE IF EXISTS sessions;
DROP TABLE IF EXISTS runs;
