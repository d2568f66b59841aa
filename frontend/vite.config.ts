import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';

import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

// The page is served by the platform, its assets below STATIC_URL. In development the platform still answers the API
// and the websocket; NSQ_WEB names it.
const web = process.env['NSQ_WEB'] ?? 'http://127.0.0.1:4171';

/** Compressed copies beside what the build writes; the platform serves the one that a browser accepts. */
const compressed = (): Plugin => ({
  name: 'compressed',
  apply: 'build',
  writeBundle({ dir = 'dist' }) {
    for (const name of readdirSync(dir, { recursive: true, encoding: 'utf8' })) {
      if (!/\.(js|css|svg)$/.test(name)) continue;
      const content = readFileSync(join(dir, name));
      if (content.length < 1_000) continue; // fits into one packet anyway
      writeFileSync(join(dir, `${name}.gz`), gzipSync(content, { level: 9 }));
      writeFileSync(join(dir, `${name}.br`), brotliCompressSync(content));
    }
  },
});

/** The page's code is fetched beside `main`, which loads it. */
const preloaded = (): Plugin => ({
  name: 'preloaded',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler: (_, { bundle = {} }) =>
      Object.values(bundle)
        .filter((chunk) => chunk.type === 'chunk' && /^(start|shared)$/.test(chunk.name))
        .map(({ fileName }) => ({ tag: 'link', attrs: { rel: 'modulepreload', crossorigin: true, href: `/static/${fileName}` }, injectTo: 'head' })),
  },
});

// In tests, stores are what a browser runs: what is compiled for rendering on a server has no effects.
const forTests: Parameters<typeof svelte>[0] = process.env['VITEST'] ? { dynamicCompileOptions: () => ({ generate: 'client' }) } : {};

export default defineConfig(({ command }) => ({
  base: command === 'build' ? '/static/' : '/',
  plugins: [svelte(forTests), preloaded(), compressed()],
  // Chunks find each other from where they are: the platform may be served below a base path.
  experimental: { renderBuiltUrl: (_, { hostType }) => (hostType === 'js' ? { relative: true } : undefined) },
  ssr: process.env['VITEST'] ? { resolve: { conditions: ['browser'], externalConditions: ['browser'] } } : {},
  build: {
    target: 'es2022',
    // The themes rest on light-dark(); older targets would have it rewritten into twice the CSS.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    sourcemap: true,
    // A first visit waits for each request: styles are one file, and what pages share is another one.
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: 'main', test: /src.(main|api.(base|early)|navigation.routes|pages.load)\.ts$/, priority: 1 },
            { name: 'shared', minShareCount: 2 },
          ],
        },
      },
    },
  },
  server: {
    host: '127.0.0.1',
    // The platform refuses other hosts and origins, so the proxy sends its own.
    proxy: Object.fromEntries(
      ['/api', '/ws', '/signin/'].map((path) => [
        path,
        { target: web, changeOrigin: true, ws: path === '/ws', headers: { Origin: web } },
      ]),
    ),
  },
  // Files share processes: a new one for each takes four times as long. Tests undo what they stub.
  test: { include: ['src/**/*.test.ts'], isolate: false },
}));
