/** Presets of a report's period, for jobs with the parameters `period` and `until`. */
import type { ParameterSpec } from '../api/types';
import { inputOf } from '../history/window';
import type { Texts } from './parameters';

/** `recurs`: whether it makes sense for a schedule, each of whose runs ends at another time. */
export type Preset = { text: string; recurs: boolean; of: (now: Date) => { period: string; until: string } };

const last = (text: string, period: string): Preset => ({ text, recurs: true, of: () => ({ period, until: '' }) });

export const PRESETS: readonly Preset[] = [
  last('Last hour', '1h'),
  last('Last 6 hours', '6h'),
  last('Last 24 hours', '24h'),
  { text: 'Yesterday', recurs: false, of: yesterday },
  last('Last 7 days', '7d'),
  last('Last 30 days', '30d'),
  last('Last 90 days', '90d'),
];

/** From midnight to midnight in the viewer's zone: 23 or 25 hours when clocks change. */
function yesterday(now: Date): { period: string; until: string } {
  const midnight = (daysAgo: number): Date => new Date(now.getFullYear(), now.getMonth(), now.getDate() - daysAgo);
  const hours = Math.round((midnight(0).getTime() - midnight(1).getTime()) / 3_600_000);
  return { period: `${hours}h`, until: inputOf(midnight(0).getTime() / 1000) };
}

export const takesPresets = (specs: Record<string, ParameterSpec>): boolean => 'period' in specs && 'until' in specs;

/** The fields after a preset was chosen. */
export const withPreset = (texts: Texts, preset: Preset, now: Date): Texts => ({ ...texts, ...preset.of(now) });

export function isChosen(texts: Texts, preset: Preset, now: Date): boolean {
  const { period, until } = preset.of(now);
  return texts['period'] === period && (texts['until'] ?? '') === until;
}
