// What the server says of the comb, made safe to draw: lists are lists of objects, and every cell and host has a key.

import { number, word } from './format.js';

const objects = (value) => (Array.isArray(value) ? value.filter((item) => item !== null && typeof item === 'object') : []);
const object = (value) => objects([value])[0] ?? {};
export const numbers = (value) => (Array.isArray(value) ? value.filter((item) => number(item) !== null) : []);

/** The states in which a cell has a process that can be ended. */
const ALIVE = new Set(['up', 'starting', 'draining', 'recovering']);
export const isAlive = (cell) => ALIVE.has(cell.state);

const KNOWN = new Set(['up', 'starting', 'ended', 'held', 'draining', 'drained', 'recovering', 'lost']);

/** A key of its own for each item, whatever came: a second one of the same name is another. */
function keyed(items, keyOf) {
	const seen = new Set();
	return items.map((item, index) => {
		let key = keyOf(item, index);
		if (seen.has(key)) key = `${key}#${index}`;
		seen.add(key);
		return { ...item, key };
	});
}

function cellOf(raw) {
	const cell = { ...raw };
	cell.cell = number(raw.cell);
	cell.state = KNOWN.has(raw.state) ? raw.state : 'unknown';
	cell.hostName = word(raw.host);
	cell.memory = object(raw.memory);
	cell.tasks = numbers(raw.tasks);
	cell.name = `cell ${word(raw.cell)}`;
	return cell;
}

function taskOf(raw) {
	const needs = objects(raw.depends_on);
	return { ...raw, cells: numbers(raw.cells), needs, needed: numbers(needs.map((need) => need.cell)) };
}

export function snapshotOf(raw) {
	const from = object(raw);
	const cells = keyed(objects(from.cells).map(cellOf), (cell, index) => (cell.cell === null ? `?${index}` : String(cell.cell)));
	const hosts = objects(from.hosts).map((host) => ({ ...host, name: word(host.host) }));
	const told = new Set(hosts.map((host) => host.name));
	for (const cell of cells) {
		if (!told.has(cell.hostName)) hosts.push({ name: cell.hostName, state: null });
		told.add(cell.hostName);
	}
	cells.sort((a, b) => (a.cell ?? Infinity) - (b.cell ?? Infinity));
	const snapshot = {
		...from,
		cells,
		hosts: keyed(hosts, (host) => host.name),
		edges: objects(from.edges),
		rights: objects(from.rights),
		tasks: keyed(objects(from.tasks).map(taskOf), (task, index) => word(task.task ?? `?${index}`)),
		regions: keyed(objects(from.regions), (region, index) => `${word(region.region ?? `?${index}`)} ${word(region.cell)}`),
		failures: keyed(objects(from.failures).map((failure) => ({ ...failure, steps: objects(failure.steps) })), (failure) => [failure.cell, failure.incarnation, failure.at_ms].map(word).join(' ')),
		wax: objects([from.wax])[0] ?? null,
	};
	snapshot.byCell = new Map(cells.filter((cell) => cell.cell !== null).map((cell) => [cell.cell, cell]));
	return snapshot;
}
