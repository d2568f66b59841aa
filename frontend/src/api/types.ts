/**
 * The platform's types. Rows and bodies are generated from the API's OpenAPI document; the websocket's
 * messages are declared there too; those that contain tables are written here with rows. Times are unix milliseconds.
 */
import type { components, paths } from './schema';

type Schemas = components['schemas'];
/** The parameters in the query of a GET. */
type Query<Path extends keyof paths> = paths[Path] extends { get: { parameters: { query?: infer Parameters } } } ? NonNullable<Parameters> : never;

export type Me = Schemas['Me'];

export type NodeRow = Schemas['NodeRow'];
export type TopicRow = Schemas['TopicRow'];
export type TopicNode = Schemas['TopicNode'];
export type ChannelRow = Schemas['ChannelRow'];
export type ChannelNode = Schemas['ChannelNode'];
export type Snapshot = Schemas['SnapshotOut'];

export type Registry = Schemas['RegistryOut'];
export type RecentHistory = Schemas['RecentOut'];
export type Graphs = Schemas['GraphsOut'];

export type ActionName = Schemas['Action'];
export type ActionRequest = { action: ActionName; topic: string; channel?: string };
export type ActionOutcome = Schemas['ActionOut'];
export type NodeResult = Schemas['Result'];
export type BulkTarget = { topic: string; channel?: string };
export type BulkAction = Schemas['BulkIn']['action'];
export type TargetOutcome = Schemas['TargetOutcome'];
export type AuditEntry = Schemas['AuditEntryOut'];
export type AuditFacets = Schemas['AuditFacetsOut'];
export type AuditOutcome = AuditEntry['outcome'];

export type Role = Me['role'];
export type Token = Schemas['TokenOut'];
export type NewToken = Schemas['NewTokenOut'];
export type TokenRequest = Required<Schemas['TokenIn']>;
export type OpenSession = Schemas['SessionOut'];
export type Person = Schemas['PersonOut'];
export type PersonRequest = Required<Schemas['PersonIn']>;
export type PersonChange = Schemas['PersonChange'];
export type SignInLink = Schemas['LinkOut'];

/** The error of a field of a request. A field within another follows a dot: `bodies.3`. */
export type FieldError = Schemas['FieldError'];

export type Job = Schemas['JobOut'];
/** One parameter of a job; `default` is in the format of requests, null for none. */
export type ParameterSpec = Schemas['ParameterOut'];
export type Parameters = Schemas['RunOut']['parameters'];
export type ParameterValue = Parameters[string];
export type Schedule = Schemas['ScheduleOut'];
export type ScheduleRequest = Required<Schemas['ScheduleIn']>;
export type Run = Schemas['RunOut'];
export type Result = Schemas['ResultPage'];
export type ResultGroup = Schemas['GroupOut'];
export type ResultSeries = Schemas['SeriesOut'];
export type Objective = Query<'/api/v1/reports/runs/{run_id}/result/calendar'>['objective'];
export type ResultDay = Schemas['CalendarDay'];
export type ResultColumn = Schemas['ColumnOut'];
export type ResultCell = Result['rows'][number][number];

export type Alert = Schemas['AlertOut'];
export type AlertCounts = Schemas['CountsOut'];
export type AlertList = Schemas['AlertsOut'];
export type Pending = Schemas['PendingOut'];
export type PendingList = Schemas['PendingsOut'];
export type Severity = Alert['severity'];
/** A metric for rules; `unit` is that of thresholds and values. */
export type AlertMetric = Schemas['MetricOut'];
export type AlertRule = Schemas['RuleOut'];
export type AlertRuleRequest = Required<Schemas['RuleIn']>;
export type RulePreview = Schemas['PreviewOut'];
export type Notifier = Schemas['NotifierOut'];
export type NotifierRequest = Required<Schemas['NotifierIn']>;
export type Delivery = Schemas['TestOut'];
export type Silence = Schemas['SilenceOut'];
export type SilenceRequest = Required<Schemas['SilenceIn']>;

export type Attended = Schemas['ManyOut'];

export type HistoryScope = Query<'/api/v1/history'>;
export type HourKept = Schemas['HistoryOut'];
export type Diagnosis = Schemas['DiagnosisOut'];
export type ClusterEvent = Schemas['EventOut'];
export type EventScope = Query<'/api/v1/events'>;
export type ClientOrder = NonNullable<Query<'/api/v1/clients'>['order']>;
export type FoundClient = Schemas['FoundClient'];
export type FoundClients = Schemas['ClientsOut'];
export type ClientRow = Omit<FoundClient, 'topic' | 'channel'>;
/** With figures of the last 20 seconds: rates per second, and the mean time of a message in flight; null if not known. */
export type WatchedClient = Schemas['WatchedClient'];

/** The part of snapshots that a browser receives: everything, or all nodes and one topic, or all nodes and one node's topics. */
export type ViewOf = Schemas['ViewFields'];

/**
 * `put` has whole rows, `set` the changed numbers of others, `drop` keys. A key is a node's id, a topic's name, or a
 * channel's `topic/name`.
 */
export type TableDelta<Row> = { put: Row[]; set: { keys: string[]; rows: Partial<Row>[] }; drop: string[] };

/** The changes from the snapshot of version `base` to that of `version`. */
export type Delta = {
  version: number;
  base: number;
  taken_at: number;
  nodes: TableDelta<NodeRow>;
  topics: TableDelta<TopicRow>;
  channels: TableDelta<ChannelRow>;
};

export type Clients = Schemas['Clients'];

export type PublishRequest = Schemas['PublishIn'];
export type RewindRequest = Schemas['RewindIn'];
export type RewindPreview = Schemas['RewindPreviewOut'];
export type Published = Schemas['PublishOut'];
export type Peeked = Schemas['PeekOut'];
export type PeekedMessage = Schemas['PeekedMessage'];
export type PeekState = 'ready' | 'in_flight' | 'deferred';

/** Messages of `/ws/tail`. */
export type TailMessage = Schemas['TailMessage'];

/** Changed alerts, in their current state. Versions increase by one; after a gap, all alerts must be requested. */
export type AlertsMessage = Schemas['AlertsMessage'];

/** Messages of `/ws/cluster` as they are sent: tables are columns. */
export type WireMessage = Schemas['ClusterMessage'];

/** Messages of `/ws/cluster` with rows. */
export type ServerMessage =
  | ({ type: 'snapshot'; view: ViewOf } & Snapshot)
  | ({ type: 'delta' } & Delta)
  | Exclude<WireMessage, { type: 'snapshot' | 'delta' }>;

export type BrowserMessage =
  | { type: 'resync' }
  | ({ type: 'view' } & ViewOf)
  | { type: 'watch'; topic: string; channel: string }
  | { type: 'unwatch' };
