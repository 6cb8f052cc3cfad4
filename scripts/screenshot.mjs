// Takes a picture of a page of the UI once its charts are drawn: node screenshot.mjs URL FILE [light|dark]
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../web/package.json", import.meta.url))("@playwright/test");
const [url, file, colorScheme = "light"] = process.argv.slice(2);

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
	await page.goto(url);
	await page.locator("main canvas").first().waitFor({ timeout: 20_000 });
	await page.waitForFunction(() => document.querySelectorAll("[aria-busy=true]").length === 0, undefined, {
		timeout: 20_000,
	});
	await page.screenshot({ path: file });
} finally {
	await browser.close();
}
