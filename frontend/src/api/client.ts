/**
 * The JSON API, one function per endpoint, with the paths, parameters, bodies and answers of the generated `schema.d.ts`.
 * Each function rejects with an ApiError whose message can be shown as it is.
 */
import createClient from 'openapi-fetch';
import { based, ORIGIN } from './base';
import type { paths } from './schema';
import type {
  ArchiveSize,
  ActionOutcome,
  ActionRequest,
  Alert,
  AlertList,
  AlertMetric,
  AlertRule,
  AlertRuleRequest,
  AuditEntry,
  AuditFacets,
  AuditOutcome,
  Attended,
  BulkAction,
  BulkTarget,
  ChannelPolicy,
  ChosenDead,
  ClientOrder,
  ClusterEvent,
  DeadAction,
  DeadCount,
  DefinitionReview,
  Delivery,
  Diagnosis,
  DrainRequest,
  EventScope,
  FieldError,
  FoundClients,
  Graphs,
  HistoryScope,
  HourKept,
  Job,
  Life,
  MatchingMessages,
  MessageAction,
  MessagesActed,
  MessagesActionRequest,
  JobSubject,
  Me,
  NewToken,
  Mask,
  MaskPreview,
  MaskRequest,
  Notifier,
  NotifierRequest,
  Objective,
  ObjectiveDetail,
  ObjectiveRequest,
  OpenSession,
  Parameters,
  Peeked,
  PeekedMessage,
  MessageType,
  MessageTypeRequest,
  PeekOrder,
  PeekState,
  PendingList,
  Policies,
  PolicyRequest,
  Person,
  PersonChange,
  PersonRequest,
  Published,
  PublishRequest,
  RecentHistory,
  Registry,
  ReportJob,
  Result,
  ResultDay,
  ResultObjective,
  ReportTable,
  ResultGroup,
  ResultHeat,
  ResultSeries,
  RewindPreview,
  RewindRequest,
  RulePreview,
  Run,
  SavedView,
  SavedViewRequest,
  Schedule,
  ScheduleRequest,
  Severity,
  SignInLink,
  Silence,
  SilenceRequest,
  Token,
  TokenRequest,
  ViewOf,
} from './types';
import { withVisibleText } from './visible';
import { textsOf, type Criteria } from './criteria';

/** A message's place: its id is unique on its node. */
export type MessageKey = Pick<PeekedMessage, 'id' | 'node'>;

export class ApiError extends Error {
  /** `status` is the HTTP status, or 0 when no answer came; `fieldErrors` are a 422's errors of the request's fields. */
  constructor(
    readonly status: number,
    message: string,
    readonly fieldErrors: readonly FieldError[] = [],
  ) {
    super(message);
  }
}

/** The error message for the page, of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

let csrfToken: string | null = null;
let onUnauthorized: () => void = () => {};

/** Call `handler` when the session has ended (401). */
export function whenUnauthorized(handler: () => void): void {
  onUnauthorized = handler;
}

function csrf(): string {
  return csrfToken ?? /(?:^|;\s*)csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? '';
}

/** An error text of a program as a sentence: `no such run` as `No such run.` */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? '' : '.');
}

/** The message of a refused request: the API's own, otherwise one with the status. */
export function refusal(status: number, statusText: string, body: unknown): string {
  if (typeof body === 'object' && body !== null && 'message' in body && typeof body.message === 'string') {
    return sentence(body.message);
  }
  return `${`The platform answered ${status} ${statusText}`.trim()}.`;
}

function isFieldError(value: unknown): value is FieldError {
  return (
    typeof value === 'object' &&
    value !== null &&
    'field' in value &&
    typeof value.field === 'string' &&
    'message' in value &&
    typeof value.message === 'string'
  );
}

/** The errors by field in the body of a refused request; none in a body that is not the API's. */
export function fieldErrorsIn(body: unknown): FieldError[] {
  if (typeof body !== 'object' || body === null || !('field_errors' in body) || !Array.isArray(body.field_errors)) return [];
  return body.field_errors.filter(isFieldError);
}

const api = createClient<paths>({
  baseUrl: ORIGIN + based(''),
  credentials: 'same-origin',
  headers: { Accept: 'application/json' },
  fetch: (request) => fetch(request),
});

api.use({
  onRequest({ request }) {
    if (request.method !== 'GET') request.headers.set('X-CSRFToken', csrf());
  },
  onResponse({ response, schemaPath }) {
    if (response.status === 401 && schemaPath !== '/api/v1/session') onUnauthorized();
  },
  onError() {
    return new ApiError(0, 'The platform does not answer. Is its web process running?');
  },
});

type Answer<Data> = { data?: Data | undefined; error?: unknown; response: Response };

const refused = ({ response, error }: Answer<unknown>): ApiError =>
  new ApiError(response.status, refusal(response.status, response.statusText, error), fieldErrorsIn(error));

/** A proxy may answer 200 with an HTML page. */
function notJson(error: unknown): never {
  throw error instanceof SyntaxError ? new ApiError(0, 'The answer is not the platform’s: it is not JSON.') : error;
}

/** The body of an answer. Rejects with ApiError. */
async function answered<Data>(call: Promise<Answer<Data>>): Promise<Data> {
  const answer = await call.catch(notJson);
  if (!answer.response.ok || answer.data === undefined) throw refused(answer);
  return answer.data;
}

/** For an answer without a body. Rejects with ApiError. */
async function done(call: Promise<Answer<unknown>>): Promise<void> {
  const answer = await call.catch(notJson);
  if (!answer.response.ok) throw refused(answer);
}

function remember(me: Me): Me {
  csrfToken = me.csrf_token;
  return me;
}

export const me = async (): Promise<Me> => remember(await answered(api.GET('/api/v1/me')));
export const signIn = async (username: string, password: string): Promise<Me> =>
  remember(await answered(api.POST('/api/v1/session', { body: { username, password } })));
export async function signOut(): Promise<void> {
  await done(api.DELETE('/api/v1/session'));
  csrfToken = null; // a new session has a new token; until it is known, the cookie's is used
}

export const act = (action: ActionRequest): Promise<ActionOutcome> => answered(api.POST('/api/v1/actions', { body: action }));

/** Tombstone a topic on one node. */
export const tombstone = (topic: string, node: string): Promise<ActionOutcome> =>
  answered(api.POST('/api/v1/tombstones', { body: { topic, node } }));

export const drain = (request: DrainRequest): Promise<ActionOutcome> => answered(api.POST('/api/v1/drains', { body: request }));
export const cancelDrain = (node: string): Promise<ActionOutcome> => answered(api.POST('/api/v1/drains/cancel', { body: { node } }));

/** Let the follower of a mirrored node lead. */
export const handOver = (node: string): Promise<ActionOutcome> => answered(api.POST('/api/v1/hand-overs', { body: { node } }));

/** Rewind a channel to a time. */
export const rewind = (since: RewindRequest): Promise<ActionOutcome> => answered(api.POST('/api/v1/rewinds', { body: since }));

/** Count what a rewind would redeliver; nothing is changed. */
export const previewRewind = (since: RewindRequest): Promise<RewindPreview> =>
  answered(api.GET('/api/v1/rewinds', { params: { query: since } }));

export const publish = (message: PublishRequest): Promise<Published> => answered(api.POST('/api/v1/messages', { body: message }));

/** The messages of a channel, without side effects. */
export const peek = async (topic: string, channel: string, state: PeekState, order: PeekOrder, limit: number, offset: number): Promise<Peeked> =>
  withVisibleText(await answered(api.GET('/api/v1/messages', { params: { query: { topic, channel, state, order, limit, offset } } })));

/** One message, with up to 64 KiB of its body. */
export const wholeMessage = async (topic: string, channel: string, { id, node }: MessageKey): Promise<PeekedMessage> =>
  withVisibleText(await answered(api.GET('/api/v1/messages/{id}', { params: { path: { id }, query: { topic, channel, node } } })));

/** What happened to a sampled message since a time, RFC 3339. */
export const life = async (topic: string, id: string, from: string): Promise<Life> =>
  withVisibleText(await answered(api.GET('/api/v1/messages/{id}/life', { params: { path: { id }, query: { topic, from } } })));

const ofType = (id: number) => ({ params: { path: { type_id: id } } });
/** The Protocol Buffers message types of topics, by pattern. */
export const messageTypes = async (): Promise<MessageType[]> => (await answered(api.GET('/api/v1/message-types'))).types;
export const createMessageType = (type: MessageTypeRequest): Promise<MessageType> => answered(api.POST('/api/v1/message-types', { body: type }));
export const deleteMessageType = (id: number): Promise<void> => done(api.DELETE('/api/v1/message-types/{type_id}', ofType(id)));
/** The FileDescriptorSet of a message type. */
export const descriptorsOf = async (id: number): Promise<Uint8Array> =>
  new Uint8Array(await answered<ArrayBuffer>(api.GET('/api/v1/message-types/{type_id}/descriptors', { ...ofType(id), parseAs: 'arrayBuffer' }) as never));

/** The address of the download of a whole body. */
export const bodyDownload = (topic: string, channel: string, { id, node }: MessageKey): string =>
  `${based(('/api/v1/messages/{id}/body' satisfies keyof paths).replace('{id}', encodeURIComponent(id)))}?${new URLSearchParams({ topic, channel, node })}`;

/** The address of the download of all messages that match. */
export const messagesExport = (topic: string, channel: string, criteria: Criteria, format: 'ndjson' | 'csv'): string =>
  `${based('/api/v1/messages/export' satisfies keyof paths)}?${new URLSearchParams({ topic, channel, format, ...textsOf(criteria) })}`;

/** Search a channel's messages. The lines of the answer are NDJSON; closing the connection ends the search. */
export async function searchMessages(topic: string, channel: string, criteria: Criteria, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
  const query = { topic, channel, ...criteria };
  const answer = await api.GET('/api/v1/messages/search', { params: { query }, parseAs: 'stream', signal });
  if (!answer.response.ok || !answer.data) throw refused(answer);
  return answer.data;
}

/** Requeue, finish, copy or move messages of one node. */
export const actOnMessages = (request: MessagesActionRequest): Promise<MessagesActed> => answered(api.POST('/api/v1/messages/actions', { body: request }));

/** Count the messages of a channel that match; nothing is changed. */
export const countMatches = async (topic: string, channel: string, criteria: Criteria): Promise<MatchingMessages> =>
  withVisibleText(await answered(api.GET('/api/v1/messages/count', { params: { query: { topic, channel, ...criteria } } })));

type MatchesRequest = { action: MessageAction; topic: string; channel: string; criteria: Criteria; as_of: number; target: string | null };

/** Start an action on all messages of a channel that match and were published until `as_of`. */
export const actOnMatches = ({ criteria, ...request }: MatchesRequest): Promise<Job> =>
  answered(api.POST('/api/v1/jobs/messages', { body: { ...request, criteria: { id: '', text: '', match: 'text', ...criteria } } }));

/** Count dead messages of channels on each node; nothing is changed. */
export const countDead = async ({ channels, ...chosen }: ChosenDead): Promise<DeadCount> =>
  withVisibleText(await answered(api.POST('/api/v1/jobs/dead/count', { body: { channels: [...channels], ...chosen } })));

/** Start to requeue or remove dead messages of channels. `rate`: of each channel on each node, per second; 0 is all at once. */
export const actOnDead = (action: DeadAction, { channels, ...chosen }: ChosenDead, rate: number): Promise<Job> =>
  answered(api.POST('/api/v1/jobs/dead', { body: { action, channels: [...channels], rate, ...chosen } }));

/** Start an action on many topics or channels. */
export const startJob = (kind: BulkAction, subjects: readonly BulkTarget[]): Promise<Job> =>
  answered(api.POST('/api/v1/jobs', { body: { kind, subjects: subjects.map((subject) => ({ node: '', ...subject })), parameters: {} } }));
/** Newest first. */
export const jobs = async (limit: number): Promise<Job[]> => (await answered(api.GET('/api/v1/jobs', { params: { query: { limit } } }))).jobs;
export const cancelJob = (job_id: number): Promise<Job> => answered(api.POST('/api/v1/jobs/{job_id}/cancel', { params: { path: { job_id } } }));
/** The first subjects of a job in any of these states. */
export const jobSubjects = async (job_id: number, state: JobSubject['state'][], limit: number): Promise<JobSubject[]> =>
  (await answered(api.GET('/api/v1/jobs/{job_id}/subjects', { params: { path: { job_id }, query: { state, limit } } }))).subjects;

/** The cluster's clients that contain every word of `query`. */
export const clients = async ({ query, ...asked }: { query: string; order?: ClientOrder; descending?: boolean; limit: number }): Promise<FoundClients> =>
  withVisibleText(await answered(api.GET('/api/v1/clients', { params: { query: { q: query, ...asked } } })));

/** Figures of the cluster, a topic, channel or node over time. */
export const history = (of: HistoryScope): Promise<HourKept> => answered(api.GET('/api/v1/history', { params: { query: of } }));

/** Why a channel has a backlog, with times of day in the viewer's zone. */
export const diagnosis = async (topic: string, channel: string): Promise<Diagnosis> => {
  const time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return withVisibleText(await answered(api.GET('/api/v1/diagnosis', { params: { query: { topic, channel, time_zone } } })));
};

/** What happened from `since` up to `until`, in Unix milliseconds; oldest first. */
export const events = async (of: EventScope): Promise<ClusterEvent[]> =>
  withVisibleText(await answered(api.GET('/api/v1/events', { params: { query: of } }))).events;

/** The registries that the collector queries. */
export const registries = (): Promise<Registry[]> => answered(api.GET('/api/v1/registries'));

/** The last minutes of the series in a view. */
export const recentHistory = (view: ViewOf): Promise<RecentHistory> =>
  answered(api.GET('/api/v1/history/recent', { params: { query: view } }));

/** Graphite's graphs of a topic, channel or node; empty without graphite. */
export const graphs = (of: { topic?: string; channel?: string; node?: string }): Promise<Graphs> =>
  answered(api.GET('/api/v1/graphs', { params: { query: of } }));

/** Filters of the audit trail; an empty text matches everything, times are Unix milliseconds. */
export type AuditFilters = { user?: string; action?: string; object?: string; outcome?: AuditOutcome; job?: number; since?: number; until?: number };

function narrowing({ user, action, object, ...rest }: AuditFilters): AuditFilters {
  return { ...rest, ...(user && { user }), ...(action && { action }), ...(object && { object }) };
}

/** Entries older than `before` (an entry's id), newest first. */
export const audit = async (filters: AuditFilters, before: number | null, limit: number): Promise<AuditEntry[]> =>
  (await answered(api.GET('/api/v1/audit', { params: { query: { ...narrowing(filters), limit, before } } }))).entries;

export const auditFacets = (): Promise<AuditFacets> => answered(api.GET('/api/v1/audit/facets'));
const EXPORTS = { csv: '/api/v1/audit/export.csv', json: '/api/v1/audit/export.json' } as const satisfies Record<string, keyof paths>;
export function auditExport(filters: AuditFilters, format: keyof typeof EXPORTS): string {
  const given = Object.entries(narrowing(filters)).map(([name, value]): [string, string] => [name, String(value)]);
  return `${based(EXPORTS[format])}?${new URLSearchParams(given)}`;
}

export const changePassword = (current: string, next: string): Promise<void> =>
  done(api.PUT('/api/v1/account/password', { body: { current_password: current, new_password: next } }));
export const tokens = async (): Promise<Token[]> => (await answered(api.GET('/api/v1/account/tokens'))).tokens;
export const makeToken = (token: TokenRequest): Promise<NewToken> => answered(api.POST('/api/v1/account/tokens', { body: token }));
export const revokeToken = (token_id: number): Promise<void> =>
  done(api.DELETE('/api/v1/account/tokens/{token_id}', { params: { path: { token_id } } }));
export const sessions = async (): Promise<OpenSession[]> => withVisibleText((await answered(api.GET('/api/v1/account/sessions'))).sessions);
export const endSession = (session_id: string): Promise<void> =>
  done(api.DELETE('/api/v1/account/sessions/{session_id}', { params: { path: { session_id } } }));
export const endOtherSessions = async (): Promise<number> => (await answered(api.DELETE('/api/v1/account/sessions'))).ended;

const ofPerson = (person_id: number) => ({ params: { path: { person_id } } });
export const people = async (): Promise<Person[]> => (await answered(api.GET('/api/v1/people'))).people;
export const invite = (person: PersonRequest): Promise<SignInLink> => answered(api.POST('/api/v1/people', { body: person }));
export const changePerson = (id: number, change: PersonChange): Promise<Person> =>
  answered(api.PATCH('/api/v1/people/{person_id}', { ...ofPerson(id), body: change }));
export const signInLink = (id: number): Promise<SignInLink> => answered(api.POST('/api/v1/people/{person_id}/link', ofPerson(id)));
export const signOutPerson = async (id: number): Promise<number> =>
  (await answered(api.DELETE('/api/v1/people/{person_id}/sessions', ofPerson(id)))).ended;
export const tokensOf = async (id: number): Promise<Token[]> =>
  (await answered(api.GET('/api/v1/people/{person_id}/tokens', ofPerson(id)))).tokens;
export const revokeTokenOf = (person_id: number, token_id: number): Promise<void> =>
  done(api.DELETE('/api/v1/people/{person_id}/tokens/{token_id}', { params: { path: { person_id, token_id } } }));

export const reportJobs = async (): Promise<ReportJob[]> => (await answered(api.GET('/api/v1/reports/jobs'))).jobs;

const ofSchedule = (schedule_id: number) => ({ params: { path: { schedule_id } } });
export const schedules = async (): Promise<Schedule[]> => (await answered(api.GET('/api/v1/reports/schedules'))).schedules;
export const createSchedule = (schedule: ScheduleRequest): Promise<Schedule> =>
  answered(api.POST('/api/v1/reports/schedules', { body: schedule }));
export const changeSchedule = (id: number, change: Partial<ScheduleRequest>): Promise<Schedule> =>
  answered(api.PATCH('/api/v1/reports/schedules/{schedule_id}', { ...ofSchedule(id), body: change }));
export const deleteSchedule = (id: number): Promise<void> =>
  done(api.DELETE('/api/v1/reports/schedules/{schedule_id}', ofSchedule(id)));
export const runSchedule = (id: number): Promise<Run> =>
  answered(api.POST('/api/v1/reports/schedules/{schedule_id}/run', ofSchedule(id)));
/** The next due times of a schedule, in Unix milliseconds, in order. */
export const nextRuns = async (when: Pick<ScheduleRequest, 'cron' | 'every_seconds' | 'time_zone'>): Promise<number[]> =>
  (await answered(api.GET('/api/v1/reports/schedules/preview', { params: { query: when } }))).next_runs;

const ofRun = (run_id: number) => ({ run_id });
/** How large the archive is, how it grows, and what of it is registered in an Iceberg catalog. */
export const archiveSize = async (): Promise<ArchiveSize> => answered(api.GET('/api/v1/reports/archive'));
/** The columns of the archive and of each report's result. */
export const reportColumns = async (): Promise<ReportTable[]> => (await answered(api.GET('/api/v1/reports/columns'))).tables;
/** Runs older than `before` (a run's id), newest first. */
export const runs = async (before: number | null, limit: number): Promise<Run[]> =>
  (await answered(api.GET('/api/v1/reports/runs', { params: { query: { limit, before } } }))).runs;
export const run = (id: number): Promise<Run> => answered(api.GET('/api/v1/reports/runs/{run_id}', { params: { path: ofRun(id) } }));
export const startRun = (job: string, parameters: Parameters): Promise<Run> =>
  answered(api.POST('/api/v1/reports/runs', { body: { job, parameters } }));
/** Let the workers start Spark before the first report. */
export const prepareReports = (): Promise<void> => done(api.POST('/api/v1/reports/session'));
export const cancelRun = (id: number): Promise<Run> =>
  answered(api.POST('/api/v1/reports/runs/{run_id}/cancel', { params: { path: ofRun(id) } }));
/** Selects rows of a result; an omitted field selects all. An empty channel: a topic's own rows. */
export type ResultRows = { words?: string; topic?: string; channel?: string; figure?: string; since?: number; until?: number };
export const result = (id: number, asked: ResultRows & { limit: number; offset: number; sort?: string }): Promise<Result> =>
  answered(api.GET('/api/v1/reports/runs/{run_id}/result', { params: { path: ofRun(id), query: asked } }));
export const resultGroups = async (id: number): Promise<ResultGroup[]> =>
  (await answered(api.GET('/api/v1/reports/runs/{run_id}/result/groups', { params: { path: ofRun(id) } }))).groups;
/** Figures over time of all matching rows, in at most `points` points. */
export const resultSeries = (id: number, figures: readonly string[], asked: ResultRows & { points?: number }): Promise<ResultSeries> =>
  answered(api.GET('/api/v1/reports/runs/{run_id}/result/series', { params: { path: ofRun(id), query: { ...asked, figures: figures.join(',') } } }));
/** Messages of all matching rows by time and latency, in at most `points` columns. */
export const resultHeat = (id: number, asked: ResultRows & { points?: number }): Promise<ResultHeat> =>
  answered(api.GET('/api/v1/reports/runs/{run_id}/result/heat', { params: { path: ofRun(id), query: asked } }));
export const resultCalendar = async (id: number, objective: ResultObjective): Promise<ResultDay[]> =>
  (await answered(api.GET('/api/v1/reports/runs/{run_id}/result/calendar', { params: { path: ofRun(id), query: { objective } } }))).days;
export const resultParquet = (id: number): string =>
  based(('/api/v1/reports/runs/{run_id}/result.parquet' satisfies keyof paths).replace('{run_id}', String(id)));
/** The report as one page. */
export const resultHtml = (id: number): string =>
  based(('/api/v1/reports/runs/{run_id}/result.html' satisfies keyof paths).replace('{run_id}', String(id)));
/** The same page as PDF. While another report is printed, it is requested again after the time that the answer names. */
export async function resultPdf(id: number): Promise<Blob> {
  const path = based(('/api/v1/reports/runs/{run_id}/result.pdf' satisfies keyof paths).replace('{run_id}', String(id)));
  for (;;) {
    const response = await fetch(path, { credentials: 'same-origin' }).catch(() => null);
    if (response === null) throw new ApiError(0, 'The platform does not answer. Is its web process running?');
    if (response.ok) return response.blob();
    if (response.status === 401) onUnauthorized();
    const seconds = Number(response.headers.get('Retry-After'));
    if (response.status !== 503 || !(seconds > 0)) throw new ApiError(response.status, refusal(response.status, response.statusText, await response.json().catch(() => null)));
    await new Promise((resume) => setTimeout(resume, seconds * 1000));
  }
}
export const resultCsv = (id: number): string =>
  based(('/api/v1/reports/runs/{run_id}/result.csv' satisfies keyof paths).replace('{run_id}', String(id)));

/** Filters of alerts; an empty text matches everything. */
export type AlertFilters = { severity: Severity | ''; subject: string };

/** Firing alerts. */
export const firingAlerts = (limit: number): Promise<AlertList> => answered(api.GET('/api/v1/alerts', { params: { query: { limit } } }));

export const pendingAlerts = (): Promise<PendingList> => answered(api.GET('/api/v1/alerts/pending', { params: { query: { limit: 100 } } }));
const ofAlert = (alert_id: number) => ({ params: { path: { alert_id } } });
export const alert = (id: number): Promise<Alert> => answered(api.GET('/api/v1/alerts/{alert_id}', ofAlert(id)));

/** Resolved alerts older than `before` (an alert's id), newest first. */
export async function pastAlerts({ severity, subject }: AlertFilters, before: number | null, limit: number): Promise<Alert[]> {
  const query = { state: 'resolved', limit, before, severity: severity || null, subject } as const;
  return (await answered(api.GET('/api/v1/alerts', { params: { query } }))).alerts;
}

/** `refused`: the reason by id, for alerts that were not changed. */
export function attendAlerts(how: 'acknowledge' | 'close', alerts: readonly number[], note: string): Promise<Attended> {
  const body = { alerts: [...alerts], note };
  return answered(how === 'close' ? api.POST('/api/v1/alerts/close', { body }) : api.POST('/api/v1/alerts/acknowledge', { body }));
}
export const withdrawAcknowledgement = (id: number): Promise<Alert> =>
  answered(api.DELETE('/api/v1/alerts/{alert_id}/acknowledge', ofAlert(id)));

const ofRule = (rule_id: number) => ({ params: { path: { rule_id } } });
export const alertMetrics = async (): Promise<AlertMetric[]> => (await answered(api.GET('/api/v1/alerts/metrics'))).metrics;
export const alertRules = async (): Promise<AlertRule[]> => (await answered(api.GET('/api/v1/alerts/rules'))).rules;
export const suggestedRules = async (): Promise<AlertRuleRequest[]> => (await answered(api.GET('/api/v1/alerts/rules/suggested'))).rules;
export const createRule = (rule: AlertRuleRequest): Promise<AlertRule> => answered(api.POST('/api/v1/alerts/rules', { body: rule }));
export const changeRule = (id: number, change: Partial<AlertRuleRequest>): Promise<AlertRule> =>
  answered(api.PATCH('/api/v1/alerts/rules/{rule_id}', { ...ofRule(id), body: change }));
export const deleteRule = (id: number): Promise<void> => done(api.DELETE('/api/v1/alerts/rules/{rule_id}', ofRule(id)));
/** Evaluate a rule now, without saving it. */
export const previewRule = (rule: AlertRuleRequest): Promise<RulePreview> => answered(api.POST('/api/v1/alerts/rules/preview', { body: rule }));

const ofObjective = (objective_id: number) => ({ params: { path: { objective_id } } });
export const objectives = async (): Promise<Objective[]> => (await answered(api.GET('/api/v1/objectives'))).objectives;
export const objective = (id: number): Promise<ObjectiveDetail> => answered(api.GET('/api/v1/objectives/{objective_id}', ofObjective(id)));
export const createObjective = (request: ObjectiveRequest): Promise<Objective> => answered(api.POST('/api/v1/objectives', { body: request }));
export const changeObjective = (id: number, change: ObjectiveRequest): Promise<Objective> =>
  answered(api.PATCH('/api/v1/objectives/{objective_id}', { ...ofObjective(id), body: change }));
export const deleteObjective = (id: number): Promise<void> => done(api.DELETE('/api/v1/objectives/{objective_id}', ofObjective(id)));

const ofMask = (mask_id: number) => ({ params: { path: { mask_id } } });
export const masks = async (): Promise<Mask[]> => (await answered(api.GET('/api/v1/masks'))).masks;
export const createMask = (mask: MaskRequest): Promise<Mask> => answered(api.POST('/api/v1/masks', { body: mask }));
export const changeMask = (id: number, change: MaskRequest): Promise<Mask> => answered(api.PATCH('/api/v1/masks/{mask_id}', { ...ofMask(id), body: change }));
export const deleteMask = (id: number): Promise<void> => done(api.DELETE('/api/v1/masks/{mask_id}', ofMask(id)));
/** What paths leave of a body; nothing is stored. */
export const previewMask = (paths: string[], body: string): Promise<MaskPreview> => answered(api.POST('/api/v1/masks/preview', { body: { paths, body } }));

/** The policies of all nodes; each request reads all of them. */
export const policies = (): Promise<Policies> => answered(api.GET('/api/v1/policies'));
export const setPolicy = (policy: PolicyRequest): Promise<ActionOutcome> => answered(api.POST('/api/v1/policies', { body: policy }));
export const deletePolicy = ({ topic_pattern, channel_pattern }: Pick<PolicyRequest, 'topic_pattern' | 'channel_pattern'>): Promise<ActionOutcome> =>
  answered(api.DELETE('/api/v1/policies', { params: { query: { topic_pattern, channel_pattern } } }));
/** What applies to a channel on each node. */
export const channelPolicies = async (topic: string, channel: string): Promise<ChannelPolicy[]> =>
  (await answered(api.GET('/api/v1/policies/applied', { params: { query: { topic, channel } } }))).nodes;

const ofNotifier = (notifier_id: number) => ({ params: { path: { notifier_id } } });
export const notifiers = async (): Promise<Notifier[]> => (await answered(api.GET('/api/v1/alerts/notifiers'))).notifiers;
export const createNotifier = (notifier: NotifierRequest): Promise<Notifier> =>
  answered(api.POST('/api/v1/alerts/notifiers', { body: notifier }));
export const changeNotifier = (id: number, change: Partial<NotifierRequest>): Promise<Notifier> =>
  answered(api.PATCH('/api/v1/alerts/notifiers/{notifier_id}', { ...ofNotifier(id), body: change }));
export const deleteNotifier = (id: number): Promise<void> => done(api.DELETE('/api/v1/alerts/notifiers/{notifier_id}', ofNotifier(id)));
/** Send a test message, and wait for the outcome. */
export const testNotifier = (id: number): Promise<Delivery> => answered(api.POST('/api/v1/alerts/notifiers/{notifier_id}/test', ofNotifier(id)));

export const silences = async (ended: boolean): Promise<Silence[]> =>
  (await answered(api.GET('/api/v1/alerts/silences', { params: { query: { ended } } }))).silences;
export const silence = (asked: SilenceRequest): Promise<Silence> => answered(api.POST('/api/v1/alerts/silences', { body: asked }));
export const endSilence = (silence_id: number): Promise<Silence> =>
  answered(api.DELETE('/api/v1/alerts/silences/{silence_id}', { params: { path: { silence_id } } }));

/** The address of the definitions file; `secrets`: with webhook URLs in full. */
export const definitionsFile = (secrets: boolean): string => based(`/api/v1/definitions${secrets ? '?secrets=true' : ''}`);

/** Import a definitions file, or only compare it. `prune` also removes entries that the file's sections lack. */
export const importDefinitions = (text: string, { dryRun, prune }: { dryRun: boolean; prune: boolean }): Promise<DefinitionReview> =>
  answered(
    api.POST('/api/v1/definitions', {
      params: { query: { dry_run: dryRun, prune } },
      body: text,
      bodySerializer: (body) => body,
      headers: { 'Content-Type': 'application/toml' },
    }),
  );

const ofView = (view_id: number) => ({ params: { path: { view_id } } });
/** The user's own views, and all shared ones, by name. */
export const savedViews = async (): Promise<SavedView[]> => (await answered(api.GET('/api/v1/views'))).views;
export const savedView = (id: number): Promise<SavedView> => answered(api.GET('/api/v1/views/{view_id}', ofView(id)));
export const saveView = (view: SavedViewRequest): Promise<SavedView> => answered(api.POST('/api/v1/views', { body: view }));
export const changeView = (id: number, change: Partial<SavedViewRequest>): Promise<SavedView> =>
  answered(api.PATCH('/api/v1/views/{view_id}', { ...ofView(id), body: change }));
export const deleteView = (id: number): Promise<void> => done(api.DELETE('/api/v1/views/{view_id}', ofView(id)));
