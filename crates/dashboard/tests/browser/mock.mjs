// A server of the dashboard's page that plays a comb. `node mock.mjs [four|many|bare|hostile] [PORT]` serves one by hand.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import * as worlds from './worlds.mjs';

const PAGE = fileURLToPath(new URL('../../page/', import.meta.url));

export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The page's files as the server embeds them: name and type. */
export const files = () =>
  new Map(
    readFileSync(`${PAGE}FILES`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => [line.slice(0, line.indexOf(' ')), line.slice(line.indexOf(' ') + 1)]),
  );

export const bytesOf = (name) => readFileSync(PAGE + name);

const KEEP_ALIVE_MS = 2000;

export class Mock {
  token = 'c0ffee00c0ffee00';
  requests = [];
  #streams = new Set();
  #seq = 0;
  #events = [];

  constructor(state) {
    this.state = state;
    this.refusing = false;
    this.unavailable = false;
    this.server = createServer((request, answer) => this.#serve(request, answer));
  }

  async start(port = 0) {
    await new Promise((resolve) => this.server.listen(port, '127.0.0.1', resolve));
    this.base = `http://127.0.0.1:${this.server.address().port}/`;
    this.url = `${this.base}#token=${this.token}`;
    return this;
  }

  async stop() {
    this.drop();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** Changes the state with `how`, and tells everybody. */
  change(how) {
    how(this.state);
    this.tell();
  }

  tell() {
    this.state.at_ms &&= Date.now();
    for (const stream of this.#streams) stream.write(stateMessage(this.state));
  }

  event(kind, cell, text) {
    this.#seq += 1;
    const event = { seq: this.#seq, at_ms: Date.now(), kind, cell, host: 'alpha', text };
    this.#events.push(event);
    for (const stream of this.#streams) stream.write(eventMessage(event));
  }

  /** Bytes as they are, for streams that a server in trouble would send. */
  raw(bytes) {
    for (const stream of this.#streams) stream.write(bytes);
  }

  drop() {
    for (const stream of this.#streams) stream.destroy();
    this.#streams.clear();
  }

  bye() {
    for (const stream of this.#streams) stream.end('event: bye\ndata: {}\n\n');
  }

  get streams() {
    return this.#streams.size;
  }

  /** Plays a cell's death and return, a step at a time; `pause()` is awaited between. */
  async kill(number, pause = async () => {}) {
    const find = () => this.state.cells.find((cell) => cell.cell === number);
    const { incarnation } = find();
    const at = Date.now();
    const earlier = this.state.failures;
    const known = (steps, change) => {
      this.change((state) => {
        state.failures = [worlds.failure(number, incarnation, at, steps), ...earlier];
        Object.assign(find(), change);
      });
    };
    this.event('cell_ended', number, `cell ${number} (process ${find().pid}) is gone: killed by its agent`);
    known(4, { state: 'ended', why: 'killed by signal 9', pid: null, cpu_share: 0 });
    await pause();
    this.event('resumed', 4, 'cell 4 is at work again');
    known(8, { state: 'recovering', why: 'its place is looked at' });
    await pause();
    known(worlds.STEPS_OF_A_FAILURE, { state: 'up', why: '', pid: 15_000 + number, incarnation: incarnation + 1, uptime_ms: 20, cpu_share: 0.1 });
    this.event('cell_up', number, `cell ${number} is up again`);
  }

  #serve(request, answer) {
    const path = new URL(request.url, this.base).pathname;
    this.requests.push({ method: request.method, path, authorization: request.headers.authorization ?? null, lastId: request.headers['last-event-id'] ?? null });
    if (path.startsWith('/api/')) return this.#api(request, answer, path);
    const name = path === '/' ? 'index.html' : path.slice(1);
    const type = files().get(name);
    if (!type) return void answer.writeHead(404).end();
    answer.writeHead(200, { 'Content-Type': type, 'Content-Security-Policy': POLICY, 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store' });
    answer.end(bytesOf(name));
  }

  #api(request, answer, path) {
    const say = (status, body) => answer.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    if (this.refusing || request.headers.authorization !== `Bearer ${this.token}`) return void say(401, { error: 'no token, or another one' });
    if (this.unavailable) return void say(503, { error: 'not now' });
    if (path === '/api/state') return void say(200, this.state);
    if (path === '/api/stream') return void this.#stream(request, answer);
    const [, number, verb] = /^\/api\/cells\/(\d+)\/(kill|hang|drain|restart)$/.exec(path) ?? [];
    if (request.method !== 'POST' || !verb) return void say(404, { error: 'there is no such thing' });
    if (verb === 'restart') return void say(409, { error: `cell ${number} is up: end it first` });
    say(200, { done: `cell ${number}: ${verb} is done` });
    if (verb === 'kill') this.kill(Number(number), this.pause);
  }

  #stream(request, answer) {
    answer.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    answer.write(': welcome\n\n');
    answer.write(stateMessage(this.state));
    const last = Number(request.headers['last-event-id'] ?? Infinity);
    for (const event of this.#events) if (event.seq > last) answer.write(eventMessage(event));
    this.#streams.add(answer);
    const alive = setInterval(() => answer.write(': still here\n\n'), KEEP_ALIVE_MS);
    answer.on('close', () => {
      clearInterval(alive);
      this.#streams.delete(answer);
    });
  }
}

const stateMessage = (state) => `event: state\ndata: ${JSON.stringify(state)}\n\n`;
const eventMessage = (event) => `id: ${event.seq}\nevent: event\ndata: ${JSON.stringify(event)}\n\n`;

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [world = 'four', port = '0'] = process.argv.slice(2);
  const mock = await new Mock(worlds[world]()).start(Number(port));
  mock.pause = () => new Promise((resolve) => setTimeout(resolve, 1500));
  console.log(mock.url);
  let turn = 0;
  setInterval(() => {
    turn += 1;
    mock.change((state) => {
      for (const cell of state.cells) {
        if (cell?.cpu_share > 0) cell.cpu_share = Math.min(Math.max(cell.cpu_share + (worlds.chance(turn * 31 + cell.cell) - 0.5) * 0.1, 0.01), 1);
      }
    });
  }, 1000);
}
