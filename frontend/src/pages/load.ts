/** Fetches the code of pages before they are shown. */
const pages = import.meta.glob(['./*.svelte', '!./{Missing,SignIn}.svelte']);

const fetched = (load: (() => Promise<unknown>) | undefined): void => void load?.().catch(() => {}); // a page that is shown reports it

export function fetchPage(page: string): void {
  fetched(pages[`./${page.charAt(0).toUpperCase()}${page.slice(1)}.svelte`]);
}

export function fetchAllPages(): void {
  Object.values(pages).forEach(fetched);
}
