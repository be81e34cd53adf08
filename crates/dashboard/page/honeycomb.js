// The cells, each a hexagon that honey fills as its load rises. An update changes attributes of what is there; elements
// are made only for cells that are new.

import { Camera } from './camera.js';
import { Keyed, attr, hide, svg, text } from './dom.js';
import { Edges, edgesOf } from './edges.js';
import { amount, percent, several, word } from './format.js';
import { LEVELS, SIGNS, addWords, definitions, makeCell, totalOf, updateWords } from './hexagon.js';
import { FEW_CELLS, neighbour, place } from './layout.js';

/** From this radius on the screen, a hexagon has room for a number, and for words. */
const RADIUS_OF_NUMBERS = 13;
const RADIUS_OF_WORDS = 46;

/** From so many cells on, they have more of the page. */
const MANY_CELLS = 100;

export const labelOf = (cell) =>
	`${cell.name} on host ${cell.hostName}: ${cell.state}, ${several(cell.tasks.length, 'task')}`;

export class Honeycomb {
	selected = null;
	#hovered = null;
	#focused = null;
	#snapshot = null;
	#placed = null;
	#shape = '';
	#task = null;

	/** `onSelect(key)` is called when somebody chooses a cell, or null for none. */
	constructor(frame, onSelect) {
		Object.assign(this, { frame, onSelect });
		const layer = (name) => svg('g', { class: name });
		[this.plates, this.faint, this.cells, this.strong] = ['plates', 'faint', 'cells', 'strong'].map(layer);
		this.tip = svg('text', { class: 'tip', 'text-anchor': 'middle', 'aria-hidden': 'true' });
		const world = svg('g', {}, this.plates, this.faint, this.cells, this.strong, this.tip);
		for (const drawn of [this.plates, this.faint, this.strong]) attr(drawn, 'aria-hidden', 'true');
		this.picture = svg('svg', { class: 'picture', role: 'listbox', 'aria-label': 'Cells', 'aria-describedby': 'cells-help' }, definitions(), world);
		this.frame.append(this.picture);
		this.tips = this.picture.querySelectorAll('marker');
		this.camera = new Camera(this.picture, world, () => this.#redraw());
		this.edges = new Edges(this.faint, this.strong);
		this.platesByHost = new Keyed(this.plates, makePlate, (plate, host) => this.#updatePlate(plate, host));
		this.groups = new Keyed(this.cells, () => this.#makeGroup(), (group, host) => this.#updateGroup(group, host));
		this.#listen();
		new ResizeObserver(() => this.#resize()).observe(this.frame);
		this.#resize();
	}

	render(snapshot) {
		this.#snapshot = snapshot;
		this.byKey = new Map(snapshot.cells.map((cell) => [cell.key, cell]));
		if (!this.byKey.has(this.selected)) this.selected = null;
		if (!this.byKey.has(this.#hovered)) this.#hovered = null;
		if (!this.byKey.has(this.#focused)) this.#focused = snapshot.cells[0]?.key ?? null;
		this.most = Math.max(1, ...snapshot.cells.map((cell) => totalOf(cell.memory)));
		this.camera.eager = snapshot.cells.length > FEW_CELLS;
		this.frame.classList.toggle('large', snapshot.cells.length > MANY_CELLS);
		const shape = snapshot.cells.map((cell) => `${cell.key} ${cell.hostName}`).join('\n') + snapshot.hosts.map((host) => host.name).join('\n');
		if (shape !== this.#shape) {
			this.#shape = shape;
			this.#place();
		}
		this.#redraw();
	}

	select(key) {
		this.selected = key;
		if (key !== null) this.#focused = key;
		this.#redraw();
	}

	/** Brings out the cells of a task, and those that it depends on; null lets it go. */
	showTask(task) {
		this.#task = task && { own: new Set(task.cells), needed: new Set(task.needed) };
		this.#redraw();
	}

	zoomBy(factor) {
		const at = this.#placed?.cells.get(this.selected);
		this.camera.by(factor, at && { x: at.x * this.camera.zoom + this.camera.x, y: at.y * this.camera.zoom + this.camera.y });
	}

	#resize() {
		const { clientWidth: width, clientHeight: height } = this.frame;
		if (width === 0 || height === 0 || (width === this.width && height === this.height)) return;
		Object.assign(this, { width, height });
		this.camera.resize(width, height);
		if (!this.#snapshot) return;
		this.#place();
		this.#redraw();
	}

	#place() {
		if (this.width) this.#placed = place(this.#snapshot.hosts, this.#snapshot.cells, this.width, this.height);
	}

	#redraw() {
		if (!this.#placed) return;
		const size = this.#placed.radius * this.camera.zoom;
		this.detail = size >= RADIUS_OF_WORDS ? 'words' : size >= RADIUS_OF_NUMBERS ? 'numbers' : 'signs';
		attr(this.picture, 'data-detail', this.detail);
		attr(this.picture, 'data-task', this.#task ? '' : null);
		this.own = groupByHost(this.#snapshot.cells);
		this.platesByHost.render(this.#snapshot.hosts, (host) => host.key);
		this.groups.render(this.#snapshot.hosts, (host) => host.key);
		this.#drawEdges();
		this.#drawTip();
	}

	#drawEdges() {
		const chosen = [this.selected, this.#hovered].map((key) => this.byKey.get(key)?.cell).find((cell) => cell !== undefined && cell !== null);
		const strong = chosen === undefined ? [] : edgesOf(this.#snapshot, chosen);
		const faint = this.#snapshot.cells.length > FEW_CELLS ? [] : edgesOf(this.#snapshot).filter(({ from, to }) => from !== chosen && to !== chosen);
		const at = (cell) => this.#placed.cells.get(this.#snapshot.byCell.get(cell).key);
		for (const tip of this.tips) attr(tip, 'markerWidth', 10 / this.camera.zoom), attr(tip, 'markerHeight', 10 / this.camera.zoom);
		this.edges.render(faint, strong, at, this.#placed.radius, 1 / this.camera.zoom);
	}

	#drawTip() {
		const key = this.#hovered ?? (this.picture.contains(document.activeElement) ? this.#focused : null) ?? this.selected;
		const cell = this.byKey.get(key);
		const at = this.#placed.cells.get(key);
		if (!cell || !at || this.detail === 'words') return text(this.tip, '');
		const zoom = this.camera.zoom;
		const high = at.y * zoom + this.camera.y - this.#placed.radius * zoom < 22;
		const y = high ? at.y + this.#placed.radius + 16 / zoom : at.y - this.#placed.radius - 7 / zoom;
		const words = `${cell.name} on ${cell.hostName} · ${cell.state} · ${percent(cell.cpu_share)}`;
		const half = words.length * 4 + 6;
		const x = (Math.max(half, Math.min(at.x * zoom + this.camera.x, this.width - half)) - this.camera.x) / zoom;
		attr(this.tip, 'transform', `translate(${x} ${y}) scale(${1 / zoom})`);
		text(this.tip, words);
	}

	#updatePlate({ node, plate, label }, host) {
		const { x, y, width, height, labelX, labelY } = this.#placed.hosts.get(host.name) ?? { x: 0, y: 0, width: 0, height: 0 };
		attr(node, 'data-state', word(host.state));
		for (const [name, value] of Object.entries({ x, y, width, height })) attr(plate, name, Math.round(value));
		attr(label, 'transform', `translate(${labelX} ${labelY}) scale(${1 / this.camera.zoom})`);
		const state = host.state === 'up' || host.state === null ? '' : ` · ${word(host.state)}`;
		const cells = this.own.get(host.name)?.length ?? 0;
		const words = `${host.name}${state}${width > 150 ? ` · ${several(cells, 'cell')}` : ''}`;
		const room = Math.floor((width * this.camera.zoom - 14) / 6.9);
		text(label, words.length > room ? `${words.slice(0, Math.max(room - 1, 0))}…` : words);
	}

	#makeGroup() {
		const node = svg('g', { role: 'group' });
		return { node, cells: new Keyed(node, makeCell, (handle, cell) => this.#updateCell(handle, cell)) };
	}

	#updateGroup({ node, cells }, host) {
		attr(node, 'aria-label', `host ${host.name}, ${word(host.state)}`);
		cells.render(this.own.get(host.name) ?? [], (cell) => cell.key);
	}

	#updateCell(handle, cell) {
		const at = this.#placed.cells.get(cell.key);
		const { node, honey, sign, name } = handle;
		if (handle.at !== at) {
			handle.at = at;
			attr(node, 'transform', `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)}) scale(${(this.#placed.radius / 100).toFixed(4)})`);
		}
		attr(node, 'data-state', cell.state);
		attr(node, 'aria-label', labelOf(cell));
		attr(node, 'aria-selected', cell.key === this.selected);
		attr(node, 'tabindex', cell.key === this.#focused ? 0 : -1);
		attr(node, 'data-task', this.#task?.own.has(cell.cell) ? 'own' : this.#task?.needed.has(cell.cell) ? 'needed' : null);
		attr(honey, 'd', LEVELS[Math.round(Math.min(amount(cell.cpu_share), 1) * 32)]);
		attr(sign, 'd', SIGNS[cell.state]);
		text(name, word(cell.cell));
		if (this.detail !== 'words') return;
		handle.words ??= addWords(node);
		updateWords(handle.words, cell, this.most);
	}

	#listen() {
		const keyAt = (event) => event.target.closest('[data-key]')?.dataset.key ?? null;
		this.picture.addEventListener('click', (event) => {
			if (this.camera.dragged) return;
			const key = keyAt(event);
			this.onSelect(key === this.selected ? null : key);
		});
		this.picture.addEventListener('pointerover', (event) => this.#hover(keyAt(event)));
		this.picture.addEventListener('pointerleave', () => this.#hover(null));
		// On the frame: a picture that listens for focus would take it itself.
		this.frame.addEventListener('focusin', (event) => {
			const key = keyAt(event);
			if (key === null || !this.#placed) return;
			this.#focused = key;
			this.camera.reveal(this.#placed.cells.get(key), this.#placed.radius * 1.2);
			this.#redraw();
		});
		this.frame.addEventListener('focusout', () => this.#placed && queueMicrotask(() => this.#drawTip()));
		this.picture.addEventListener('keydown', (event) => this.#key(event));
	}

	#hover(key) {
		if (key === this.#hovered || !this.#placed) return;
		this.#hovered = key;
		this.#drawEdges();
		this.#drawTip();
	}

	#key(event) {
		if (event.ctrlKey || event.metaKey || event.altKey || !this.#snapshot) return;
		const cells = this.#snapshot.cells;
		const key = event.key;
		if (key.startsWith('Arrow')) this.#focus(neighbour(this.#placed.cells, this.#focused, key));
		else if (key === 'Home') this.#focus(cells[0]?.key);
		else if (key === 'End') this.#focus(cells[cells.length - 1]?.key);
		else if (key === 'Enter' || key === ' ') this.onSelect(this.#focused);
		else if (key === 'Escape') this.onSelect(null);
		else if (key === '+' || key === '=') this.camera.by(1.5);
		else if (key === '-') this.camera.by(1 / 1.5);
		else if (key === '0') this.camera.fit();
		else return;
		event.preventDefault();
	}

	#focus(key) {
		if (key === null || key === undefined) return;
		this.cells.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
	}
}

function groupByHost(cells) {
	const groups = new Map();
	for (const cell of cells) {
		if (!groups.has(cell.hostName)) groups.set(cell.hostName, []);
		groups.get(cell.hostName).push(cell);
	}
	return groups;
}

function makePlate() {
	const plate = svg('rect', { class: 'plate', rx: 16 });
	const label = svg('text', { class: 'host-name' });
	return { node: svg('g', { class: 'host' }, plate, label), plate, label };
}
