// Tasks, regions and hosts, each a table whose rows stay while what they show stays.

import { Keyed, attr, hide, html, text } from './dom.js';
import { NONE, age, bytes, count, number, percent, perSecond, word } from './format.js';

/** More rows than anybody reads; the rest is counted. */
const MOST_ROWS = 200;

/**
 * A table of `columns`: `{ name, value(item, snapshot) → text, sort(item) → number or text, number, wraps: whether it is one, or may take lines }`.
 * `empty` is what is said without items: text and, in backticks, what to type.
 */
export class Table {
	#sorted = null;
	#pressed = null;
	#last = null;

	/** With `onPress`, the first column can be pressed and let go: it is called with the key of the item, or null. */
	constructor(frame, caption, columns, empty, onPress = null) {
		this.columns = columns;
		this.heads = columns.map((column) => this.#head(column));
		this.body = html('tbody');
		this.table = html('table', {}, html('caption', { class: 'unseen' }, caption), html('thead', {}, html('tr', {}, ...this.heads.map(({ head }) => head))), this.body);
		this.scroll = html('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Table of ${caption.toLowerCase()}` }, this.table);
		this.rest = html('p', { class: 'soft' });
		this.empty = html('p', { class: 'empty' }, ...empty.split('`').map((part, index) => (index % 2 ? html('code', {}, part) : part)));
		frame.append(this.scroll, this.rest, this.empty);
		this.rows = new Keyed(this.body, (item) => this.#row(item, onPress), (row, item) => this.#update(row, item, onPress));
	}

	/** `of` is how many there are, if `items` are only the first of them. */
	render(items, snapshot, of = items.length) {
		this.#last = [items, snapshot, of];
		this.snapshot = snapshot;
		hide(this.scroll, items.length === 0);
		hide(this.empty, items.length > 0);
		const shown = this.#inOrder(items).slice(0, MOST_ROWS);
		this.rows.render(shown, (item) => item.key);
		hide(this.rest, shown.length === of);
		text(this.rest, `${shown.length} of ${of} are shown.`);
	}

	#row({ key }, onPress) {
		const values = this.columns.map(({ number, wraps }, index) => {
			if (index > 0) return html('td', { class: number ? 'number' : wraps ? 'wraps' : '' });
			return onPress ? html('button', { type: 'button', class: 'link' }) : html('span');
		});
		values[0].onclick = onPress && (() => {
			this.#pressed = this.#pressed === key ? null : key;
			onPress(this.#pressed);
			this.render(...this.#last);
		});
		return { node: html('tr', {}, html('th', { scope: 'row' }, values[0]), ...values.slice(1)), values };
	}

	#update({ values }, item, onPress) {
		this.columns.forEach((column, index) => text(values[index], column.value(item, this.snapshot)));
		if (!onPress) return;
		attr(values[0], 'aria-label', `${this.columns[0].name} ${values[0].textContent}`);
		attr(values[0], 'aria-pressed', item.key === this.#pressed);
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

/** A column of numbers. */
export const counted = (name, key, show = count) => ({ name, number: true, value: (item) => show(item[key]), sort: (item) => number(item[key]) });

/** `onShow(key or null)` is called when somebody wants a task's cells brought out. */
export function tasksTable(frame, onShow) {
	const columns = [
		{ name: 'task', value: (task) => word(task.task), sort: (task) => number(task.task) },
		{ name: 'program', wraps: true, value: (task) => word(task.program) },
		counted('components', 'components'),
		{ name: 'in cells', value: (task) => task.cells.join(', ') || NONE },
		{
			name: 'dies with',
			wraps: true,
			value: (task) => task.needs.map(({ cell, why }) => `cell ${word(cell)}${word(why) === NONE ? '' : ` (${why})`}`).join(', ') || NONE,
		},
		{ name: 'for', number: true, value: (task, snapshot) => age(sinceOf(task, snapshot)), sort: (task) => -(number(task.since_s) ?? 0) },
		counted('restarts', 'restarts'),
	];
	return new Table(frame, 'Tasks', columns, 'No task runs: `comb run -n 4 -- PROGRAM` starts one.', onShow);
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
