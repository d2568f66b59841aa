import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// The page is served by the platform, its assets below STATIC_URL. In development the platform still answers the API
// and the websocket; NSQ_WEB names it.
const web = process.env['NSQ_WEB'] ?? 'http://127.0.0.1:4171';

export default defineConfig(({ command }) => ({
  base: command === 'build' ? '/static/' : '/',
  plugins: [svelte()],
  // Chunks find each other from where they are: the platform may be served below a base path.
  experimental: { renderBuiltUrl: (_, { hostType }) => (hostType === 'js' ? { relative: true } : undefined) },
  // The tests' stores must be the ones a browser runs, not those compiled for rendering on a server.
  resolve: process.env['VITEST'] ? { conditions: ['browser'] } : {},
  build: {
    target: 'es2022',
    // The themes rest on light-dark(); older targets would have it rewritten into twice the CSS.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    sourcemap: true,
  },
  server: {
    host: '127.0.0.1',
    // The platform lets nobody in under a foreign name or from a foreign page: it is told its own of both.
    proxy: Object.fromEntries(
      ['/api', '/ws', '/signin/'].map((path) => [
        path,
        { target: web, changeOrigin: true, ws: path === '/ws', headers: { Origin: web } },
      ]),
    ),
  },
  test: { include: ['src/**/*.test.ts'] },
}));
