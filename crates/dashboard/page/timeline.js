// A failure, from its end to the cell's next life: which failure is shown, in a sentence, a chart and a table.

import { chartOf } from './chart.js';
import { Keyed, attr, byId, hide, html, text } from './dom.js';
import { NONE, clock, number, several, span, word } from './format.js';
import { Table, counted } from './tables.js';

const COLUMNS = [
	{ name: 'step', value: ({ step }) => word(step) },
	counted('after', 'after_ms', span),
	{ name: 'by', value: ({ by }) => (number(by) === null ? NONE : `cell ${by}`) },
	{ name: 'what', wraps: true, value: ({ detail }) => word(detail) },
];

const after = (failure, name) => number(failure.steps.find((step) => step.step === name)?.after_ms);

export class Timeline {
	#known = null;
	#shown = null;
	#drawn = '';
	#failures = [];
	#back = new Set();

	/** `announce(sentence)` is called for what nobody should miss. */
	constructor(announce) {
		this.announce = announce;
		[this.choice, this.none, this.view] = ['failure', 'no-failures', 'failure-view'].map(byId);
		[this.summary, this.chart] = ['failure-summary', 'failure-chart'].map(byId);
		this.options = new Keyed(this.choice, () => ({ node: html('option') }), ({ node }, failure) => {
			attr(node, 'value', failure.key);
			text(node, `${clock(failure.at_ms)} cell ${word(failure.cell)}: ${word(failure.cause)}`);
		});
		this.steps = new Table(byId('failure-steps'), 'Steps of the failure', COLUMNS, 'No step is told yet.');
		this.choice.addEventListener('change', () => {
			this.#shown = this.choice.value;
			this.#draw();
		});
		new ResizeObserver(() => this.#draw()).observe(this.chart);
	}

	render(snapshot) {
		this.#failures = snapshot.failures;
		hide(this.none, this.#failures.length > 0);
		hide(this.view, this.#failures.length === 0);
		hide(this.choice, this.#failures.length === 0);
		this.#notice();
		this.options.render(this.#failures, (failure) => failure.key);
		if (!this.#failures.some((failure) => failure.key === this.#shown)) this.#shown = this.#failures[0]?.key ?? null;
		if (this.#shown !== null && this.choice.value !== this.#shown) this.choice.value = this.#shown;
		this.#draw();
	}

	/** Opens a failure that is new, and says so; what was there with the first picture is no news. */
	#notice() {
		const first = this.#known === null;
		const known = (this.#known ??= new Set());
		for (const failure of [...this.#failures].reverse()) {
			const isBack = after(failure, 'reintegrated') !== null;
			if (!known.has(failure.key)) {
				known.add(failure.key);
				this.#shown = failure.key;
				if (!first) this.announce(`Cell ${word(failure.cell)} failed: ${word(failure.cause)}.`);
			} else if (isBack && !this.#back.has(failure.key)) {
				this.announce(`Cell ${word(failure.cell)} is back after ${span(after(failure, 'reintegrated'))}.`);
			}
			if (isBack) this.#back.add(failure.key);
		}
		const there = new Set(this.#failures.map((failure) => failure.key));
		for (const key of known) {
			if (there.has(key)) continue;
			known.delete(key);
			this.#back.delete(key);
		}
	}

	#draw() {
		const failure = this.#failures.find(({ key }) => key === this.#shown);
		const width = this.chart.clientWidth;
		if (!failure || width === 0) return;
		const drawn = `${width} ${JSON.stringify(failure)}`;
		if (drawn === this.#drawn) return;
		this.#drawn = drawn;
		const { steps } = failure;
		const sentence = sentenceOf(failure);
		text(this.summary, sentence);
		this.chart.replaceChildren(chartOf(steps, width, sentence));
		this.steps.render(steps.map((step, key) => ({ ...step, key })));
	}
}

function sentenceOf(failure) {
	const parts = [`Cell ${word(failure.cell)}, life ${word(failure.incarnation)}, at ${clock(failure.at_ms)}: ${word(failure.cause)}`];
	const tell = (name, words) => {
		const ms = after(failure, name);
		if (ms !== null) parts.push(`${words} ${span(ms)}`);
	};
	tell('hint', 'noticed after');
	tell('agreement', 'agreed on after');
	tell('resume', 'at work again after');
	parts.push(`${several(failure.discarded_pages, 'page')} discarded`);
	tell('reintegrated', 'back after');
	return `${parts.join(' · ')}`;
}
