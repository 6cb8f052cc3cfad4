// What a timeline costs the browser: to be drawn, and a frame while it is moved: node timeline.mjs URL-OF-RUN
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("@playwright/test");
const flags = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"];
if (process.getuid?.() === 0) flags.push("--no-sandbox");
const FRAMES = 240;

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
	args: flags,
});
const [run] = process.argv.slice(2);
try {
	const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
	await page.goto(run);
	await page.getByRole("link", { name: "Timeline" }).click();
	const url = page.url();
	await page.addInitScript(() => {
		// It is drawn when its lanes have a pixel that is not clear.
		const look = () => {
			const canvas = document.querySelector(".timeline .field canvas");
			const { width, height } = canvas ?? {};
			const ink = width && height && canvas.getContext("2d").getImageData(0, 0, width, 20).data;
			if (ink?.some((part) => part !== 0)) globalThis.drawnAt = performance.now();
			else requestAnimationFrame(look);
		};
		requestAnimationFrame(look);
	});
	await page.goto(url, { waitUntil: "commit" });
	await page.waitForFunction(() => globalThis.drawnAt !== undefined, undefined, { timeout: 30_000 });
	const result = { drawn_ms: await page.evaluate(() => globalThis.drawnAt) };
	const cdp = await page.context().newCDPSession(page);
	await cdp.send("Performance.enable");
	const busy = async () => {
		const { metrics } = await cdp.send("Performance.getMetrics");
		return metrics.find((m) => m.name === "TaskDuration").value * 1000;
	};
	for (const kind of ["zoom", "pan", "scroll"]) {
		const before = await busy();
		await page.evaluate(
			([kind, frames]) =>
				new Promise((done) => {
					const field = document.querySelector(".timeline .field");
					const { left, top, width } = field.getBoundingClientRect();
					const wheel = (more) =>
						field.dispatchEvent(
							new WheelEvent("wheel", {
								clientX: left + width / 3,
								clientY: top + 50,
								bubbles: true,
								cancelable: true,
								...more,
							}),
						);
					let frame = 0;
					const step = () => {
						const forth = frame % 60 < 30;
						if (kind === "zoom") wheel({ ctrlKey: true, deltaY: forth ? -40 : 40 });
						if (kind === "pan") wheel({ deltaX: forth ? 40 : -40 });
						if (kind === "scroll") document.querySelector(".timeline .lanes").scrollTop += forth ? 30 : -30;
						frame += 1;
						if (frame < frames) requestAnimationFrame(step);
						else done();
					};
					requestAnimationFrame(step);
				}),
			[kind, FRAMES],
		);
		result[`${kind}_ms`] = ((await busy()) - before) / FRAMES;
		// What shows everything cannot be panned.
		if (kind === "zoom") for (let times = 0; times < 3; times += 1) await page.keyboard.press("w");
		await page.waitForTimeout(600);
	}
	process.stdout.write(`RESULT ${JSON.stringify(result)}\n`);
} finally {
	await browser.close();
}
