/** Spans of a made-up step: what the server would answer of a job whose rank 17 is slow. */
import type { SpanAnswer, SpansAnswer } from '../../src/timeline/answer';

/** What to make up. */
export interface Made {
  ranks?: number;
  /** Microbatches in a step: each is a forward and a backward pass with as many layers in it. */
  microbatches?: number;
  layers?: number;
  step?: number;
  /** How much longer rank 17 works. */
  slow?: number;
}

const NAMES: [name: string, phase: string, group: string][] = [
  ['megatron.train.iteration', 'iteration', 'step'],
  ['megatron.train.iteration.forward_backward', 'forward_backward', 'forward_backward'],
  ['megatron.microbatch.forward', 'forward_backward', 'microbatch'],
  ['megatron.microbatch.backward', 'forward_backward', 'microbatch'],
  ['megatron.layer.forward', 'forward_backward', 'layer'],
  ['megatron.grad_sync.finish', 'communication', 'communication'],
  ['megatron.train.iteration.optimizer', 'optimizer', 'optimizer'],
  ['megatron.train.log', 'housekeeping', 'step'],
];

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');

/** Puts the answer together. */
export function madeSpans({
  ranks = 64,
  microbatches = 8,
  layers = 4,
  step = 4386,
  slow = 1.25,
}: Made = {}): SpansAnswer {
  const spans: SpansAnswer['spans'] = {
    lane: [],
    name: [],
    trace: [],
    id: [],
    start_us: [],
    length_us: [],
    depth: [],
    status: [],
    iteration: [],
  };
  const add = (lane: number, name: number, depth: number, start: number, end: number) => {
    spans.lane.push(lane);
    spans.name.push(name);
    spans.trace.push(lane);
    // Equally seeded ranks make equal ids.
    spans.id.push(hex(0x1000 + (spans.id.length % 997), 16));
    spans.start_us.push(start);
    spans.length_us.push(end - start);
    spans.depth.push(depth);
    spans.status.push(lane === 5 && name === 7 ? 2 : 0);
    spans.iteration.push(step);
  };
  const whole = 1_000_000 * Math.max(1, slow);
  for (let rank = 0; rank < ranks; rank++) {
    const own = (rank === 17 ? slow : 1) * (800_000 + 4000 * Math.sin(rank * 7.3));
    add(rank, 0, 0, 0, whole + 40_000);
    add(rank, 1, 1, 2000, own);
    const each = (own - 4000) / microbatches / 2;
    for (let at = 0; at < microbatches * 2; at++) {
      const start = 2000 + at * each;
      add(rank, at < microbatches ? 2 : 3, 2, start, start + each * 0.97);
      for (let layer = 0; layer < layers; layer++) {
        const from = start + ((each * 0.95) / layers) * layer;
        add(rank, 4, 3, from, from + (each * 0.9) / layers);
      }
    }
    add(rank, 5, 1, own, whole - 20_000);
    add(rank, 6, 1, whole - 20_000, whole + 20_000);
    add(rank, 7, 1, whole + 22_000, whole + 30_000);
  }
  return {
    run_id: '0000000000abc000',
    origin_ns: '1767225600000000000',
    step,
    names: NAMES.map(([name]) => name),
    phases: NAMES.map(([, phase]) => phase),
    groups: NAMES.map(([, , group]) => group),
    traces: Array.from({ length: ranks }, (_, rank) => hex(0xabc000 + rank, 32)),
    lanes: Array.from({ length: ranks }, (_, rank) => ({
      rank,
      instance: `pretrain-rank${rank}`,
      incarnations: [4_000_000_000 + rank],
      host: `host-${Math.floor(rank / 8) + 1}`,
      spans: spans.lane.filter((lane) => lane === rank).length,
      depth: 4,
      clock_shift_ms: rank >= 40 && rank < 48 ? -1.2 : null,
    })),
    spans,
    total: spans.id.length,
    left_out: 0,
    steps: { first: 1, last: 6263 },
    texts_hidden: false,
    switch: null,
    text: null,
  };
}

/** One span of it, whole. */
export function madeSpan(query: URLSearchParams): SpanAnswer {
  const answer = madeSpans({ microbatches: 4, layers: 6 });
  const { spans, lanes, names } = answer;
  const at = spans.id.findIndex(
    (id, one) => id === query.get('id') && lanes[spans.lane[one]].instance === query.get('instance'),
  );
  const lane = lanes[spans.lane[at]];
  const peers = spans.name.flatMap((name, one) =>
    name === spans.name[at] && spans.lane[one] !== spans.lane[at] ? spans.length_us[one] : [],
  );
  peers.sort((a, b) => a - b);
  return {
    span: {
      name: names[spans.name[at]],
      rank: lane.rank,
      instance: lane.instance,
      incarnation: lane.incarnations[0],
      host: lane.host,
      trace: answer.traces[spans.trace[at]],
      id: spans.id[at],
      start_us: spans.start_us[at],
      length_us: spans.length_us[at],
      origin_ns: answer.origin_ns,
      status: spans.status[at],
      status_text: spans.status[at] === 2 ? 'NCCL timeout after 600 s' : '',
      kind: 'internal',
      reversed: false,
      parts_left_out: 0,
      scope: 'nemo.lens',
      iteration: spans.iteration[at],
      parent: spans.depth[at] > 0 ? spans.id[spans.lane.indexOf(spans.lane[at])] : null,
      attributes: [
        ['megatron.iteration', spans.iteration[at]],
        ['megatron.num_microbatches', 4],
        ['megatron.loss', 2.861],
        ['is_goodput_span', true],
        ['<img src=x onerror=alert(1)>', 'a \u202e b'],
      ],
      events: [
        { at_us: spans.start_us[at] + 500, name: 'exception', attributes: [['exception.type', 'Err']] },
      ],
      links: [{ trace: answer.traces[0], id: spans.id[0], attributes: [] }],
      linked_from: [],
    },
    others: {
      ranks: 63,
      median_us: peers[peers.length >> 1] ?? 0,
      min_us: peers[0] ?? 0,
      max_us: peers[peers.length - 1] ?? 0,
    },
    texts_hidden: false,
  };
}
