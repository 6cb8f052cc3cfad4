// Milliseconds from opening a page to its drawn charts, best of several: node paint.mjs URL
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("@playwright/test");
const flags = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"];
if (process.getuid?.() === 0) flags.push("--no-sandbox");
const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
	args: flags,
});
const [url] = process.argv.slice(2);
let best = Number.POSITIVE_INFINITY;
try {
	for (let round = 0; round < 5; round += 1) {
		const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
		await page.addInitScript(() => {
			// A chart is drawn when its canvas has a pixel that is not clear.
			const look = () => {
				for (const canvas of document.querySelectorAll("main canvas")) {
					const { width, height } = canvas;
					const ink = width && height && canvas.getContext("2d")?.getImageData(0, 0, width, height).data;
					if (ink && ink.some((part) => part !== 0)) {
						globalThis.drawnAt = performance.now();
						return;
					}
				}
				requestAnimationFrame(look);
			};
			requestAnimationFrame(look);
		});
		await page.goto(url, { waitUntil: "commit" });
		await page.waitForFunction(() => globalThis.drawnAt !== undefined, undefined, { timeout: 20_000 });
		best = Math.min(best, await page.evaluate(() => globalThis.drawnAt));
		await page.close();
	}
	process.stdout.write(`RESULT ${JSON.stringify({ drawn_ms: best })}\n`);
} finally {
	await browser.close();
}
