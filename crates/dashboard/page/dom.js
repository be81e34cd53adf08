// The page's way to the document. Text from the server goes through `text` and `attr` only: it is never read as HTML.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; strings among the children are text. */
export function html(tag, attributes = {}, ...children) {
	return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
	return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
	for (const name in attributes) node.setAttribute(name, attributes[name]);
	node.append(...children);
	return node;
}

/** Sets the text of a node that has only text, and touches nothing if it has it already. */
export function text(node, value) {
	const wanted = String(value);
	const first = node.firstChild;
	if (first === null) {
		if (wanted !== '') node.append(wanted);
	} else if (first.data !== wanted) {
		first.data = wanted;
	}
}

/** Sets an attribute, or takes it away if the value is null; touches nothing if it is so already. */
export function attr(node, name, value) {
	const wanted = value === null ? null : String(value);
	if (node.getAttribute(name) === wanted) return;
	if (wanted === null) node.removeAttribute(name);
	else node.setAttribute(name, wanted);
}

export function hide(node, hidden) {
	if (node.hidden !== hidden) node.hidden = hidden;
}

/**
 * Keeps one child of `parent` for each item, by key and in order: `make(item)` gives a new child's handle (with its
 * `node`), `update(handle, item)` brings it up to date. Children that stay are not moved.
 */
export class Keyed {
	constructor(parent, make, update) {
		Object.assign(this, { parent, make, update, handles: new Map() });
	}

	render(items, keyOf) {
		const gone = new Set(this.handles.keys());
		let before = this.parent.firstChild;
		for (const item of items) {
			const key = keyOf(item);
			let handle = this.handles.get(key);
			if (!handle) {
				handle = this.make(item);
				this.handles.set(key, handle);
			}
			gone.delete(key);
			if (handle.node === before) before = before.nextSibling;
			else this.parent.insertBefore(handle.node, before);
			this.update(handle, item);
		}
		for (const key of gone) {
			this.handles.get(key).node.remove();
			this.handles.delete(key);
		}
	}
}
