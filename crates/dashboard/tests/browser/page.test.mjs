// The page in a real browser, in front of a server that plays a comb.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { brokenReferences, faintText, nameless, overflow } from './accessible.mjs';
import { cellAt, hasBrowser, launch, openPage, whenAllUp, whenCell, whenConnection, whenDrawn, whenFailure, whenLife } from './driver.mjs';
import { Mock, bytesOf, files } from './mock.mjs';
import * as worlds from './worlds.mjs';

/** The page is sent as it is: that is why its files are indented with tabs. */
const MOST_BYTES = 110 * 1024;
/** Of an update of so many cells: one for the honey of each, and a little for the rest of the page. */
const mostChanges = (cells) => cells + 100;

let browser;

/** Runs `test(page, mock)` in front of `state`; fails if the page complained of anything but what is `expected`. */
async function inFrontOf(state, test, { expected = /^$/, address = (mock) => mock.url, ...options } = {}) {
  const mock = await new Mock(state).start();
  const page = await openPage(browser, address(mock), options);
  try {
    await test(page, mock);
    assert.deepEqual(page.complaints.filter((complaint) => !expected.test(complaint)), []);
    assert.deepEqual(page.foreign, []);
  } finally {
    await page.context().close();
    await mock.stop();
  }
}

/** The browser says in its console that a connection was cut or an answer was an error; nobody can keep it from that. */
const CUT = /Failed to load resource|net::ERR_/;

const said = (page, selector) => page.locator(selector).textContent();

describe('the page', { skip: !hasBrowser && 'there is no chromium: scripts/setup-test.sh installs it' }, () => {
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  it('shows cells, tasks, regions and hosts', () =>
    inFrontOf(worlds.four(), async (page) => {
      assert.equal(await whenAllUp(page), 4);
      assert.equal(await cellAt(page, 2).getAttribute('aria-label'), 'cell 2 on host alpha: up, 1 task');
      assert.equal(await said(page, '#count-cells'), '4 of 4');
      assert.match(await said(page, '#tasks tbody'), /4711.*heat 500 5.*cell 2 \(1 component, memory\)/);
      assert.match(await said(page, '#regions tbody'), /tally.*1\.0 MiB.*3\.5\/s/);
      assert.match(await said(page, '#hosts tbody'), /alpha \(this one\)up/);
      assert.equal(await page.title(), 'comb: 4 of 4 cells up');
      await cellAt(page, 2).click();
      assert.match(await said(page, '#detail'), /Cell 2.*life 1, process 14002/);
      const labels = await page.locator('.strong .edge:not(.unused) text').allTextContents();
      assert.equal(labels.filter((label) => label.endsWith('/s')).length, 6);
      assert.deepEqual(labels.filter((label) => label.endsWith('pages')).sort(), ['17 pages', '230 pages', '4 pages']);
      await page.locator('#tasks tbody button').click();
      assert.equal(await page.locator('#cells .cell[data-task]').count(), 3);
    }));

  it('takes the token out of the address, and keeps it for the tab', () =>
    inFrontOf(worlds.four(), async (page, mock) => {
      await whenAllUp(page);
      assert.equal(page.url(), mock.base);
      await page.reload();
      await whenAllUp(page);
      const asked = mock.requests.filter(({ path }) => path.startsWith('/api/'));
      assert.ok(asked.length >= 2);
      assert.ok(asked.every(({ authorization }) => authorization === `Bearer ${mock.token}`));
      assert.ok(mock.requests.filter(({ path }) => !path.startsWith('/api/')).every(({ authorization }) => authorization === null));
    }));

  it('asks for a token when it has none, and takes a whole address', () =>
    inFrontOf(
      worlds.four(),
      async (page, mock) => {
        await page.getByRole('heading', { name: 'This page needs its token' }).waitFor();
        assert.equal(mock.requests.filter(({ path }) => path.startsWith('/api/')).length, 0);
        await page.getByLabel('Token, or the whole address').fill(mock.url);
        await page.keyboard.press('Enter');
        assert.equal(await whenAllUp(page), 4);
      },
      { address: (mock) => mock.base },
    ));

  it('asks again when the token is refused, and forgets it', () =>
    inFrontOf(
      worlds.four(),
      async (page, mock) => {
        await whenAllUp(page);
        mock.refusing = true;
        mock.drop();
        await whenConnection(page, 'locked');
        assert.equal(await page.evaluate(() => sessionStorage.length), 0);
        assert.match(await said(page, '#locked-why'), /does not take the token/);
        assert.deepEqual(await nameless(page), []);
        assert.deepEqual((await faintText(page)).faint, []);
      },
      { expected: CUT },
    ));

  it('follows what changes, and tells events', () =>
    inFrontOf(worlds.four(), async (page, mock) => {
      await whenAllUp(page);
      assert.ok(await page.locator('#no-events').isVisible());
      const before = await cellAt(page, 4).locator('.honey').getAttribute('d');
      mock.change((state) => {
        state.cells[3].cpu_share = 0.99;
        state.cells[2].state = 'draining';
      });
      await whenCell(page, 3, 'draining');
      assert.notEqual(await cellAt(page, 4).locator('.honey').getAttribute('d'), before);
      assert.equal(await said(page, '#count-cells'), '3 of 4');
      mock.event('cell_draining', 3, 'cell 3 drains');
      mock.event('cell_up', 4, 'cell 4 is up');
      await page.locator('#events li').nth(1).waitFor();
      await page.getByLabel('Events of this cell').fill('3');
      assert.deepEqual(await page.locator('#events li:visible span').allTextContents(), ['cell 3 drains']);
      await page.getByLabel('Events of this cell').fill('');
      await page.getByLabel('Events with this text').fill('is UP');
      assert.deepEqual(await page.locator('#events li:visible span').allTextContents(), ['cell 4 is up']);
      await page.getByRole('button', { name: 'Show cell 4' }).click();
      assert.equal(await cellAt(page, 4).getAttribute('aria-selected'), 'true');
      // A message may come in pieces, with any end of line, and what is no JSON is passed over.
      mock.raw('event: st');
      mock.raw(`ate\r\ndata: ${JSON.stringify({ ...mock.state, comb: 'other' }).replace(/^\{/, '{\r\ndata: ')}\r`);
      mock.raw('\n\r\nevent: state\ndata: {"half\n\n');
      await page.waitForFunction(() => document.getElementById('comb-name').textContent === 'other');
      assert.equal(await page.locator('body').getAttribute('data-connection'), 'live');
    }));

  it('asks before it kills, posts with the token, and shows what then happens', () =>
    inFrontOf(worlds.four(), async (page, mock) => {
      await whenAllUp(page);
      await cellAt(page, 2).click();
      const kill = page.getByRole('button', { name: 'Kill cell 2' });
      await kill.click();
      const dialog = page.getByRole('dialog', { name: 'Kill cell 2?' });
      await dialog.getByText('1 task in it: 4711').waitFor();
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'hidden' });
      assert.ok(await kill.evaluate((node) => node === document.activeElement));
      assert.equal(mock.requests.filter(({ method }) => method === 'POST').length, 0);

      let goOn = () => {};
      mock.pause = () => new Promise((resolve) => (goOn = resolve));
      await kill.click();
      await dialog.getByRole('button', { name: 'Kill cell 2' }).click();
      await page.locator('.toast', { hasText: 'cell 2: kill is done' }).waitFor();
      const posted = mock.requests.filter(({ method }) => method === 'POST');
      assert.deepEqual(posted, [{ method: 'POST', path: '/api/cells/2/kill', authorization: `Bearer ${mock.token}`, lastId: null }]);
      await whenCell(page, 2, 'ended');
      await whenFailure(page, 2, ['end', 'hint', 'agreement']);
      assert.match(await page.getByRole('alert').textContent(), /Cell 2 failed: killed by signal 9/);
      assert.ok(await kill.isDisabled());
      goOn();
      await whenCell(page, 2, 'recovering');
      goOn();
      await whenCell(page, 2, 'up');
      await whenFailure(page, 2, ['end', 'hint', 'alert', 'agreement', 'barrier 1', 'discard', 'barrier 2', 'resume', 'restart', 'reintegrated']);
      await whenLife(page, 2);
      assert.match(await said(page, '#failure-summary'), /noticed after 0\.38 ms.*21 pages discarded.*back after 58 ms/);
      assert.equal(await page.locator('#failure-chart .step').count(), 10);
      const places = await page.locator('#failure-chart .dot').evaluateAll((dots) => dots.map((dot) => Number(dot.getAttribute('cx'))));
      assert.deepEqual(places, [...places].sort((a, b) => a - b));
      assert.match(await page.getByRole('alert').textContent(), /Cell 2 is back after 58 ms/);
    }));

  it('shows an earlier failure on request, and a new one by itself', () =>
    inFrontOf(
      { ...worlds.four(), failures: [worlds.failure(3, 1, 2_000_000_000_000), worlds.failure(1, 1, 1_000_000_000_000)] },
      async (page, mock) => {
        await whenFailure(page, 3, ['reintegrated']);
        await page.getByLabel('Which failure').selectOption({ index: 1 });
        await whenFailure(page, 1, ['reintegrated']);
        mock.tell();
        await whenDrawn(page);
        await whenFailure(page, 1, ['reintegrated']);
        await mock.kill(4);
        await whenFailure(page, 4, ['reintegrated']);
        assert.equal(await page.getByLabel('Which failure').locator('option').count(), 3);
      },
    ));

  it('tells what the server refuses, and keeps that until it is dismissed', () =>
    inFrontOf(
      worlds.four(),
      async (page) => {
        await whenAllUp(page);
        await cellAt(page, 1).click();
        await page.getByRole('button', { name: 'Restart cell 1' }).click();
        const toast = page.locator('.toast.error', { hasText: 'cell 1 is up: end it first' });
        await toast.waitFor();
        await toast.getByRole('button', { name: 'Dismiss' }).click();
        await toast.waitFor({ state: 'detached' });
      },
      { expected: CUT },
    ));

  it('offers nothing to do where it may only look', () =>
    inFrontOf({ ...worlds.four(), may_act: false }, async (page) => {
      await whenAllUp(page);
      await cellAt(page, 1).click();
      await page.getByText('This page may look only.').waitFor();
      assert.equal(await page.getByRole('button', { name: 'Kill cell 1' }).count(), 0);
    }));

  it('connects again after a loss, and asks for what it missed', () =>
    inFrontOf(
      worlds.four(),
      async (page, mock) => {
        await whenAllUp(page);
        mock.event('cell_up', 1, 'the first');
        await page.locator('#events li').first().waitFor();
        mock.unavailable = true;
        mock.drop();
        await whenConnection(page, 'lost');
        assert.equal(await said(page, '#connection'), 'reconnecting');
        assert.equal(await page.locator('#connection').getAttribute('role'), 'status');
        mock.event('cell_up', 2, 'the second');
        mock.state.cells[3].state = 'held';
        mock.unavailable = false;
        await whenConnection(page, 'live');
        await whenCell(page, 4, 'held');
        await page.locator('#events li').nth(1).waitFor();
        assert.deepEqual(await page.locator('#events li span').allTextContents(), ['the first', 'the second']);
        assert.equal(mock.requests.filter(({ path }) => path === '/api/stream').at(-1).lastId, '1');
      },
      { expected: CUT },
    ));

  it('says that the comb was taken down, and finds the next one', () =>
    inFrontOf(
      worlds.four(),
      async (page, mock) => {
        await whenAllUp(page);
        mock.unavailable = true;
        mock.bye();
        await whenConnection(page, 'gone');
        assert.match(await said(page, '#connection'), /taken down/);
        mock.unavailable = false;
        await whenConnection(page, 'live');
      },
      { expected: CUT },
    ));

  it('can be worked by keyboard alone', () =>
    inFrontOf(worlds.four(), async (page, mock) => {
      await whenAllUp(page);
      const focused = () => page.evaluate(() => document.activeElement.dataset.key ?? document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent);
      for (const name of ['Switch to dark colours', 'Zoom out', 'Zoom in', 'Fit', '1']) {
        await page.keyboard.press('Tab');
        assert.equal(await focused(), name);
      }
      for (const [key, cell] of [['ArrowRight', '2'], ['ArrowDown', '3'], ['ArrowRight', '4'], ['ArrowUp', '2'], ['Home', '1'], ['End', '4']]) {
        await page.keyboard.press(key);
        assert.equal(await focused(), cell, key);
      }
      assert.equal(await page.locator('#cells [tabindex="0"]').count(), 1);
      await page.keyboard.press('Enter');
      assert.equal(await cellAt(page, 4).getAttribute('aria-selected'), 'true');
      await page.keyboard.press('+');
      await page.locator('.picture.zoomed').waitFor();
      await page.keyboard.press('0');
      const seen = [];
      for (let step = 0; step < 40 && seen.at(-1) !== 'Kill cell 4'; step += 1) {
        await page.keyboard.press('Tab');
        seen.push(await focused());
      }
      assert.equal(seen.at(-1), 'Kill cell 4', `reached ${seen}`);
      await page.keyboard.press('Enter');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await whenFailure(page, 4, ['reintegrated']);
      assert.equal(mock.requests.filter(({ path }) => path === '/api/cells/4/kill').length, 1);
      await cellAt(page, 4).focus();
      await page.keyboard.press('Escape');
      assert.equal(await page.locator('#cells [aria-selected="true"]').count(), 0);
    }));

  it('shows where the focus is', () =>
    inFrontOf(worlds.four(), async (page) => {
      await whenAllUp(page);
      const unseen = [];
      for (let step = 0; step < 60; step += 1) {
        await page.keyboard.press('Tab');
        const at = await page.evaluate(() => {
          const node = document.activeElement;
          if (node === document.body) return null;
          const style = getComputedStyle(node);
          const ring = node.matches('.cell') ? parseFloat(getComputedStyle(node.querySelector('.wax')).strokeWidth) > 15 : style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
          return { ring, name: node.outerHTML.slice(0, 90) };
        });
        if (at === null) break;
        if (!at.ring) unseen.push(at.name);
      }
      assert.deepEqual(unseen, []);
    }));

  for (const colorScheme of ['light', 'dark']) {
    for (const [name, viewport] of [['a desk', { width: 1280, height: 800 }], ['a phone', { width: 360, height: 740 }]]) {
      it(`is readable in ${colorScheme} on ${name}`, () =>
        inFrontOf(
          { ...worlds.four(), failures: [worlds.failure(2, 1, Date.now())] },
          async (page, mock) => {
            await whenAllUp(page);
            await cellAt(page, 2).click();
            mock.event('cell_ended', 2, 'cell 2 is gone');
            await page.locator('#events li').first().waitFor();
            await page.locator('#failure-view summary').click();
            for (const state of ['up', 'starting', 'recovering', 'ended', 'held', 'draining', 'drained', 'lost']) {
              mock.change(({ cells }) => Object.assign(cells[1], { state, cpu_share: 1, why: 'a sentence' }));
              await whenCell(page, 2, state);
              const { faint, looked } = await faintText(page);
              assert.deepEqual(faint, [], state);
              assert.ok(looked > 100, `only ${looked} texts were looked at`);
            }
            await page.getByRole('button', { name: 'Restart cell 2' }).click();
            await page.locator('.toast').waitFor();
            assert.deepEqual((await faintText(page)).faint, []);
            assert.deepEqual(await nameless(page), []);
            assert.deepEqual(await brokenReferences(page), []);
            assert.equal(await overflow(page), 0);
          },
          { colorScheme, viewport, expected: CUT },
        ));
    }
  }

  it('remembers which colours were chosen', () =>
    inFrontOf(
      worlds.four(),
      async (page) => {
        await whenAllUp(page);
        const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
        const light = await ground();
        await page.getByRole('button', { name: 'Switch to dark colours' }).click();
        const dark = await ground();
        assert.notEqual(dark, light);
        await page.reload();
        await whenAllUp(page);
        assert.equal(await ground(), dark);
        await page.getByRole('button', { name: 'Switch to light colours' }).waitFor();
      },
      { colorScheme: 'light' },
    ));

  it('updates a thousand cells in place', () =>
    inFrontOf(worlds.many(), async (page, mock) => {
      await whenCell(page, 1000, 'up');
      assert.equal(await page.locator('#cells [data-key]').count(), 1000);
      await cellAt(page, 500).click();
      await whenDrawn(page);
      const measured = await page.evaluate(() => {
        window.changes = 0;
        new MutationObserver((records) => (window.changes += records.length)).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        return document.querySelectorAll('*').length;
      });
      for (let turn = 0; turn < 5; turn += 1) {
        mock.change(({ cells }) => {
          for (const cell of cells) Object.assign(cell, { cpu_share: worlds.chance(cell.cell + turn * 1000), round_trips: cell.round_trips + 9, uptime_ms: cell.uptime_ms + 1000 });
          cells[999].state = ['held', 'up'][turn % 2];
        });
        await whenCell(page, 1000, ['held', 'up'][turn % 2]);
        await whenDrawn(page);
        const { changes, nodes } = await page.evaluate(() => ({ changes: window.changes, nodes: document.querySelectorAll('*').length }));
        assert.equal(nodes, measured);
        assert.ok(changes > 500, `${changes} changes: the page did not follow`);
        assert.ok(changes <= mostChanges(1000), `${changes} changes of the document for one update of 1000 cells`);
        await page.evaluate(() => (window.changes = 0));
      }
      // Nearer, they have numbers; with the words, all there is to know.
      for (let step = 0; step < 6; step += 1) await page.getByRole('button', { name: 'Zoom in' }).click();
      assert.equal(await page.locator('.picture').getAttribute('data-detail'), 'words');
      assert.equal(await page.locator('#cells [data-key]').count(), 1000);
      await page.getByRole('button', { name: 'Fit' }).click();
      assert.equal(await page.locator('.picture').getAttribute('data-detail'), 'signs');
      assert.equal(await overflow(page), 0);
    }));

  it('draws what little it is told, and says "–" for the rest', () =>
    inFrontOf(worlds.bare(), async (page, mock) => {
      await cellAt(page, 2).waitFor({ state: 'attached' });
      assert.equal(await page.locator('#cells [data-key]').count(), 3);
      await cellAt(page, 2).click();
      assert.match(await said(page, '#detail'), /life –, process –/);
      await page.getByLabel('Which failure').selectOption({ index: 1 });
      await whenFailure(page, 2, ['–', 'hint', 'agreement']);
      assert.equal(await page.locator('#failure-chart .step').count(), 3);
      assert.doesNotMatch(await page.content(), /NaN|undefined|Infinity/);
      for (const state of [{}, null, [], 7, 'text', { cells: {}, hosts: 3, failures: 'many', wax: 4 }, worlds.bare(), worlds.four()]) {
        mock.state = state ?? {};
        mock.raw(`event: state\ndata: ${JSON.stringify(state)}\n\n`);
        await whenDrawn(page);
      }
      assert.equal(await whenAllUp(page, 4), 4);
      mock.raw(`event: state\ndata: {}\n\n`);
      await page.getByText('brings four up').waitFor();
      await page.getByText('No task runs').waitFor();
    }));

  it('takes no text for markup', () =>
    inFrontOf(worlds.hostile(), async (page, mock) => {
      await cellAt(page, 2).click();
      mock.event('<img src=x onerror="window.harmed = 3">', 2, '<img src=x onerror="window.harmed = 4">');
      await page.locator('#events li').first().waitFor();
      await whenDrawn(page);
      assert.equal(await page.evaluate(() => window.harmed), undefined);
      assert.equal(await page.locator('img, body script').count(), 0);
      assert.match(await said(page, '#regions'), /<img src=x onerror/);
      assert.equal(await overflow(page), 0);
    }));

  it('is small, and asks nobody else', () =>
    inFrontOf(worlds.four(), async (page, mock) => {
      await whenAllUp(page);
      const asked = new Set(mock.requests.map(({ path }) => (path === '/' ? 'index.html' : path.slice(1))));
      for (const name of files().keys()) assert.ok(asked.has(name), `${name} is listed, and not used`);
      const bytes = [...files().keys()].reduce((all, name) => all + bytesOf(name).length, 0);
      assert.ok(bytes <= MOST_BYTES, `${bytes} bytes`);
      assert.equal(await page.locator('[style]:not(.memory-bar span)').count(), 0);
    }));
});
