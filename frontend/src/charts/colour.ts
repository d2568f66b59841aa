/** What a CSS colour token is just now; a canvas cannot read `light-dark()`. `token` is a name such as `--publish`. */
export function colourOf(element: HTMLElement, token: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${token})`;
  element.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
