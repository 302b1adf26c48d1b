// The manual as a site, see release/site. e2e/site_test.go builds and serves it, and SITE is its directory.
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { accessible, launch, open, sizes } from './browser.mjs'

let browser
before(async () => (browser = await launch()))
after(() => browser.close())

// These pages have everything that any page has: pictures, tables, long blocks of code, headings of all levels.
const pages = ['index.html', 'configuration.html', 'commands.html', 'format/batch.html']

for (const size of Object.keys(sizes)) {
  for (const colorScheme of ['light', 'dark']) {
    test(`${size}, ${colorScheme}`, async () => {
      const { page, close } = await open(browser, { size, colorScheme })
      for (const name of pages) {
        await page.goto('/' + name)
        await page.evaluate(() => Promise.all([...document.images].map((i) => i.decode())))
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
        assert.ok(wide <= 0, `${name} is ${wide} pixels wider than the screen`)
        await accessible(page, `${name}, ${size}, ${colorScheme}`, size)
        if (name === 'index.html') {
          await page.screenshot({ path: join(process.env.UI_SCREENSHOTS, `site-${size}-${colorScheme}.png`) })
        }
      }
      await close()
    })
  }
}

test('the search finds a section by its words', async () => {
  const { page, close } = await open(browser)
  await page.goto('/format/batch.html')
  await page.keyboard.press('/')
  await page.keyboard.type('restart in place')
  const found = page.getByRole('region', { name: 'Search results' })
  await found.getByRole('link', { name: 'Upgrade without loss: Restart in place' }).click()
  await page.waitForURL('**/upgrade.html#restart-in-place')
  await page.getByRole('searchbox').fill('<img src=x onerror=alert(1)> nowhere')
  await page.getByText('No section has all of these words.').waitFor()
  await close()
})

// What readers look for, and what is found first.
const searches = {
  install: 'Install',
  docker: 'Install: A container',
  uninstall: 'Install: Upgrade and uninstall',
  grafana: 'Grafana',
  helm: 'Kubernetes',
  'migrate from Datadog': 'Migration',
  'remote write': 'Remote write',
  thanos: 'History: Blocks of Prometheus, Thanos and Mimir',
  backup: 'Operations: Backup',
  retention: 'Operations: Retention',
  'how do I upgrade?': 'Upgrade without loss',
  'late samples': 'Tiles: what a query returns: Late data',
  'freshet import tsdb': 'Commands: freshet import tsdb',
  FreshetDown: 'Operations: FreshetDown',
}

test('the search finds first what readers look for', async () => {
  const { page, close } = await open(browser)
  await page.goto('/')
  for (const [text, first] of Object.entries(searches)) {
    await page.getByRole('searchbox').fill(text)
    const found = page.getByRole('region', { name: 'Search results' }).getByRole('link').first()
    assert.equal(await found.evaluate((link) => link.firstChild.textContent), first, text)
  }
  await close()
})

// A site on a disk has no server. It searches all the same.
test('the search works from files', async () => {
  const context = await browser.newContext()
  const page = await context.newPage()
  await page.goto(`file://${process.env.SITE}/index.html`)
  await page.getByRole('searchbox').fill('kernel settings')
  await page.getByRole('link', { name: 'Operations: Kernel settings' }).click()
  await page.waitForURL('file://**/operations.html#kernel-settings')
  await context.close()
})
