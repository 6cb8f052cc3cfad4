// Takes a picture of a page of the UI once its charts are drawn: node screenshot.mjs URL FILE [light|dark]
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("@playwright/test");
const [url, file, colorScheme = "light"] = process.argv.slice(2);
// A page has what it opens with when it has asked nothing for so long.
const QUIET_MS = 500;

const flags = [
	"--disable-gpu",
	"--disable-quic",
	"--disable-background-networking",
	"--disable-component-update",
	"--disable-sync",
];
if (process.getuid?.() === 0) flags.push("--no-sandbox");

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
	args: flags,
});
try {
	const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, colorScheme });
	const open = new Set();
	let last = Date.now();
	const note = (change) => (request) => {
		// News come by a request that does not end.
		if (request.url().includes("/stream?")) return;
		change(request);
		last = Date.now();
	};
	page.on("request", note((request) => open.add(request)));
	page.on("requestfinished", note((request) => open.delete(request)));
	page.on("requestfailed", note((request) => open.delete(request)));
	await page.goto(url);
	await page.locator("main h1").first().waitFor({ timeout: 20_000 });
	// A run that goes on asks again and again: what it opened with is there by then.
	const end = Date.now() + 5_000;
	while (Date.now() < end && (open.size > 0 || Date.now() - last < QUIET_MS)) await page.waitForTimeout(50);
	await page.waitForFunction(() => document.querySelectorAll("[aria-busy=true]").length === 0, undefined, {
		timeout: 20_000,
	});
	await page.screenshot({ path: file });
} finally {
	await browser.close();
}
