/** Converts the websocket's columns, which take a third of the space, to rows. */
import { CHANNEL_SHARE, TOPIC_SHARE } from './figures';
import { isObject, reader } from './message';
import type { ChannelNode, ChannelRow, Delta, NodeRow, ServerMessage, Snapshot, TableDelta, TopicNode, TopicRow, ViewOf, WireMessage } from './types';
import { withVisibleText } from './visible';

type Cell = unknown;
type Columns = Record<string, Cell[]>;
type Changes = Extract<WireMessage, { type: 'delta' }>['nodes'];

const hasColumns = (table: unknown): boolean => isObject(table) && Object.values(table).every(Array.isArray);
const hasChanges = (table: unknown): boolean =>
  isObject(table) && hasColumns(table.put) && hasColumns(table.set) && Array.isArray(table.drop);

const readMessage = reader<WireMessage>({
  snapshot: ({ version, view, nodes, topics, channels }) =>
    typeof version === 'number' && isObject(view) && [nodes, topics, channels].every(hasColumns),
  delta: ({ version, base, nodes, topics, channels }) =>
    typeof version === 'number' && typeof base === 'number' && [nodes, topics, channels].every(hasChanges),
  clients: ({ clients }) => Array.isArray(clients),
  run: ({ run }) => isObject(run),
  alerts: ({ version, counts, alerts }) => typeof version === 'number' && isObject(counts) && Array.isArray(alerts),
  error: ({ message }) => typeof message === 'string',
});

/** A message of `/ws/cluster`; null for one of an unknown type or an incomplete one. */
export function received(text: string): ServerMessage | null {
  const message = readMessage(text);
  return message && decoded(message);
}

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

function decoded(message: WireMessage): ServerMessage {
  if (message.type === 'snapshot') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: withVisibleText(rowsOf<NodeRow>(nodes)),
      topics: rowsOf<TopicRow>(topics, TOPIC_SHARE satisfies readonly (keyof TopicNode)[]),
      channels: rowsOf<ChannelRow>(channels, CHANNEL_SHARE satisfies readonly (keyof ChannelNode)[]),
    } satisfies { type: 'snapshot'; view: ViewOf } & Snapshot;
  }
  if (message.type === 'delta') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: withVisibleText(changesOf<NodeRow>(nodes)),
      topics: changesOf<TopicRow>(topics, TOPIC_SHARE),
      channels: changesOf<ChannelRow>(channels, CHANNEL_SHARE),
    } satisfies { type: 'delta' } & Delta;
  }
  return message.type === 'clients' ? withVisibleText(message) : message;
}
