// The dashboard's page: what the server tells goes into one snapshot, and each part of the page draws from it.

import { Actions } from './actions.js';
import { Detail } from './detail.js';
import { attr, byId, hide, text } from './dom.js';
import { Events } from './events.js';
import { NONE, amount, perSecond, several, word } from './format.js';
import { Honeycomb } from './honeycomb.js';
import { Legend } from './legend.js';
import { lock, onToken, takeToken, unlock } from './session.js';
import { snapshotOf } from './snapshot.js';
import { Stream } from './stream.js';
import { hostsTable, regionsTable, tasksTable } from './tables.js';
import { Timeline } from './timeline.js';

let snapshot = null;
let stream = null;
let isDue = false;
let task = null;

const announce = (sentence) => text(byId('announce'), sentence);
const refused = () => {
	stream?.stop();
	status('locked', 'no token');
	lock('The server does not take the token that this tab had: it belongs to an earlier dashboard.');
};
const actions = new Actions(refused);
const honeycomb = new Honeycomb(byId('cells'), select);
const legend = new Legend(byId('legend'));
const detail = new Detail(byId('detail'), actions, () => {
	const key = honeycomb.selected;
	select(null);
	document.querySelector(`.cells [data-key="${CSS.escape(key)}"]`)?.focus();
});
const timeline = new Timeline(announce);
const tasks = tasksTable(byId('tasks'), (key) => {
	task = key;
	showTask();
});
const regions = regionsTable(byId('regions'));
const hosts = hostsTable(byId('hosts'));
const events = new Events((cell) => {
	const key = snapshot?.byCell.get(cell)?.key;
	if (key !== undefined) select(key);
});

byId('zoom-in').addEventListener('click', () => honeycomb.zoomBy(1.6));
byId('zoom-out').addEventListener('click', () => honeycomb.zoomBy(1 / 1.6));
byId('zoom-fit').addEventListener('click', () => honeycomb.camera.fit());
onToken(open);

const token = takeToken();
if (token) {
	open(token);
} else {
	status('locked', 'no token');
	lock('Whoever has the token may see and end what runs here; so the page does not come with it.');
}

function open(withToken) {
	stream?.stop();
	unlock();
	actions.use(withToken);
	stream = new Stream(withToken, { state: take, event: (event) => events.take(event), status, refused });
	stream.run();
}

/** States can come faster than pictures are drawn: only the newest is. */
function take(raw) {
	snapshot = snapshotOf(raw);
	if (isDue) return;
	isDue = true;
	requestAnimationFrame(() => {
		isDue = false;
		render();
	});
}

function render() {
	header();
	hide(byId('no-cells'), snapshot.cells.length > 0);
	honeycomb.render(snapshot);
	showTask();
	legend.render(snapshot);
	detail.render(snapshot, honeycomb.byKey.get(honeycomb.selected) ?? null);
	timeline.render(snapshot);
	tasks.render(snapshot.tasks, snapshot);
	regions.render(snapshot.regions, snapshot);
	hosts.render(snapshot.hosts, snapshot);
}

function header() {
	const up = snapshot.cells.filter((cell) => cell.state === 'up').length;
	const name = word(snapshot.comb) === NONE ? 'comb' : snapshot.comb;
	text(byId('comb-name'), name);
	text(byId('comb-version'), word(snapshot.version));
	text(byId('count-cells'), `${up} of ${snapshot.cells.length}`);
	attr(byId('count-cells'), 'data-tone', up < snapshot.cells.length ? 'bad' : null);
	const hostsUp = snapshot.hosts.filter((host) => host.state === 'up').length;
	text(byId('count-hosts'), `${hostsUp} of ${snapshot.hosts.length}`);
	attr(byId('count-hosts'), 'data-tone', hostsUp < snapshot.hosts.length ? 'bad' : null);
	text(byId('count-tasks'), String(snapshot.tasks.length));
	text(byId('count-messages'), perSecond(snapshot.edges.reduce((all, edge) => all + amount(edge.messages_per_s), 0)));
	const title = `${name}: ${up} of ${several(snapshot.cells.length, 'cell')} up`;
	if (document.title !== title) document.title = title;
}

function status(state, sentence) {
	attr(document.body, 'data-connection', state);
	text(byId('connection'), sentence);
}

function select(key) {
	if (!snapshot) return;
	honeycomb.select(key);
	detail.render(snapshot, honeycomb.byKey.get(key) ?? null);
}

let shownTask = null;

function showTask() {
	const chosen = snapshot?.tasks.find(({ key }) => key === task);
	const shown = chosen ? { cells: chosen.cells, needed: chosen.needed } : null;
	const said = JSON.stringify(shown);
	if (said === shownTask) return;
	shownTask = said;
	honeycomb.showTask(shown);
}
