// What happened, in the order in which it did.

import { attr, byId, hide, html, text } from './dom.js';
import { clock, number, word } from './format.js';

/** What is older is gone from the page; `comb log` has it. */
const MOST_EVENTS = 500;

const toneOf = (kind) => {
	if (/end|fail|lost|kill|hang|discard/.test(kind)) return 'bad';
	return /up|start|reintegrat|resum|join/.test(kind) ? 'good' : 'plain';
};

export class Events {
	#shown = [];
	#times = new Map();
	#last = null;
	#scrolling = false;

	constructor(onCell) {
		this.onCell = onCell;
		[this.list, this.frame, this.none] = ['events', 'events-scroll', 'no-events'].map(byId);
		[this.text, this.cell, this.follow] = ['events-text', 'events-cell', 'events-follow'].map(byId);
		for (const field of [this.text, this.cell]) field.addEventListener('input', () => this.#filter());
		this.follow.addEventListener('change', () => this.#toEnd());
		hide(this.frame, true);
	}

	/** Takes one event. What a reconnection tells a second time is known by its number and time. */
	take(raw) {
		if (raw === null || typeof raw !== 'object') return;
		const seq = number(raw.seq);
		if (seq !== null) {
			if (this.#times.get(seq) === raw.at_ms) return;
			if (this.#last !== null && seq > this.#last + 1) this.#append(gap(seq - this.#last - 1));
			this.#times.set(seq, raw.at_ms);
			this.#last = seq;
		}
		this.#append(this.#item(raw));
	}

	#item(raw) {
		const node = html('li', { 'data-tone': toneOf(word(raw.kind)) }, html('time', {}, clock(raw.at_ms)));
		const cell = number(raw.cell);
		if (cell !== null) {
			const button = html('button', { type: 'button', class: 'link', 'aria-label': `Show cell ${cell}` }, String(cell));
			button.addEventListener('click', () => this.onCell(cell));
			node.append(button);
		}
		const what = word(raw.text);
		node.append(html('span', {}, what));
		return { node, cell, words: `${what} ${word(raw.kind)} ${word(raw.host)}`.toLowerCase(), seq: number(raw.seq) };
	}

	#append(item) {
		this.#shown.push(item);
		hide(item.node, !this.#wanted(item));
		this.list.append(item.node);
		if (!item.node.hidden) {
			hide(this.none, true);
			hide(this.frame, false);
		}
		if (this.#shown.length > MOST_EVENTS) {
			const oldest = this.#shown.shift();
			oldest.node.remove();
			this.#times.delete(oldest.seq);
		}
		this.#toEnd();
	}

	#wanted({ words, cell }) {
		const asked = this.cell.value.trim();
		return words.includes(this.text.value.trim().toLowerCase()) && (asked === '' || String(cell) === asked.replace(/^cell\s*/i, ''));
	}

	#filter() {
		for (const item of this.#shown) hide(item.node, !this.#wanted(item));
		const wanted = this.#shown.filter((item) => !item.node.hidden).length;
		attr(this.frame, 'aria-label', `Events, oldest first: ${wanted} of ${this.#shown.length}`);
		if (this.#shown.length > 0) {
			text(this.none, 'No event is like that.');
			hide(this.none, wanted > 0);
			hide(this.frame, wanted === 0);
		}
		this.#toEnd();
	}

	/** Many events at once scroll once. */
	#toEnd() {
		if (!this.follow.checked || this.#scrolling) return;
		this.#scrolling = true;
		requestAnimationFrame(() => {
			this.#scrolling = false;
			this.frame.scrollTop = this.frame.scrollHeight;
		});
	}
}

function gap(missed) {
	const words = `${missed} more that this page did not hear of`;
	return { node: html('li', { 'data-tone': 'gap' }, html('span', {}, words)), cell: null, words, seq: null };
}
