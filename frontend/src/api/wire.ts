/** The websocket's snapshots come as columns, which are a third of the size; here they become rows. */
import { CHANNEL_SHARE, TOPIC_SHARE } from './figures';
import type { AlertsMessage, ChannelNode, ChannelRow, Clients, Delta, NodeRow, Run, Snapshot, TableDelta, TopicNode, TopicRow, ViewOf } from './types';
import type { ServerMessage } from './types';

type Cell = unknown;
type Columns = Record<string, Cell[]>;
type Changes = { put: Columns; set: Columns; drop: string[] };
type Told<Table> = { version: number; taken_at: number; nodes: Table; topics: Table; channels: Table };
export type WireMessage =
  | ({ type: 'snapshot'; view: ViewOf } & Told<Columns>)
  | ({ type: 'delta'; base: number } & Told<Changes>)
  | ({ type: 'clients' } & Clients)
  | { type: 'run'; run: Run }
  | AlertsMessage;

function objectsOf(names: readonly string[], values: readonly Cell[][]): Record<string, Cell>[] {
  const length = values[0]?.length ?? 0;
  return Array.from({ length }, (_, row) => {
    const made: Record<string, Cell> = {};
    for (let column = 0; column < names.length; column++) made[names[column] as string] = values[column]?.[row];
    return made;
  });
}

function rowsOf<Row>(columns: Columns, share: readonly string[] = []): Row[] {
  const rows = objectsOf(Object.keys(columns), Object.values(columns));
  for (const row of rows) {
    if (row.nodes !== undefined) {
      row.nodes = (row.nodes as Cell[][]).map((values) => Object.fromEntries(share.map((name, at) => [name, values[at]])));
    }
  }
  return rows as Row[];
}

function changesOf<Row>({ put, set, drop }: Changes, share: readonly string[] = []): TableDelta<Row> {
  const { keys = [], ...columns } = set;
  return { put: rowsOf<Row>(put, share), set: { keys: keys as string[], rows: rowsOf<Partial<Row>>(columns, share) }, drop };
}

export function decoded(message: WireMessage): ServerMessage {
  if (message.type === 'snapshot') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: rowsOf<NodeRow>(nodes),
      topics: rowsOf<TopicRow>(topics, TOPIC_SHARE satisfies readonly (keyof TopicNode)[]),
      channels: rowsOf<ChannelRow>(channels, CHANNEL_SHARE satisfies readonly (keyof ChannelNode)[]),
    } satisfies { type: 'snapshot'; view: ViewOf } & Snapshot;
  }
  if (message.type === 'delta') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: changesOf<NodeRow>(nodes),
      topics: changesOf<TopicRow>(topics, TOPIC_SHARE),
      channels: changesOf<ChannelRow>(channels, CHANNEL_SHARE),
    } satisfies { type: 'delta' } & Delta;
  }
  return message;
}
