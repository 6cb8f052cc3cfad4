/** The Calculators page: which one, with what, and what it answers. All inputs are in the address, files apart. */
import { batch, computed, effect, signal } from '@preact/signals';
import { params, path, setParams } from '../lib/address';
import { ApiError, isAbort, tokenEntered } from '../lib/api';
import { parseRoute } from '../lib/route';
import { askCalc, askTools, type Body, type CalcAnswer, type Tool, type Tools } from './answers';
import type { Measured } from './fill';
import { columnsOf, exampleLine, exampleOf, listOf, SAMPLE_FILES } from './words';

/** What is shown where the address names none. */
const FIRST = 'roofline';
const SETTLE_MS = 200;
/** Batches that the curves of the roofline are drawn through. */
const CURVE_POINTS = 60;

/** Batches from one to some way beyond the largest, evenly on a log axis. */
export function curveBatches(largest: number): string[] {
  const most = Math.max(64, largest) * 4;
  const all = Array.from({ length: CURVE_POINTS }, (_, at) => most ** (at / (CURVE_POINTS - 1)));
  return all.map((batch) => String(Number(batch.toPrecision(6))));
}

/** Everything on the page hangs on this. */
export class Calc {
  readonly tools = signal<Tools | null>(null);
  readonly toolsError = signal<unknown>(null);
  readonly name = computed(() => {
    const route = parseRoute(path.value);
    return (route.page === 'calc' && route.tool) || FIRST;
  });
  readonly tool = computed<Tool | null>(
    () => this.tools.value?.tools.find((t) => t.name === this.name.value) ?? null,
  );
  /** Inputs of the address by name; what is no input of this calculator stays out. */
  readonly given = computed<Record<string, string>>(() => {
    const given: Record<string, string> = {};
    for (const { name, kind } of this.tool.value?.inputs ?? [])
      if (kind !== 'table' && params.value.get(name)) given[name] = params.value.get(name)!;
    return given;
  });
  /** Texts of files by input; an address would be too long for them. */
  readonly files = signal<Record<string, string>>({});
  readonly answer = signal<CalcAnswer | null>(null);
  /** Curves that are drawn behind an answer. */
  readonly curve = signal<CalcAnswer | null>(null);
  readonly error = signal<unknown>(null);
  /** What is wrong with an input. */
  readonly fieldErrors = signal<Record<string, string>>({});
  /** What an engine was seen to do. */
  readonly measured = signal<Measured | null>(null);

  private controller = new AbortController();
  private settling: ReturnType<typeof setTimeout> | undefined;

  readonly question = computed(() =>
    JSON.stringify([this.tool.value?.name, this.given.value, this.files.value, tokenEntered.value]),
  );

  /** Reads which calculators there are. */
  async readTools(): Promise<void> {
    try {
      const tools = await askTools();
      batch(() => {
        this.tools.value = tools;
        this.toolsError.value = null;
      });
    } catch (error) {
      if (!isAbort(error)) this.toolsError.value = error;
    }
  }

  /** Sets an input in the address. */
  set(name: string, value: string): void {
    setParams({ [name]: value || null });
  }

  /** Sets several at once; the rest stays. */
  fill(values: Record<string, string>): void {
    setParams(values);
  }

  /** Fills in an example. */
  example(): void {
    const tool = this.tool.peek();
    if (!tool) return;
    this.clear();
    batch(() => {
      this.files.value = SAMPLE_FILES[tool.name] ?? {};
      this.fill(exampleOf(tool, exampleLine(tool)));
    });
  }

  /** Takes all inputs away. */
  clear(): void {
    const names = this.tool.peek()?.inputs.map((i) => i.name) ?? [];
    batch(() => {
      this.files.value = {};
      this.measured.value = null;
      setParams(Object.fromEntries(names.map((name) => [name, null])));
    });
  }

  /** Asks anew soon after each change. */
  follow(): () => void {
    const stop = effect(() => {
      void this.question.value;
      clearTimeout(this.settling);
      this.settling = setTimeout(() => void this.load(), SETTLE_MS);
    });
    return () => {
      stop();
      clearTimeout(this.settling);
      this.controller.abort();
    };
  }

  /** Reckons with what is given. */
  async load(): Promise<void> {
    this.controller.abort();
    const tool = this.tool.peek();
    if (!tool) return;
    const [body, wrong] = this.body(tool);
    const nothing = Object.keys(body).length === 0;
    if (nothing || Object.keys(wrong).length > 0) {
      batch(() => {
        this.fieldErrors.value = wrong;
        this.error.value = null;
        this.answer.value = null;
        this.curve.value = null;
      });
      return;
    }
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    try {
      const answer = await askCalc(tool.name, body, stop);
      const curve = tool.name === 'roofline' ? await this.askCurve(body, answer, stop) : null;
      batch(() => {
        this.answer.value = answer;
        this.curve.value = curve;
        this.error.value = null;
        this.fieldErrors.value = {};
      });
    } catch (error) {
      if (isAbort(error)) return;
      const field = fieldOf(error, tool);
      batch(() => {
        this.answer.value = null;
        this.curve.value = null;
        this.fieldErrors.value = field ? { [field]: wordsOfError(error) } : {};
        this.error.value = field ? null : error;
      });
    }
  }

  private askCurve(body: Body, answer: CalcAnswer, stop: AbortSignal): Promise<CalcAnswer | null> {
    const batches = answer.rows.map((row) => Number(row.batch)).filter(Number.isFinite);
    const seen = (this.measured.peek()?.points ?? []).map((p) => p.batch);
    const most = Math.max(0, ...batches, ...seen, Number(answer.result.batch_max) || 0);
    return askCalc('roofline', { ...body, batch: curveBatches(most) }, stop);
  }

  /** What is asked, and what can't be. */
  private body(tool: Tool): [body: Body, wrong: Record<string, string>] {
    const body: Body = {};
    const wrong: Record<string, string> = {};
    const given = this.given.peek();
    for (const { name, kind, columns } of tool.inputs) {
      const file = this.files.peek()[name];
      if (kind === 'table' && file?.trim()) {
        try {
          body[name] = columnsOf(file, columns ?? []);
        } catch (error) {
          wrong[name] = error instanceof Error ? error.message : String(error);
        }
      } else if (given[name]) {
        body[name] = kind === 'numbers' ? listOf(given[name]) : kind === 'switch' ? true : given[name].trim();
      }
    }
    return [body, wrong];
  }
}

/** The input that a refusal is about; `null` where it is about none of this form's. */
export function fieldOf(error: unknown, tool: Tool): string | null {
  if (!(error instanceof ApiError) || error.status !== 400) return null;
  const names = tool.inputs.map((i) => i.name);
  if (names.includes(error.field)) return error.field;
  const named = /`([a-z0-9_]+)`/.exec(error.message)?.[1] ?? '';
  return names.includes(named) ? named : null;
}

function wordsOfError(error: unknown): string {
  return error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(': ') : String(error);
}
