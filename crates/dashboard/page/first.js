// The stream is asked for before the modules are here: both take as long as the other. A classic script in the head, as theme.js.
(() => {
	let token = /[#&]token=([^&]+)/.exec(location.hash)?.[1];
	try {
		token ??= sessionStorage.getItem('comb-token');
	} catch {
		// A browser that keeps nothing: the page will ask.
	}
	if (!token) return;
	const connection = new AbortController();
	const headers = { Authorization: `Bearer ${token}`, Accept: 'text/event-stream' };
	const answer = fetch('/api/stream', { headers, cache: 'no-store', signal: connection.signal });
	answer.catch(() => {}); // stream.js sees it.
	globalThis.combFirst = { token, connection, answer };
})();
