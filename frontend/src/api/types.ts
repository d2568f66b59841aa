/**
 * The shapes the platform speaks. Rows and bodies are the API's own, generated from its OpenAPI; the websocket's
 * messages, which OpenAPI does not describe, are written here around the same rows. Times are unix milliseconds.
 */
import type { components } from './schema';

type Schemas = components['schemas'];

export type Me = Schemas['Me'];

export type NodeRow = Schemas['NodeRow'];
export type TopicRow = Schemas['TopicRow'];
export type TopicNode = Schemas['TopicNode'];
export type ChannelRow = Schemas['ChannelRow'];
export type ChannelNode = Schemas['ChannelNode'];
export type Snapshot = Schemas['SnapshotOut'];

export type ActionName = Schemas['Action'];
export type ActionRequest = { action: ActionName; topic: string; channel?: string };
export type ActionOutcome = Schemas['ActionOut'];
export type NodeResult = Schemas['Result'];
export type AuditEntry = Schemas['AuditEntryOut'];

export type Job = Schemas['JobOut'];
/** One parameter of a job; `default` is in the form that is sent, null for none. */
export type ParameterSpec = Schemas['ParameterOut'];
export type Parameters = Schemas['RunIn']['parameters'];
export type ParameterValue = Parameters[string];
export type Schedule = Schemas['ScheduleOut'];
export type ScheduleRequest = Required<Schemas['ScheduleIn']>;
export type Run = Schemas['RunOut'];
export type Result = Schemas['ResultOut'];
export type ResultColumn = Schemas['ColumnOut'];
export type ResultCell = Result['rows'][number][number];

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

/** `put` holds whole rows; `drop` their keys: a node's id, a topic's name, a channel's `topic/name`. */
export type TableDelta<Row> = { put: Row[]; drop: string[] };

/** What turns the picture of version `base` into that of `version`. */
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
