// Light or dark, before the first picture: a classic script in the head, for a module would come after it.
(() => {
	const key = 'comb-theme';
	const root = document.documentElement;
	const remembered = () => {
		try {
			return localStorage.getItem(key);
		} catch {
			return null; // A browser that keeps nothing: the system's wish holds.
		}
	};
	const dark = matchMedia('(prefers-color-scheme: dark)');
	const chosen = remembered();
	if (chosen === 'light' || chosen === 'dark') root.dataset.theme = chosen;
	const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : dark.matches);

	addEventListener('DOMContentLoaded', () => {
		const button = document.getElementById('theme');
		const label = () => button.setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colours`);
		button.addEventListener('click', () => {
			root.dataset.theme = isDark() ? 'light' : 'dark';
			try {
				localStorage.setItem(key, root.dataset.theme);
			} catch {
				// It holds for as long as the page is open.
			}
			label();
		});
		dark.addEventListener('change', label);
		label();
	});
})();
