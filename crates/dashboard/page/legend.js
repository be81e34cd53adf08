// What the signs of the honeycomb mean.

import { hide, html, svg } from './dom.js';
import { HEXAGON, LEVELS, SIGNS } from './hexagon.js';

/** The legend has the states that are there, and what the other signs mean. */
export class Legend {
  constructor(list) {
    this.states = Object.entries(SIGNS).map(([state, sign]) => {
      const picture = svg('svg', { viewBox: '-100 -100 200 200', 'aria-hidden': 'true' }, svg('g', { class: 'cell', 'data-state': state }, svg('path', { class: 'wax', d: HEXAGON }), svg('path', { class: 'sign', d: sign, fill: 'none' })));
      return { state, item: this.#item(list, picture, state) };
    });
    const bar = (kind) => svg('svg', { viewBox: '0 0 20 20', 'aria-hidden': 'true' }, svg('path', { class: `bar ${kind}`, d: 'M3 10H17' }));
    this.others = [
      ['load', svg('svg', { viewBox: '-100 -100 200 200', 'aria-hidden': 'true' }, svg('g', { class: 'cell', 'data-state': 'up' }, svg('path', { class: 'wax', d: HEXAGON }), svg('path', { class: 'honey', d: LEVELS[16] })))],
      ['own memory', bar('own')],
      ['imported', bar('imported')],
      ['loaned', bar('loaned')],
      ['messages', svg('svg', { viewBox: '0 0 28 20', 'aria-hidden': 'true' }, svg('g', { class: 'edge messages' }, svg('path', { d: 'M2 10H24M18 5 24 10 18 15', 'stroke-width': 2, fill: 'none' })))],
      ['may store to', svg('svg', { viewBox: '0 0 28 20', 'aria-hidden': 'true' }, svg('g', { class: 'edge rights' }, svg('path', { d: 'M2 10H19', 'stroke-width': 2 }), svg('path', { class: 'filled', d: 'M20 7H26V13H20Z' })))],
    ].map(([name, picture]) => this.#item(list, picture, name));
  }

  #item(list, picture, name) {
    const item = html('li', {}, picture, name);
    list.append(item);
    return item;
  }

  render(snapshot) {
    const there = new Set(snapshot.cells.map((cell) => cell.state));
    for (const { state, item } of this.states) hide(item, !there.has(state) && state !== 'up');
  }
}
