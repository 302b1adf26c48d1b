// A browser for the tests: Debian's Chromium, driven by playwright-core, with checks that
// hold for every page.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

export const server = process.env.FRESHET
export const recorded = process.env.FRESHET_RECORDED // with traces and recordings
export const ruled = process.env.FRESHET_RULED // with rules
export const closed = process.env.FRESHET_CLOSED // wants tokens, and keeps no metrics of its own
export const hostile = process.env.HOSTILE
const screenshots = process.env.UI_SCREENSHOTS
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export function launch() {
  // The shell is Chromium without its own windows, which takes half the processor time.
  const executablePath = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)
  if (!executablePath) throw new Error('there is no Chromium; run e2e/clients/install, or: sudo apt-get install -y chromium-headless-shell')
  // Chromium needs --no-sandbox as root. Containers have a small /dev/shm and no GPU.
  const args = [...(process.getuid() === 0 ? ['--no-sandbox'] : []), '--disable-dev-shm-usage', '--disable-gpu']
  return chromium.launch({ executablePath, args })
}

export const sizes = { wide: { width: 1280, height: 900 }, narrow: { width: 390, height: 844 } }

// open makes a page in a context of its own. Its close fails if there were errors on the
// console, violations of the policy, requests to other servers or dialogs. allowed are
// the errors that a test expects. A page at which no test has looked is looked at then.
export async function open(browser, { size = 'wide', colorScheme = 'light', base = server, allowed = [], headers, timezoneId = 'UTC' } = {}) {
  const context = await browser.newContext({ viewport: sizes[size], colorScheme, baseURL: base, reducedMotion: 'reduce', timezoneId, extraHTTPHeaders: headers })
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
    if (![server, recorded, ruled, closed].some((s) => r.url().startsWith(s + '/')) && !/^(data|blob):/.test(r.url())) wrong.push(`request to ${r.url()}`)
  })
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`))
  })
  const close = async () => {
    if (!checked.has(page) && page.url() !== 'about:blank') await accessible(page, page.url(), 'present')
    await page.unrouteAll({ behavior: 'ignoreErrors' }) // a page polls until it is closed, also through routes that fetch
    await context.close()
    assert.deepEqual(wrong, [])
  }
  return { page, close }
}

// look keeps a picture, and checks that the page is accessible. A test that runs once in each
// size names its own.
export async function look(page, name, size) {
  await picture(page, name)
  await accessible(page, name, size)
}

// picture keeps a screenshot, and checks that the page is not wider than the screen, and shows
// hostile text as text.
export async function picture(page, name) {
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true })
  const { wide, images } = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    images: document.querySelectorAll('img[src], svg img, iframe, object').length,
  }))
  assert.ok(wide <= 0, `${name} is ${wide} pixels wider than the screen`)
  assert.equal(images, 0, `${name} has an image, made from a label`)
}

// Contrasts are half the cost of axe. They depend on the colours and not on the size of the
// screen; all other rules depend on the size alone.
const contrasts = ['color-contrast', 'link-in-text-block']
const allButContrasts = { rules: Object.fromEntries(contrasts.map((rule) => [rule, { enabled: false }])) }

const checked = new WeakSet() // the pages that accessible has seen

// accessible checks that axe finds no fault in a page, of any impact: contrasts in both themes,
// and everything else in both sizes. A test that runs once in each size names its own: then the
// page is checked in that size, and contrasts if it is wide. 'present' checks the page as it is:
// tests of a detail do so at their end, and their place is checked in all ways by a look.
export async function accessible(page, name, size) {
  checked.add(page)
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe)
  const faults = []
  const check = async (where, options) => {
    const found = await page.evaluate(async (options) => (await globalThis.axe.run(document, { resultTypes: ['violations'], ...options })).violations, options)
    for (const v of found) faults.push(`${name}, ${where}: ${v.impact}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary).join('\n')}`)
  }
  await check('as it is', size === 'narrow' ? allButContrasts : {})
  if (size !== 'narrow' && size !== 'present') await inOtherTheme(page, () => check('in the other theme', { runOnly: contrasts }))
  if (size === undefined) await inOtherSize(page, () => check('in the other size', allButContrasts))
  assert.deepEqual(faults, [])
}

// inOtherTheme calls a function while a page has the other theme, whether the system or the user
// chose the present one.
async function inOtherTheme(page, run) {
  const [chosen, system] = await page.evaluate(() => [document.documentElement.dataset.theme, matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'])
  const other = (theme) => (theme === 'dark' ? 'light' : 'dark')
  const set = (theme) => (chosen === undefined ? page.emulateMedia({ colorScheme: theme }) : page.evaluate((theme) => void (document.documentElement.dataset.theme = theme), theme))
  const now = chosen ?? system
  await set(other(now))
  await run()
  await set(now)
}

async function inOtherSize(page, run) {
  const now = page.viewportSize()
  await page.setViewportSize(now.width < 800 ? sizes.wide : sizes.narrow)
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))) // charts take their new size
  await run()
  await page.setViewportSize(now)
}
