// A browser for the tests: Debian's Chromium, driven by playwright-core, and what it
// must never say.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

export const server = process.env.FRESHET
export const recorded = process.env.FRESHET_RECORDED // with traces and recordings
export const closed = process.env.FRESHET_CLOSED // wants tokens, and keeps no metrics of its own
export const hostile = process.env.HOSTILE
const screenshots = process.env.UI_SCREENSHOTS
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export function launch() {
  // The shell is Chromium without the browser's own windows, and takes half of the processor time.
  const executablePath = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)
  if (!executablePath) throw new Error('there is no Chromium; run e2e/clients/install, or: sudo apt-get install -y chromium-headless-shell')
  // Root's Chromium has no sandbox, containers have a small /dev/shm, and neither has a GPU.
  const args = [...(process.getuid() === 0 ? ['--no-sandbox'] : []), '--disable-dev-shm-usage', '--disable-gpu']
  return chromium.launch({ executablePath, args })
}

export const sizes = { wide: { width: 1280, height: 900 }, narrow: { width: 390, height: 844 } }

// open makes a page in a context of its own, and collects what is wrong: errors on the
// console, violations of the policy, questions to other servers, dialogs. allowed are
// the errors that a test wants.
export async function open(browser, { size = 'wide', colorScheme = 'light', base = server, allowed = [], headers } = {}) {
  const context = await browser.newContext({ viewport: sizes[size], colorScheme, baseURL: base, reducedMotion: 'reduce', timezoneId: 'UTC', extraHTTPHeaders: headers })
  const page = await context.newPage()
  page.setDefaultTimeout(30_000)
  const wrong = []
  page.on('console', (m) => {
    if (m.type() === 'error' && !allowed.some((a) => a.test(m.text()))) wrong.push(`console: ${m.text()}`)
  })
  page.on('pageerror', (e) => wrong.push(`error: ${e.stack}`))
  page.on('dialog', (d) => {
    wrong.push(`dialog: ${d.message()}`)
    void d.dismiss()
  })
  page.on('request', (r) => {
    if (![server, recorded, closed].some((s) => r.url().startsWith(s + '/')) && !/^(data|blob):/.test(r.url())) wrong.push(`asks ${r.url()}`)
  })
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`))
  })
  const close = async () => {
    await page.unrouteAll({ behavior: 'ignoreErrors' }) // a page asks until it is closed, also by a route that fetches
    await context.close()
    assert.deepEqual(wrong, [])
  }
  return { page, close }
}

// look keeps a screenshot, and holds that the page is not wider than the screen, has
// nothing that axe calls serious, and shows hostile text as text. check are options of axe,
// null for without it.
export async function look(page, name, check = {}) {
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true })
  const { wide, images } = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    images: document.querySelectorAll('img[src], svg img, iframe, object').length,
  }))
  assert.ok(wide <= 0, `${name} is ${wide} pixels wider than the screen`)
  assert.equal(images, 0, `${name} has made an image of a label`)
  if (check === null) return
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe)
  const found = await page.evaluate(
    async (check) => (await globalThis.axe.run(document, { resultTypes: ['violations'], ...check })).violations,
    check,
  )
  const serious = found.filter((v) => v.impact === 'serious' || v.impact === 'critical')
  assert.deepEqual(serious.map((v) => `${name}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary).join('\n')}`), [])
}
