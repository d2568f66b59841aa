/** Calls `ask` at once, or after `firstMs`, and again `everyMs` after each answer. Returns a function that stops it. */
export function repeated(ask: (stopped: () => boolean) => Promise<void>, everyMs: number, firstMs: number | null = null): () => void {
  let stopped = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const next = async (): Promise<void> => {
    await ask(() => stopped);
    if (!stopped) timer = setTimeout(() => void next(), everyMs);
  };
  if (firstMs === null) void next();
  else timer = setTimeout(() => void next(), firstMs);
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
