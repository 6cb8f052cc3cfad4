import { defineConfig } from 'vitest/config';

export default defineConfig({
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    reportCompressedSize: true,
    // What the first page needs is one file: cut up by what later pages share with it, it would be larger.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'first', tags: ['$initial'] }] } } },
  },
  server: { proxy: { '/api': process.env.TRUEGAUGE_URL ?? 'http://127.0.0.1:9494' } },
  // A limit is for what hangs: beside other work a test of a second takes five.
  test: {
    include: ['tests/unit/**/*.test.{ts,tsx}'],
    environment: 'happy-dom',
    testTimeout: 60_000,
    retry: process.env.CI ? 1 : 0,
  },
});
