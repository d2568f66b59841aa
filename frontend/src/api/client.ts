/** The JSON API, one function per endpoint. Each rejects with an ApiError whose message can be shown as it is. */
import type {
  ActionOutcome,
  ActionRequest,
  AuditEntry,
  Job,
  Me,
  Parameters,
  Result,
  Run,
  Schedule,
  ScheduleRequest,
} from './types';

export class ApiError extends Error {
  /** `status` is the HTTP status, or 0 when no answer came. */
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** What went wrong in words for the page, whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const ROOT = '/api/v1/';

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
    throw new ApiError(response.status, refusal(response.status, response.statusText, answer));
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

/** Entries older than `before` (an entry's id), newest first. */
export async function audit(before: number | null, limit: number): Promise<AuditEntry[]> {
  const query = new URLSearchParams({ limit: String(limit) });
  if (before !== null) query.set('before', String(before));
  return (await request<{ entries: AuditEntry[] }>('GET', `audit?${query}`)).entries;
}

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
export const result = (id: number, limit: number, offset: number): Promise<Result> =>
  request('GET', `reports/runs/${id}/result?limit=${limit}&offset=${offset}`);
export const resultCsv = (id: number): string => `${ROOT}reports/runs/${id}/result.csv`;
