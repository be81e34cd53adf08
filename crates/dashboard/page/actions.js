// What may be done to a cell: asked first where something ends, then posted, and the answer shown.

import { byId, html, text } from './dom.js';
import { several, word } from './format.js';
import { isAlive } from './snapshot.js';

const TOAST_MS = 7000;

/** What each action is called, when it makes sense, and what is asked before it (nothing, if nothing ends by it). */
export const ACTIONS = [
	{ verb: 'restart', name: 'Restart', wanted: () => true, ask: null },
	{
		verb: 'drain',
		name: 'Drain',
		wanted: (cell) => isAlive(cell) && cell.state !== 'draining',
		ask: (cell) => `${capital(cell.name)} is taken out of service in order${lossOf(cell)}`,
	},
	{
		verb: 'hang',
		name: 'Hang',
		wanted: isAlive,
		ask: (cell) => `${capital(cell.name)} stops in the middle of what it does, as if it had a fault. The others find out, and it is ended${lossOf(cell)}`,
	},
	{
		verb: 'kill',
		name: 'Kill',
		wanted: isAlive,
		ask: (cell) => `The process of ${cell.name} ends at once. The others throw away what it could have damaged, and carry on${lossOf(cell)}`,
	},
];

const capital = (words) => words[0].toUpperCase() + words.slice(1);

const lossOf = (cell) =>
	cell.tasks.length === 0 ? '. No task is in it.' : `. ${several(cell.tasks.length, 'task')} in it: ${cell.tasks.slice(0, 8).join(', ')}${cell.tasks.length > 8 ? ' …' : ''}.`;

export class Actions {
	#token = null;
	#refused;

	constructor(refused) {
		this.#refused = refused;
		this.dialog = byId('confirm');
		byId('confirm-no').addEventListener('click', () => this.dialog.close('no'));
		byId('confirm-yes').addEventListener('click', () => this.dialog.close('yes'));
	}

	use(token) {
		this.#token = token;
	}

	/** Asks if it must, posts, and tells how it went. Never throws. */
	async run({ verb, name, ask }, cell) {
		if (ask && !(await this.#confirm(`${name} ${cell.name}?`, ask(cell), `${name} ${cell.name}`))) return;
		let answer;
		try {
			answer = await fetch(`/api/cells/${encodeURIComponent(word(cell.cell))}/${verb}`, {
				method: 'POST',
				headers: { Authorization: `Bearer ${this.#token}` },
				cache: 'no-store',
			});
		} catch {
			toast(`${name} ${cell.name}: the server could not be reached. Whether it was done is not known.`, true);
			return;
		}
		if (answer.status === 401) return this.#refused();
		const said = await answer.json().catch(() => null);
		if (answer.ok) toast(typeof said?.done === 'string' ? said.done : `${name} ${cell.name}: done.`);
		else toast(typeof said?.error === 'string' ? said.error : `${name} ${cell.name}: the server answered ${answer.status}.`, true);
	}

	#confirm(title, question, yes) {
		text(byId('confirm-title'), title);
		text(byId('confirm-text'), question);
		text(byId('confirm-yes'), yes);
		this.dialog.returnValue = '';
		this.dialog.showModal();
		byId('confirm-no').focus();
		return new Promise((resolve) => {
			this.dialog.addEventListener('close', () => resolve(this.dialog.returnValue === 'yes'), { once: true });
		});
	}
}

/** A sentence for everybody to see. An error stays until it is dismissed. */
export function toast(sentence, isError = false) {
	const close = html('button', { type: 'button', class: 'icon', 'aria-label': 'Dismiss' }, '×');
	const node = html('div', { class: isError ? 'toast error' : 'toast' }, html('p', {}, sentence), close);
	close.addEventListener('click', () => node.remove());
	const all = byId('toasts');
	all.append(node);
	while (all.childElementCount > 4) all.firstElementChild.remove();
	if (!isError) setTimeout(() => node.remove(), TOAST_MS);
}
