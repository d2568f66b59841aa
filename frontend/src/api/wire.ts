/** Reads the websocket's columns, which take a third of the space: whole rows become objects, changes stay columns. */
import { fieldsOf, type Columns } from './columns';
import { CHANNEL_SHARE, TOPIC_SHARE } from './figures';
import { isObject, reader } from './message';
import type { ChannelNode, ChannelRow, Delta, NodeRow, ServerMessage, Snapshot, TableDelta, TopicNode, TopicRow, ViewOf, WireChanges, WireColumns, WireMessage } from './types';
import { withVisibleText } from './visible';

const hasColumns = (table: unknown): boolean => isObject(table) && Object.values(table).every(Array.isArray);
const hasChanges = (table: unknown): boolean =>
  isObject(table) && hasColumns(table.put) && hasColumns(table.set) && Array.isArray(table.drop);

const isSnapshot = ({ version, view, nodes, topics, channels }: Record<string, unknown>): boolean =>
  typeof version === 'number' && isObject(view) && [nodes, topics, channels].every(hasColumns);

const readMessage = reader<WireMessage>({
  snapshot: isSnapshot,
  rest: isSnapshot,
  delta: ({ version, base, nodes, topics, channels }) =>
    typeof version === 'number' && typeof base === 'number' && [nodes, topics, channels].every(hasChanges),
  clients: ({ clients }) => Array.isArray(clients),
  run: ({ run }) => isObject(run),
  job: ({ job }) => isObject(job),
  alerts: ({ version, counts, alerts }) => typeof version === 'number' && isObject(counts) && Array.isArray(alerts),
  account: () => true,
  error: ({ message }) => typeof message === 'string',
});

/** A message of `/ws/cluster`; null for one of an unknown type or an incomplete one. */
export function received(text: string): ServerMessage | null {
  const message = readMessage(text);
  return message && decoded(message);
}

/** The shares of each row, from lists of their values. */
function sharesOf<Share>(names: readonly (keyof Share)[], rows: readonly Share[keyof Share][][][]): Share[][] {
  const named = (values: readonly Share[keyof Share][]): Share => {
    const made: Partial<Share> = {};
    for (let at = 0; at < names.length; at++) made[names[at] as keyof Share] = values[at];
    return made as Share; // a share is always sent with all of its values
  };
  return rows.map((shares) => shares.map(named));
}

function topicColumns({ nodes, ...columns }: WireColumns<TopicRow>): Columns<TopicRow> {
  return nodes === undefined ? columns : { ...columns, nodes: sharesOf<TopicNode>(TOPIC_SHARE, nodes) };
}

function channelColumns({ nodes, ...columns }: WireColumns<ChannelRow>): Columns<ChannelRow> {
  return nodes === undefined ? columns : { ...columns, nodes: sharesOf<ChannelNode>(CHANNEL_SHARE, nodes) };
}

const nodeColumns = (columns: WireColumns<NodeRow>): Columns<NodeRow> => columns;

function rowsOf<Row>(columns: Columns<Row>): Row[] {
  const fields = fieldsOf(columns);
  const values = fields.map((field): Row[keyof Row][] => columns[field] ?? []);
  return Array.from({ length: values[0]?.length ?? 0 }, (_, row) => {
    const made: Partial<Row> = {};
    for (let at = 0; at < fields.length; at++) made[fields[at] as keyof Row] = values[at]?.[row];
    return made as Row; // whole rows are sent with all of their fields
  });
}

function changesOf<Row, Wire>({ put, set, drop }: WireChanges<Wire>, columnsOf: (wire: Wire) => Columns<Row>): TableDelta<Row> {
  const { keys = [], ...columns } = set;
  return { put: rowsOf(columnsOf(put)), set: { keys, columns: columnsOf(columns as unknown as Wire) }, drop };
}

function decoded(message: WireMessage): ServerMessage {
  if (message.type === 'snapshot' || message.type === 'rest') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: withVisibleText(rowsOf(nodeColumns(nodes))),
      topics: rowsOf(topicColumns(topics)),
      channels: rowsOf(channelColumns(channels)),
    } satisfies { type: 'snapshot' | 'rest'; view: ViewOf } & Snapshot;
  }
  if (message.type === 'delta') {
    const { nodes, topics, channels, ...rest } = message;
    return {
      ...rest,
      nodes: withVisibleText(changesOf(nodes, nodeColumns)),
      topics: changesOf(topics, topicColumns),
      channels: changesOf(channels, channelColumns),
    } satisfies { type: 'delta' } & Delta;
  }
  return message.type === 'clients' ? withVisibleText(message) : message;
}
