/** How wide a page is. */
import { expect, type Page } from '@playwright/test';

/** Nothing makes the page wider than that; what measures its place does so a frame after a window has changed. */
export async function fits(page: Page, width: number): Promise<void> {
  const asked = () => page.evaluate(() => document.documentElement.scrollWidth);
  await expect.poll(asked).toBeLessThanOrEqual(width);
}
