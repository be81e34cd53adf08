// One cell's hexagon: its parts, its signs, and what is written in it.

import { attr, svg, text } from './dom.js';
import { amount, bytes, percent } from './format.js';
import { honeyPath } from './layout.js';

/** A hexagon is drawn in these units and scaled: its corners lie 100 from its middle. */
export const HEXAGON = honeyPath(90, 1);
export const LEVELS = Array.from({ length: 33 }, (_, level) => honeyPath(81, level / 32));

/** A sign for each state, so that none is told by colour alone. A cell that is up needs none. */
export const SIGNS = {
	up: 'M0 0',
	starting: 'M-9 7 0-9 9 7Z',
	recovering: 'M9-2A9 9 0 1 0 6 7M9-10V-2H1',
	ended: 'M-8-8 8 8M8-8-8 8',
	held: 'M-5-8V8M5-8V8',
	draining: 'M0-9V8M-7 1 0 8 7 1',
	drained: 'M-8 0A8 8 0 1 0 8 0 8 8 0 1 0-8 0',
	lost: 'M-6-4A6 6 0 1 1 0 3V4M0 9.5V10',
	unknown: 'M-8 0H8',
};

export const totalOf = (memory) => amount(memory.own_bytes) + amount(memory.imported_bytes) + amount(memory.loaned_bytes);

export function makeCell(cell) {
	const honey = svg('path', { class: 'honey' });
	const sign = svg('path', { class: 'sign' });
	const name = svg('text', { class: 'name', 'text-anchor': 'middle' });
	const node = svg('g', { class: 'cell', role: 'option', 'data-key': cell.key }, svg('path', { class: 'wax', d: HEXAGON }), honey, sign, name);
	return { node, honey, sign, name };
}

export function addWords(node) {
	const line = (name, y) => svg('text', { class: name, 'text-anchor': 'middle', y });
	const words = { state: line('state', 20), memory: line('memory', 42) };
	words.bar = ['rest', 'own', 'imported', 'loaned'].map((kind) => svg('path', { class: `bar ${kind}` }));
	node.append(words.state, words.memory, ...words.bar);
	return words;
}

/** Half of the memory bar's length. */
const BAR = 42;

export function updateWords({ state, memory, bar }, cell, most) {
	text(state, cell.state === 'up' ? `up · ${percent(cell.cpu_share)}` : cell.state);
	text(memory, totalOf(cell.memory) > 0 ? bytes(totalOf(cell.memory)) : '');
	const whole = Math.max(amount(cell.memory.most_bytes), most);
	let from = -BAR;
	const ends = ['own_bytes', 'imported_bytes', 'loaned_bytes'].map((part) => (from += (amount(cell.memory[part]) / whole) * 2 * BAR));
	attr(bar[0], 'd', `M${-BAR} 56H${BAR}`);
	[-BAR, ends[0], ends[1]].forEach((start, index) => {
		attr(bar[index + 1], 'd', `M${start.toFixed(1)} 56H${ends[index].toFixed(1)}`);
	});
}

export function definitions() {
	const tip = (kind, path) =>
		svg('marker', { id: `tip-${kind}`, class: `tip-of ${kind}`, viewBox: '-10 -6 12 12', markerWidth: 10, markerHeight: 10, markerUnits: 'userSpaceOnUse', orient: 'auto' }, svg('path', { d: path }));
	const hatch = svg('pattern', { id: 'hatch', width: 16, height: 16, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('path', { d: 'M0 0V16', class: 'hatch-line' }));
	return svg('defs', {}, tip('messages', 'M-9-5 0 0-9 5-6.5 0Z'), tip('rights', 'M-8-4H0V4H-8Z'), hatch);
}
