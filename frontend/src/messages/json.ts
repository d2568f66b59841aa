/** JSON as a tree that keeps the texts of numbers and strings as they were sent, duplicate keys included. */
import { DEEPEST, NotDecoded, type Branch, type Tree } from './tree';

/** Raises NotDecoded. */
export function jsonTree(text: string): Tree {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new NotDecoded(error instanceof Error ? error.message : String(error));
  }
  const open: Branch[] = [];
  const root: Branch = { kind: 'list', children: [] };
  let key: string | null = null;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const parent: Branch = open.at(-1) ?? root;
    if (token === ',' || token === ':') continue;
    if (token === '}' || token === ']') open.pop();
    else if (parent.kind === 'map' && key === null) key = token;
    else {
      const value = valueOf(token);
      parent.children.push({ key, value });
      key = null;
      if ('children' in value && open.push(value) > DEEPEST) throw new NotDecoded(`more than ${DEEPEST} levels deep`);
    }
  }
  return root.children[0]!.value;
}

function valueOf(token: string): Tree {
  if (token === '{' || token === '[') return { kind: token === '{' ? 'map' : 'list', children: [] };
  return { kind: token.startsWith('"') ? 'string' : /^[-\d]/.test(token) ? 'number' : 'literal', text: token };
}
