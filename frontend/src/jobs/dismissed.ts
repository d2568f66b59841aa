/** The ids of jobs that the user has dismissed, which survive a reload. */
export type Dismissed = { read: () => readonly number[]; write: (ids: readonly number[]) => void };

/** Dismissed jobs in the browser's storage. Without storage, they are shown again after a reload. */
export const stored: Dismissed = {
  read: () => {
    try {
      const ids: unknown = JSON.parse(localStorage.getItem('dismissed-jobs') ?? '[]');
      return Array.isArray(ids) ? ids.filter((id) => typeof id === 'number') : [];
    } catch {
      return [];
    }
  },
  write: (ids) => {
    try {
      localStorage.setItem('dismissed-jobs', JSON.stringify(ids));
    } catch {
      // a browser that keeps nothing
    }
  },
};
