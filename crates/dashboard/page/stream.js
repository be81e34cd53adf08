// The server's stream of states and events. It is read with fetch, for an EventSource cannot send the token.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;

/** A state comes about once a second. Without a byte for ten of them, the connection is dead and nobody has said so. */
const SILENCE_MS = 10_000;

/** Takes bytes of `text/event-stream` as they come, in pieces of any size, and gives whole messages. */
export class Messages {
	#rest = '';
	#text = new TextDecoder();
	#message = { event: '', id: null, data: [] };

	*push(bytes) {
		this.#rest += this.#text.decode(bytes, { stream: true });
		// A carriage return at the end may be half of a line's end.
		const lines = this.#rest.split(/\r\n|\n|\r(?!$)/);
		this.#rest = lines.pop();
		for (const line of lines) {
			if (line === '') {
				const { event, id, data } = this.#message;
				this.#message = { event: '', id: null, data: [] };
				if (data.length > 0 || event !== '') yield { event: event || 'message', id, data: data.join('\n') };
			} else {
				this.#line(line);
			}
		}
	}

	#line(line) {
		if (line.startsWith(':')) return;
		const colon = line.indexOf(':');
		const field = colon < 0 ? line : line.slice(0, colon);
		const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
		if (field === 'event') this.#message.event = value;
		else if (field === 'id') this.#message.id = value;
		else if (field === 'data') this.#message.data.push(value);
	}
}

/**
 * Reads the stream until `stop`, and connects again whenever it is lost.
 *
 * `on.state(object)`, `on.event(object)`, `on.status(word, sentence)` with a word of connecting, live, lost, gone;
 * `on.refused()` once if the server does not take the token: nothing comes after that.
 */
export class Stream {
	#token;
	#on;
	#stopped = new AbortController();
	#lastId = null;
	#wait = FIRST_WAIT_MS;
	#gone = false;

	constructor(token, on) {
		this.#token = token;
		this.#on = on;
	}

	stop() {
		this.#stopped.abort();
	}

	async run() {
		const stopped = this.#stopped.signal;
		this.#on.status('connecting', 'connecting');
		while (!stopped.aborted) {
			try {
				if (!(await this.#once())) {
					if (!stopped.aborted) this.#on.refused();
					return;
				}
			} catch {
				// Whatever it was, the answer is to try again; the page says so.
			}
			if (stopped.aborted) return;
			if (this.#gone) this.#on.status('gone', 'taken down; looking for it again');
			else this.#on.status('lost', 'reconnecting');
			await this.#pause(this.#gone ? LONGEST_WAIT_MS : this.#wait);
			this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
		}
	}

	/** One connection, to its end. False if the token was refused. */
	async #once() {
		const first = this.#first();
		const connection = first?.connection ?? new AbortController();
		const abort = () => connection.abort();
		this.#stopped.signal.addEventListener('abort', abort);
		let silence = setTimeout(abort, SILENCE_MS);
		try {
			const headers = { Authorization: `Bearer ${this.#token}`, Accept: 'text/event-stream' };
			if (this.#lastId !== null) headers['Last-Event-ID'] = this.#lastId;
			const ask = () => fetch('/api/stream', { headers, cache: 'no-store', signal: connection.signal });
			const answer = await (first?.answer ?? ask());
			if (answer.status === 401) return false;
			if (!answer.ok) return true;
			const reader = answer.body.getReader();
			const messages = new Messages();
			for (;;) {
				const { done, value } = await reader.read();
				if (done || this.#stopped.signal.aborted) return true;
				clearTimeout(silence);
				silence = setTimeout(abort, SILENCE_MS);
				for (const message of messages.push(value)) this.#take(message);
				if (this.#gone) return true;
			}
		} finally {
			clearTimeout(silence);
			this.#stopped.signal.removeEventListener('abort', abort);
			connection.abort();
		}
	}

	/** The answer that first.js has asked for, once, if it is with this token. */
	#first() {
		const first = globalThis.combFirst;
		globalThis.combFirst = null;
		if (!first || (first.token === this.#token && this.#lastId === null)) return first;
		first.connection.abort();
		return null;
	}

	#take({ event, id, data }) {
		if (id !== null) this.#lastId = id;
		if (event === 'bye') {
			this.#gone = true;
			return;
		}
		let content;
		try {
			content = JSON.parse(data);
		} catch {
			return; // Half a message of a server that died: the next state is whole.
		}
		this.#wait = FIRST_WAIT_MS;
		this.#gone = false;
		if (event === 'state') {
			this.#on.status('live', 'live');
			this.#on.state(content);
		} else if (event === 'event') {
			this.#on.event(content);
		}
	}

	#pause(ms) {
		const stopped = this.#stopped.signal;
		return new Promise((resolve) => {
			const done = () => {
				clearTimeout(timer);
				stopped.removeEventListener('abort', done);
				resolve();
			};
			const timer = setTimeout(done, ms);
			stopped.addEventListener('abort', done);
		});
	}
}
