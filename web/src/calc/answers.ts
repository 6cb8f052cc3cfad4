/** What the server's calculators take and answer. */
import { askJson } from '../lib/api';

/** A column of a file. */
export interface FileColumn {
  name: string;
  is_needed: boolean;
}

/** An input of a calculator. */
export interface Input {
  name: string;
  /** What stands for its value in a description. */
  value: string;
  help: string;
  kind: 'number' | 'numbers' | 'word' | 'text' | 'switch' | 'table' | 'series';
  /** What a number can be, in words. */
  bounds: string | null;
  words: string[] | null;
  columns: FileColumn[] | null;
  is_file: boolean;
}

/** A calculator. */
export interface Tool {
  name: string;
  about: string;
  inputs: Input[];
  examples: string[];
}

/** All of them, and what names they know. */
export interface Tools {
  tools: Tool[];
  gpus: string[];
}

/** A value of an answer. */
export type Value = number | string | boolean | null | Value[] | { [key: string]: Value };

/** What one of them answers. */
export interface CalcAnswer {
  tool: string;
  /** Figures in base units, ratios from 0 to 1. */
  result: Record<string, Value>;
  rows: Record<string, Value>[];
  columns: { key: string; title: string; unit: string }[];
  assumptions: { text: string; source: string | null; url: string | null }[];
  formula: { name: string; text: string }[];
  inputs: Record<string, Value>;
  warnings: string[];
  absent: { name: string; reason: string }[];
  command: string;
}

/** Rows of a file, as columns. */
export type Columns = Record<string, (number | string | null)[]>;

/** What is asked with. */
export type Body = Record<string, string | string[] | boolean | Columns>;

/** Asks which calculators there are. */
export const askTools = (signal?: AbortSignal) => askJson<Tools>('calc', { signal });

/** Reckons. */
export function askCalc(tool: string, body: Body, signal?: AbortSignal): Promise<CalcAnswer> {
  return askJson<CalcAnswer>(`calc/${encodeURIComponent(tool)}`, {
    method: 'POST',
    body: JSON.stringify(body),
    signal,
  });
}
