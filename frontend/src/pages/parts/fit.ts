/**
 * Call `tell` with whether `row` has room for its children beside each other while it has the class `full`: now, and after
 * each change of its size or content. `last` is its last child in the flow; no child may shrink while `row` has the class. Returns a
 * function that ends this.
 */
export function watchFit(row: HTMLElement, last: HTMLElement, full: string, tell: (fits: boolean) => void): () => void {
  function measure(): void {
    row.classList.add(full);
    const end = row.getBoundingClientRect().right - parseFloat(getComputedStyle(row).paddingRight);
    // Browsers round positions to 1/64 pixel.
    const fits = last.getBoundingClientRect().right <= end + 0.5;
    row.classList.toggle(full, fits);
    tell(fits);
  }
  const size = new ResizeObserver(measure);
  const content = new MutationObserver(measure);
  size.observe(row);
  content.observe(row, { subtree: true, childList: true, characterData: true });
  return () => {
    size.disconnect();
    content.disconnect();
  };
}
