/** Recomputes what the tokens promise: contrast by WCAG 2, and colours that stay apart for every eye. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { SLOTS, slotDash } from '../../src/lib/colour';
import { token } from '../../src/lib/theme';

type Rgb = [number, number, number];

const css = readFileSync(join(import.meta.dirname, '../../src/styles/tokens.css'), 'utf8');
const [lightCss, darkCss] = css.split('[data-theme="dark"]');

function read(block: string): Map<string, Rgb> {
  const found = new Map<string, Rgb>();
  for (const [, name, hex] of block.matchAll(/--([\w-]+):\s*#([0-9a-f]{6});/gi)) {
    found.set(name, [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16) / 255) as Rgb);
  }
  return found;
}

const themes = { light: read(lightCss), dark: read(darkCss) };
const linear = (value: number) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const luminance = (rgb: Rgb) =>
  rgb.map(linear).reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);

function contrast(a: Rgb, b: Rgb): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

// Machado, Oliveira and Fernandes 2009, full strength, on linear light.
const SIGHT: Record<string, number[][]> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

const times = (matrix: number[][], v: number[]) =>
  matrix.map((row) => row.reduce((sum, m, at) => sum + m * v[at], 0));

function oklab(light: number[]): number[] {
  const lms = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    light.map((v) => Math.min(1, Math.max(0, v))),
  );
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    lms.map(Math.cbrt),
  );
}

const distance = (a: number[], b: number[]) => Math.hypot(...a.map((v, at) => v - b[at]));

describe.each(Object.entries(themes))('%s', (_theme, tokens) => {
  const colour = (name: string) => {
    const rgb = tokens.get(name);
    if (!rgb) throw new Error(`no token ${name}`);
    return rgb;
  };

  test('text is at least 4.5 on every ground', () => {
    for (const ground of ['bg', 'panel', 'sunk']) {
      for (const ink of ['text', 'text2', 'text3', 'accent', 'crit', 'warn', 'ok', 'info']) {
        expect(contrast(colour(ink), colour(ground)), `${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5);
      }
    }
    for (const [ink, ground] of [
      ['on-accent', 'accent'],
      ['accent', 'accent-bg'],
      ['text3', 'accent-bg'],
      ['crit', 'crit-bg'],
      ['warn', 'warn-bg'],
      ['ok', 'ok-bg'],
      ['text2', 'crit-bg'],
      ['on-float', 'float'],
      ['on-float2', 'float'],
    ]) {
      expect(contrast(colour(ink), colour(ground)), `${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  });

  test('what carries meaning without text is at least 3', () => {
    for (const ink of ['edge', 'peer'])
      expect(contrast(colour(ink), colour('panel')), ink).toBeGreaterThanOrEqual(3);
    for (let slot = 1; slot <= SLOTS; slot++)
      expect(contrast(colour(`series-${slot}`), colour('panel')), `series ${slot}`).toBeGreaterThanOrEqual(3);
  });

  test.each(Object.entries(SIGHT))('series of one dash stay 0.07 apart in OKLab: %s', (_sight, matrix) => {
    const seen = Array.from({ length: SLOTS }, (_, slot) =>
      oklab(times(matrix, colour(`series-${slot + 1}`).map(linear))),
    );
    for (let a = 0; a < SLOTS; a++) {
      for (let b = 0; b < a; b++) {
        if (slotDash(a).join() !== slotDash(b).join()) continue;
        expect(distance(seen[a], seen[b]), `series ${b + 1} and ${a + 1}`).toBeGreaterThanOrEqual(0.0695);
      }
    }
  });
});

test('a colour has six digits, also where a built style sheet writes three', () => {
  const { style } = document.documentElement;
  style.setProperty('--short', '#fA0');
  style.setProperty('--whole', '#12345f');
  expect([token('--short'), token('--whole')]).toEqual(['#ffAA00', '#12345f']);
});

test('both themes define the same colours, and no other file does', () => {
  expect([...themes.dark.keys()].sort()).toEqual([...themes.light.keys()].sort());
  for (const file of ['base', 'shell', 'runs', 'charts']) {
    expect(readFileSync(join(import.meta.dirname, `../../src/styles/${file}.css`), 'utf8')).not.toMatch(
      /#[0-9a-f]{3,8}\b/i,
    );
  }
});
