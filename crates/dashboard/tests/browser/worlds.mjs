// Combs that do not exist, as a server would tell of them.

const MIB = 1024 * 1024;

/** A number below 1 that is the same in every run. */
export const chance = (n) => {
  const x = Math.sin(n * 12.9898 + 4.1414) * 43758.5453;
  return x - Math.floor(x);
};

export const cell = (number, host, more = {}) => ({
  cell: number,
  host,
  incarnation: 1,
  state: 'up',
  why: '',
  pid: 14_000 + number,
  uptime_ms: 8_125_000,
  cpu_share: 0.05 + 0.6 * chance(number),
  memory: { own_bytes: (20 + 60 * chance(number + 7)) * MIB, imported_bytes: 14 * MIB * chance(number + 3), loaned_bytes: 6 * MIB * chance(number + 5), most_bytes: 0 },
  tasks: [],
  round_trips: 184_220 + number,
  last_round_trip_ns: 480 + number,
  seen_ms_ago: 3,
  ...more,
});

export const host = (name, more = {}) => ({
  host: name,
  state: 'up',
  address: null,
  is_this: false,
  agent_pid: 13_990,
  cores: 2,
  load: 0.41,
  memory_bytes: 8192 * MIB,
  free_bytes: 5120 * MIB,
  ...more,
});

const world = (cells, hosts, more = {}) => ({
  at_ms: Date.now(),
  comb: 'comb',
  version: '0.1.0',
  may_act: true,
  hosts,
  cells,
  edges: [],
  rights: [],
  tasks: [],
  regions: [],
  failures: [],
  wax: null,
  ...more,
});

/** Four cells on one host, with a task in three of them. */
export function four() {
  const cells = [1, 2, 3, 4].map((number) => cell(number, 'alpha', { tasks: number < 4 ? [4711] : [] }));
  const edges = [];
  for (const { cell: from } of cells) {
    for (const { cell: to } of cells) {
      if (from !== to) edges.push({ from, to, messages_per_s: Math.round(10 ** (4.5 * chance(from * 7 + to)) * 10) / 10 });
    }
  }
  return world(cells, [host('alpha', { is_this: true })], {
    edges,
    rights: [{ holder: 1, home: 2, pages: 17 }, { holder: 3, home: 2, pages: 4 }, { holder: 2, home: 4, pages: 230 }],
    tasks: [{
      task: 4711,
      program: 'heat 500 5',
      components: 3,
      cells: [1, 2, 3],
      depends_on: [{ cell: 1, why: '1 component' }, { cell: 2, why: '1 component, memory' }, { cell: 3, why: '1 component' }],
      since_s: Math.floor(Date.now() / 1000) - 754,
      restarts: 0,
    }],
    regions: [
      { region: 'tally', cell: 1, bytes: MIB, resident_bytes: 0.4 * MIB, mode: 'rw-r--r--', users: 3, lost_blocks: 0, misses: 1234, misses_per_s: 3.5 },
      { region: 'frames', cell: 2, bytes: 64 * MIB, resident_bytes: 61 * MIB, mode: 'rw-rw----', users: 1, lost_blocks: 0, misses: 88_120, misses_per_s: 412 },
    ],
    wax: { decisions: 12, prefer: [4, 1] },
  });
}

/** A thousand cells over sixteen hosts, some of them in every other state. */
export function many() {
  const names = Array.from({ length: 16 }, (_, index) => `node${String(index + 1).padStart(2, '0')}`);
  const rare = { 77: 'ended', 78: 'recovering', 203: 'held', 415: 'draining', 416: 'drained', 640: 'starting' };
  const cells = Array.from({ length: 1000 }, (_, index) => {
    const home = names[Math.floor((index * 16) / 1000)];
    return cell(index + 1, home, { state: home === 'node13' ? 'lost' : rare[index + 1] ?? 'up', cpu_share: chance(index) ** 2 });
  });
  const edges = [];
  for (let from = 1; from <= 1000; from += 1) {
    for (let step = 1; step <= 6; step += 1) edges.push({ from, to: ((from * step * 37) % 1000) + 1, messages_per_s: 900 * chance(from * step) });
  }
  const hosts = names.map((name, index) => host(name, { address: `10.0.0.${index + 1}:7071`, is_this: index === 0, state: name === 'node13' ? 'lost' : 'up' }));
  return world(cells, hosts, { edges, rights: [{ holder: 12, home: 700, pages: 9 }] });
}

/** As little as a server may tell. */
export const bare = () => ({
  cells: [{ cell: 1 }, { state: 'up' }, { cell: 2, memory: { own_bytes: -5, most_bytes: -1 }, tasks: null, state: 'of no known kind', cpu_share: -7, why: 4 }, null, 7],
  hosts: [{}, { host: 'alpha', state: 'away' }],
  edges: [{ from: 1, to: 2 }, {}, { from: 1, to: 99, messages_per_s: 'many' }],
  rights: [{ holder: 2, home: 1 }],
  tasks: [{}, { task: 3, depends_on: [{}, null], cells: 'all' }],
  regions: [{}],
  failures: [{}, { cell: 2, steps: [{}, { step: 'hint' }, { step: 'agreement', after_ms: 2 }, { step: 'resume', after_ms: -3 }, { step: 'restart', after_ms: 1e12 }] }],
});

/** Names that would be markup, if they were read as such. */
export function hostile() {
  const bad = '<img src=x onerror="window.harmed = 1"><script>window.harmed = 2</script>"\'`&amp;';
  const state = four();
  const failed = failure(2, 1, Date.now());
  failed.cause = bad;
  failed.steps[1] = { ...failed.steps[1], step: bad, detail: bad };
  return {
    ...state,
    comb: bad,
    version: bad,
    hosts: [host(bad, { address: bad, state: bad })],
    cells: state.cells.map((one) => ({ ...one, host: bad, why: bad, state: one.cell === 3 ? bad : one.state })),
    tasks: state.tasks.map((task) => ({ ...task, program: bad, depends_on: [{ cell: 1, why: bad }] })),
    regions: state.regions.map((region, index) => ({ ...region, region: `${bad}${index}`, mode: bad })),
    failures: [failed],
  };
}

const STEPS = [
  ['end', 0, null, 'its process ended'],
  ['hint', 0.38, 3, 'cell 3 noticed: its process is gone'],
  ['alert', 0.52, 3, 'told all cells'],
  ['agreement', 1.31, 1, 'cells 1, 3 and 4 live'],
  ['barrier 1', 1.64, 1, 'no access to its memory is left'],
  ['discard', 1.9, 1, '21 pages that it could have stored to'],
  ['barrier 2', 2.12, 1, 'all have discarded'],
  ['resume', 2.6, 4, 'the last one is at work again'],
  ['restart', 31.5, 1, 'the recovery master starts it anew'],
  ['reintegrated', 58.2, 1, 'it is in the view'],
];

/** What is known of the failure of a cell, to the first `known` steps. */
export const failure = (number, incarnation, at_ms, known = STEPS.length) => ({
  cell: number,
  incarnation,
  at_ms,
  cause: 'killed by signal 9',
  discarded_pages: 21,
  steps: STEPS.slice(0, known).map(([step, after_ms, by, detail]) => ({ step, after_ms, by, detail })),
});

export const STEPS_OF_A_FAILURE = STEPS.length;
