// What everybody can use: checks of names, contrast and width that run in the page.

/** Whatever can be used has a name for those who cannot see it. Gives what has none. */
export const nameless = (page) =>
  page.evaluate(() => {
    const visible = (node) => node.checkVisibility({ visibilityProperty: true });
    const byIds = (node, name) =>
      (node.getAttribute(name) ?? '').split(/\s+/).map((id) => (id && document.getElementById(id)?.textContent) || '').join(' ');
    const nameOf = (node) =>
      [node.getAttribute('aria-label'), byIds(node, 'aria-labelledby'), ...[...(node.labels ?? [])].map((label) => label.textContent), node.matches('button, a, summary, [role="option"]') ? node.textContent : '']
        .map((name) => (name ?? '').trim())
        .find((name) => name !== '');
    const usable = 'a[href], button, input, select, summary, dialog, [tabindex], [role="option"], [role="listbox"], [role="region"], [role="img"], [role="group"]';
    return [...document.querySelectorAll(usable)]
      .filter((node) => visible(node) && node.getAttribute('tabindex') !== '-1' && !nameOf(node))
      .map((node) => node.outerHTML.slice(0, 120));
  });

/** Ids that are there twice, and references to ids that are not there. */
export const brokenReferences = (page) =>
  page.evaluate(() => {
    const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
    const broken = ids.filter((id, index) => ids.indexOf(id) !== index);
    for (const name of ['aria-labelledby', 'aria-describedby', 'for', 'aria-controls']) {
      for (const node of document.querySelectorAll(`[${name}]`)) {
        broken.push(...node.getAttribute(name).split(/\s+/).filter((id) => !ids.includes(id)));
      }
    }
    return broken;
  });

/** Text whose contrast with its ground is below 4.5 (3 for large text), and the number of texts looked at. */
export const faintText = (page) =>
  page.evaluate(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    canvas.canvas.width = canvas.canvas.height = 1;
    const read = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      return { rgb: [r, g, b], alpha: a / 255 };
    };
    const over = (above, below) => above.rgb.map((part, index) => part * above.alpha + below[index] * (1 - above.alpha));
    const light = (rgb) => {
      const [r, g, b] = rgb.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
      const [bright, dark] = [light(a), light(b)].sort((x, y) => y - x);
      return (bright + 0.05) / (dark + 0.05);
    };
    const ground = (node) => {
      if (node === null) return [255, 255, 255];
      const own = read(getComputedStyle(node).backgroundColor);
      return own.alpha === 1 ? own.rgb : over(own, ground(node.parentElement));
    };
    // Text in a picture lies on what is painted there: in a cell on its wax and its honey, elsewhere on its halo or the card.
    const grounds = (node) => {
      const cell = node.closest('svg') && node.closest('.cell');
      if (cell) {
        return [...cell.querySelectorAll('.wax, .honey')]
          .filter((shape) => getComputedStyle(shape).display !== 'none')
          .map((shape) => read(getComputedStyle(shape).fill).rgb);
      }
      if (node.closest('.plates')) return [read(getComputedStyle(document.querySelector('.plate')).fill).rgb];
      const halo = node.closest('svg') ? getComputedStyle(node).stroke : 'none';
      return halo === 'none' ? [ground(node.closest('svg')?.parentElement ?? node)] : [read(halo).rgb];
    };
    const faint = [];
    let looked = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const node = text.parentElement;
      if (text.data.trim() === '' || !node.checkVisibility({ visibilityProperty: true }) || node.closest('.unseen, noscript, option, defs, title')) continue;
      looked += 1;
      const style = getComputedStyle(node);
      const isDrawn = node.namespaceURI.endsWith('svg');
      const colour = read(isDrawn ? style.fill : style.color);
      const size = parseFloat(style.fontSize) * (isDrawn ? node.getScreenCTM().a : 1);
      const least = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
      for (const below of grounds(node)) {
        const found = contrast(over(colour, below), below);
        if (found < least) faint.push(`${found.toFixed(2)}: "${text.data.slice(0, 40)}" in ${node.tagName}.${node.getAttribute('class')}`);
      }
    }
    return { faint, looked };
  });

/** By how much the page is wider than its window. */
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
