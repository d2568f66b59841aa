/** The shortcuts, for the keyboard handler and the help sheet. */

export type Command =
  | { do: 'go'; path: string }
  | { do: 'move'; rows: number }
  | { do: 'choose' | 'search' | 'palette' | 'help' | 'pause' | 'up' };

export type Shortcut = { keys: readonly string[]; does: string; command: Command };

export const SHORTCUTS: { title: string; shortcuts: Shortcut[] }[] = [
  {
    title: 'Find',
    shortcuts: [
      { keys: ['/'], does: 'Search this page', command: { do: 'search' } },
      { keys: [':'], does: 'Command palette (also Ctrl K, ⌘ K)', command: { do: 'palette' } },
      { keys: ['?'], does: 'This help', command: { do: 'help' } },
    ],
  },
  {
    title: 'In a table',
    shortcuts: [
      { keys: ['j'], does: 'Next row', command: { do: 'move', rows: 1 } },
      { keys: ['k'], does: 'Previous row', command: { do: 'move', rows: -1 } },
      { keys: ['g', 'g'], does: 'First row', command: { do: 'move', rows: -Infinity } },
      { keys: ['G'], does: 'Last row', command: { do: 'move', rows: Infinity } },
      { keys: ['x'], does: 'Select the row', command: { do: 'choose' } },
    ],
  },
  {
    title: 'Go to',
    shortcuts: [
      { keys: ['g', 'o'], does: 'Overview', command: { do: 'go', path: '/' } },
      { keys: ['g', 't'], does: 'Topics', command: { do: 'go', path: '/topics' } },
      { keys: ['g', 'c'], does: 'Channels', command: { do: 'go', path: '/channels' } },
      { keys: ['g', 'd'], does: 'Dead letters', command: { do: 'go', path: '/dead' } },
      { keys: ['g', 'l'], does: 'Clients', command: { do: 'go', path: '/clients' } },
      { keys: ['g', 'n'], does: 'Nodes', command: { do: 'go', path: '/nodes' } },
      { keys: ['g', 'r'], does: 'Reports', command: { do: 'go', path: '/reports' } },
      { keys: ['g', 'f'], does: 'Firing alerts', command: { do: 'go', path: '/alerts' } },
      { keys: ['g', 'b'], does: 'Objectives and their error budgets', command: { do: 'go', path: '/objectives' } },
      { keys: ['g', 'a'], does: 'Audit', command: { do: 'go', path: '/audit' } },
      { keys: ['u'], does: 'Up, from a channel to its topic, from a topic to the list', command: { do: 'up' } },
    ],
  },
  {
    title: 'The snapshot',
    shortcuts: [{ keys: ['p'], does: 'Pause or resume updates', command: { do: 'pause' } }],
  },
];

const SEQUENCE_MS = 1200;

/** Recognises shortcuts of one key and of two, `g` then `t`. Time is passed in, in milliseconds. */
export class KeySequence {
  #held: string[] = [];
  #at = 0;

  /** The command that `key` completes; null if it completes none. */
  press(key: string, now: number): Command | null {
    const typed = now - this.#at > SEQUENCE_MS ? [key] : [...this.#held, key];
    this.#at = now;
    for (const tried of [typed, [key]]) {
      const exact = all.find(({ keys }) => keys.join(' ') === tried.join(' '));
      if (exact) {
        this.#held = [];
        return exact.command;
      }
      if (all.some(({ keys }) => keys.length > tried.length && keys.slice(0, tried.length).join(' ') === tried.join(' '))) {
        this.#held = tried;
        return null;
      }
    }
    this.#held = [];
    return null;
  }
}

const all = SHORTCUTS.flatMap(({ shortcuts }) => shortcuts);
