/** The shapes the platform speaks: rows, websocket messages, API bodies. Times are unix milliseconds unless named. */

export type Role = 'viewer' | 'operator' | 'admin';
export type Me = { username: string; role: Role; csrf_token: string };

export type NodeRow = {
  id: string;
  hostname: string;
  broadcast_address: string;
  tcp_port: number;
  http_port: number;
  version: string;
  state: 'up' | 'down';
  error: string | null;
  health: string;
  /** Unix seconds. */
  start_time: number;
  topic_count: number;
  channel_count: number;
  client_count: number;
  depth: number;
  publish_rate: number | null;
  finish_rate: number | null;
};

export type TopicNode = {
  node: string;
  paused: boolean;
  depth: number;
  message_count: number;
  publish_rate: number | null;
};

export type TopicRow = {
  name: string;
  paused: boolean;
  depth: number;
  backend_depth: number;
  message_count: number;
  message_bytes: number;
  channel_count: number;
  client_count: number;
  in_flight_count: number;
  publish_rate: number | null;
  byte_rate: number | null;
  oldest_age_ms: number | null;
  nodes: TopicNode[];
};

export type ChannelNode = {
  node: string;
  paused: boolean;
  depth: number;
  in_flight_count: number;
  deferred_count: number;
  client_count: number;
};

export type ChannelRow = {
  topic: string;
  name: string;
  paused: boolean;
  depth: number;
  backend_depth: number;
  in_flight_count: number;
  deferred_count: number;
  requeue_count: number;
  timeout_count: number;
  message_count: number;
  client_count: number;
  publish_rate: number | null;
  finish_rate: number | null;
  requeue_rate: number | null;
  timeout_rate: number | null;
  oldest_age_ms: number | null;
  p50_ms: number | null;
  p99_ms: number | null;
  nodes: ChannelNode[];
};

export type ClientRow = {
  node: string;
  client_id: string;
  hostname: string;
  remote_address: string;
  user_agent: string;
  state: number;
  ready_count: number;
  in_flight_count: number;
  message_count: number;
  finish_count: number;
  requeue_count: number;
  connected_s: number;
  tls: boolean;
  deflate: boolean;
  snappy: boolean;
  sample_rate: number;
};

export type Snapshot = {
  version: number;
  taken_at: number;
  nodes: NodeRow[];
  topics: TopicRow[];
  channels: ChannelRow[];
};

/** `put` holds whole rows; `drop` their keys: a node's id, a topic's name, a channel's `topic/name`. */
export type TableDelta<Row> = { put: Row[]; drop: string[] };

export type Delta = {
  version: number;
  base: number;
  taken_at: number;
  nodes: TableDelta<NodeRow>;
  topics: TableDelta<TopicRow>;
  channels: TableDelta<ChannelRow>;
};

export type Clients = { topic: string; channel: string; clients: ClientRow[] };

export type ServerMessage =
  | ({ type: 'snapshot' } & Snapshot)
  | ({ type: 'delta' } & Delta)
  | ({ type: 'clients' } & Clients)
  | { type: 'run'; run: Run };

export type BrowserMessage =
  | { type: 'resync' }
  | { type: 'watch'; topic: string; channel: string }
  | { type: 'unwatch' };

export type ActionName = 'pause' | 'unpause' | 'empty' | 'delete' | 'create';
export type ActionRequest = { action: ActionName; topic: string; channel?: string };
export type NodeResult = {
  node: string;
  target: string;
  outcome: 'done' | 'failed' | 'unreachable';
  detail: string;
};
export type ActionOutcome = { outcome: 'done' | 'partial' | 'failed'; results: NodeResult[] };

export type AuditEntry = {
  id: number;
  at: number;
  user: string;
  action: string;
  topic: string;
  channel: string | null;
  outcome: string;
  results: NodeResult[];
  remote_address: string;
};

export type ParameterValue = string | number;
export type Parameters = Record<string, ParameterValue>;

/** One parameter of a job; `default` is in the form that is sent, empty for none. */
export type ParameterSpec = {
  type: 'text' | 'integer' | 'duration' | 'time' | 'choice';
  description: string;
  default: string | number;
  choices?: string[];
  minimum?: number;
};
export type Job = { name: string; title: string; description: string; parameters: Record<string, ParameterSpec> };

export type Schedule = {
  id: number;
  name: string;
  job: string;
  parameters: Parameters;
  cron: string | null;
  every_seconds: number | null;
  time_zone: string;
  enabled: boolean;
};
export type ScheduleRequest = Omit<Schedule, 'id'>;

export type RunState = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';
export type Run = {
  id: number;
  job: string;
  parameters: Parameters;
  state: RunState;
  /** 0 to 1. */
  progress: number;
  stage: string;
  requested_by: string;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  rows: number | null;
  error: string | null;
  log_tail: string;
};

export type ResultColumn = { name: string; type: string; unit: string | null };
export type ResultCell = string | number | boolean | null;
export type Result = { columns: ResultColumn[]; rows: ResultCell[][]; total: number };
