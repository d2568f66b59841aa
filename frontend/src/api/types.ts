/**
 * The platform's types. Rows and bodies are generated from the API's OpenAPI document; the websocket's
 * messages are declared there too; those that contain tables are written here with rows. Times are Unix milliseconds.
 */
import type { Columns } from './columns';
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
export type BulkTarget = { topic: string; channel?: string };
export type BulkAction = Exclude<ActionName, 'create'>;
export type AuditEntry = Schemas['AuditEntryOut'];
export type AuditFacets = Schemas['AuditFacetsOut'];
export type AuditOutcome = AuditEntry['outcome'];

export type Role = Exclude<Me['role'], 'none'>;
export type ClusterRole = Schemas['ClusterRole'];
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

export type ReportJob = Schemas['ReportJobOut'];
/** One parameter of a job; `default` is in the format of requests, null for none. */
export type ParameterSpec = Schemas['ParameterOut'];
export type Parameters = Schemas['RunOut']['parameters'];
export type ParameterValue = Parameters[string];
export type DefinitionChange = Schemas['ChangeOut'];
export type DefinitionReview = Schemas['ReviewOut'];
export type SavedView = Schemas['SavedViewOut'];
export type SavedViewRequest = Schemas['SavedViewIn'];
export type Schedule = Schemas['ScheduleOut'];
export type ScheduleRequest = Required<Schemas['ScheduleIn']>;
export type Run = Schemas['RunOut'];
export type Result = Schemas['ResultPage'];
export type ResultGroup = Schemas['GroupOut'];
export type ArchiveSize = Schemas['ArchiveOut'];
export type ArchiveDataset = Schemas['ArchiveDatasetOut'];
export type ReportTable = Schemas['TableOut'];
export type ResultHeat = Schemas['HeatOut'];
export type ResultSeries = Schemas['SeriesOut'];
/** What a report of objectives measures. */
export type ResultObjective = Query<'/api/v1/reports/runs/{run_id}/result/calendar'>['objective'];
export type ResultDay = Schemas['CalendarDay'];
export type ResultColumn = Schemas['ColumnOut'];
export type ResultCell = Result['rows'][number][number];

/** An action on many subjects, which the platform carries out. */
export type Job = Schemas['JobOut'];
export type JobSubject = Schemas['SubjectOut'];

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
export type Objective = Schemas['ObjectiveOut'];
export type ObjectiveDetail = Schemas['ObjectiveDetailOut'];
export type ObjectiveRequest = Required<Schemas['ObjectiveIn']>;
export type Burn = Schemas['BurnOut'];
export type Mask = Schemas['MaskOut'];
export type MaskRequest = Required<Schemas['MaskValues']>;
export type MaskPreview = Schemas['MaskPreviewOut'];
export type PolicyRow = Schemas['PolicyRow'];
export type PolicyValues = PolicyRow['policy'];
export type Policies = Schemas['PoliciesOut'];
export type PolicyRequest = Required<Schemas['PolicyIn']>;
export type ChannelPolicy = Schemas['ChannelPolicy'];
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
export type TableDelta<Row> = { put: Row[]; set: { keys: string[]; columns: Columns<Row> }; drop: string[] };

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
export type MessagesActionRequest = Schemas['MessagesActionIn'];
export type MessageAction = MessagesActionRequest['action'];
export type MessagesActed = Schemas['MessagesActionOut'];
export type MatchingMessages = Schemas['MatchesOut'];
export type ChosenDead = Omit<Schemas['ChosenDeadIn'], 'channels'> & { channels: readonly { topic: string; name: string }[] };
export type DeadAction = Schemas['DeadAction'];
/** The dead messages of channels that an action would affect, by channel and node. */
export type DeadCount = Schemas['DeadCountOut'];
export type DeathReason = NonNullable<ChosenDead['reason']>;
export type DrainRequest = Required<Schemas['DrainIn']>;
export type RewindRequest = Schemas['RewindIn'];
export type RewindPreview = Schemas['RewindPreviewOut'];
export type Published = Schemas['PublishOut'];
export type Peeked = Schemas['PeekOut'];
export type PeekedMessage = Schemas['PeekedMessage'];
export type Life = Schemas['LifeOut'];
export type LifeEvent = Schemas['LifeEvent'];
export type SearchMessage = Schemas['SearchMessage'];
export type PeekOrder = 'node' | 'oldest' | 'newest';
export type MessageType = Schemas['MessageTypeOut'];
export type MessageTypeRequest = Schemas['MessageTypeIn'];
export type PeekState = 'ready' | 'in_flight' | 'deferred' | 'dead';

/** Messages of `/ws/tail`. */
export type TailMessage = Schemas['TailMessage'];

/** Changed alerts, in their current state. Versions increase by one; after a gap, all alerts must be requested. */
export type AlertsMessage = Schemas['AlertsMessage'];

/** Columns as they are sent: each share of a row is a list of its values. */
export type WireColumns<Row> = Row extends { nodes: (infer Share)[] } ? Columns<Omit<Row, 'nodes'>> & { nodes?: Share[keyof Share][][][] } : Columns<Row>;
/** As a delta, and as columns. */
export type WireChanges<Wire> = { put: Wire; set: { keys?: string[] } & Wire; drop: string[] };

/** A message whose tables have the columns of their rows, which the API's document does not say. */
type Typed<Message, Nodes, Topics, Channels> = Omit<Message, 'nodes' | 'topics' | 'channels'> & { nodes: Nodes; topics: Topics; channels: Channels };

type SnapshotColumns<Message> = Typed<Message, WireColumns<NodeRow>, WireColumns<TopicRow>, WireColumns<ChannelRow>>;

/** Messages of `/ws/cluster` as they are sent: tables are columns. */
export type WireMessage =
  | SnapshotColumns<Schemas['SnapshotMessage']>
  | SnapshotColumns<Schemas['RestMessage']>
  | Typed<Schemas['Delta'], WireChanges<WireColumns<NodeRow>>, WireChanges<WireColumns<TopicRow>>, WireChanges<WireColumns<ChannelRow>>>
  | Exclude<Schemas['ClusterMessage'], { type: 'snapshot' | 'rest' | 'delta' }>;

/** Messages of `/ws/cluster` with rows. */
export type ServerMessage =
  | ({ type: 'snapshot' | 'rest'; view: ViewOf } & Snapshot)
  | ({ type: 'delta' } & Delta)
  | Exclude<WireMessage, { type: 'snapshot' | 'rest' | 'delta' }>;

export type BrowserMessage =
  | { type: 'resync' | 'rest' }
  | ({ type: 'view' } & ViewOf)
  | { type: 'watch'; topic: string; channel: string }
  | { type: 'unwatch' };
