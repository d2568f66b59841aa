/** Which overlay is open. */
export class OverlayStore {
  open = $state<'none' | 'palette' | 'help'>('none');

  toggle(sheet: 'palette' | 'help'): void {
    this.open = this.open === sheet ? 'none' : sheet;
  }

  close(): void {
    this.open = 'none';
  }
}
