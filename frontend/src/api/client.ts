/** The JSON API, one function per endpoint. Each rejects with an ApiError whose message can be shown as it is. */
import { based } from './base';
import type {
  ActionOutcome,
  ActionRequest,
  Alert,
  AlertList,
  AlertMetric,
  AlertRule,
  AlertRuleRequest,
  AuditEntry,
  AuditFacets,
  BulkAction,
  BulkTarget,
  Delivery,
  FieldError,
  FoundClients,
  Graphs,
  HourKept,
  Job,
  Me,
  NewToken,
  Notifier,
  NotifierRequest,
  OpenSession,
  Parameters,
  Peeked,
  PeekedMessage,
  PeekState,
  PendingList,
  Person,
  PersonChange,
  PersonRequest,
  Published,
  PublishRequest,
  Result,
  ResultDay,
  ResultGroup,
  ResultSeries,
  RewindRequest,
  RulePreview,
  Run,
  Schedule,
  ScheduleRequest,
  Severity,
  SignInLink,
  Silence,
  SilenceRequest,
  TargetOutcome,
  Token,
  TokenRequest,
} from './types';

export class ApiError extends Error {
  /** `status` is the HTTP status, or 0 when no answer came; `fieldErrors` what a 422 says of the request's fields. */
  constructor(
    readonly status: number,
    message: string,
    readonly fieldErrors: readonly FieldError[] = [],
  ) {
    super(message);
  }
}

/** What went wrong in words for the page, whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const ROOT = based('/api/v1/');

let csrfToken: string | null = null;
let onUnauthorized: () => void = () => {};

/** Have `handler` called whenever the platform says that the session is gone (401). */
export function whenUnauthorized(handler: () => void): void {
  onUnauthorized = handler;
}

function csrf(): string {
  return csrfToken ?? /(?:^|;\s*)csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? '';
}

/** A machine's message as a sentence: `no such run` as `No such run.` */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? '' : '.');
}

/** The message of a refused request: the API's own, else one that names the status. */
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

async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET') headers['X-CSRFToken'] = csrf();
  let response: Response;
  try {
    response = await fetch(ROOT + path, {
      method,
      headers,
      credentials: 'same-origin',
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, 'The platform does not answer. Is its web process running?');
  }
  if (response.status === 204) return undefined as T;
  const answer: unknown = await response.json().catch(() => null);
  if (!response.ok) {
    if (response.status === 401 && path !== 'session') onUnauthorized();
    throw new ApiError(response.status, refusal(response.status, response.statusText, answer), fieldErrorsIn(answer));
  }
  return answer as T;
}

function remember(me: Me): Me {
  csrfToken = me.csrf_token;
  return me;
}

export const me = async (): Promise<Me> => remember(await request<Me>('GET', 'me'));
export const signIn = async (username: string, password: string): Promise<Me> =>
  remember(await request<Me>('POST', 'session', { username, password }));
export async function signOut(): Promise<void> {
  await request<void>('DELETE', 'session');
  csrfToken = null; // a new session has a new token; until then the cookie's is right
}

export const act = (action: ActionRequest): Promise<ActionOutcome> => request('POST', 'actions', action);

/** Take a topic off one node. */
export const tombstone = (topic: string, node: string): Promise<ActionOutcome> => request('POST', 'tombstones', { topic, node });

/** Have a channel delivered again what it was given since a time. */
export const rewind = (since: RewindRequest): Promise<ActionOutcome> => request('POST', 'rewinds', since);

export const publish = (message: PublishRequest): Promise<Published> => request('POST', 'messages', message);

/** What a channel holds, without touching it. */
export function peek(topic: string, channel: string, state: PeekState, limit: number, offset: number): Promise<Peeked> {
  return request('GET', `messages?${new URLSearchParams({ topic, channel, state, limit: String(limit), offset: String(offset) })}`);
}

/** One of them with as much of its body as a broker shows. */
export function wholeMessage(topic: string, channel: string, state: PeekState, { id, node, place }: PeekedMessage): Promise<PeekedMessage> {
  return request('GET', `messages/${encodeURIComponent(id)}?${new URLSearchParams({ topic, channel, state, node, place: String(place) })}`);
}

/** At most 50 targets at a time; the outcomes are in their order. */
export const actOnMany = async (action: BulkAction, targets: readonly BulkTarget[]): Promise<TargetOutcome[]> =>
  (await request<{ outcomes: TargetOutcome[] }>('POST', 'actions/bulk', { action, targets })).outcomes;

/** Clients of the whole cluster in which every word of `query` occurs; an order the API does not know is refused. */
export function clients({
  query,
  order = 'topic',
  descending = false,
  limit,
}: {
  query: string;
  order?: string;
  descending?: boolean;
  limit: number;
}): Promise<FoundClients> {
  const search = new URLSearchParams({ q: query, order, descending: String(descending), limit: String(limit) });
  return request('GET', `clients?${search}`);
}

/** The last hour of a topic, channel or node, a record each ten seconds. */
export const history = (of: Readonly<Record<string, string>>): Promise<HourKept> =>
  request('GET', `history?${new URLSearchParams(of)}`);

/** Where graphite draws a topic, channel or node; nothing where there is no graphite. */
export const graphs = (of: Readonly<Record<string, string>>): Promise<Graphs> =>
  request('GET', `graphs?${new URLSearchParams(of)}`);

/** What the audit log is narrowed to; an empty text narrows nothing, times are unix milliseconds. */
export type AuditFilters = { user?: string; action?: string; object?: string; outcome?: string; since?: number; until?: number };

function auditQuery(filters: AuditFilters): URLSearchParams {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== '');
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
}

/** Entries older than `before` (an entry's id), newest first. */
export async function audit(filters: AuditFilters, before: number | null, limit: number): Promise<AuditEntry[]> {
  const query = auditQuery(filters);
  query.set('limit', String(limit));
  if (before !== null) query.set('before', String(before));
  return (await request<{ entries: AuditEntry[] }>('GET', `audit?${query}`)).entries;
}

export const auditFacets = (): Promise<AuditFacets> => request('GET', 'audit/facets');
export const auditExport = (filters: AuditFilters, format: 'csv' | 'json'): string =>
  `${ROOT}audit/export.${format}?${auditQuery(filters)}`;

export const changePassword = (current: string, next: string): Promise<void> =>
  request('PUT', 'account/password', { current_password: current, new_password: next });
export const tokens = async (): Promise<Token[]> => (await request<{ tokens: Token[] }>('GET', 'account/tokens')).tokens;
export const makeToken = (token: TokenRequest): Promise<NewToken> => request('POST', 'account/tokens', token);
export const revokeToken = (id: number): Promise<void> => request('DELETE', `account/tokens/${id}`);
export const sessions = async (): Promise<OpenSession[]> =>
  (await request<{ sessions: OpenSession[] }>('GET', 'account/sessions')).sessions;
export const endSession = (id: string): Promise<void> => request('DELETE', `account/sessions/${id}`);
export const endOtherSessions = async (): Promise<number> =>
  (await request<{ ended: number }>('DELETE', 'account/sessions')).ended;

export const people = async (): Promise<Person[]> => (await request<{ people: Person[] }>('GET', 'people')).people;
export const invite = (person: PersonRequest): Promise<SignInLink> => request('POST', 'people', person);
export const changePerson = (id: number, change: PersonChange): Promise<Person> => request('PATCH', `people/${id}`, change);
export const signInLink = (id: number): Promise<SignInLink> => request('POST', `people/${id}/link`);
export const signOutPerson = async (id: number): Promise<number> =>
  (await request<{ ended: number }>('DELETE', `people/${id}/sessions`)).ended;
export const tokensOf = async (id: number): Promise<Token[]> =>
  (await request<{ tokens: Token[] }>('GET', `people/${id}/tokens`)).tokens;
export const revokeTokenOf = (id: number, token: number): Promise<void> =>
  request('DELETE', `people/${id}/tokens/${token}`);

export const jobs = async (): Promise<Job[]> => (await request<{ jobs: Job[] }>('GET', 'reports/jobs')).jobs;

export const schedules = async (): Promise<Schedule[]> =>
  (await request<{ schedules: Schedule[] }>('GET', 'reports/schedules')).schedules;
export const createSchedule = (schedule: ScheduleRequest): Promise<Schedule> =>
  request('POST', 'reports/schedules', schedule);
export const changeSchedule = (id: number, change: Partial<ScheduleRequest>): Promise<Schedule> =>
  request('PATCH', `reports/schedules/${id}`, change);
export const deleteSchedule = (id: number): Promise<void> => request('DELETE', `reports/schedules/${id}`);

/** Runs older than `before` (a run's id), newest first. */
export async function runs(before: number | null, limit: number): Promise<Run[]> {
  const query = new URLSearchParams({ limit: String(limit) });
  if (before !== null) query.set('before', String(before));
  return (await request<{ runs: Run[] }>('GET', `reports/runs?${query}`)).runs;
}
export const run = (id: number): Promise<Run> => request('GET', `reports/runs/${id}`);
export const startRun = (job: string, parameters: Parameters): Promise<Run> =>
  request('POST', 'reports/runs', { job, parameters });
export const cancelRun = (id: number): Promise<Run> => request('POST', `reports/runs/${id}/cancel`);
/** Which rows of a result are asked for; what is left out selects all. An empty channel: a topic's own rows. */
export type ResultRows = { words?: string; topic?: string; channel?: string; since?: number; until?: number };
export const result = (id: number, asked: ResultRows & { limit: number; offset: number; sort?: string }): Promise<Result> =>
  request('GET', `reports/runs/${id}/result?${questionOf(asked)}`);
export const resultGroups = async (id: number): Promise<ResultGroup[]> =>
  (await request<{ groups: ResultGroup[] }>('GET', `reports/runs/${id}/result/groups`)).groups;
/** Figures over time of all the rows that match, in at most `points` points. */
export const resultSeries = (id: number, figures: readonly string[], asked: ResultRows & { points?: number }): Promise<ResultSeries> =>
  request('GET', `reports/runs/${id}/result/series?${questionOf({ ...asked, figures: figures.join(',') })}`);
export const resultCalendar = async (id: number, objective: string): Promise<ResultDay[]> =>
  (await request<{ days: ResultDay[] }>('GET', `reports/runs/${id}/result/calendar?${questionOf({ objective })}`)).days;

function questionOf(asked: Readonly<Record<string, string | number>>): URLSearchParams {
  return new URLSearchParams(Object.entries(asked).map(([name, value]): [string, string] => [name, String(value)]));
}
export const runSchedule = (id: number): Promise<Run> => request('POST', `reports/schedules/${id}/run`);
/** When a schedule would run next, unix milliseconds, the soonest first. */
export async function nextRuns({ cron, every_seconds, time_zone }: Pick<ScheduleRequest, 'cron' | 'every_seconds' | 'time_zone'>): Promise<number[]> {
  const query = new URLSearchParams({ time_zone });
  if (cron !== null) query.set('cron', cron);
  if (every_seconds !== null) query.set('every_seconds', String(every_seconds));
  return (await request<{ next_runs: number[] }>('GET', `reports/schedules/preview?${query}`)).next_runs;
}
export const resultParquet = (id: number): string => `${ROOT}reports/runs/${id}/result.parquet`;
export const resultCsv = (id: number): string => `${ROOT}reports/runs/${id}/result.csv`;

/** What alerts are narrowed to; an empty text narrows nothing. */
export type AlertFilters = { severity: Severity | ''; subject: string };

/** Those that fire. */
export const firingAlerts = (limit: number): Promise<AlertList> => request('GET', `alerts?limit=${limit}`);

export const pendingAlerts = (): Promise<PendingList> => request('GET', 'alerts/pending?limit=100');
export const alert = (id: number): Promise<Alert> => request('GET', `alerts/${id}`);

/** Those that are over, older than `before` (an alert's id), newest first. */
export async function pastAlerts({ severity, subject }: AlertFilters, before: number | null, limit: number): Promise<Alert[]> {
  const query = new URLSearchParams({ state: 'resolved', limit: String(limit) });
  if (severity !== '') query.set('severity', severity);
  if (subject !== '') query.set('subject', subject);
  if (before !== null) query.set('before', String(before));
  return (await request<AlertList>('GET', `alerts?${query}`)).alerts;
}

/** What became of each: `refused` says why not, by id. */
export type Attended = { alerts: Alert[]; refused: Record<string, string> };
export const attendAlerts = (how: 'acknowledge' | 'close', alerts: readonly number[], note: string): Promise<Attended> =>
  request('POST', `alerts/${how}`, { alerts, note });
export const withdrawAcknowledgement = (id: number): Promise<Alert> => request('DELETE', `alerts/${id}/acknowledge`);

export const alertMetrics = async (): Promise<AlertMetric[]> =>
  (await request<{ metrics: AlertMetric[] }>('GET', 'alerts/metrics')).metrics;
export const alertRules = async (): Promise<AlertRule[]> => (await request<{ rules: AlertRule[] }>('GET', 'alerts/rules')).rules;
export const suggestedRules = async (): Promise<AlertRuleRequest[]> =>
  (await request<{ rules: AlertRuleRequest[] }>('GET', 'alerts/rules/suggested')).rules;
export const createRule = (rule: AlertRuleRequest): Promise<AlertRule> => request('POST', 'alerts/rules', rule);
export const changeRule = (id: number, change: Partial<AlertRuleRequest>): Promise<AlertRule> =>
  request('PATCH', `alerts/rules/${id}`, change);
export const deleteRule = (id: number): Promise<void> => request('DELETE', `alerts/rules/${id}`);
/** What such a rule would say now; nothing is kept. */
export const previewRule = (rule: AlertRuleRequest): Promise<RulePreview> => request('POST', 'alerts/rules/preview', rule);

export const notifiers = async (): Promise<Notifier[]> =>
  (await request<{ notifiers: Notifier[] }>('GET', 'alerts/notifiers')).notifiers;
export const createNotifier = (notifier: NotifierRequest): Promise<Notifier> => request('POST', 'alerts/notifiers', notifier);
export const changeNotifier = (id: number, change: Partial<NotifierRequest>): Promise<Notifier> =>
  request('PATCH', `alerts/notifiers/${id}`, change);
export const deleteNotifier = (id: number): Promise<void> => request('DELETE', `alerts/notifiers/${id}`);
/** Sends a message for real, and waits for what becomes of it. */
export const testNotifier = (id: number): Promise<Delivery> => request('POST', `alerts/notifiers/${id}/test`, {});

export const silences = async (ended: boolean): Promise<Silence[]> =>
  (await request<{ silences: Silence[] }>('GET', `alerts/silences?ended=${ended}`)).silences;
export const silence = (asked: SilenceRequest): Promise<Silence> => request('POST', 'alerts/silences', asked);
export const endSilence = (id: number): Promise<Silence> => request('DELETE', `alerts/silences/${id}`);
