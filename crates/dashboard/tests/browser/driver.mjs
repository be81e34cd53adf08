// What tests do with the page, whichever server is behind it.

import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

const BROWSER = process.env.COMB_BROWSER ?? '/usr/bin/chromium';
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export const hasBrowser = existsSync(BROWSER);

export const launch = () => chromium.launch({ executablePath: BROWSER, args: FLAGS, headless: true });

/**
 * A page of its own, with everything it complains of in `page.complaints`. `expected` are the complaints that a test
 * causes: of a connection that it cuts, or an answer that it refuses.
 */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.complaints = [];
  page.foreign = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  page.on('request', (request) => {
    const { origin, protocol } = new URL(request.url());
    if (protocol !== 'data:' && origin !== new URL(url).origin) page.foreign.push(request.url());
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(url);
  return page;
}

export const cellAt = (page, number) => page.locator(`#cells [data-key="${number}"]`);

/** Waits until cell `number` is told to be in `state`. */
export const whenCell = (page, number, state) => page.locator(`#cells [data-key="${number}"][data-state="${state}"]`).waitFor({ state: 'attached' });

export const whenConnection = (page, state) => page.locator(`body[data-connection="${state}"]`).waitFor();

/** Waits until every cell that the page knows is up, and gives how many there are. */
export async function whenAllUp(page, least = 1) {
  await page.waitForFunction((wanted) => {
    const cells = [...document.querySelectorAll('#cells [data-key]')];
    return cells.length >= wanted && cells.every((cell) => cell.dataset.state === 'up');
  }, least);
  return page.locator('#cells [data-key]').count();
}

/** Waits until the failure on show is of cell `number`, and its steps include all of `steps`. */
export const whenFailure = (page, number, steps) =>
  page.waitForFunction(
    ([cell, wanted]) => {
      const said = document.getElementById('failure-summary').textContent;
      const names = [...document.querySelectorAll('#failure-steps tbody th')].map((head) => head.textContent);
      return said.startsWith(`Cell ${cell},`) && wanted.every((step) => names.includes(step));
    },
    [number, steps],
  );

/** Waits until the panel of the chosen cell says which life it is in. */
export const whenLife = (page, incarnation) =>
  page.waitForFunction((life) => document.querySelector('#detail .where').textContent.includes(`life ${life},`), incarnation);

/** Waits until what has been told is drawn. */
export const whenDrawn = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
