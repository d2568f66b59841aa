/** Events as the markers of charts and as text. */
import type { ClusterEvent } from '../api/types';

/** `at` is in Unix seconds. */
export type Marker = { at: number; text: string; tone: Tone };
export type Tone = 'bad' | 'warn' | 'note' | 'quiet';
/** Markers that would overlap, as one; `x` is in pixels. */
export type Spot = { x: number; text: string; tone: Tone };

const KINDS: Readonly<Record<ClusterEvent['kind'], [title: string, tone: Tone]>> = {
  paused: ['Paused', 'warn'],
  unpaused: ['Unpaused', 'quiet'],
  emptied: ['Emptied', 'warn'],
  rewound: ['Rewound', 'warn'],
  deleted: ['Deleted', 'bad'],
  tombstoned: ['Tombstoned', 'bad'],
  drain_begun: ['Began to drain', 'warn'],
  drain_cancelled: ['Cancelled the drain of', 'quiet'],
  handed_over: ['Handed over', 'warn'],
  node_down: ['Node down', 'bad'],
  node_up: ['Node up', 'quiet'],
  node_restarted: ['Node restarted', 'warn'],
  alert_fired: ['Alert fired', 'bad'],
  report_run: ['Report', 'quiet'],
  marked: ['Mark', 'note'],
};
const TONES: readonly Tone[] = ['bad', 'warn', 'note', 'quiet'];
/** Distance up to which two markers are drawn as one. */
const APART_PX = 9;

/** `Paused orders / billing by ana`, `Node down: n1:4151 (connection refused)`. */
export function textOf({ kind, node, detail, by }: ClusterEvent): string {
  const [title] = KINDS[kind];
  if (kind.startsWith('node_')) return `${title}: ${node}${detail ? ` (${detail})` : ''}`;
  const about = kind === 'alert_fired' || kind === 'marked' ? `: ${detail}` : ` ${detail}`;
  const agent = kind === 'report_run' ? ', requested by' : ' by';
  return `${title}${about}${by ? `${agent} ${by}` : ''}`;
}

export const toneOf = ({ kind }: ClusterEvent): Tone => KINDS[kind][1];

export const markersOf = (events: readonly ClusterEvent[]): Marker[] =>
  events.map((event) => ({ at: event.at / 1000, text: textOf(event), tone: toneOf(event) }));

/** Where markers are drawn on a chart of `width` pixels, from left to right; `place` gives the position of a time. */
export function spotsOf(markers: readonly Marker[], width: number, place: (at: number) => number): Spot[] {
  const spots: Spot[] = [];
  const placed = markers.map((marker) => ({ ...marker, x: place(marker.at) })).filter(({ x }) => x >= 0 && x <= width);
  for (const { x, text, tone } of placed.sort((a, b) => a.x - b.x)) {
    const last = spots.at(-1);
    if (last === undefined || x - last.x > APART_PX) spots.push({ x, text, tone });
    else {
      last.text += `\n${text}`;
      if (TONES.indexOf(tone) < TONES.indexOf(last.tone)) last.tone = tone;
    }
  }
  return spots;
}
