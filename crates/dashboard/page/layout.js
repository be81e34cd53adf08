// Where cells are drawn: each host's cells are a honeycomb of their own, and the hosts lie in rows. Numbers only.

const LARGEST_RADIUS = 74;
const LABEL_HEIGHT = 26;
/** Room around a host's cells: many hosts have less of it. */
const gutterOf = (hosts) => (hosts <= 4 ? 18 : 7);
const ROOT3 = Math.sqrt(3);

/** Up to so many cells, room is left between them, in which all edges are drawn. */
export const FEW_CELLS = 16;

/** Distance between neighbours, in units of touching ones. */
const gapOf = (cells) => (cells <= FEW_CELLS ? 1.55 : 1.09);

const widthOf = (columns, rows, gap) => ((columns - 1 + (rows > 1 ? 0.5 : 0)) * gap + 1) * ROOT3;
const heightOf = (rows, gap) => (rows - 1) * 1.5 * gap + 2;

/** How many columns make `count` hexagons largest in a slot, and their radius then. Few lie rather in a square than in a row. */
function fitCells(count, width, height, gap) {
	const forSquare = count <= FEW_CELLS ? 0.03 : 0;
	let best = { columns: 1, rows: 1, radius: 0, worth: 0 };
	for (let columns = 1; columns <= Math.max(count, 1); columns += 1) {
		const rows = Math.ceil(Math.max(count, 1) / columns);
		const [w, h] = [widthOf(columns, rows, gap), heightOf(rows, gap)];
		const radius = Math.min(width / w, height / h, LARGEST_RADIUS);
		const worth = radius * Math.max(1 - forSquare * Math.abs(w - h), 0.2);
		if (worth > best.worth) best = { columns, rows, radius, worth };
	}
	return best;
}

/**
 * Places cells in a picture of `width` by `height`: `{ radius, cells: Map(key → {x, y}), hosts: Map(name → {x, y, width,
 * height, labelY}) }`.
 */
export function place(hosts, cells, width, height) {
	const gap = gapOf(cells.length);
	const of = new Map(hosts.map((host) => [host.name, []]));
	for (const cell of cells) of.get(cell.hostName).push(cell);
	const most = Math.max(1, ...[...of.values()].map((own) => own.length));
	const gutter = gutterOf(of.size);
	const best = fitHosts(of.size, most, width, height, gap, gutter);
	const { radius } = best;

	const placed = { radius, cells: new Map(), hosts: new Map() };
	// What room is left beside few cells goes between them, where the edges are.
	const steps = best.columns - 1 + (best.rows > 1 ? 0.5 : 0) || 1;
	const roomy = ((width / best.across - 2 * gutter) / (radius * ROOT3) - 1) / steps;
	const gapX = cells.length > FEW_CELLS ? gap : Math.max(gap, Math.min(gap * 1.4, roomy));
	const blockWidth = widthOf(best.columns, best.rows, gapX) * radius;
	const blockHeight = heightOf(best.rows, gap) * radius + LABEL_HEIGHT;
	const rowsOfHosts = Math.ceil(of.size / best.across);
	const slotWidth = Math.min(width / best.across, blockWidth + 4.5 * gutter);
	const slotHeight = Math.min(height / rowsOfHosts, blockHeight + 3 * gutter);
	const left = (width - slotWidth * best.across) / 2;
	const top = (height - slotHeight * rowsOfHosts) / 2;
	let index = 0;
	for (const [name, own] of of) {
		const slot = { x: left + (index % best.across) * slotWidth, y: top + Math.floor(index / best.across) * slotHeight };
		const x = slot.x + (slotWidth - blockWidth) / 2;
		const y = slot.y + (slotHeight - blockHeight) / 2;
		const inset = gutter / 3;
		placed.hosts.set(name, {
			x: slot.x + inset,
			y: slot.y + inset,
			width: slotWidth - 2 * inset,
			height: slotHeight - 2 * inset,
			labelX: slot.x + inset + 12,
			labelY: slot.y + inset + 19,
		});
		own.forEach((cell, at) => {
			const row = Math.floor(at / best.columns);
			const column = at % best.columns;
			placed.cells.set(cell.key, {
				x: x + radius * ROOT3 * (0.5 + (column + (row % 2) / 2) * gapX),
				y: y + LABEL_HEIGHT + radius * (1 + row * 1.5 * gap),
			});
		});
		index += 1;
	}
	return placed;
}

function fitHosts(hosts, most, width, height, gap, gutter) {
	let best = { across: 1, columns: 1, rows: 1, radius: 0, worth: 0 };
	for (let across = 1; across <= Math.max(hosts, 1); across += 1) {
		const down = Math.ceil(Math.max(hosts, 1) / across);
		const slotWidth = Math.max(width / across - 2 * gutter, 1);
		const slotHeight = Math.max(height / down - LABEL_HEIGHT - 1.5 * gutter, 1);
		const fit = fitCells(most, slotWidth, slotHeight, gap);
		if (fit.worth > best.worth) best = { across, ...fit };
	}
	return best;
}

/** The cell that lies from `from` in the direction of an arrow key, or null. */
export function neighbour(cells, from, key) {
	const start = cells.get(from);
	if (!start) return null;
	const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
	let best = null;
	let least = Infinity;
	for (const [other, at] of cells) {
		const along = (at.x - start.x) * dx + (at.y - start.y) * dy;
		const aside = Math.abs((at.x - start.x) * dy) + Math.abs((at.y - start.y) * dx);
		if (along < 1) continue;
		const cost = along + 2.2 * aside;
		if (cost < least) [best, least] = [other, cost];
	}
	return best;
}

/** A hexagon of `radius` that stands on a corner, filled from below to `share` of its height; its surface is a wave. */
export function honeyPath(radius, share) {
	if (share <= 0) return 'M0 0';
	const y = radius - 2 * radius * Math.min(share, 1);
	const half = (at) => (Math.abs(at) <= radius / 2 ? (ROOT3 / 2) * radius : (radius - Math.abs(at)) * ROOT3);
	const side = (ROOT3 / 2) * radius;
	const wave = Math.min(5, half(y) / 6);
	const round = (value) => Math.round(value * 10) / 10;
	const points = [[half(y), y]];
	if (y < -radius / 2) points.push([side, -radius / 2]);
	if (y < radius / 2) points.push([side, radius / 2]);
	points.push([0, radius]);
	if (y < radius / 2) points.push([-side, radius / 2]);
	if (y < -radius / 2) points.push([-side, -radius / 2]);
	points.push([-half(y), y]);
	const rest = points.map(([px, py]) => `L${round(px)} ${round(py)}`).join('');
	const [w, q] = [round(half(y)), round(half(y) / 2)];
	return `M${-w} ${round(y)}Q${-q} ${round(y - wave)} 0 ${round(y)}T${w} ${round(y)}${rest}Z`;
}
