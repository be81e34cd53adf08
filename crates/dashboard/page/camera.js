// Zoom and pan of the honeycomb: by wheel, pointer and buttons. It knows a group to move, and nothing of what is in it.

import { attr } from './dom.js';

const MOST_ZOOM = 12;

export class Camera {
	zoom = 1;
	x = 0;
	y = 0;

	/** `changed()` is called after each change of the zoom, so that what keeps its size on the screen can be set right. */
	constructor(picture, world, changed) {
		Object.assign(this, { picture, world, changed, width: 1, height: 1, dragged: false });
		picture.addEventListener('wheel', (event) => this.#wheel(event), { passive: false });
		picture.addEventListener('pointerdown', (event) => this.#drag(event));
	}

	resize(width, height) {
		Object.assign(this, { width, height });
		this.#apply();
	}

	fit() {
		Object.assign(this, { zoom: 1, x: 0, y: 0 });
		this.#apply();
		this.changed();
	}

	/** Zooms by `factor` around a point of the picture; without one, around its middle. */
	by(factor, at = { x: this.width / 2, y: this.height / 2 }) {
		const zoom = Math.min(Math.max(this.zoom * factor, 1), MOST_ZOOM);
		this.x = at.x - ((at.x - this.x) * zoom) / this.zoom;
		this.y = at.y - ((at.y - this.y) * zoom) / this.zoom;
		this.zoom = zoom;
		this.#apply();
		this.changed();
	}

	/** Moves the least that brings a point of the world into the picture, `margin` from its border. */
	reveal({ x, y }, margin) {
		const room = Math.min(margin * this.zoom, this.width / 2, this.height / 2);
		const [sx, sy] = [x * this.zoom + this.x, y * this.zoom + this.y];
		this.x += Math.max(room - sx, 0) + Math.min(this.width - room - sx, 0);
		this.y += Math.max(room - sy, 0) + Math.min(this.height - room - sy, 0);
		this.#apply();
	}

	#apply() {
		this.x = Math.min(0, Math.max(this.x, this.width * (1 - this.zoom)));
		this.y = Math.min(0, Math.max(this.y, this.height * (1 - this.zoom)));
		attr(this.world, 'transform', `translate(${this.x} ${this.y}) scale(${this.zoom})`);
		this.picture.classList.toggle('zoomed', this.zoom > 1);
	}

	#wheel(event) {
		// At rest the wheel is the page's: a page that stops scrolling where a picture lies is a nuisance.
		const wanted = event.ctrlKey || event.metaKey || this.zoom > 1 || this.eager;
		const atRest = this.zoom === 1 && event.deltaY > 0;
		if (!wanted || (atRest && !event.ctrlKey)) return;
		event.preventDefault();
		const box = this.picture.getBoundingClientRect();
		const lines = event.deltaMode === 1 ? 20 : 1;
		this.by(Math.exp(-event.deltaY * lines * 0.002), { x: event.clientX - box.left, y: event.clientY - box.top });
	}

	#drag(down) {
		this.dragged = false;
		if (down.button !== 0 || this.zoom === 1) return;
		const start = { x: this.x, y: this.y };
		const move = (event) => {
			const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
			if (!this.dragged && Math.hypot(dx, dy) < 4) return;
			this.dragged = true;
			this.x = start.x + dx;
			this.y = start.y + dy;
			this.#apply();
		};
		const end = () => {
			removeEventListener('pointermove', move);
			removeEventListener('pointerup', end);
			removeEventListener('pointercancel', end);
		};
		addEventListener('pointermove', move);
		addEventListener('pointerup', end);
		addEventListener('pointercancel', end);
	}
}
