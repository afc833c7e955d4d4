CREATE DATABASE IF NOT EXISTS flink_ha;

CREATE EXTERNAL TABLE flink_ha.transitions (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `component` string,
  `job_id` string,
  `kind` string,
  `pattern` string,
  `before_session_id` string,
  `before_address` string,
  `after_session_id` string,
  `after_address` string,
  `last_known_session_id` string,
  `last_known_address` string,
  `same_leader` boolean,
  `same_process` boolean,
  `unobserved` bigint,
  `vacant_seconds` double,
  `downtime_seconds_at_least` double,
  `downtime_seconds_at_most` double,
  `connection` string,
  `reason` string,
  `written_at` timestamp,
  `position` struct<path:string,czxid:bigint,mzxid:bigint,version:bigint,ephemeral_owner:bigint,uid:string,resource_version:string,holder_identity:string,acquire_time:string>,
  `episode_id` string,
  `unobserved_at_least` bigint,
  `elections` bigint,
  `contenders` bigint,
  `store_reelected` boolean,
  `returned` boolean,
  `split` boolean,
  `plan_vanished` boolean
)
PARTITIONED BY (`event_date` date)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/transitions/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_date.type' = 'date',
  'projection.event_date.format' = 'yyyy-MM-dd',
  'projection.event_date.range' = '2020-01-01,NOW'
);

CREATE EXTERNAL TABLE flink_ha.coverage (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `began_at` timestamp,
  `ended_at` timestamp,
  `state` string,
  `suspended` boolean,
  `slo_leadership` double,
  `slo_window_seconds` double,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/coverage/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.contentions (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `component` string,
  `contenders` bigint,
  `contenders_before` bigint,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/contentions/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.notifications (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `alert` string,
  `fingerprint` string,
  `receiver` string,
  `destination` string,
  `reason` string,
  `outcome` string,
  `attempt` bigint,
  `possible_duplicate` boolean,
  `detail` string,
  `delivery_id` string,
  `queued_at` timestamp,
  `episode_id` string,
  `silence_id` string,
  `service` string,
  `component` string,
  `job_id` string,
  `observers_sharing` bigint,
  `observers_connected` bigint,
  `observers_known` bigint,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/notifications/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.episodes (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `episode_id` string,
  `opened_at` timestamp,
  `closed_at` timestamp,
  `cause` string,
  `confidence` string,
  `facts` array<string>,
  `components` array<string>,
  `jobs_affected` bigint,
  `jobs_ended` bigint,
  `jobs_lost` bigint,
  `jobs_missing` bigint,
  `jobs_total` bigint,
  `vacant_seconds` double,
  `vacant_seconds_by_component` map<string,double>,
  `downtime_seconds_at_least` double,
  `downtime_seconds_at_most` double,
  `before_session_id` string,
  `before_address` string,
  `before_pod` string,
  `after_session_id` string,
  `after_address` string,
  `after_pod` string,
  `planned` boolean,
  `failovers` bigint,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/episodes/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.annotations (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `episode_id` string,
  `reason` string,
  `author` string,
  `planned` boolean,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/annotations/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.evidence (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `episode_id` string,
  `occasion` string,
  `kind` string,
  `subject` string,
  `outcome` string,
  `detail` string,
  `file` string,
  `size_bytes` bigint,
  `sha256` string,
  `attributes` map<string,string>,
  `asked_at` timestamp,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/evidence/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.deaths (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `episode_id` string,
  `reason` string,
  `confidence` string,
  `facts` array<string>,
  `exit_code` bigint,
  `limit_bytes` bigint,
  `ended_at` timestamp,
  `seen_at` timestamp,
  `address` string,
  `pod` string,
  `fault` string,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/deaths/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.recoveries (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `episode_id` string,
  `verdict` string,
  `reasons` array<string>,
  `job_id` string,
  `name` string,
  `state` string,
  `outcome` string,
  `restored_from` string,
  `checkpoint_id` bigint,
  `checkpoints_behind` bigint,
  `reprocessed_seconds` double,
  `restarts` bigint,
  `task_managers_before` bigint,
  `task_managers_after` bigint,
  `task_managers_missing` array<string>,
  `dead_at` timestamp,
  `opened_at` timestamp,
  `led_at` timestamp,
  `dispatcher_led_at` timestamp,
  `running_at` timestamp,
  `checkpointed_at` timestamp,
  `running_after_seconds` double,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/recoveries/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.statuses (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `status` string,
  `previous` string,
  `since` timestamp,
  `sentence` string,
  `episode_id` string,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/statuses/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.ha_checks (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `check_name` string,
  `verdict` string,
  `verdict_before` string,
  `since` timestamp,
  `finding` string,
  `advice` string,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/ha_checks/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.drills (
  `schema_version` bigint,
  `id` string,
  `cluster_id` string,
  `external_labels` map<string,string>,
  `store` string,
  `observer` string,
  `observed_at` timestamp,
  `recorded_at` timestamp,
  `drill_id` string,
  `phase` string,
  `expects` string,
  `starts_at` timestamp,
  `ends_at` timestamp,
  `author` string,
  `comment` string,
  `receivers` array<string>,
  `assessed` boolean,
  `over_at` timestamp,
  `result` string,
  `reasons` array<string>,
  `episode_id` string,
  `detected_after_seconds` double,
  `detected_after_seconds_at_most` double,
  `leaderless_seconds` double,
  `led_after_seconds` double,
  `running_after_seconds` double,
  `recovery_verdict` string,
  `delivered` array<string>,
  `undelivered` array<string>,
  `hidden` bigint,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/drills/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.quarantine (
  `id` string,
  `file` string,
  `line` string,
  `times` bigint,
  `reason` string,
  `found_at` timestamp,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/quarantine/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.leadership (
  `cluster_id` string,
  `component` string,
  `job_id` string,
  `state` string,
  `began_at` timestamp,
  `ended_at` timestamp,
  `how_it_began` string,
  `how_it_ended` string,
  `address` string,
  `session_id` string,
  `before_address` string,
  `before_session_id` string,
  `vacant_seconds` double,
  `downtime_seconds_at_least` double,
  `downtime_seconds_at_most` double,
  `returned` boolean,
  `split` boolean,
  `episode_id` string,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/leadership/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.leader_changes (
  `cluster_id` string,
  `component` string,
  `job_id` string,
  `changed_at` timestamp,
  `before_address` string,
  `after_address` string,
  `before_session_id` string,
  `after_session_id` string,
  `vacant_seconds` double,
  `downtime_seconds_at_least` double,
  `downtime_seconds_at_most` double,
  `kind` string,
  `episode_id` string,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/leader_changes/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

CREATE EXTERNAL TABLE flink_ha.availability_days (
  `cluster_id` string,
  `component` string,
  `led` bigint,
  `vacant` bigint,
  `lasted` bigint,
  `known` bigint,
  `event_date` date
)
PARTITIONED BY (`event_month` string)
STORED AS PARQUET
LOCATION 's3://BUCKET/PREFIX/availability_days/'
TBLPROPERTIES (
  'projection.enabled' = 'true',
  'projection.event_month.type' = 'date',
  'projection.event_month.format' = 'yyyy-MM',
  'projection.event_month.range' = '2020-01,NOW',
  'projection.event_month.interval' = '1',
  'projection.event_month.interval.unit' = 'MONTHS'
);

