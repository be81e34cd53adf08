// The picture of a failure: its steps along an axis of milliseconds.

import { svg } from './dom.js';
import { number, span, word } from './format.js';

/** What each step is part of; the line up to it has that part's colour. */
const PHASES = {
	end: 'noticed', hint: 'noticed', alert: 'agreed', agreement: 'agreed', 'barrier 1': 'recovered', discard: 'recovered',
	'barrier 2': 'recovered', resume: 'recovered', restart: 'back', reintegrated: 'back',
};
const phaseOf = (step) => PHASES[step.step] ?? 'back';

const LEFT = 14;
const LANE = 18;
const LETTER = 6.9;
const MOST_LANES = 11;

/** Where a time lies between 0 and 1. Early steps crowd when the last one is far off: then equal factors are equal lengths. */
function scaleOf(times) {
	const most = Math.max(...times, 0.001);
	const sorted = [...times].sort((a, b) => a - b);
	const middle = sorted[Math.floor(sorted.length / 2)];
	if (middle / most > 0.15) return { at: (ms) => Math.max(ms, 0) / most, isEven: true, most };
	const unit = Math.max(sorted.find((ms) => ms > 0) ?? most, most / 1e4);
	return { at: (ms) => Math.log1p(Math.max(ms, 0) / unit) / Math.log1p(most / unit), isEven: false, most };
}

/** Round times on the axis that lie at least `room` apart, of a width of `length`. */
function ticksOf({ at, isEven, most }, length, room) {
	const ticks = [];
	if (isEven) {
		const rough = (most * room) / length;
		const power = 10 ** Math.floor(Math.log10(rough));
		const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
		for (let ms = 0; ms <= most * 1.0001; ms += step) ticks.push(ms);
		return ticks;
	}
	ticks.push(0);
	for (let power = -4; power < 8; power += 1) {
		for (const factor of [1, 2, 5]) {
			const ms = factor * 10 ** power;
			if (ms <= most && (at(ms) - at(ticks[ticks.length - 1])) * length >= room) ticks.push(ms);
		}
	}
	return ticks;
}

/**
 * Lanes for labels that begin at their step's place and reach to the right. From right to left, each takes the lowest
 * lane where neither another label nor another's line is in its way.
 */
function lanesOf(labels) {
	const lanes = new Array(labels.length);
	for (let index = labels.length - 1; index >= 0; index -= 1) {
		const { x, width } = labels[index];
		let lane = 0;
		for (let other = index + 1; other < labels.length; other += 1) {
			if (labels[other].x < x + width) lane = Math.max(lane, lanes[other] + 1);
		}
		lanes[index] = lane;
	}
	return lanes;
}

export function chartOf(allSteps, width, sentence) {
	const steps = allSteps.filter((step) => number(step.after_ms) !== null).sort((a, b) => a.after_ms - b.after_ms);
	if (steps.length === 0) return svg('svg', { width, height: 10, role: 'img', 'aria-label': `${sentence}. No step is timed yet.` });
	const scale = scaleOf(steps.map((step) => step.after_ms));
	const words = steps.map((step) => [word(step.step), span(step.after_ms)]);
	const widths = words.map(([name, time]) => (name.length + time.length + 1) * LETTER + 10);
	const length = Math.max(width - LEFT - widths[widths.length - 1], 60);
	const labels = steps.map((step, index) => ({ x: LEFT + scale.at(step.after_ms) * length, width: widths[index] }));
	const lanes = lanesOf(labels);
	const top = 6 + (Math.min(Math.max(...lanes), MOST_LANES) + 1) * LANE;
	const axis = top + 14;
	const picture = svg('svg', { width, height: axis + 32, role: 'img', 'aria-label': sentence });

	for (const ms of ticksOf(scale, length, 58)) {
		const x = LEFT + scale.at(ms) * length;
		picture.append(svg('path', { class: 'tick', d: `M${x} ${axis + 8}v5` }), svg('text', { class: 'tick-label', x, y: axis + 26, 'text-anchor': ms === 0 ? 'start' : 'middle' }, span(ms)));
	}
	picture.append(svg('text', { class: 'tick-label', x: width - 2, y: axis + 26, 'text-anchor': 'end' }, scale.isEven ? '' : 'logarithmic'));
	labels.slice(1).forEach(({ x }, index) => {
		picture.append(svg('path', { class: `stretch ${phaseOf(steps[index + 1])}`, d: `M${labels[index].x} ${axis}H${x}` }));
	});
	steps.forEach((step, index) => picture.append(mark(step, words[index], labels[index].x, lanes[index], axis)));
	return picture;
}

function mark(step, [name, time], x, lane, axis) {
	const y = axis - 20 - Math.min(lane, MOST_LANES) * LANE;
	const by = number(step.by) === null ? '' : `, by cell ${step.by}`;
	const detail = typeof step.detail === 'string' && step.detail !== '' ? `: ${step.detail}` : '';
	const parts = [
		svg('title', {}, `${name} after ${time}${by}${detail}`),
		svg('path', { class: 'leader', d: `M${x} ${axis}V${y - 8}` }),
		svg('circle', { class: 'dot', cx: x, cy: axis, r: 5 }),
	];
	if (lane <= MOST_LANES) {
		parts.push(svg('text', { x: x + 5, y: y + 3 }, svg('tspan', { class: 'step-name' }, name), svg('tspan', { class: 'step-time', dx: 5 }, time)));
	}
	return svg('g', { class: `step ${phaseOf(step)}` }, ...parts);
}
