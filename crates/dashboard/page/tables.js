// Tasks, regions and hosts, each a table whose rows stay while what they show stays.

import { Keyed, attr, hide, html, text } from './dom.js';
import { NONE, age, bytes, count, number, percent, perSecond, word } from './format.js';
import { numbers } from './snapshot.js';

/** More rows than anybody reads; the rest is counted. */
const MOST_ROWS = 200;

/**
 * A table of `columns`: `{ name, value(item, snapshot) → text, sort(item) → number or text, number, wraps: whether it is one, or may take lines }`.
 * `empty` is what is said without items: text and, in backticks, what to type.
 */
export class Table {
  #sorted = null;
  #last = null;

  constructor(frame, caption, columns, empty, firstCell = null) {
    this.columns = columns;
    this.heads = columns.map((column) => this.#head(column));
    this.body = html('tbody');
    this.table = html('table', {}, html('caption', { class: 'visually-hidden' }, caption), html('thead', {}, html('tr', {}, ...this.heads.map(({ head }) => head))), this.body);
    this.scroll = html('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Table of ${caption.toLowerCase()}` }, this.table);
    this.rest = html('p', { class: 'soft' });
    this.empty = html('p', { class: 'empty' }, ...empty.split('`').map((part, index) => (index % 2 ? html('code', {}, part) : part)));
    frame.append(this.scroll, this.rest, this.empty);
    this.rows = new Keyed(this.body, (item) => makeRow(columns, item, firstCell), (row, item) => this.#update(row, item));
  }

  render(items, snapshot) {
    this.#last = [items, snapshot];
    this.snapshot = snapshot;
    hide(this.scroll, items.length === 0);
    hide(this.empty, items.length > 0);
    const shown = this.#inOrder(items).slice(0, MOST_ROWS);
    this.rows.render(shown, (item) => item.key);
    hide(this.rest, shown.length === items.length);
    text(this.rest, shown.length === items.length ? '' : `${shown.length} of ${items.length} are shown, in this order.`);
  }

  #update({ values, first }, item) {
    this.columns.forEach((column, index) => text(values[index], column.value(item, this.snapshot)));
    first?.update(item);
  }

  #head(column) {
    const button = html('button', { type: 'button', class: 'sort' }, column.name);
    const head = html('th', { scope: 'col', class: column.number ? 'number' : '' }, button);
    button.addEventListener('click', () => {
      const turned = this.#sorted?.column === column && !this.#sorted.down;
      this.#sorted = { column, down: this.#sorted?.column === column ? turned : Boolean(column.number) };
      for (const other of this.heads) {
        attr(other.head, 'aria-sort', other.column !== column ? null : this.#sorted.down ? 'descending' : 'ascending');
      }
      if (this.#last) this.render(...this.#last);
    });
    return { head, column };
  }

  #inOrder(items) {
    if (!this.#sorted) return items;
    const { column, down } = this.#sorted;
    const value = column.sort ?? ((item) => column.value(item, this.snapshot));
    const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
    return [...items].sort((a, b) => (down ? -1 : 1) * compare(value(a) ?? -Infinity, value(b) ?? -Infinity));
  }
}

function makeRow(columns, item, firstCell) {
  const first = firstCell?.(item) ?? null;
  const values = columns.map((_, index) => (index === 0 && first ? first.node : index === 0 ? html('span') : html('td')));
  const cells = values.map((value, index) => {
    if (index === 0) return html('th', { scope: 'row' }, value);
    if (columns[index].number || columns[index].wraps) attr(value, 'class', columns[index].number ? 'number' : 'wraps');
    return value;
  });
  return { node: html('tr', {}, ...cells), values, first };
}

const counted = (name, key, show = count) => ({ name, number: true, value: (item) => show(item[key]), sort: (item) => number(item[key]) });

export const cellsOf = (task) => numbers(task.cells);

const dependencies = (task) =>
  (Array.isArray(task.depends_on) ? task.depends_on : []).filter((one) => one !== null && typeof one === 'object');

/** The cells that a task depends on, as numbers. */
export const neededBy = (task) => numbers(dependencies(task).map((one) => one.cell));

/** `onShow(task or null)` is called when somebody wants a task's cells brought out. */
export function tasksTable(frame, onShow) {
  let shown = null;
  const buttons = new Set();
  const first = (item) => {
    let task = item;
    const node = html('button', { type: 'button', class: 'link', 'aria-pressed': false });
    buttons.add(node);
    node.addEventListener('click', () => {
      shown = shown === task.key ? null : task.key;
      for (const button of buttons) {
        if (!button.isConnected) buttons.delete(button);
        attr(button, 'aria-pressed', shown !== null && button === node);
      }
      onShow(shown === null ? null : task.key);
    });
    return {
      node,
      update: (now) => {
        task = now;
        attr(node, 'aria-label', `Task ${word(now.task)}: show its cells`);
      },
    };
  };
  const columns = [
    { name: 'task', value: (task) => word(task.task), sort: (task) => number(task.task) },
    { name: 'program', wraps: true, value: (task) => word(task.program) },
    counted('components', 'components'),
    { name: 'in cells', value: (task) => cellsOf(task).join(', ') || NONE },
    {
      name: 'dies with',
      wraps: true,
      value: (task) => dependencies(task).map((one) => `cell ${word(one.cell)}${word(one.why) === NONE ? '' : ` (${one.why})`}`).join(', ') || NONE,
    },
    { name: 'for', number: true, value: (task, snapshot) => age(sinceOf(task, snapshot)), sort: (task) => -(number(task.since_s) ?? 0) },
    counted('restarts', 'restarts'),
  ];
  return new Table(frame, 'Tasks', columns, 'No task runs: `comb run -n 4 -- PROGRAM` starts one.', first);
}

const sinceOf = (task, snapshot) =>
  number(task.since_s) === null || number(snapshot.at_ms) === null ? null : snapshot.at_ms - task.since_s * 1000;

export function regionsTable(frame) {
  return new Table(
    frame,
    'Regions',
    [
      { name: 'region', value: (region) => word(region.region) },
      { name: 'in cell', number: true, value: (region) => word(region.cell), sort: (region) => number(region.cell) },
      counted('size', 'bytes', bytes),
      counted('resident', 'resident_bytes', bytes),
      { name: 'mode', value: (region) => word(region.mode) },
      counted('users', 'users'),
      counted('misses', 'misses'),
      counted('misses a second', 'misses_per_s', perSecond),
      counted('lost blocks', 'lost_blocks'),
    ],
    'No region has a name: `comb region create tally --size 1M` makes one.',
  );
}

export function hostsTable(frame) {
  const free = (host) => (number(host.memory_bytes) === null || number(host.free_bytes) === null ? null : host.free_bytes / host.memory_bytes);
  return new Table(
    frame,
    'Hosts',
    [
      { name: 'host', value: (host) => `${host.name}${host.is_this === true ? ' (this one)' : ''}` },
      { name: 'state', value: (host) => word(host.state) },
      { name: 'address', value: (host) => word(host.address) },
      { name: 'cells', number: true, value: (host, snapshot) => count(cellsOn(host, snapshot)) },
      counted('cores', 'cores'),
      counted('load', 'load', (load) => (number(load) === null ? NONE : load.toFixed(2))),
      counted('memory', 'memory_bytes', bytes),
      { name: 'free', number: true, value: (host) => (free(host) === null ? bytes(host.free_bytes) : `${bytes(host.free_bytes)} (${percent(free(host))})`), sort: free },
      { name: 'agent', number: true, value: (host) => word(host.agent_pid), sort: (host) => number(host.agent_pid) },
    ],
    'No host is told of yet.',
  );
}

const cellsOn = (host, snapshot) => snapshot.cells.filter((cell) => cell.hostName === host.name).length;
