export type Theme = 'system' | 'light' | 'dark';
const KEY = 'nsq.theme';

/** Light, dark or the system's choice; remembered by this browser. */
export class ThemeStore {
  choice = $state<Theme>('system');
  /** Counts changes of the effective theme, the system's included: canvases redraw with it. */
  changes = $state(0);

  constructor() {
    const kept = window.localStorage.getItem(KEY);
    if (kept === 'light' || kept === 'dark') this.choose(kept);
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (this.changes += 1));
  }

  choose(theme: Theme): void {
    this.choice = theme;
    this.changes += 1;
    if (theme === 'system') {
      delete document.documentElement.dataset['theme'];
      window.localStorage.removeItem(KEY);
    } else {
      document.documentElement.dataset['theme'] = theme;
      window.localStorage.setItem(KEY, theme);
    }
  }
}
