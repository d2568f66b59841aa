import { changeView, deleteView, saveView, savedViews } from '../api/client';
import { Newest } from '../api/newest';
import { loaded, type Loaded } from '../api/loaded';
import type { SavedView, SavedViewRequest } from '../api/types';

/** The saved views that the user sees: own and shared ones, by name. */
export class ViewStore {
  views = $state.raw<Loaded<SavedView[]>>({ status: 'loading' });
  readonly #newest = new Newest();

  get own(): SavedView[] {
    return this.#ready.filter((view) => view.is_own);
  }

  get others(): SavedView[] {
    return this.#ready.filter((view) => !view.is_own);
  }

  async read(): Promise<void> {
    await this.#newest.take(loaded(savedViews()), (found) => (this.views = found));
  }

  /** Forget the views, at the end of the session. */
  forget(): void {
    this.#newest.drop();
    this.views = { status: 'loading' };
  }

  async save(view: SavedViewRequest): Promise<void> {
    await saveView(view);
    await this.read();
  }

  async change(id: number, change: Partial<SavedViewRequest>): Promise<void> {
    await changeView(id, change);
    await this.read();
  }

  async delete(id: number): Promise<void> {
    await deleteView(id);
    await this.read();
  }

  get #ready(): SavedView[] {
    return this.views.status === 'ready' ? this.views.value : [];
  }
}
