// The panel beside the honeycomb: the chosen cell's numbers and what may be done with it; without one, the whole comb's.

import { ACTIONS } from './actions.js';
import { Keyed, attr, hide, html, text } from './dom.js';
import { edgesOf } from './edges.js';
import { NONE, age, amount, bytes, count, number, percent, perSecond, several, span, word } from './format.js';
import { numbers } from './snapshot.js';
import { Table, counted } from './tables.js';

const MOST_PARTNERS = 10;
const MEMORY = ['own', 'imported', 'loaned'];

const sum = (items, value) => items.reduce((all, item) => all + amount(value(item)), 0);

export class Detail {
	#cell = null;
	#facts;

	constructor(aside, actions, onLeave) {
		this.aside = aside;
		this.title = html('h2', { id: 'detail-title' });
		this.state = html('span', { class: 'state' });
		this.leave = html('button', { type: 'button', class: 'quiet' }, 'Close');
		this.leave.addEventListener('click', onLeave);
		this.where = html('p', { class: 'soft where' });
		this.why = html('p', { class: 'why' });
		this.memory = memoryBar();
		this.facts = html('dl', { class: 'facts' });
		const rows = new Keyed(this.facts, makeFact, (fact, [, value]) => text(fact.value, value));
		this.#facts = (facts) => rows.render(facts, ([name]) => name);
		this.partnersBox = html('div', { class: 'partners' });
		this.partners = new Table(this.partnersBox, 'With other cells', COLUMNS, 'It talks with no cell.');
		this.buttons = ACTIONS.map((action) => {
			const button = html('button', { type: 'button', class: action.verb === 'kill' ? 'danger' : '' }, action.name);
			button.addEventListener('click', async () => {
				if (button.ariaBusy) return;
				attr(button, 'aria-busy', true);
				await actions.run(action, this.#cell);
				attr(button, 'aria-busy', null);
			});
			return { action, button };
		});
		this.actions = html('div', { class: 'actions', role: 'group', 'aria-label': 'What may be done' }, ...this.buttons.map(({ button }) => button));
		this.readOnly = html('p', { class: 'soft' }, 'This page may look only.');
		this.hint = html('p', { class: 'soft' }, 'Choose a cell to see its numbers, who it talks with, and who may store to it.');
		const head = html('header', {}, this.title, this.state, this.leave);
		aside.append(head, this.where, this.why, this.memory.node, this.facts, this.partnersBox, this.hint, this.actions, this.readOnly);
	}

	render(snapshot, cell) {
		this.#cell = cell;
		const chosen = cell !== null;
		for (const node of [this.state, this.leave, this.where, this.partnersBox]) hide(node, !chosen);
		hide(this.hint, chosen || snapshot.cells.length === 0);
		hide(this.actions, !chosen || snapshot.may_act !== true);
		hide(this.readOnly, !chosen || snapshot.may_act === true);
		hide(this.why, !chosen || word(cell.why) === NONE);
		if (chosen) this.#renderCell(snapshot, cell);
		else this.#renderComb(snapshot);
	}

	#renderComb(snapshot) {
		const { cells, edges, rights, wax } = snapshot;
		text(this.title, 'The whole comb');
		this.#renderMemory(Object.fromEntries(MEMORY.map((part) => [`${part}_bytes`, sum(cells, (cell) => cell.memory[`${part}_bytes`])])));
		const prefers = numbers(wax?.prefer);
		this.#facts([
			['load', `${(sum(cells, (cell) => cell.cpu_share)).toFixed(2)} of ${several(sum(snapshot.hosts, (host) => host.cores) || null, 'core')}`],
			['messages', perSecond(sum(edges, (edge) => edge.messages_per_s))],
			['round trips', count(sum(cells, (cell) => cell.round_trips))],
			['write rights', several(sum(rights, (right) => right.pages), 'page')],
			['failures told', String(snapshot.failures.length)],
			['policy', wax === null ? 'none runs' : `${several(number(wax.decisions), 'decision')}${prefers.length > 0 ? `; prefers ${prefers.length === 1 ? 'cell' : 'cells'} ${prefers.slice(0, 6).join(', ')}` : ''}`],
		]);
	}

	#renderCell(snapshot, cell) {
		text(this.title, cell.name[0].toUpperCase() + cell.name.slice(1));
		text(this.state, cell.state);
		attr(this.state, 'data-state', cell.state);
		text(this.where, `on ${cell.hostName}, life ${word(cell.incarnation)}, process ${word(cell.pid)}`);
		text(this.why, word(cell.why));
		this.#renderMemory(cell.memory);
		const most = number(cell.memory.most_bytes);
		this.#facts([
			['load', `${percent(cell.cpu_share)} of a core`],
			['up for', age(cell.uptime_ms)],
			['tasks', cell.tasks.length === 0 ? 'none' : cell.tasks.slice(0, 6).join(', ') + (cell.tasks.length > 6 ? ` and ${cell.tasks.length - 6} more` : '')],
			['may have', most === null ? NONE : most === 0 ? 'as much memory as there is' : bytes(most)],
			['round trips', `${count(cell.round_trips)}, the last ${span(number(cell.last_round_trip_ns) === null ? null : cell.last_round_trip_ns / 1e6)}`],
			['last seen', number(cell.seen_ms_ago) === null ? NONE : `${span(cell.seen_ms_ago)} ago`],
		]);
		this.#renderPartners(snapshot, cell);
		for (const { action, button } of this.buttons) {
			const off = cell.cell === null || !action.wanted(cell);
			if (button.disabled !== off) button.disabled = off;
			attr(button, 'aria-label', `${action.name} ${cell.name}`);
		}
	}

	#renderMemory(memory) {
		const parts = MEMORY.map((part) => number(memory[`${part}_bytes`]));
		const whole = Math.max(amount(memory.most_bytes), sum(parts, (part) => part), 1);
		MEMORY.forEach((_, index) => {
			const { piece, value } = this.memory.parts[index];
			const width = `${((amount(parts[index]) / whole) * 100).toFixed(1)}%`;
			if (piece.style.width !== width) piece.style.width = width;
			text(value, bytes(parts[index]));
		});
	}

	#renderPartners(snapshot, cell) {
		const partners = new Map();
		const of = (other) => {
			if (!partners.has(other)) partners.set(other, { key: other, cell: other });
			return partners.get(other);
		};
		// Rights come first, then the busiest: those that are shown are the first ones.
		for (const { kind, from, to, rate, pages } of edgesOf(snapshot, cell.cell)) {
			const isOurs = from === cell.cell;
			if (kind === 'messages') of(isOurs ? to : from)[isOurs ? 'to' : 'from'] = rate;
			else of(isOurs ? to : from)[isOurs ? 'mayStore' : 'lets'] = pages;
		}
		const shown = [...partners.values()].slice(0, MOST_PARTNERS).sort((a, b) => a.cell - b.cell);
		this.partners.render(shown, snapshot, partners.size);
	}
}

function makeFact([name]) {
	const value = html('dd');
	return { node: html('div', {}, html('dt', {}, name), value), value };
}

function memoryBar() {
	const parts = MEMORY.map((kind) => ({ kind, piece: html('span', { class: kind }), value: html('b') }));
	const bar = html('div', { class: 'memory-bar', 'aria-hidden': 'true' }, ...parts.map(({ piece }) => piece));
	const list = html('ul', {}, ...parts.map(({ kind, value }) => html('li', { class: kind }, `${kind} `, value)));
	return { node: html('div', { class: 'memory-box', role: 'group', 'aria-label': 'Memory' }, bar, list), parts };
}

const COLUMNS = [
	{ name: 'cell', value: ({ cell }) => String(cell), sort: ({ cell }) => cell },
	counted('sends', 'to', perSecond),
	counted('receives', 'from', perSecond),
	counted('may store to, pages', 'mayStore'),
	counted('lets store, pages', 'lets'),
];
