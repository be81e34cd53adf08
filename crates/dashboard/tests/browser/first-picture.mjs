// How long a browser takes that has never been there, from the beginning of navigation until every cell is drawn, in milliseconds: a JSON array.
//
//     node first-picture.mjs URL ROUNDS CELLS

import { launch } from './driver.mjs';

const [url, rounds, cells] = process.argv.slice(2);
const browser = await launch();
const times = [];
for (let round = 0; round < Number(rounds); round += 1) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(url, { waitUntil: 'commit' });
  const time = await page.evaluate((count) => new Promise((resolve) => {
    const look = () => {
      const drawn = document.querySelectorAll('#cells [data-key]').length;
      if (drawn >= count) requestAnimationFrame(() => resolve(performance.now()));
      else requestAnimationFrame(look);
    };
    look();
  }), Number(cells));
  times.push(time);
  await context.close();
}
await browser.close();
console.log(JSON.stringify(times));
