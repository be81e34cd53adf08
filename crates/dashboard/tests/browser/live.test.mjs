// The page in front of a real comb, one of whose cells is killed by its command.
//
// COMB_DASHBOARD_URL is the address that `comb dashboard` printed, with its token; COMB_BIN the `comb` to kill with, in the
// COMB_RUNTIME_DIR of the same comb. COMB_SCREENSHOT is where a picture of the page goes: docs/measuring.md has the commands for that of the README.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, it } from 'node:test';
import { promisify } from 'node:util';
import { cellAt, hasBrowser, launch, openPage, whenAllUp, whenCell, whenConnection, whenDrawn, whenFailure, whenLife } from './driver.mjs';

const { COMB_DASHBOARD_URL: url, COMB_BIN: comb, COMB_SCREENSHOT: picture } = process.env;
const why = !url ? 'COMB_DASHBOARD_URL is not set' : !hasBrowser ? 'there is no chromium: scripts/setup-test.sh installs it' : false;

let browser;
before(async () => {
  if (!why) browser = await launch();
});
after(() => browser?.close());

it('shows how a cell that was killed comes back', { skip: why }, async () => {
  const page = await openPage(browser, url, { colorScheme: 'light' });
  await whenConnection(page, 'live');
  await whenAllUp(page, 2);
  await cellAt(page, 2).click();
  await whenLife(page, 1);
  await promisify(execFile)(comb, ['cell', 'kill', '2']);
  await whenFailure(page, 2, ['agreement', 'reintegrated']);
  await whenLife(page, 2);
  await whenCell(page, 2, 'up');
  assert.ok((await page.locator('#failure-chart .step').count()) >= 2);
  if (picture) {
    // Rates are known from the second look on: the picture is to show the cell at work, not just back.
    await page.waitForTimeout(2_500);
    await page.evaluate(() => scrollTo(0, 0));
    await whenDrawn(page);
    await page.screenshot({ path: picture });
  }
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(page.foreign, []);
});
