// Milliseconds until pages of the UI take input, middle of several cold loads each: node interactive.mjs URL PATH...
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("@playwright/test");
const flags = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"];
if (process.getuid?.() === 0) flags.push("--no-sandbox");
const ROUNDS = 5;
// No long task for so long is the end of the load; streams go on for ever, so the network doesn't count.
const QUIET_MS = 1000;
const [url, ...paths] = process.argv.slice(2);

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
	args: flags,
});

/** One load with an empty cache: the page's own heading is there, and no task of over 50 ms runs afterwards. */
async function load(path) {
	const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
	const page = await context.newPage();
	try {
		await page.addInitScript(() => {
			globalThis.busyUntil = 0;
			new PerformanceObserver((list) => {
				for (const task of list.getEntries()) globalThis.busyUntil = task.startTime + task.duration;
			}).observe({ type: "longtask", buffered: true });
			const look = () => {
				if (document.querySelector("main h1")) globalThis.shownAt = performance.now();
				else requestAnimationFrame(look);
			};
			requestAnimationFrame(look);
		});
		await page.goto(url + path, { waitUntil: "commit" });
		const isQuiet = (quiet) =>
			globalThis.shownAt !== undefined &&
			performance.now() - Math.max(globalThis.shownAt, globalThis.busyUntil) > quiet;
		await page.waitForFunction(isQuiet, QUIET_MS, { timeout: 30_000, polling: 100 });
		return await page.evaluate(() => Math.max(globalThis.shownAt, globalThis.busyUntil));
	} finally {
		await context.close();
	}
}

try {
	const found = {};
	for (const path of paths) {
		const times = [];
		for (let round = 0; round < ROUNDS; round += 1) times.push(await load(path));
		found[path] = times.sort((a, b) => a - b)[ROUNDS >> 1];
	}
	process.stdout.write(`RESULT ${JSON.stringify(found)}\n`);
} finally {
	await browser.close();
}
