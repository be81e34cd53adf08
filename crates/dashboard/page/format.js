// Numbers as people read them. Each takes whatever came, and what is no number is "–".

export const NONE = '–';

/** A finite number, or null. */
export const number = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);

/** A number that is not below nothing; what is none is nothing. */
export const amount = (value) => Math.max(number(value) ?? 0, 0);

const shown = (show) => (value) => (number(value) === null ? NONE : show(value));

/** Text that came, or "–". */
export const word = (value) =>
	typeof value === 'string' && value !== '' ? value : number(value) === null ? NONE : String(value);

const digits = (value) => (value >= 9.95 || value === 0 ? String(Math.round(value)) : value.toFixed(1));

function scaled(value, units, step) {
	let unit = 0;
	while (Math.abs(value) >= step * 0.9995 && unit + 1 < units.length) {
		value /= step;
		unit += 1;
	}
	return [value, units[unit], unit];
}

export const count = shown((value) => {
	const [scaledValue, unit, power] = scaled(value, ['', 'k', 'M', 'G', 'T'], 1000);
	return power === 0 ? String(Math.round(value)) : digits(scaledValue) + unit;
});

export const bytes = shown((value) => {
	const [scaledValue, unit, power] = scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024);
	return `${power === 0 ? Math.round(value) : digits(scaledValue)} ${unit}`;
});

export const perSecond = shown((value) => `${value < 1000 ? digits(value) : count(value)}/s`);

export const percent = shown((share) => {
	const value = share * 100;
	return `${value > 0 && value < 0.95 ? value.toFixed(1) : Math.round(value)} %`;
});

/** A span of up to seconds, given in milliseconds, to two or three digits: for what failures take. */
export const span = shown((ms) => {
	if (ms === 0) return '0 ms';
	if (ms < 0.001) return `${Math.round(ms * 1e6)} ns`;
	if (ms < 0.1) return `${digits(ms * 1000)} µs`;
	if (ms < 1) return `${ms.toFixed(2)} ms`;
	if (ms < 1000) return `${digits(ms)} ms`;
	return ms < 60_000 ? `${digits(ms / 1000)} s` : age(ms);
});

/** A span of seconds to days, given in milliseconds. */
export const age = shown((ms) => {
	const s = Math.max(0, Math.floor(ms / 1000));
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
	if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
	return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
});

export const clock = shown((ms) => {
	const date = new Date(ms);
	return Number.isNaN(date.getTime()) ? NONE : date.toTimeString().slice(0, 8);
});

/** "1 task", "3 tasks". */
export const several = (n, one) => `${number(n) === null ? NONE : n} ${one}${n === 1 ? '' : 's'}`;
