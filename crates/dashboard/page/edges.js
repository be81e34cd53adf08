// What goes between cells: messages a second, and who may store to whom. Elements are reused, never thrown away.

import { attr, svg, text } from './dom.js';
import { number, perSecond, several } from './format.js';

/** Of a selected cell with more partners, the busiest are drawn; the panel beside has the numbers of all. */
const MOST_EDGES = 24;
const MOST_LABELS = 16;

/** How far an arc bends aside, in units of its length: the two directions lie apart, and rights outside messages. */
const BEND = { messages: 0.125, rights: 0.26 };

/** All edges, or those of one cell, the busiest first. */
export function edgesOf(snapshot, cell = null) {
	const isWanted = (from, to) =>
		from !== to && (cell === null || from === cell || to === cell) && snapshot.byCell.has(from) && snapshot.byCell.has(to);
	const edges = [];
	for (const { from, to, messages_per_s } of snapshot.edges) {
		const rate = number(messages_per_s);
		if (isWanted(from, to)) edges.push({ kind: 'messages', from, to, rate, weight: rate ?? 0 });
	}
	for (const { holder: from, home: to, pages } of snapshot.rights) {
		if (isWanted(from, to)) edges.push({ kind: 'rights', from, to, pages: number(pages), weight: Infinity });
	}
	return cell === null ? edges : edges.sort((a, b) => (a.weight === b.weight ? 0 : b.weight - a.weight));
}

export class Edges {
	#pools = { faint: [], strong: [] };

	constructor(faint, strong) {
		this.groups = { faint, strong };
	}

	/**
	 * Draws `faint` edges below and `strong` ones, with labels, above. `at(cell)` is where a cell lies, `radius` its size,
	 * and `scale` how much a label shrinks to keep its size on the screen.
	 */
	render(faint, strong, at, radius, scale) {
		// The more there are, the less each of them says.
		attr(this.groups.faint, 'opacity', Math.min(0.45, (strong.length > 0 ? 1 : 2) / Math.sqrt(faint.length + 1)).toFixed(2));
		this.#draw('faint', faint, at, radius, scale);
		this.#draw('strong', strong.slice(0, MOST_EDGES), at, radius, scale);
	}

	#draw(layer, edges, at, radius, scale) {
		const pool = this.#pools[layer];
		const labels = edges.length > MOST_LABELS ? MOST_LABELS / 2 : MOST_LABELS;
		edges.forEach((edge, index) => {
			const drawn = (pool[index] ??= this.#make(layer));
			const arc = arcOf(at(edge.from), at(edge.to), radius, BEND[edge.kind]);
			attr(drawn.node, 'class', `edge ${edge.kind}`);
			attr(drawn.line, 'd', arc.path);
			attr(drawn.line, 'stroke-width', (widthOf(edge) * Math.min(1, Math.max(radius / 60, 0.45))).toFixed(1));
			attr(drawn.line, 'marker-end', `url(#tip-${edge.kind})`);
			if (layer === 'strong') {
				attr(drawn.label, 'transform', `translate(${arc.x} ${arc.y}) scale(${scale})`);
				text(drawn.label, index >= labels ? '' : edge.kind === 'messages' ? perSecond(edge.rate) : several(edge.pages, 'page'));
			}
		});
		for (const unused of pool.slice(edges.length)) attr(unused.node, 'class', 'edge unused');
	}

	#make(layer) {
		const line = svg('path', { fill: 'none', 'vector-effect': 'non-scaling-stroke' });
		const node = svg('g', {}, line);
		const label = layer === 'strong' ? svg('text', { 'text-anchor': 'middle', dy: '0.35em' }) : null;
		if (label) node.append(label);
		this.groups[layer].append(node);
		return { node, line, label };
	}
}

/** Ten times the messages is one pixel more. */
const widthOf = ({ kind, rate }) => (kind === 'rights' ? 2 : Math.round((1 + Math.log10(1 + (rate ?? 0)) * 1.1) * 10) / 10);

function arcOf(a, b, radius, bend) {
	const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
	// Long arcs bend no further than cells are large, or they would leave the picture.
	const aside = Math.min(length * bend, radius * (bend > 0.2 ? 1 : 0.46)) * 2;
	const control = {
		x: (a.x + b.x) / 2 + ((b.y - a.y) / length) * aside,
		y: (a.y + b.y) / 2 - ((b.x - a.x) / length) * aside,
	};
	const start = towards(a, control, radius * 0.94);
	const end = towards(b, control, radius * 1.0);
	const round = (value) => Math.round(value * 10) / 10;
	return {
		path: `M${round(start.x)} ${round(start.y)}Q${round(control.x)} ${round(control.y)} ${round(end.x)} ${round(end.y)}`,
		x: round((start.x + 2 * control.x + end.x) / 4),
		y: round((start.y + 2 * control.y + end.y) / 4),
	};
}

function towards(from, to, distance) {
	const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
	return { x: from.x + ((to.x - from.x) / length) * distance, y: from.y + ((to.y - from.y) / length) * distance };
}
