// What the signs of the honeycomb mean.

import { hide, html, svg } from './dom.js';
import { HEXAGON, LEVELS, SIGNS } from './hexagon.js';

const picture = (box, ...parts) => svg('svg', { viewBox: box, 'aria-hidden': 'true' }, ...parts);
const path = (kind, d) => svg('path', { class: kind, d });

const hexagon = (state, part) =>
	picture('-100 -100 200 200', svg('g', { class: 'cell', 'data-state': state }, path('wax', HEXAGON), part));
const bar = (kind) => picture('0 0 20 20', path(`bar ${kind}`, 'M3 10H17'));
const arrow = (kind, line, tip) => picture('0 0 28 20', svg('g', { class: `edge ${kind}` }, path('line', line), path('filled', tip)));

/** It has the states that are there, and always the rest. */
export class Legend {
	constructor(list) {
		const item = (name, drawn) => list.appendChild(html('li', {}, drawn, name));
		this.states = Object.entries(SIGNS).map(([state, sign]) => ({ state, item: item(state, hexagon(state, path('sign', sign))) }));
		item('load', hexagon('up', path('honey', LEVELS[16])));
		item('own memory', bar('own'));
		item('imported', bar('imported'));
		item('loaned', bar('loaned'));
		item('messages', arrow('messages', 'M2 10H20', 'M18 5 27 10 18 15Z'));
		item('may store to', arrow('rights', 'M2 10H19', 'M20 7H26V13H20Z'));
	}

	render(snapshot) {
		const there = new Set(snapshot.cells.map((cell) => cell.state));
		for (const { state, item } of this.states) hide(item, !there.has(state) && state !== 'up');
	}
}
