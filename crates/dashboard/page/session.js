// The token: it comes with the address, is kept for this tab only, and leaves the address bar at once.

import { byId, hide, text } from './dom.js';

const KEY = 'comb-token';

/** The token in what somebody pasted: a whole address, its fragment, or the token alone. */
function tokenIn(pasted) {
	const found = /(?:^|[#&?])token=([^&\s]+)/.exec(pasted);
	return (found ? found[1] : pasted).trim();
}

/** Takes the token from the address, if it has one, and out of it; else the one that this tab has. */
export function takeToken() {
	if (/[#&]token=/.test(location.hash)) {
		const token = tokenIn(location.hash);
		history.replaceState(null, '', location.pathname + location.search);
		keep(token);
		return token;
	}
	try {
		return sessionStorage.getItem(KEY);
	} catch {
		return null;
	}
}

function keep(token) {
	try {
		if (token === null) sessionStorage.removeItem(KEY);
		else sessionStorage.setItem(KEY, token);
	} catch {
		// Without storage it holds until the page is loaded anew.
	}
}

/** Forgets the token and asks for another one. */
export function lock(why) {
	keep(null);
	text(byId('locked-why'), why);
	hide(byId('board'), true);
	hide(byId('locked'), false);
	byId('token').focus();
}

export function unlock() {
	hide(byId('locked'), true);
	hide(byId('board'), false);
}

/** `open(token)` is called for each token that somebody gives, by the form or by another address in the same tab. */
export function onToken(open) {
	const field = byId('token');
	byId('token-form').addEventListener('submit', (event) => {
		event.preventDefault();
		const token = tokenIn(field.value);
		if (token === '') return;
		field.value = '';
		keep(token);
		open(token);
	});
	addEventListener('hashchange', () => {
		if (/[#&]token=/.test(location.hash)) open(takeToken());
	});
}
