// Every page against a real server under load. e2e/ui_test.go starts both.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { readFileSync } from 'node:fs'
import { after, before, describe, test as once } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { accessible, closed, hostile, launch, look, open, picture, recorded, ruled, server, sizes } from './browser.mjs'

// test repeats a test that timed out, and reports it: a browser sometimes hangs on a machine
// that is busy with other tests.
const test = (name, run) =>
  once(name, async (t) => {
    try {
      await run(t)
    } catch (e) {
      if (e.name !== 'TimeoutError') throw e
      t.diagnostic(`timed out, trying again: ${e.message}`)
      await run(t)
    }
  })

let browser
before(async () => (browser = await launch()))
after(() => browser.close())

const begun = Math.floor(Date.now() / 1000) // the servers' past ends a little earlier
const query = (...pairs) => '/explore?' + new URLSearchParams(pairs)
const orders = 'sum by (region) (rate(shop_orders_total[2m]))'
const settled = (page) => page.waitForFunction(() => !document.querySelector('.loading, [aria-busy=true]'))
const editor = (page) => page.locator('.cm-content').first()
const fresh = (page) => page.locator('.fresh .large', { hasText: /\d/ }) // by an input; a dash before the first probes
const everyStage = (page) => page.locator('.stages .inputs').nth(9)
const hostileQuery = `web_hits{page="${hostile}"}`

// sideways checks that no table scrolls sideways.
async function sideways(page, where) {
  const wide = await page.locator('.scroll').evaluateAll((all) => all.filter((e) => e.scrollWidth > e.clientWidth).map((e) => `${e.ariaLabel}: ${e.scrollWidth} in ${e.clientWidth}`))
  assert.deepEqual(wide, [], `tables of ${where} are wider than their place`)
}

// traced waits for a slow trace. Every query on that server is one, however fast it is.
async function traced(is) {
  const until = Date.now() + 60_000
  for (;;) {
    await fetch(`${recorded}/api/v1/query?` + new URLSearchParams({ query: hostileQuery }))
    const found = (await (await fetch(`${recorded}/api/v1/status/traces`)).json()).data?.find(is)
    if (found) return `${recorded}/records?trace=${found.id}`
    if (Date.now() > until) throw new Error(`no trace matches ${is}`)
  }
}
const isQuery = (t) => t.spans.some((s) => s.attributes?.['freshet.query'] === hostileQuery)
const isWrite = (t) => t.name === 'remote_write' && t.over === 'append'

// places are the addresses to look at, each with an element that shows that the page is ready.
const places = {
  explore: { path: () => '/explore', ready: (p) => p.getByRole('button', { name: 'shop_orders_total' }) },
  'explore-lines': {
    path: () => query(['q', orders], ['q', 'shop_queue_depth'], ['v', 'lines'], ['v', 'stacked']),
    ready: (p) => p.getByRole('list', { name: 'Series' }).nth(1),
  },
  'explore-heatmap': {
    path: () => query(['q', 'sum by (le) (rate(shop_search_seconds_bucket[2m]))'], ['q', 'rate(shop_checkout_seconds[2m])']),
    ready: (p) => p.getByText('2 series together'),
  },
  'explore-table': { path: () => query(['q', '{__name__=~"web_hits|web_latency|hostile.*"}'], ['v', 'table']), ready: (p) => p.getByRole('cell', { name: hostile }).first() },
  'explore-self': {
    path: () => query(['q', 'histogram_quantile(0.99, sum by (input) (rate(freshet_stage_seconds{stage="append"}[30s])))'], ['of', 'self'], ['range', '5m']),
    ready: (p) => p.locator('.query a.dot').first(),
  },
  alerts: { path: () => `${ruled}/alerts`, ready: (p) => p.getByRole('listitem').filter({ hasText: 'QueueLong' }) },
  rules: { path: () => `${ruled}/rules`, ready: (p) => p.getByText(/found duplicate series for the match group/) },
  series: { path: () => '/series', ready: (p) => p.getByRole('region', { name: 'By sender' }).getByText('127.0.0.1').first() },
  tail: { path: () => '/tail', ready: (p) => p.getByText('web.latency').nth(5) },
  senders: { path: () => '/senders', ready: (p) => p.getByRole('row', { name: /DogStatsD/ }).first() },
  queries: { path: () => '/queries', ready: (p) => p.locator('.scroll[aria-label="The last hour"]').getByRole('row').nth(1) },
  records: { path: () => `${recorded}/records`, ready: (p) => p.getByRole('region', { name: 'Slow traces' }).getByText('remote_write').nth(1) },
  'records-trace': { path: () => traced(isWrite), ready: (p) => p.getByRole('treeitem', { name: /append.*over its budget/ }) },
  'records-query': { path: () => traced(isQuery), ready: (p) => p.getByRole('treeitem', { name: /^promqlEval/ }) },
  'records-diagnosis': { path: () => `${recorded}/records?record=${process.env.RECORD}`, ready: (p) => p.getByText('Stack, innermost first').first() },
  cluster: { path: () => '/cluster', ready: (p) => p.getByText('freshet cluster init') },
  status: { path: () => '/status', ready: (p) => p.getByText('--limits-max-series-per-metric') },
  // Last, so that its charts have something to show.
  flow: { path: () => '/flow', ready: (p) => p.locator('main').filter({ has: everyStage(p) }).filter({ has: fresh(p).nth(1) }) },
}

// Half of the time of a test is waiting, so several run at once.
describe('the page', { concurrency: 4 }, () => {
  for (const [name, { path, ready }] of Object.entries(places)) {
    for (const size of Object.keys(sizes)) {
      test(`${name}, ${size}`, async () => {
        const { page, close } = await open(browser, { size })
        await page.goto(await path())
        await ready(page).waitFor()
        if (name.startsWith('explore')) await editor(page).waitFor() // it is loaded after the rest
        await settled(page)
        if (name === 'explore-table') await sideways(page, name) // or a narrow window would show labels without their value, and events without their text
        await look(page, `${name}-${size}-light`, size)
        await page.emulateMedia({ colorScheme: 'dark' })
        await page.waitForFunction(() => document.documentElement.dataset.theme === 'dark')
        await picture(page, `${name}-${size}-dark`)
        await close()
      })
    }
  }

  test('a fault of any impact is found, in both themes and both sizes', async () => {
    const { page, close } = await open(browser)
    for (const [fault, found] of [
      [() => (document.querySelector('main').appendChild(document.createElement('table')).insertRow().appendChild(document.createElement('th')).scope = 'row'), /as it is: minor: empty-table-header/],
      [() => Object.assign(document.querySelector('main').appendChild(document.createElement('p')), { textContent: 'dark' }).style.setProperty('color', '#222'), /in the other theme: serious: color-contrast/],
      [() => document.querySelector('button.menu').replaceChildren(), /in the other size: critical: button-name/],
    ]) {
      await page.goto('/status')
      await settled(page)
      await page.evaluate(fault)
      await assert.rejects(accessible(page, 'status'), found)
    }
    await close()
  })

  test('text keeps its order, and long text is cut', async () => {
    const { page, close } = await open(browser)
    const value = 'a\u202ecba"zz='
    const metric = { __name__: 'turned', a: value, b: 'x'.repeat(3000) }
    const answer = (resultType, of) => (route) => route.fulfill({ json: { status: 'success', data: { resultType, result: [{ metric, ...of }] } } })
    const now = [Math.floor(Date.now() / 1000), '1']
    await page.route('**/api/v1/query_range?**', answer('matrix', { values: [now] }))
    await page.route('**/api/v1/query?**', answer('vector', { value: now }))
    await page.goto(query(['q', 'turned']))
    await page.getByRole('list', { name: 'Series' }).getByText('a="a\\u202ecba\\"zz="').waitFor()
    assert.ok((await page.getByRole('list', { name: 'Series' }).innerText()).length < 1000)
    await page.goto(query(['q', 'turned'], ['v', 'table']))
    await page.getByText('a\\u202ecba"zz=').first().waitFor()
    assert.equal(await page.getByText(metric.b).count(), 0)
    await page.getByRole('button', { name: 'all 3,000 characters' }).first().click()
    await page.getByText(metric.b).first().waitFor()
    await close()
  })

  test('hostile text is text on every page that shows it', async () => {
    const { page, close } = await open(browser, { allowed: [/400 \(Bad Request\)/] })
    await page.goto(query(['q', 'web_hits']))
    await page.getByRole('list', { name: 'Series' }).getByText(hostile).waitFor()
    await page.getByRole('region', { name: 'Events', exact: true }).getByText(hostile).first().waitFor()
    await page.getByRole('button', { name: /^Events at .*<img/ }).hover()
    await page.locator('.tip').getByText(hostile).first().waitFor()
    await page.goto('/explore')
    await page.getByRole('button', { name: 'hostile_<b>name</b>' }).click()
    await page.getByRole('list', { name: 'Series' }).getByText(hostile).waitFor()
    await page.goto('/series')
    await page.getByText('hostile_<b>name</b>').first().waitFor()
    await page.getByRole('button', { name: 'Count by metric' }).click()
    await page.getByRole('group', { name: 'Growth by metric' }).getByText('web_requests').waitFor()
    await page.goto('/tail')
    await page.getByText(`page:${hostile}`).first().waitFor()
    await page.goto(query(['q', hostile]))
    await page.getByRole('alert').waitFor()
    assert.equal(await page.locator('img[src]').count(), 0)
    await close()
  })

  test('a query is completed, run, kept in the history, and in the address', async () => {
    const { page, close } = await open(browser)
    await page.goto('/explore')
    await editor(page).click()
    await page.keyboard.type('rat')
    const completions = page.locator('.cm-tooltip-autocomplete') // time zones are options, too
    await completions.getByRole('option', { name: /^rate/ }).first().click()
    await page.keyboard.type('(web_req')
    await completions.getByRole('option', { name: 'web_requests' }).waitFor()
    await look(page, 'explore-completion')
    await page.keyboard.press('Enter')
    await page.keyboard.type('{en')
    await completions.getByRole('option', { name: 'env' }).click()
    await page.keyboard.type('="pro')
    await completions.getByRole('option', { name: 'prod' }).click()
    await page.keyboard.type('"}[2m]')
    await page.keyboard.press('ControlOrMeta+Enter')
    const expr = 'rate(web_requests{env="prod"}[2m])'
    await page.waitForURL((u) => u.searchParams.get('q') === expr)
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await page.getByRole('button', { name: 'Table' }).click()
    await page.getByRole('cell', { name: 'prod' }).first().waitFor()

    await page.goto('/explore')
    await page.getByRole('button', { name: 'History' }).click()
    await page.getByRole('button', { name: expr }).click()
    await page.getByRole('button', { name: 'Run' }).click()
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await close()
  })

  test('an address shows the same to somebody else', async () => {
    const { page, close } = await open(browser)
    await page.goto('/explore')
    await editor(page).fill(orders)
    await page.keyboard.press('Control+Enter')
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await page.getByRole('button', { name: 'Stacked' }).click()
    await page.getByRole('button', { name: '+ Add query' }).click()
    await editor(page).waitFor()
    await page.locator('.cm-content').nth(1).fill('shop_queue_depth > 40')
    await page.keyboard.press('Control+Enter')
    await page.getByRole('list', { name: 'Series' }).nth(1).waitFor()
    await page.getByRole('combobox', { name: 'Time range' }).selectOption({ label: 'Last 15m' })
    await page.waitForURL(/range=15m/)
    const address = page.url()
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.getByRole('button', { name: 'Copy link' }).click()
    await page.getByText('Copied').waitFor()
    const copied = await page.evaluate(() => navigator.clipboard.readText())
    await close()

    for (const link of [address, copied]) {
      const other = await open(browser)
      await other.page.goto(link + '&refresh=5s') // one that the page does not offer
      await other.page.getByRole('list', { name: 'Series' }).nth(1).waitFor()
      assert.equal(await other.page.getByRole('combobox', { name: 'Refresh' }).inputValue(), '5')
      assert.equal(await editor(other.page).innerText(), orders)
      assert.equal(await other.page.locator('.cm-content').nth(1).innerText(), 'shop_queue_depth > 40')
      assert.equal(await other.page.getByRole('button', { name: 'Stacked' }).first().getAttribute('aria-pressed'), 'true')
      const p = new URL(other.page.url()).searchParams
      assert.ok(link === copied ? Number(p.get('to')) - Number(p.get('from')) === 900 : p.get('range') === '15m')
      await other.page.goBack()
      await other.close()
    }
  })

  test('a chart has a cursor, hides series, zooms, and Back leads out again', async () => {
    const { page, close } = await open(browser)
    await page.goto(query(['q', orders]))
    const chart = page.getByRole('group', { name: 'Chart of query A' })
    const legend = page.getByRole('list', { name: 'Series' }).getByRole('button')
    await legend.nth(4).waitFor()
    await chart.focus()
    await page.keyboard.press('Home')
    await page.getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/).first().waitFor() // the cursor's time, above the legend
    await legend.nth(1).click()
    assert.equal(await legend.nth(1).getAttribute('aria-pressed'), 'false')
    await legend.nth(2).click({ modifiers: ['Shift'] })
    assert.deepEqual(await legend.evaluateAll((all) => all.map((b) => b.ariaPressed)), ['false', 'false', 'true', 'false', 'false'])
    const plot = await page.locator('.u-over').boundingBox()
    await page.mouse.move(plot.x + plot.width / 4, plot.y + 50)
    await page.mouse.down()
    await page.mouse.move(plot.x + plot.width / 2, plot.y + 50, { steps: 4 })
    await page.mouse.up()
    await page.waitForURL(/from=\d+&to=\d+/)
    const p = new URL(page.url()).searchParams
    assert.ok(Math.abs(p.get('to') - p.get('from') - 900) < 60, page.url())
    await page.goBack()
    await page.waitForURL((u) => !u.searchParams.has('from'))
    await close()
  })

  test('the line nearest to the cursor stands out, by mouse and by keys', async () => {
    const { page, close } = await open(browser)
    const at = Math.floor(Date.now() / 1000 / 86400) * 86400 // midnight in UTC
    const lines = [10, 50, 90].map((v) => ({ metric: { __name__: 'flat', v: String(v) }, values: [[at - 7200, String(v)], [at, String(v)], [at + 7200, String(v)]] }))
    await page.route('**/api/v1/query_range?**', (route) => route.fulfill({ json: { status: 'success', data: { resultType: 'matrix', result: lines } } }))
    await page.goto(query(['q', 'flat'], ['from', String(at - 7200)], ['to', String(at + 7200)], ['step', '7200']))
    const legend = page.getByRole('list', { name: 'Series' }).getByRole('button')
    await legend.nth(2).waitFor()
    const nearest = async (v) => {
      await page.locator('.nearest .code', { hasText: `v="${v}"` }).waitFor()
      assert.deepEqual(await page.locator('.legend .near').allInnerTexts(), [`{v="${v}"}\n${v}`])
    }
    const plot = await page.locator('.u-over').boundingBox()
    const height = (v) => plot.y + plot.height * (1 - v / 97.2) // the scale ends 8 % above the highest value
    await page.mouse.move(plot.x + plot.width / 2, height(50) - 8)
    await nearest(50)
    assert.equal(await page.locator('.nearest b').innerText(), '50')
    await look(page, 'explore-nearest')
    await page.mouse.move(plot.x + plot.width / 2, height(90) + 8)
    await nearest(90)
    await page.mouse.move(plot.x + plot.width / 2, height(70)) // near to no line
    await page.waitForFunction(() => !document.querySelector('.near'))
    await page.mouse.move(0, 0)
    await page.getByText('Last values').waitFor()
    await page.getByRole('group', { name: 'Chart of query A' }).focus()
    await page.keyboard.press('End')
    await page.keyboard.press('ArrowDown')
    await nearest(90)
    await page.keyboard.press('ArrowDown')
    await nearest(50)
    await page.keyboard.press('ArrowLeft') // stays on the line
    await nearest(50)
    await page.keyboard.press('ArrowUp')
    await nearest(90)
    await close()
  })

  test('a time axis that passes midnight has dates', async () => {
    const { page, close } = await open(browser)
    await page.addInitScript(() => {
      const texts = (globalThis.drawn = [])
      const draw = CanvasRenderingContext2D.prototype.fillText
      CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
        texts.push(text)
        return draw.call(this, text, ...at)
      }
    })
    const drawn = async (from, to) => {
      await page.goto(query(['q', 'vector(1)'], ['from', String(from)], ['to', String(to)]))
      await page.getByRole('list', { name: 'Series' }).waitFor()
      await page.waitForFunction(() => globalThis.drawn.some((t) => /:/.test(t)))
      return page.evaluate(() => globalThis.drawn)
    }
    const over = await drawn(1767308400, 1767322800) // 2026-01-01 23:00 to 03:00
    assert.ok(over.includes('Jan 1') && over.includes('Jan 2'), `the axis has ${over}`)
    const within = await drawn(1767326400, 1767340800)
    assert.deepEqual(within.filter((t) => /Jan/.test(t)), [])
    await close()
  })

  for (const colorScheme of ['light', 'dark']) {
    test(`the colours of lines can be told apart from the background and from each other, ${colorScheme}`, async () => {
      const { page, close } = await open(browser, { colorScheme })
      await page.goto('/status')
      const [panel, ...lines] = await page.evaluate(() => {
        const style = getComputedStyle(document.documentElement)
        return ['panel', ...Array.from({ length: 50 }, (_, i) => `series-${i}`)].map((n) => style.getPropertyValue('--' + n).trim())
      })
      const rgb = (hex) => hex.match(/\w\w/g).map((h) => parseInt(h, 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      const bright = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
      const lab = ([r, g, b]) => {
        const [l, m, s] = [0.4122 * r + 0.5363 * g + 0.0514 * b, 0.2119 * r + 0.6807 * g + 0.1074 * b, 0.0883 * r + 0.2817 * g + 0.63 * b].map(Math.cbrt)
        return [0.2105 * l + 0.7936 * m - 0.0041 * s, 1.978 * l - 2.4286 * m + 0.4506 * s, 0.0259 * l + 0.7828 * m - 0.8087 * s] // OKLab
      }
      for (const [i, line] of lines.entries()) {
        const [a, b] = [bright(rgb(line)), bright(rgb(panel))]
        const contrast = Math.max(a, b) / Math.min(a, b)
        assert.ok(contrast >= 3, `series-${i} ${line} has a contrast of ${contrast} to ${panel}`)
        for (const [k, other] of lines.slice(0, i).entries()) {
          const apart = Math.hypot(...lab(rgb(line)).map((v, at) => v - lab(rgb(other))[at]))
          assert.ok(apart > 0.07, `series-${i} ${line} and series-${k} ${other} are ${apart} apart`) // 0.02 is just noticeable
        }
      }
      await close()
    })
  }

  test('the list of metrics is narrowed by prefix, and has pages', async () => {
    const { page, close } = await open(browser)
    const names = [...Array.from({ length: 450 }, (_, i) => `many_${String(i).padStart(3, '0')}`), 'single', 'web_hits', 'web_latency']
    await page.route('**/api/v1/label/__name__/values*', (route) => route.fulfill({ json: { status: 'success', data: names } }))
    await page.goto('/explore')
    await page.getByText('1 to 200 of 453').waitFor()
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByRole('button', { name: 'many_399' }).waitFor()
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText('401 to 453 of 453').waitFor()
    assert.equal(await page.getByRole('button', { name: 'Next' }).isDisabled(), true)
    await look(page, 'explore-pages')
    assert.deepEqual(await page.getByRole('combobox', { name: 'Prefix' }).locator('option').allInnerTexts(), ['All', 'many (450)', 'web (2)'])
    await page.getByRole('combobox', { name: 'Prefix' }).selectOption('web')
    assert.deepEqual(await page.locator('.metrics .metric').allInnerTexts(), ['web_hits', 'web_latency'])
    await close()
  })

  for (const size of Object.keys(sizes)) {
    test(`many metrics have headings by prefix, also when they are filtered, ${size}`, async () => {
      const { page, close } = await open(browser, { size })
      const of = (prefix, n, end = '') => Array.from({ length: n }, (_, i) => `${prefix}_${String(i).padStart(3, '0')}${end}`)
      // Between those of "web" stands another name, as servers sort by bytes.
      const names = [...of('node', 150, '_total'), 'single_total', 'up', ...of('web:rate', 30), 'webAll_x', ...of('web', 70, '_total')].sort()
      await page.route('**/api/v1/label/__name__/values*', (route) => route.fulfill({ json: { status: 'success', data: names } }))
      await page.goto('/explore')
      const headings = page.getByRole('region', { name: 'Metrics' }).getByRole('heading', { level: 3 })
      const shown = async (filter, first) => {
        await page.getByLabel('Filter').fill(filter)
        await page.locator('.metrics .metric').first().filter({ hasText: first }).waitFor()
        return [await headings.allInnerTexts(), await page.locator('.metrics .metric').count()]
      }
      assert.deepEqual(await shown('total', 'node_000_total'), [['node 150', 'web 70'], 200]) // 50 of them
      await look(page, `metrics-grouped-${size}-light`, size)
      await page.emulateMedia({ colorScheme: 'dark' })
      await page.waitForFunction(() => document.documentElement.dataset.theme === 'dark')
      await picture(page, `metrics-grouped-${size}-dark`)
      await page.getByRole('button', { name: 'Next' }).click()
      await page.getByText('201 to 221 of 221').waitFor()
      assert.deepEqual(await headings.allInnerTexts(), ['web 70', 'Others 1'])
      assert.deepEqual((await page.locator('.metrics .metric').allInnerTexts()).slice(-2), ['web_069_total', 'single_total'])
      assert.deepEqual(await shown('web', 'web:rate_000'), [['web 100', 'Others 1'], 101])
      assert.deepEqual(await shown('rate', 'web:rate_000'), [[], 30]) // few
      assert.deepEqual(await shown('', 'node_000_total'), [['node 150', 'web 100'], 200])
      await page.getByRole('combobox', { name: 'Prefix' }).selectOption('web')
      await page.locator('.metrics .metric').first().filter({ hasText: 'web:rate_000' }).waitFor()
      assert.deepEqual(await headings.allInnerTexts(), []) // the choice names the prefix
      await close()
    })
  }

  test('fifty series have a colour each, and further ones dashes', async () => {
    const { page, close } = await open(browser)
    const now = Math.floor(Date.now() / 1000)
    const result = Array.from({ length: 60 }, (_, i) => ({ metric: { __name__: 'pods', pod: String(i).padStart(2, '0') }, values: [[now - 60, String(60 - i)], [now, String(60 - i)]] }))
    await page.route('**/api/v1/query_range?**', (route) => route.fulfill({ json: { status: 'success', data: { resultType: 'matrix', result } } }))
    await page.route('**/api/v1/query?**', (route) => route.fulfill({ json: { status: 'success', data: { resultType: 'vector', result: [] } } }))
    await page.goto(query(['q', 'pods']))
    const swatches = page.getByRole('list', { name: 'Series' }).locator('.swatch')
    await swatches.nth(59).waitFor()
    const drawn = await swatches.evaluateAll((all) => all.map((e) => getComputedStyle(e).getPropertyValue('--c') + (e.matches('.dashed') ? ' dashed' : '')))
    assert.equal(new Set(drawn).size, 60)
    for (const d of drawn) assert.match(d, /^#[0-9a-f]{6}( dashed)?$/)
    assert.deepEqual(drawn.slice(50), drawn.slice(0, 10).map((d) => d + ' dashed'))
    await look(page, 'explore-many-series')
    await close()
  })

  test('the legend is sorted, and values have a unit, a scale and names of their own', async () => {
    const { page, close } = await open(browser)
    await page.goto(query(['q', orders]))
    const legend = page.getByRole('list', { name: 'Series' })
    const texts = (part) => legend.locator(part).allInnerTexts()
    await legend.getByRole('button').nth(4).waitFor()
    const figures = (await texts('.value')).map(Number)
    assert.deepEqual(figures, figures.toSorted((a, b) => b - a))
    await page.getByRole('button', { name: 'sort by name' }).click()
    await page.getByRole('button', { name: 'sort by last value' }).waitFor()
    const names = await texts('.code')
    assert.deepEqual(names, names.toSorted())

    await page.getByRole('button', { name: 'Options' }).click()
    await page.getByRole('combobox', { name: 'Unit' }).selectOption({ label: 'Bytes' })
    await legend.getByText(/ B$/).first().waitFor()
    await page.getByRole('combobox', { name: 'Unit' }).selectOption({ label: 'Seconds' })
    await legend.getByText(/ (m?s|min|h)$/).first().waitFor()
    await page.getByRole('combobox', { name: 'Unit' }).selectOption({ label: 'Percent (1 is 100 %)' })
    await page.getByRole('textbox', { name: 'Legend' }).fill('of {{region}} {{none}}')
    await page.getByRole('textbox', { name: 'Legend' }).press('Enter')
    await page.getByRole('checkbox', { name: 'Logarithmic' }).check()
    await legend.getByText(/^of /).first().waitFor()
    await legend.getByText(/ %$/).first().waitFor()
    await look(page, 'explore-options')
    const other = await open(browser)
    await other.page.goto(page.url())
    await other.page.getByRole('list', { name: 'Series' }).getByText(/^of /).first().waitFor()
    await other.page.getByRole('list', { name: 'Series' }).getByText(/ %$/).first().waitFor()
    await other.page.getByRole('button', { name: 'Options' }).click()
    assert.equal(await other.page.getByRole('checkbox', { name: 'Logarithmic' }).isChecked(), true)
    await other.close()
    await close()
  })

  test('an answer is taken along as CSV, as JSON, and as a command', async () => {
    const { page, close } = await open(browser)
    await page.goto(query(['q', orders], ['n', '{{region}}']))
    await page.getByRole('list', { name: 'Series' }).getByRole('button').nth(4).waitFor()
    const names = (await page.getByRole('list', { name: 'Series' }).locator('.code').allInnerTexts()).toSorted()
    await page.getByRole('button', { name: 'Options' }).click()
    const saved = async (name) => {
      const download = page.waitForEvent('download')
      await page.getByRole('button', { name, exact: true }).click()
      return readFileSync(await (await download).path(), 'utf8')
    }
    const lines = (await saved('CSV')).split('\r\n')
    assert.deepEqual(lines[0].split(','), ['time', ...names])
    assert.ok(lines.length > 20, `${lines.length} lines`)
    assert.match(lines[1], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z(,[0-9.e+-]*){5}$/)
    assert.equal(JSON.parse(await saved('JSON')).data.result.length, 5)

    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.getByRole('button', { name: 'Copy as curl' }).click()
    await page.getByText('Copied').waitFor()
    const command = await page.evaluate(() => navigator.clipboard.readText())
    assert.equal(JSON.parse(execFileSync('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'ignore'] })).data.result.length, 5)

    await page.goto(query(['q', hostileQuery], ['v', 'table']))
    await page.getByRole('cell', { name: hostile }).first().waitFor()
    await page.getByRole('button', { name: 'Options' }).click()
    assert.match(await saved('CSV'), /^__name__,(\w+,)*page,(\w+,)*time,value\r\nweb_hits,/)

    // A spreadsheet must not take a label as a formula.
    await page.goto(query(['q', 'label_replace(vector(-1), "a", "=1+1", "", "")'], ['v', 'table']))
    await page.getByRole('cell', { name: '=1+1' }).first().waitFor()
    await page.getByRole('button', { name: 'Options' }).click()
    assert.match(await saved('CSV'), /^a,time,value\r\n'=1\+1,[^,]*,-1\r\n$/)
    await close()
  })

  test('the server formats a query, unless its comments would be lost', async () => {
    const { page, close } = await open(browser, { allowed: [/400 \(Bad Request\)/] })
    await page.goto('/explore')
    const format = page.getByRole('button', { name: 'Format' })
    await editor(page).waitFor()
    assert.equal(await format.isDisabled(), true)
    const write = async (text) => {
      await editor(page).press('ControlOrMeta+a')
      await editor(page).press('Backspace') // otherwise Chromium keeps the colours of the old text as inline styles
      await editor(page).fill(text)
    }
    await write('sum(rate(shop_orders_total{region!="#1"}[5m]))by(region)/on(region)group_left()sum by(region)(rate(shop_orders_total[1h]))')
    await format.click()
    const lines = ['  sum by (region) (rate(shop_orders_total{region!="#1"}[5m]))', '/ on (region) group_left ()', '  sum by (region) (rate(shop_orders_total[1h]))']
    await page.waitForFunction((n) => document.querySelectorAll('.cm-line').length === n, lines.length)
    assert.deepEqual(await page.locator('.cm-line').allInnerTexts(), lines)
    await look(page, 'explore-format')
    await editor(page).press('ControlOrMeta+z') // brings back what was typed
    await page.waitForFunction(() => document.querySelectorAll('.cm-line').length === 1)

    await write('sum(shop_orders_total # of all shops')
    assert.equal(await format.isDisabled(), true)
    await write('sum(rate(shop_orders_total[5m]) by')
    await format.click()
    await page.getByRole('alert').getByText('parse error').waitFor()
    assert.equal(await editor(page).locator('.cm-fault').innerText(), 'by')
    await write('sum(shop_orders_total)')
    await page.getByRole('alert').waitFor({ state: 'detached' })
    await close()
  })

  test('a query is switched off, and duplicated', async () => {
    const { page, close } = await open(browser)
    await page.goto(query(['q', orders], ['v', 'stacked']))
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await page.getByRole('button', { name: 'Duplicate query A' }).click()
    await page.getByRole('list', { name: 'Series' }).nth(1).waitFor()
    assert.deepEqual(await page.getByRole('button', { name: 'Stacked' }).evaluateAll((all) => all.map((b) => b.ariaPressed)), ['true', 'true'])
    const asked = []
    page.on('request', (r) => r.url().includes('api/v1/query_range') && asked.push(r.url()))
    await page.getByRole('button', { name: 'Query A is on' }).click()
    await page.getByText('This query is off.').waitFor()
    await page.getByRole('button', { name: 'Run' }).first().click()
    await page.waitForURL(/off=1/)
    await settled(page)
    assert.equal(await page.getByRole('list', { name: 'Series' }).count(), 1)
    assert.ok(asked.length <= 2, `${asked.length} requests for one query`)
    await close()
  })

  test('a correct query has no marks when the machine is busy', async () => {
    const { page, close } = await open(browser, { allowed: [/400 \(Bad Request\)/] }) // of the second query
    await page.addInitScript(() => {
      const now = Date.now
      let late = 0
      Date.now = () => now() + (late += 150) // CodeMirror parses for 20 ms at first, and 100 ms now and then
    })
    await page.goto(query(['q', 'sum by (region) (rate(shop_orders_total[2m]))'], ['q', 'sum(']))
    await page.locator('.query').nth(1).locator('.cm-lintRange, .cm-lintPoint').first().waitFor()
    assert.deepEqual(await page.locator('.query').first().locator('.cm-lintRange').allInnerTexts(), [])
    await close()
  })

  // The last step of a day's range may be five minutes ago.
  test('a value is drawn when it has just come', async () => {
    const { page, close } = await open(browser)
    const [host, port] = process.env.UDP.split(':')
    createSocket('udp4').unref().send('just_now:7|c', Number(port), host)
    const came = async () => (await (await page.request.get('/api/v1/query?query=just_now')).json()).data.result.length > 0
    while (!(await came())) await setTimeout(100)
    await page.goto(query(['q', 'just_now'], ['range', '1d']))
    await page.getByRole('list', { name: 'Series' }).locator('.value', { hasText: /^7$/ }).waitFor()
    await page.goto(query(['q', 'just_now * 0 > 1'], ['range', '1d']))
    await page.getByText('No value of just_now * 0 passes the comparison >').waitFor()
    await close()
  })

  test('times are local, UTC, or of any zone', async () => {
    const { page, close } = await open(browser, { timezoneId: 'Asia/Kolkata' })
    await page.goto(query(['q', orders], ['from', '1767322800'], ['to', '1767326400']))
    const range = page.getByRole('combobox', { name: 'Time range' })
    const zone = page.getByRole('combobox', { name: 'Time zone' })
    assert.match(await range.locator('option:checked').innerText(), /^2026-01-02 08:30:00/)
    assert.match(await zone.locator('option:checked').innerText(), /^Local \(Asia\/(Kolkata|Calcutta)\)$/)
    await zone.selectOption('utc')
    assert.match(await range.locator('option:checked').innerText(), /^2026-01-02 03:00:00/)
    await zone.selectOption('America/New_York')
    assert.match(await range.locator('option:checked').innerText(), /^2026-01-01 22:00:00/)
    await page.reload()
    assert.equal(await zone.inputValue(), 'America/New_York')
    const dialog = page.getByRole('dialog', { name: 'Custom time range' })
    const choose = async (was, next, address) => {
      await page.getByRole('button', { name: 'Custom time range' }).click()
      await dialog.getByText('Time zone: America/New_York').waitFor()
      assert.equal(await dialog.getByLabel('From').inputValue(), was)
      await dialog.getByLabel('From').fill(next)
      await dialog.getByRole('button', { name: 'Apply' }).click()
      await page.waitForURL(address)
    }
    await choose('2026-01-01T22:00', '2026-01-01T22:30:00', /from=1767324600&to=1767326400/)
    // Summer time began at 07:00 UTC on 2026-03-08.
    await page.goto(query(['q', orders], ['from', '1772953200'], ['to', '1772956800']))
    assert.match(await range.locator('option:checked').innerText(), /^2026-03-08 03:00:00 – 2026-03-08 04:00:00/)
    await choose('2026-03-08T03:00', '2026-03-08T01:30:00', /from=1772951400&to=1772956800/)
    await page.evaluate(() => localStorage.setItem('freshet.zone', 'Atlantis/Poseidonis'))
    await page.reload()
    assert.equal(await zone.inputValue(), 'local') // the browser does not know that zone
    await close()
  })

  test('an empty answer says why', async () => {
    const { page, close } = await open(browser)
    // A series without samples for five minutes is gone, and a busy machine may have needed longer to come here.
    const past = [['from', String(begun - 3000)], ['to', String(begun)]] // begins and ends within the hour that has samples
    for (const [expr, why] of [
      ['rate(shop_order_total[5m])', 'No metric is named shop_order_total.'],
      ['rate(shop_checkout_seconds_count[5m])', 'shop_checkout_seconds is a native histogram: write histogram_count(shop_checkout_seconds).'],
      ['sum(shop_orders_total{region="nowhere"})', /No series of shop_orders_total has region="nowhere"\. It is "/],
      ['shop_orders_total{flavour=~".+"}', /has flavour=~"\.\+"\. There is no such label\./],
      ['shop_queue_depth > 1e9', /No value of shop_queue_depth passes the comparison >: the smallest is/],
      ['shop_queue_depth + sum by (method) (shop_orders_total)', /no two series have the same labels: only the right side has method; only the left side has region/],
      ['rate(shop_orders_total[1s])', /too few: rate needs two samples|has no samples at the end of this time range/],
      ['shop_queue_depth offset 7d', 'shop_queue_depth offset 7d has no data: offset and @ say when.'],
      ['{region="nowhere"}', /No series has region="nowhere"\. It is "/],
      ['absent(shop_queue_depth)', 'shop_queue_depth has data, and absent is empty as long as it has.'],
      ['histogram_quantile(0.9, shop_queue_depth)', /has data, but no histograms/],
      ['shop_queue_depth unless shop_queue_depth', 'Each series of the left side has one of the right side'],
    ]) {
      await page.goto(query(['q', expr], ...past))
      await page.getByText(why).waitFor()
    }
    await page.goto(query(['q', 'sum by (shop_order_total) (rate(shop_order_total[5m]))'], ...past))
    await page.getByRole('link', { name: 'shop_orders_total' }).waitFor()
    await look(page, 'explore-empty')
    await page.getByRole('link', { name: 'shop_orders_total' }).click()
    await page.getByRole('list', { name: 'Series' }).waitFor()
    assert.equal(await editor(page).innerText(), 'sum by (shop_order_total) (rate(shop_orders_total[5m]))')

    await page.goto(query(['q', 'shop_queue_depth'], ['from', '1767322800'], ['to', '1767326400']))
    await page.getByText(/had data, but not in the 30 days before/).waitFor()
    const later = Math.floor(Date.now() / 1000) + 7200
    await page.goto(query(['q', 'shop_queue_depth'], ['from', String(later)], ['to', String(later + 60)]))
    await page.getByRole('button', { name: 'Show that time' }).click()
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await close()
  })

  test('the parts of a query are a tree with what each of them answers', async () => {
    const { page, close } = await open(browser)
    const all = ['sum by (region) (rate(shop_orders_total[2m])) / on () group_left () count(shop_orders_total offset -1s) > bool 0.5', 'sum by (region) (rate(shop_orders_total[2m])) / on () group_left () count(shop_orders_total offset -1s)', 'sum by (region) (rate(shop_orders_total[2m]))', 'rate(shop_orders_total[2m])', 'shop_orders_total[2m]', 'count(shop_orders_total offset -1s)', 'shop_orders_total offset -1s']
    await page.goto(query(['q', all[0]]))
    await page.getByRole('button', { name: 'Parts' }).click()
    const tree = page.locator('.parttree')
    await tree.getByRole('listitem').first().waitFor()
    assert.deepEqual(await tree.locator('code').allInnerTexts(), all)
    assert.match(await tree.locator('.note').nth(5).innerText(), /^\d+ series, \d+ samples, /)
    await look(page, 'explore-parts')
    await close()
  })

  test('errors and empty answers are explained', async () => {
    const { page, close } = await open(browser, { allowed: [/400 \(Bad Request\)/] })
    await page.goto(query(['q', 'rate(shop_orders_total[)'], ['q', 'no_such_metric'], ['q', 'histogram_quantile(0.9, shop_orders_total)']))
    await page.getByRole('alert').getByText('parse error').waitFor()
    await page.getByText('No data in this time range.').first().waitFor()
    await page.getByText(/bucket label "le" is missing/).first().waitFor() // Prometheus' own warning
    await look(page, 'explore-errors')
    await close()
  })

  test('the error in a query is marked until the query changes', async () => {
    const { page, close } = await open(browser, { allowed: [/400 \(Bad Request\)/] })
    const wrong = ['sum(rate(shop_orders_total[5m]) by', 'sum(', 'vector(1) +\n  rate(shop_orders_total)', '{region="日本"} ! 1']
    await page.goto(query(...wrong.map((q) => ['q', q])))
    const marked = async (i, before, mark) => {
      const field = page.locator('.cm-content').nth(i)
      await field.locator('.cm-fault').waitFor()
      assert.equal(await field.locator('.cm-fault').innerText(), mark)
      const text = await field.evaluate((all) => {
        const range = document.createRange()
        range.setStart(all, 0)
        range.setEndBefore(all.querySelector('.cm-fault'))
        return range.toString() // the text of all lines, without separators
      })
      assert.equal(text, before)
      assert.equal(await field.getAttribute('aria-invalid'), 'true')
    }
    await marked(0, 'sum(rate(shop_orders_total[5m]) ', 'by')
    await marked(1, 'sum(', '\u00a0')
    await marked(2, 'vector(1) +  rate(', 'shop_orders_total')
    await marked(3, '{region="日本"} ', '!')
    await page.getByText('The error is marked in the query.').nth(3).waitFor()
    await look(page, 'explore-faults')
    await editor(page).press('End')
    await page.keyboard.type(' (region))')
    await page.keyboard.press('Escape') // the completion
    assert.equal(await editor(page).locator('.cm-fault').count(), 0)
    assert.equal(await editor(page).getAttribute('aria-invalid'), null)
    await close()
  })

  for (const [size, width] of [['wide', 1400], ['narrow', 390]]) {
    test(`names of metrics stay whole beside their help, ${width} pixels wide`, async () => {
      const { page, close } = await open(browser)
      await page.setViewportSize({ width, height: 900 })
      await page.goto('/explore')
      const lines = async (name) => {
        const button = page.getByRole('button', { name: new RegExp(`^${name} counter How often`) })
        await button.waitFor()
        return button.locator('.metric').evaluate((metric) => {
          const lines = new Map() // text by its height on the page
          const walk = document.createTreeWalker(metric, NodeFilter.SHOW_TEXT)
          while (walk.nextNode()) {
            for (let i = 0; i < walk.currentNode.length; i++) {
              const range = document.createRange()
              range.setStart(walk.currentNode, i)
              range.setEnd(walk.currentNode, i + 1)
              const top = Math.round(range.getBoundingClientRect().top)
              lines.set(top, (lines.get(top) ?? '') + range)
            }
          }
          return [...lines.values()]
        })
      }
      for (const [name, most] of [['shop_recommendation_cache_lookups_failed', 2], ['shop_recommendation_cache_lookups_failed_for_lack_of_connections_to_shards_total', 3]]) {
        const found = await lines(name)
        assert.equal(found.join(''), name)
        assert.ok(found.length <= most, `${name} takes ${found.length} lines: ${found}`)
        for (const line of found.slice(0, -1)) assert.match(line, /[_.:]$/, `${name} is broken behind ${line}`)
      }
      await look(page, `metrics-${width}`, size)
      await close()
    })

    test(`the dialog for the time range is in the middle, ${width} pixels wide`, async () => {
      const { page, close } = await open(browser)
      await page.setViewportSize({ width, height: 900 })
      await page.goto('/explore')
      await page.getByRole('button', { name: 'Custom time range' }).click()
      const dialog = page.getByRole('dialog', { name: 'Custom time range' })
      const { x, y, width: wide, height } = await dialog.boundingBox()
      assert.ok(x >= 0 && y >= 0 && x + wide <= width && y + height <= 900, `it is ${wide}×${height} at ${x}, ${y}`)
      assert.ok(Math.abs(x + wide / 2 - width / 2) <= 1, `its middle is at ${x + wide / 2}`)
      await look(page, `times-${width}`, size)
      await dialog.getByLabel('From').fill('2026-01-02T03:00:00')
      await dialog.getByLabel('To', { exact: true }).fill('2026-01-02T04:00:00')
      await dialog.getByRole('button', { name: 'Apply' }).click()
      await page.waitForURL(/from=1767322800&to=1767326400/)
      assert.equal(await dialog.count(), 0)
      await close()
    })
  }

  test('keys open every page', async () => {
    const { page, close } = await open(browser)
    await page.goto('/')
    await page.getByRole('heading', { level: 1, name: 'Explore' }).waitFor()
    for (const [key, name] of [['f', 'Flow'], ['e', 'Explore'], ['s', 'Series'], ['n', 'Senders'], ['q', 'Queries'], ['t', 'Tail'], ['r', 'Records'], ['u', 'Status']]) {
      await page.keyboard.press('g')
      await page.keyboard.press(key)
      await page.getByRole('heading', { level: 1, name }).waitFor()
      assert.equal(await page.getByRole('link', { name, exact: true }).getAttribute('aria-current'), 'page')
    }
    await page.keyboard.press('?')
    const help = page.getByRole('dialog', { name: 'Keyboard shortcuts' })
    await help.waitFor()
    await look(page, 'help')
    await page.keyboard.press('Escape')
    await help.waitFor({ state: 'hidden' })

    await page.keyboard.press('g')
    await page.keyboard.press('e')
    await editor(page).waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('vector(42)')
    await page.keyboard.press('Control+Enter') // Enter alone may take a completion
    await page.getByRole('list', { name: 'Series' }).getByText('42').waitFor()

    await page.goto('/status')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter') // Skip to content
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main')
    await close()
  })

  test('Series shows the limits and senders of each input, and what is over a limit', async (t) => {
    const { page, close } = await open(browser)
    const export1 = { resourceMetrics: [{ scopeMetrics: [{ metrics: [{ name: 'by.otlp', gauge: { dataPoints: [{ timeUnixNano: `${Date.now()}000000`, asDouble: 1 }] } }] }] }] }
    const send = () => fetch(`${server}/v1/metrics`, { method: 'POST', headers: { 'Content-Type': 'application/json', 'User-Agent': 'otel-page/1' }, body: JSON.stringify(export1) })
    assert.equal((await send()).status, 200)
    const sending = setInterval(send, 3000) // repeated, since the page shows the senders of the last ten seconds
    t.after(() => clearInterval(sending))
    await page.goto('/series')
    const senders = page.getByRole('group', { name: 'By sender of remote write and OTLP' })
    await senders.getByRole('row', { name: /127\.0\.0\.1, otel-page\/1 OTLP 0\.\d 0\.\d \d+ B/ }).waitFor()
    await senders.getByRole('row', { name: /127\.0\.0\.1, Go-http-client\S* remote write/ }).waitFor()
    await page.getByRole('group', { name: 'By sender of DogStatsD' }).getByText('127.0.0.1').first().waitFor()
    const tenants = page.getByRole('region', { name: 'By tenant' })
    await tenants.getByRole('row', { name: /^default DogStatsD \d+ 100,000 20 30,000 [\d,]+ samples folded, 0 refused 127\.0\.0\.1/ }).waitFor()
    await tenants.getByRole('row', { name: /^default remote write, OTLP \d+ 1,000,000 no limit 0 samples refused 127\.0\.0\.1, Go-http-client/ }).waitFor()
    await page.getByRole('region', { name: 'New series by remote write and OTLP' }).getByRole('row', { name: /^by_otlp 1 / }).waitFor()
    const figure = (name) => page.locator('.figure').filter({ hasText: name }).locator('dd')
    assert.match(await figure('By remote write and OTLP').innerText(), /^\d+\s*series of 1,000,000, <?0\.\d+ %$/)

    // This answer is made up: a distributor.max_series that small would also stop Freshet's own metrics.
    await page.route('**/api/v1/status/top?*', async (route) => {
      const answer = await (await route.fetch()).json()
      answer.data.request_newcomers = [{ metric: hostile, new_series: 3, refused_series: 4711, label: hostile, values: 5000, sender: `10.0.0.7 (${hostile})` }]
      await route.fulfill({ json: answer })
    })
    const over = page.getByRole('region', { name: 'Over a limit now' })
    await over.getByText('4,711 series refused').waitFor()
    await over.getByText(`${hostile}, about 5,000 values`).waitFor()
    await over.getByText(`10.0.0.7 (${hostile})`).waitFor()
    await over.getByText('distributor.max_series').waitFor()
    const malformed = page.getByRole('region', { name: 'Malformed lines of DogStatsD now' })
    await malformed.getByRole('row', { name: /^127\.0\.0\.1\S* \d+\S* \d+\.\d % bad_value web\.broken/ }).waitFor()
    await look(page, 'series-over')
    await close()
  })

  test('Series counts days, by metric, by label with its cost, and by value', async () => {
    const { page, close } = await open(browser)
    await page.goto('/series')
    const panel = page.getByRole('region', { name: 'Cardinality' })
    const metrics = panel.locator('.scroll[aria-label="Metrics by series"]')
    await panel.getByRole('button', { name: 'Count' }).click()
    await metrics.getByRole('button', { name: 'web_hits' }).click()
    await panel.locator('.scroll[aria-label="Labels by cost"]').getByRole('button', { name: 'page', exact: true }).click()
    await panel.locator('.scroll[aria-label="Values by series"]').getByText(hostile).waitFor()
    await look(page, 'series-cardinality')
    await panel.getByLabel('Day, in UTC', { exact: true }).fill('2001-02-03')
    await panel.getByText('No series had samples on 2001-02-03').waitFor()
    await panel.getByRole('button', { name: 'All metrics' }).click()
    const today = new Date().toISOString().slice(0, 10)
    await panel.getByLabel('Day, in UTC', { exact: true }).fill(today)

    // A bar chooses its day. The last day has series. Three days before it there was no server; the day
    // before it has some, soon after midnight.
    const empty = new Date(Date.parse(today) - 3 * 24 * 3600_000).toISOString().slice(0, 10)
    await panel.getByRole('button', { name: `${empty}: 0 series` }).click()
    await panel.getByText(`No series had samples on ${empty}`).waitFor()
    assert.equal(await panel.getByLabel('Day, in UTC', { exact: true }).inputValue(), empty)
    await panel.getByRole('button', { name: new RegExp(`^${today}: \\d+ series$`) }).click()
    await metrics.getByRole('button', { name: 'web_hits' }).waitFor()
    await panel.getByRole('button', { name: '31 days' }).click()
    await page.waitForFunction(() => document.querySelectorAll('.days button').length === 31)

    // This answer is made up: the server is younger than a day, and has time for all its days.
    await page.route('**/api/v1/status/cardinality?*', async (route) => {
      const answer = await (await route.fetch()).json()
      const { data } = answer
      Object.assign(data, { short: 'there was no time', others: 4711 })
      data.days?.forEach((d, i) => Object.assign(d, { series: d.series || 100 - i, short: i === 29 ? 'there was no time' : undefined }))
      if (data.metrics) Object.assign(data, { since: data.days.at(-1).day, grown: [{ name: hostile, was: 1000, series: 5711 }] })
      await route.fulfill({ json: answer })
    })
    await panel.getByRole('button', { name: '7 days' }).click()
    await panel.getByRole('button', { name: '31 days' }).click()
    await panel.getByRole('button', { name: /: at least 71 series$/ }).waitFor()
    await panel.locator('.scroll[aria-label="Grown metrics"]').getByRole('row', { name: `${hostile} 1,000 5,711 +4,711` }).waitFor()
    await settled(page)
    await look(page, 'series-cardinality-days')
    await metrics.getByRole('button', { name: 'web_hits' }).click()
    await panel.getByText('The counts are too low: there was no time.').waitFor()
    await settled(page)
    await look(page, 'series-cardinality-labels')
    await close()
  })

  test('Senders shows who sends, how late, and what is refused', async () => {
    const { page, close } = await open(browser)
    const old = `${Date.now() - 20 * 24 * 3600_000}000000`
    const point = (name, time) => ({ name, gauge: { dataPoints: [{ timeUnixNano: time, asDouble: 1 }] } })
    const send = (agent, ...metrics) => fetch(`${server}/v1/metrics`, {
      method: 'POST', headers: { 'Content-Type': 'application/json', 'User-Agent': agent }, body: JSON.stringify({ resourceMetrics: [{ scopeMetrics: [{ metrics }] }] }),
    })
    assert.equal((await send('otel-senders/1', point('by.senders', `${Date.now()}000000`), point('by.senders', old))).status, 200)
    assert.equal((await fetch(`${server}/api/v1/write`, { method: 'POST', headers: { 'Content-Type': 'application/x-protobuf', 'User-Agent': 'broken-senders/1' }, body: 'no snappy' })).status, 400)
    await page.goto('/senders')
    const all = page.locator('.scroll[aria-label="All senders"]')
    await all.getByRole('row', { name: /otel-senders\/1 OTLP .* ago .* 1 too_old$/ }).waitFor()
    await all.getByRole('row', { name: /broken-senders\/1 remote write 0 .* ago – 1 malformed$/ }).waitFor()
    await all.getByRole('row', { name: /^127\.0\.0\.1\S* DogStatsD .* bad_value$/ }).waitFor()
    await all.getByRole('img', { name: /at most .* samples a second/ }).first().waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('MALFORMED broken')
    await page.waitForFunction(() => document.querySelectorAll('[aria-label="All senders"] tbody tr').length === 1)
    await page.getByLabel('Filter').fill('nobody')
    await page.getByText('No sender matches the filter').waitFor()
    await page.getByLabel('Filter').fill('')

    // This answer is made up: a node that does not answer, a collector, and hostile text.
    await page.route('**/api/v1/status/senders?*', async (route) => {
      const answer = await (await route.fetch()).json()
      const now = Date.now() / 1000
      Object.assign(answer.data, { node: 'a', nodes: [{ name: 'a' }, { name: 'b', error: 'the node does not answer' }], others: { senders: 4711, samples_per_second: 12 } })
      answer.data.senders = [
        { input: 'collector', name: hostile, id: '0000000000000007', samples_per_second: 100, last_seen: now - 90 },
        { input: 'remote_write', node: 'a', address: '10.0.0.7', user_agent: `Prometheus/${'3'.repeat(90)}`, samples_per_second: 1, last_seen: now, lag_seconds: 4000, refused: { too_old: 123_456, duplicate: 7, bad_labels: 1 }, history: [0, 3, 1] },
      ]
      await route.fulfill({ json: answer })
    })
    await page.getByText('node b does not say its own: the node does not answer').waitFor()
    await all.getByRole('row', { name: `${hostile} collector` }).waitFor()
    await all.getByRole('row', { name: /123,456 too_old, 7 duplicate, 1 bad_labels$/ }).getByText('1 h 6 min').waitFor()
    await page.getByText('4,711 more senders').waitFor()
    await sideways(page, '/senders')
    await look(page, 'senders-cluster')
    await close()
  })

  test('Queries shows what was asked, leads to Explore, and says what it does not list', async () => {
    const { page, close } = await open(browser)
    const asked = 'sum by (region) (rate(shop_orders_total{region!="nowhere"}[7m]))'
    const now = Math.floor(Date.now() / 1000)
    const params = { query: asked, start: String(now - 900), end: String(now), step: '15' }
    for (let i = 0; i < 3; i++) assert.equal((await fetch(`${server}/api/v1/query_range?` + new URLSearchParams(params))).status, 200)
    assert.equal((await fetch(`${server}/api/v1/query?` + new URLSearchParams({ query: hostileQuery }))).status, 200)
    await page.goto('/queries')
    const hour = page.locator('.scroll[aria-label="The last hour"]')
    await page.getByRole('button', { name: 'Number', exact: true }).click()
    await hour.getByRole('row', { name: /^sum by \(region\) \(rate\(shop_orders_total\{region!=\?\}\[\?\]\)\) default .* \d+ – / }).getByRole('link').click()
    await page.waitForURL((u) => u.searchParams.get('q') === asked && u.searchParams.get('range') === '15m' && u.searchParams.get('step') === '15')
    await page.getByRole('list', { name: 'Series' }).waitFor()

    // This answer is made up: a node that does not answer, queries under way, those of another tenant, and hostile text.
    await page.route('**/api/v1/status/queries?*', async (route) => {
      const answer = await (await route.fetch()).json()
      const begun = Date.now() / 1000
      const row = { queries: 4711, failed: 12, active: 1, running_seconds: 320.5, waited_seconds: 12, longest_seconds: 7.25, samples: 98_765_432, series: 9 }
      Object.assign(answer.data, {
        node: 'a', nodes: [{ name: 'a' }, { name: 'b', error: 'the node does not answer' }], more_active: 3,
        others: { expressions: 7, queries: 9000, running_seconds: 1.5, samples: 17, dropped: 2 },
        active: [
          { tenant: 'default', node: 'a', query: hostileQuery, begun: begun - 95, waiting: false, range_seconds: 86400, step_seconds: 60, steps: 1441, asker: `10.0.0.7 (${hostile})` },
          { tenant: 'default', node: 'a', query: `series ${'x'.repeat(400)}`, begun, waiting: true, steps: 0, asker: 'curl/8' },
        ],
        queries: [
          { ...row, tenant: 'freshet', query: 'vector(?)', example: 'vector(1)', askers: ['10.0.0.7 (Grafana/12.1.0), dashboard abcdefghijkl, panel 12', 'curl/8'] },
          { ...row, tenant: hostile, query: hostileQuery, example: hostileQuery, askers: [hostile] },
        ],
      })
      await route.fulfill({ json: answer })
    })
    await page.goto('/queries')
    await page.getByText('node b does not say its own: the node does not answer').waitFor()
    const running = page.locator('.scroll[aria-label="Running now"]')
    await running.getByRole('row', { name: /runs 1,441 95\.?\d* s$/ }).getByText(hostileQuery).waitFor()
    await running.getByRole('row', { name: /waits – \d/ }).waitFor()
    await page.getByText('3 more are not listed.').waitFor()
    await hour.getByRole('row', { name: /and 1 more 4,711 12 5 min 21 s 7\.25 s 12 s 98\.8M$/ }).getByRole('link', { name: 'vector(?)' }).waitFor()
    await hour.getByRole('row', { name: hostileQuery }).waitFor()
    assert.equal(await hour.getByRole('link').count(), 1, 'queries of another tenant lead nowhere')
    await page.getByText('7 more, asked 9,000 times, ran 1.5 s together and are not listed; 2 of them').waitFor()
    await sideways(page, '/queries')
    await look(page, 'queries-cluster')
    await hour.getByRole('link').click()
    await page.waitForURL((u) => u.searchParams.get('of') === 'self' && u.searchParams.get('v') === 'table')
    await close()
  })

  for (const size of Object.keys(sizes)) {
    test(`a table is sorted by its heads, by mouse and by keys, ${size}`, async () => {
      const { page, close } = await open(browser, { size })
      await page.goto(query(['q', 'label_replace(vector(2), "a", "x", "", "") or label_replace(vector(10), "a", "y", "", "") or label_replace(vector(-1), "b", "z", "", "")'], ['v', 'table']))
      const heads = page.getByRole('columnheader')
      const values = () => page.locator('.scroll[aria-label="Answer"] td.number').allInnerTexts()
      const sort = (i) => heads.nth(i).getAttribute('aria-sort')
      await heads.nth(2).waitFor()
      const given = await values()
      const by = (i) => heads.nth(i).getByRole('button')
      await by(2).click()
      assert.deepEqual([await values(), await sort(2)], [['10', '2', '-1'], 'descending'])
      await by(2).press('Enter')
      assert.deepEqual([await values(), await sort(2)], [['-1', '2', '10'], 'ascending'])
      await look(page, `explore-sorted-${size}`, size)
      await by(2).press('Space')
      assert.deepEqual([await values(), await sort(2)], [given, null])
      await by(1).click() // two rows have no such label, and come last
      assert.deepEqual([(await values())[0], await sort(1), await sort(2)], ['-1', 'ascending', null])
      await by(0).click()
      await by(0).click()
      assert.deepEqual([await values(), await sort(0)], [['10', '2', '-1'], 'descending'])
      await page.goto('/senders') // whose rows stack on a narrow screen
      const senders = page.locator('.scroll[aria-label="All senders"]')
      await senders.getByRole('button', { name: 'samples/s' }).click()
      await senders.locator('th[aria-sort=descending]').getByText('samples/s').waitFor()
      await look(page, `senders-sorted-${size}`, size)
      await close()
    })
  }

  for (const [size, width] of [['wide', 1400], ['narrow', 390]]) {
    test(`a long name leaves room for its figures on Series, ${width} pixels wide`, async () => {
      const { page, close } = await open(browser)
      await page.setViewportSize({ width, height: 900 })
      const long = 'x'.repeat(74)
      await page.route('**/api/v1/status/top?*', async (route) => {
        const answer = await (await route.fetch()).json()
        answer.data.metrics.unshift({ metric: long, kind: 'counter', series: 4711, samples_per_second: 1234, share: 1 })
        answer.data.request_newcomers = [{ metric: long, new_series: 4711, refused_series: 4711, label: 'request_id', values: 5000, sender: '10.0.0.7, Prometheus/3.13.0' }]
        answer.data.over_limits = [{ metric: long, kind: 'counter', limit: 'limits.max_series_per_metric', fate: 'refused', samples: 123456, label: long, values: 5000, sender: '10.0.0.7:53421' }]
        answer.data.malformed = [{ address: '10.0.0.7:53421', malformed_per_second: 4711, share: 0.5, reason: 'bad_value', example: `web.broken:${long}|c` }]
        await route.fulfill({ json: answer })
      })
      await page.route('**/api/v1/status/limits', async (route) => {
        const answer = await (await route.fetch()).json()
        Object.assign(answer.data.tenants[0], { series: 99_999, folded_samples: 123_456_789, refused_samples: 123_456_789 })
        await route.fulfill({ json: answer })
      })
      await page.goto('/series')
      for (const label of ['By metric', 'New series by remote write and OTLP', 'Over a limit now', 'Malformed lines of DogStatsD now']) {
        await page.locator(`.scroll[aria-label="${label}"]`).getByText(long).first().waitFor()
      }
      await page.locator('.scroll[aria-label="By tenant"]').getByText('123,456,789 samples folded').waitFor()
      await settled(page)
      await sideways(page, '/series')
      const [inside, place] = await page.locator('.figure').filter({ hasText: long }).evaluate((e) => [e.scrollWidth, e.clientWidth])
      assert.ok(inside <= place, `the figure of the largest metric is ${inside} pixels wide in ${place}`)
      await look(page, `series-long-${width}`, size)
      await close()
    })
  }

  for (const size of Object.keys(sizes)) {
    test(`Cluster shows what is unusual about its nodes, ${size}`, async () => {
      const { page, close } = await open(browser, { size })
      const well = { part: 'voter', version: '1.2.0', log_append_seconds: 0.003, leaderless_seconds: 0, digest: 'agrees' }
      const nodes = [
        { ...well, name: 'a', ready: true, applied: 700, lag_seconds: 0.04, ahead_seconds: -0.002, address: 'h1:7126', log_bytes: 1e9, scrub: { bytes: 2 ** 30, of_bytes: 2 ** 32, begun: '2026-11-28T04:05:06Z', last: null } },
        { ...well, name: 'b', ready: false, applied: 650, lag_seconds: 7.2, ahead_seconds: 2.5, address: 'h2:7126', log_bytes: 4e9, log_append_seconds: 4.25, log_pins: ['checkpoint', `${hostile}/raw`], digest: 'differs', digest_differed: 576, leaderless_seconds: 61, disk: { free_bytes: 2 ** 30, size_bytes: 2 ** 36, min_free_bytes: 2 ** 31, short: true }, outbox: { bytes: 2 ** 21, samples: 9, oldest_seconds: 12.5 } },
        { name: 'c', ready: false, applied: null, lag_seconds: null, part: 'removed', address: 'h3:7126', error: `refused ${hostile}` },
        { name: 'd', ready: false, applied: null, lag_seconds: null, part: 'joining', version: '1.2.0', fill: { from: 'a', bytes: 2 ** 30, of_bytes: 2 ** 32, seconds: 60, eta_seconds: 180, failures: 1, error: `damaged ${hostile}` } },
        { ...well, name: 'e', ready: false, applied: 700, lag_seconds: 0.05, log_bytes: 1e9, drained: true, drained_seconds: 1800 },
        { ...well, name: 'f', ready: true, applied: 700, lag_seconds: 0.05, log_bytes: 1e9, part: 'spare' },
      ]
      const state = {
        cluster: 'abc', leader: 'a', nodes,
        collectors: [
          { name: hostile, node: 'a', pushed_seconds: 0.4 },
          { name: 'web-2', node: '', pushed_seconds: null, version: hostile, told_seconds: 0.8, outbox: { bytes: 3 * 2 ** 20, samples: 9, oldest_seconds: 62 } },
        ],
        tenants: [{ tenant: hostile, bytes: 3 * 2 ** 30 }, { tenant: 'blue', bytes: 2 ** 20 }],
        settings_differ: [{ section: 'limits', nodes: [['a', 'c'], ['b']] }],
        versions_differ: [{ version: '1.2.0', nodes: ['a', 'b'] }, { version: hostile, collectors: ['web-2'] }],
      }
      await page.route('**/api/v1/status/cluster', (route) => route.fulfill({ json: { status: 'success', data: state } }))
      await page.goto('/cluster')
      for (const text of [
        '2 of 6 nodes ready, a leads',
        'Node b: its log grows until a checkpoint succeeds',
        `Node b: its log grows until store ${hostile}/raw can be synced`,
        'Node b: its disk has 1 GiB left, less than cluster.min_free (2 GiB); writes are refused if that is so on too many nodes',
        '3 GiB',
        'Node b: a write to its log takes 4.25 s: its disk is slow',
        'Node b: its state differs since entry 576, or before: do not trust its answers, and report this bug',
        `Node c: refused ${hostile}`,
        'Node d: it gets the data of node a: 1 GiB of 4 GiB, about 3 min left',
        `Node d: 1 tries to get the data of a node failed, the last with: damaged ${hostile}`,
        'Node e: drained for another 30 min: it does not lead, and is not ready, until freshet cluster undrain e',
        'drained',
        'spare',
        'Node c: it was removed, or a spare has taken its place; to join again, it needs an empty data directory',
        'Settings differ in the section limits: a, c | b',
        `Versions differ: 1.2.0: a, b | ${hostile}: collector web-2`,
        '2 MiB, 12.5 s behind',
        '3 MiB, 62 s behind',
        'b, web-2',
      ]) await page.getByText(text, { exact: true }).waitFor()
      await page.getByText(/^the scrub of node a has read 1 GiB of 4 GiB since .+; no pass has ended since its start$/).waitFor()
      await page.getByRole('region', { name: 'Collectors' }).getByText(hostile).first().waitFor()
      await page.getByRole('heading', { name: 'c', exact: true }).waitFor()
      await settled(page)
      await look(page, `cluster-three-${size}`, size)
      state.leader = ''
      await page.getByText('2 of 6 nodes ready, no leader', { exact: true }).waitFor()
      await close()
    })
  }

  for (const size of Object.keys(sizes)) {
    test(`Flow is of the cluster, or of one node, ${size}`, async () => {
      const { page, close } = await open(browser, { size })
      await page.route('**/api/v1/status/ledger**', async (route) => {
        const answer = await (await route.fetch()).json()
        answer.data.node = 'a'
        const nodes = [
          { name: 'a', started_ms: 1795830923913, received: 7634, handed_over: 7287 },
          { name: 'b', started_ms: 1795830923913, received: 1234, handed_over: 1000, age_seconds: 12.5, error: `refused ${hostile}` },
          { name: 'c', started_ms: 0, received: 0, handed_over: 0, error: 'no route' },
        ]
        const collectors = [
          { id: '1', name: 'web-1', started_ms: 1795830923913, received: 5, handed_over: 5, ended: true },
          { id: '2', name: 'web-1', started_ms: 1795830923913, received: 7, handed_over: 6, ended: false, age_seconds: 37.5, error: `silent ${hostile}` },
        ]
        if (!route.request().url().includes('local=true')) Object.assign(answer.data, { nodes, collectors })
        await route.fulfill({ json: answer })
      })
      await page.goto('/flow')
      for (const text of [
        'tenant default, the sum of all nodes and collectors',
        `The sum may be short: the books of collector web-1 are 37.5 s old: silent ${hostile}`,
        `The sum may be short: the books of node b are 12.5 s old: refused ${hostile}`,
        'The sum may be short: the books of node c are missing: no route',
        ', not b, c',
      ]) await page.getByText(text, { exact: true }).waitFor()
      await page.getByText('1 of 3 nodes answer').waitFor()
      await page.getByText('Of all nodes and collectors; tiles, which each node stores, as node a counts them.').waitFor()
      await settled(page)
      await look(page, `flow-cluster-${size}`, size)
      await page.getByRole('button', { name: 'Node a alone' }).click()
      await page.getByText('tenant default, node a alone, since').waitFor()
      assert.equal(new URL(page.url()).search, '?local=true')
      await page.getByRole('button', { name: 'Cluster', exact: true }).click()
      await page.getByText('1 of 3 nodes answer').waitFor()
      assert.equal(new URL(page.url()).search, '')
      await close()
    })
  }

  test('Status says in words what /-/ready answers', async () => {
    const { page, close } = await open(browser, { allowed: [/50[23]/] })
    const broken = { tenant: hostile, store: '10s', error: 'not a directory', way_out: 'move the file away' }
    for (const [status, json, ...words] of [
      [200, { ready: true, seconds: 1, broken: 0 }, 'Ready'],
      [200, { ready: true, seconds: 1, broken: 1, broken_stores: [broken] }, 'Ready, but 1 store cannot be opened', `Store 10s of tenant ${hostile}: not a directory. What to do: move the file away.`],
      [200, { ready: true, seconds: 1, broken: 2 }, 'Ready, but 2 stores cannot be opened'],
      [503, { ready: false, waits_for: 'the journal is replayed', seconds: 1, broken: 0 }, 'Not ready: waiting until the journal is replayed'],
      [503, { ready: false, waits_for: 'stores are opened', seconds: 1, broken: 0, stores: { done: 3, total: 9 } }, 'Not ready: waiting until stores are opened, 3 of 9'],
      [502, undefined, '/-/ready answered 502 Bad Gateway'],
    ]) {
      await page.unroute('**/-/ready')
      await page.route('**/-/ready', (route) => route.fulfill(json ? { status, json } : { status, body: '<h1>of a proxy</h1>' }))
      await page.goto('/status')
      for (const text of words) await page.getByText(text, { exact: true }).waitFor()
    }
    await close()
  })

  test('colours are remembered, and the menu opens on a small screen', async () => {
    const { page, close } = await open(browser, { size: 'narrow' })
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme)
    await page.goto('/flow')
    await page.getByRole('button', { name: /^Colours: system/ }).click()
    assert.equal(await theme(), 'dark')
    await page.reload()
    assert.equal(await theme(), 'dark')
    await page.getByRole('button', { name: /^Colours: dark/ }).click()
    assert.equal(await theme(), 'light')
    await page.getByRole('button', { name: 'Flow' }).click()
    await look(page, 'menu')
    await page.getByRole('link', { name: 'Series', exact: true }).click()
    await page.getByRole('heading', { level: 1, name: 'Series' }).waitFor()
    await close()
  })

  test('the tail is filtered by the server, and paused', async () => {
    const { page, close } = await open(browser)
    await page.goto('/tail')
    await page.getByRole('searchbox', { name: 'Name' }).fill('web.h*')
    await page.keyboard.press('Enter')
    await page.waitForURL(/name=web.h/)
    await page.getByText('web.hits').nth(3).waitFor()
    assert.equal(await page.getByText('web.latency').count(), 0)
    await page.getByRole('button', { name: 'Pause' }).click()
    await page.getByText('paused').waitFor()
    await page.getByRole('checkbox', { name: 'Malformed only' }).check()
    await page.getByRole('button', { name: 'Resume' }).click()
    await page.goto('/tail?malformed=true')
    await page.getByText(/expected a decimal number/).first().waitFor()
    await close()
  })

  test('Flow shows which input is over a budget, and leads to a trace', async () => {
    const { page, close } = await open(browser)
    await page.goto('/flow')
    await page.locator('li.over').getByRole('heading', { name: 'append' }).waitFor()
    await page.locator('li.over .bad').getByText(/over budget: .*remote_write/).waitFor()
    await page.getByRole('region', { name: 'Freshness' }).getByText('Remote write: fresh after').waitFor()
    await page.getByText('The books close').waitFor()
    await page.getByRole('link', { name: /^Trace: append of/ }).last().press('Enter')
    await page.waitForURL(/records\?trace=\w+/)
    await page.getByRole('treeitem', { name: /append.*over its budget/ }).waitFor()
    await page.goBack()
    await everyStage(page).waitFor()
    await close()
  })

  test('Flow shows inputs and tenants apart, with hostile names, too', async () => {
    const { page, close } = await open(browser)
    const now = Math.floor(Date.now() / 5000) * 5
    const values = (v) => Array.from({ length: 180 }, (_, i) => [now - 900 + 5 * i + 5, String(v * (1 + 0.2 * Math.sin(i / 9)))])
    // The own metrics are made up, since no stage of a test is slow for a quarter of an hour.
    await page.route('**/self/api/v1/query_range*', async (route) => {
      const q = new URL(route.request().url()).searchParams.get('query')
      const v = q.includes('samples') ? 120_000 : q.includes('budget') ? 0.01 : q.includes('stage_age') ? 1.2 : q.includes('0.99') ? 0.009 : 0.002
      const each = (stage, input) => ({ metric: { stage, input }, values: values(stage === 'journal' && input === 'otlp' && q.includes('0.99') ? 0.05 : v) })
      const result = q.includes('freshness')
        ? [hostile, 'team-b'].map((tenant, i) => ({ metric: { tenant, path: 'dogstatsd' }, values: values(v * (4 - i)) }))
        : ['read', 'parse', 'journal', 'append'].flatMap((stage) => ['dogstatsd', 'otlp', hostile].map((input) => each(stage, input)))
      await route.fulfill({ json: { status: 'success', data: { resultType: 'matrix', result } } })
    })
    await page.route('**/self/api/v1/query?*', (route) =>
      route.fulfill({ json: { status: 'success', data: { resultType: 'vector', result: [{ metric: { tenant: hostile, path: 'dogstatsd' }, value: [now, '3'] }] } } }),
    )
    await page.goto('/flow')
    await page.locator('li.over').getByText('over budget: otlp', { exact: false }).waitFor()
    assert.equal(await page.locator('li.over').count(), 1)
    await page.locator('.inputs').first().getByText(hostile).waitFor()
    await page.getByText('the slowest of 2 tenants').getByText(hostile).waitFor()
    await page.getByText('3 of the last probes had no answer').waitFor()
    await page.getByText('All tenants').click()
    await page.getByRole('cell', { name: hostile }).waitFor()
    await page.getByText('No samples in the last 15 minutes.').first().waitFor()
    await look(page, 'flow-inputs')
    await close()
  })

  test('the ledger says which rule makes a counter that goes down count', async () => {
    const { page, close } = await open(browser)
    await page.route('**/api/v1/status/ledger', async (route) => {
      const answer = await (await route.fetch()).json()
      answer.data.samples.refused.negative = 4711
      await route.fulfill({ json: answer })
    })
    await page.goto('/flow')
    await page.getByText('Refused: 4,711 negative increments, since a counter cannot go down. To store them, add a mapping rule with updown: true').waitFor()
    await close()
  })

  test('the ledger of a node has what all collectors brought', async () => {
    const { page, close } = await open(browser)
    await page.route('**/api/v1/status/ledger', async (route) => {
      const answer = await (await route.fetch()).json()
      Object.assign(answer.data.samples, { collected: 123456, handed_over: 41152 })
      await route.fulfill({ json: answer })
    })
    await page.goto('/flow')
    await page.getByRole('row', { name: /from collectors .*123,456/ }).waitFor()
    await page.getByRole('row', { name: /handed over .*41,152/ }).waitFor()
    await close()
  })

  test('the page says that a recording is not on disk', async () => {
    const { page, close } = await open(browser, { base: recorded })
    const made = { id: '20261121T235756.730-asked', reason: hostile, began: '2026-11-21T23:57:56Z', ended: '2026-11-21T23:58:01Z', bytes: 1 << 20, not_kept: 'no space left on device' }
    await page.route('**/api/v1/status/records', async (route) => {
      const answer = await (await route.fetch()).json()
      answer.data.unshift(made)
      await route.fulfill({ json: answer })
    })
    await page.route('**/-/record', (route) => route.fulfill({ json: { status: 'success', data: made } }))
    await page.goto('/records')
    const row = page.getByRole('region', { name: 'Recordings' }).getByRole('row', { name: hostile }).first()
    await row.getByText('In memory only, until the next recording: no space left on device').waitFor()
    await page.getByRole('button', { name: 'Record now' }).click()
    await page.getByText('Recorded, but not on disk.').waitFor()
    await look(page, 'records-not-kept')
    await close()
  })

  test('Alerts shows what fires and since when, and leads to Explore and to the Alertmanager', async () => {
    const { page, close } = await open(browser, { base: ruled })
    await page.goto('/alerts')
    const list = page.getByRole('region', { name: 'Active alerts' })
    const row = list.getByRole('row', { name: 'WebHits' }).first()
    await row.locator('.tag.error').getByText('firing').waitFor()
    await row.getByText('severity=page').waitFor()
    await row.getByText(`hits of ${hostile}`).waitFor()
    assert.equal(await row.getByRole('link', { name: 'https://runbooks.example/web' }).getAttribute('rel'), 'noreferrer')
    await list.getByRole('row', { name: 'Sessions' }).locator('.tag.warning').getByText('pending').waitFor()
    const link = await row.getByRole('link', { name: 'Silence' }).getAttribute('href')
    assert.doesNotMatch(link, /[{"<]/, 'the filter is escaped')
    const silence = new URL(link)
    assert.match(silence.href, /^http:\/\/127\.\d+\.\d+\.\d+:\d+\/am\/#\/silences\/new\?filter=/)
    const filter = decodeURIComponent(silence.hash.split('filter=')[1])
    assert.match(filter, /alertname="WebHits"/)
    assert.match(filter, /severity="page"/)
    assert.ok(filter.includes(`page=${JSON.stringify(hostile)}`), filter)
    await page.getByRole('group', { name: 'State' }).getByRole('button', { name: 'Pending' }).click()
    await page.waitForURL(/state=pending/)
    await row.waitFor({ state: 'detached' })
    await page.getByRole('searchbox', { name: 'Filter' }).fill('nothing has this')
    await page.getByText('No alert matches the filter.').waitFor()
    await page.goto('/alerts')
    await row.getByRole('link', { name: 'Explore' }).click()
    await page.waitForURL((u) => u.pathname === '/explore' && u.searchParams.get('q')?.startsWith('label_replace(vector(134)'))
    await close()
  })

  test('the timeline of an alert has when it was pending, fired and was resolved', async () => {
    const { page, close } = await open(browser, { base: ruled })
    await page.goto('/alerts')
    const line = page.getByRole('listitem').filter({ hasText: 'QueueLong' })
    const text = await line.getByRole('img').getAttribute('aria-label')
    assert.match(text, /^QueueLong: pending .* \((5 min|[45] min \d+ s)\), firing .* \(10 min( \d+ s)?|9 min \d+ s\), resolved /)
    // In one step, since the list is drawn again each few seconds.
    const [pending, firing, resolved] = await line.locator('.track').evaluate((track) => ['pending', 'firing', 'resolved'].map((p) => track.querySelector(`.${p}`).getBoundingClientRect().toJSON()))
    assert.ok(Math.abs(firing.width / pending.width - 2) < 0.5, `firing is ${firing.width} wide, pending ${pending.width}`)
    assert.ok(pending.x < firing.x && firing.x < resolved.x)
    await page.getByRole('combobox', { name: 'Time range' }).selectOption('Last 5m')
    await page.waitForURL(/range=5m/)
    await page.getByRole('listitem').filter({ hasText: 'WebHits' }).first().waitFor()
    await line.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Earlier' }).click()
    await page.waitForURL(/from=\d+&to=\d+/)
    await page.goto('/alerts')
    await line.getByRole('link', { name: 'QueueLong' }).click()
    await page.waitForURL((u) => u.searchParams.get('q')?.startsWith('ALERTS{alertname="QueueLong"'))
    await close()
  })

  test('Alerts and Rules show that rules wait, and waited', async () => {
    const { page, close } = await open(browser, { base: ruled })
    let groups
    const since = Math.floor(Date.now() / 1000) - 600
    await page.route('**/api/v1/status/rules', async (route) => {
      groups ??= (await (await fetch(`${ruled}/api/v1/rules`)).json()).data.groups
      const answer = await (await route.fetch()).json()
      const of = (name) => groups.find((g) => g.name === name)
      Object.assign(answer.data, {
        late: [{ sender: hostile, reason: 'silent', text: 'sends nothing', since_ms: since * 1000 }],
        gone: [{ sender: '10.0.0.9', reason: 'silent', text: 'sends nothing', since_ms: since * 1000 }],
        waiting: [{ file: of('alerts').file, name: 'alerts', slot_ms: since * 1000, since_ms: since * 1000, stale: true }],
      })
      await route.fulfill({ json: answer })
    })
    await page.route('**/self/api/v1/query_range?*', async (route) => {
      const asked = new URL(route.request().url()).searchParams
      assert.match(asked.get('query'), /prometheus_rule_group_last_evaluation_timestamp_seconds\{tenant="default"\}/)
      const end = Number(asked.get('end'))
      const values = [1200, 1185].map((ago, i) => [end - ago, String(180 + 15 * i)])
      await route.fulfill({ json: { status: 'success', data: { resultType: 'matrix', result: [{ metric: { rule_group: `${groups.find((g) => g.name === 'alerts').file};alerts` }, values }] } } })
    })
    await page.goto('/alerts')
    await page.getByText(`Rules wait for ${hostile}: sends nothing since`).waitFor()
    await page.getByText('Rules no longer wait for 10.0.0.9').waitFor()
    await page.getByText('1 group is stale').waitFor()
    const track = page.getByRole('listitem').filter({ hasText: 'Sessions' }).getByRole('img')
    await page.waitForFunction(() => document.querySelectorAll('.track .waiting').length > 1)
    assert.match(await track.getAttribute('aria-label'), /^Sessions: waiting .* \(3 min( \d+ s)?\), waiting .* \(10 min( \d+ s)?\)/)
    await page.getByRole('row', { name: 'WebHits' }).first().getByText('as of').waitFor()
    await look(page, 'alerts-waiting')
    await page.goto('/rules')
    await page.getByText(/Waiting for data since .*stale, its alerts neither fire nor resolve/).waitFor()
    await look(page, 'rules-waiting')
    await close()
  })

  test('Rules shows groups, and errors at their place', async () => {
    const { page, close } = await open(browser, { base: ruled })
    await page.goto('/rules')
    const group = page.getByRole('region', { name: 'Group alerts' })
    await group.getByText(/each 1 s · evaluated .* ago, took .* · next/).waitFor()
    const broken = group.getByRole('row', { name: 'Broken' })
    await broken.getByRole('alert').getByText(/found duplicate series/).waitFor()
    await broken.getByText('error', { exact: true }).waitFor()
    await group.getByRole('row', { name: 'Sessions' }).getByText('10 h').waitFor()
    await group.getByRole('row', { name: 'Sessions' }).getByText('kept 5 min').waitFor()
    await page.getByRole('region', { name: 'Group recorded' }).getByRole('row', { name: 'web:hits' }).getByText('recording').waitFor()
    await page.getByRole('button', { name: 'With errors' }).click()
    await page.getByRole('region', { name: 'Group recorded' }).waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'All', exact: true }).click()
    await page.getByRole('searchbox', { name: 'Filter' }).fill('WebH')
    await broken.waitFor({ state: 'detached' })
    await group.getByRole('link', { name: 'WebHits' }).click()
    await page.waitForURL((u) => u.pathname === '/alerts' && u.searchParams.get('q') === 'alertname=WebHits')
    await page.getByRole('region', { name: 'Active alerts' }).getByText('WebHits').first().waitFor()
    await close()
  })

  test('without rules, both pages say how to get some', async () => {
    const { page, close } = await open(browser)
    await page.goto('/alerts')
    await page.getByText('There are no alerting rules.').waitFor()
    await page.getByText('No alert was active in this range.').waitFor()
    await look(page, 'alerts-none')
    await page.goto('/rules')
    await page.getByText('There are no rules.').waitFor()
    await look(page, 'rules-none')
    await close()
  })

  test('slow traces are filtered, and keys move through their spans', async () => {
    const { page, close } = await open(browser, { base: recorded })
    await traced(isQuery)
    await page.goto('/records')
    await page.getByRole('combobox', { name: 'Kind', exact: true }).selectOption('query')
    await page.waitForURL(/name=query/)
    const list = page.getByRole('region', { name: 'Slow traces' })
    await list.getByText(hostileQuery).first().waitFor()
    await list.locator('.tag').getByText('remote_write').first().waitFor({ state: 'detached' })
    await list.getByRole('row', { name: hostileQuery }).first().getByRole('link').press('Enter')
    await page.waitForURL(/name=query&trace=\w+/)
    await page.getByRole('region', { name: 'Text of the query' }).getByText(hostileQuery).waitFor()
    const spans = page.getByRole('treeitem')
    const chosen = page.locator('[role=treeitem][aria-selected=true]')
    await spans.nth(3).waitFor()
    const whole = Number(await spans.count())
    await page.keyboard.press('End') // the waterfall has the focus already
    assert.equal(await chosen.evaluate((e) => [...e.parentElement.children].indexOf(e)), whole - 1)
    await page.keyboard.press('ArrowLeft')
    await page.keyboard.press('Home')
    await page.keyboard.press('ArrowDown')
    await page.getByRole('complementary', { name: 'Selected span' }).getByRole('heading', { name: await chosen.locator('.name').innerText() }).waitFor()
    await page.keyboard.press('Enter')
    await page.getByRole('button', { name: 'Zoom out' }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Zoom in' }).waitFor()
    await page.getByRole('link', { name: 'Open in Explore' }).click()
    await page.waitForURL((u) => u.searchParams.get('q') === hostileQuery)
    await page.goto('/records?trace=0123456789abcdef0123456789abcdef')
    await page.getByText('The server no longer has this trace.').waitFor()
    await close()
  })

  test('a recording is made, listed, diagnosed and downloaded', async () => {
    const { page, close } = await open(browser, { base: recorded, allowed: [/404 \(Not Found\)/] })
    await page.goto('/records')
    await page.getByRole('textbox', { name: 'Reason' }).fill(hostile)
    await page.getByRole('button', { name: 'Record now' }).click()
    await page.getByRole('progressbar', { name: 'Recording' }).waitFor()
    await page.getByRole('link', { name: 'Show the diagnosis' }).click()
    await page.waitForURL(/record=\d{8}T\d{6}\.\d{3}-asked/)
    await page.locator('.figure').getByText(hostile).waitFor()
    await page.getByText('goroutines:', { exact: false }).first().waitFor()
    const id = new URL(page.url()).searchParams.get('record')
    await page.getByRole('link', { name: 'All records' }).click()
    await page.getByRole('region', { name: 'Recordings' }).getByRole('cell', { name: hostile }).first().waitFor()
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: `Download ${id}` }).click()])
    assert.equal(file.suggestedFilename(), `freshet-record-${id}.zip`)
    await page.goto('/records?record=20200101T000000.000-asked')
    await page.getByText('This recording no longer exists.').waitFor()
    await page.goto(`/records?record=${process.env.RECORD_HOSTILE}`)
    await page.locator('.causes').getByText(hostile).first().waitFor()
    await look(page, 'records-hostile')
    await close()
  })

  test('other users are told what is for operators only', async () => {
    const { page, close } = await open(browser, { base: closed, headers: { 'X-Forwarded-For': '192.0.2.1' }, allowed: [/403 \(Forbidden\)/] })
    await page.goto('/records')
    await page.getByText('Recordings are shown to operators only.').waitFor()
    await page.getByText('Slow traces are shown to operators only.').waitFor()
    assert.equal(await page.getByRole('button', { name: 'Record now' }).count(), 0)
    await look(page, 'records-refused')
    await page.goto('/records?trace=0123456789abcdef0123456789abcdef')
    await page.getByText('shown to operators only').waitFor()
    await page.goto('/records?record=20200101T000000.000-asked')
    await page.getByText('shown to operators only').waitFor()
    await close()

    // A proxy that passes on only reads: recordings are listed, and the button is refused.
    const other = await open(browser, { base: recorded, allowed: [/403 \(Forbidden\)/] })
    await other.page.route('**/-/record', (route) => route.fulfill({ status: 403, body: 'not by this proxy' }))
    await other.page.goto('/records')
    await other.page.getByRole('button', { name: 'Record now' }).click()
    await other.page.getByRole('alert').getByText('For operators only: not by this proxy').waitFor()
    await other.close()
  })

  test('Explore queries Freshet’s own metrics where they are on', async () => {
    const { page, close } = await open(browser)
    await page.goto('/explore')
    await page.getByRole('button', { name: 'Freshet itself' }).click()
    await page.waitForURL(/of=self/)
    await page.getByRole('button', { name: 'freshet_stage_seconds histogram' }).waitFor()
    await editor(page).click()
    await page.keyboard.type('freshet_ledger')
    await page.getByRole('option', { name: /^freshet_ledger/ }).first().waitFor() // names are completed from the own metrics, too
    await editor(page).fill('sum(freshet_stage_samples_total)')
    await page.keyboard.press('ControlOrMeta+Enter')
    await page.getByRole('list', { name: 'Series' }).waitFor()
    await page.getByRole('button', { name: 'This tenant' }).click()
    await page.getByText('No data in this time range.').waitFor()
    assert.equal(new URL(page.url()).searchParams.get('of'), null)
    await close()
  })

  test('a server with tenants asks for a token, once', async () => {
    const base = closed
    const { page, close } = await open(browser, { base, allowed: [/401 \(Unauthorized\)/, /403 \(Forbidden\)/, /404 \(Not Found\)/] }) // 403: the test of operators came through a proxy
    await page.goto('/series')
    const dialog = page.getByRole('dialog', { name: 'Sign in' })
    await dialog.waitFor()
    await look(page, 'token')
    await dialog.getByLabel('Token').fill('wrong')
    await dialog.getByRole('button', { name: 'Sign in' }).click()
    await dialog.getByText('no tenant has this token').waitFor()
    await dialog.getByLabel('Token').fill(process.env.FRESHET_TOKEN)
    await dialog.getByRole('button', { name: 'Sign in' }).click()
    await dialog.waitFor({ state: 'hidden' })
    await page.getByRole('region', { name: 'By tenant' }).getByRole('cell', { name: 'team-a' }).first().waitFor()
    await page.goto('/flow')
    await page.getByText('tenant team-a').waitFor()
    await page.getByText('Freshet’s own metrics are off.').waitFor()
    await look(page, 'flow-off')
    await page.goto('/explore')
    await editor(page).waitFor()
    assert.equal(await page.getByRole('button', { name: 'Freshet itself' }).count(), 0)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await dialog.waitFor()
    await close()
  })

  test('a browser gets the page with its policy, curl gets the list', async () => {
    const page = await fetch(server, { headers: { Accept: 'text/html' } })
    assert.match(page.headers.get('content-security-policy'), /^default-src 'none'; script-src 'self'; style-src 'self' 'nonce-\w+'; connect-src 'self'/)
    const list = await fetch(server)
    assert.match(await list.text(), /\/api\/v1\/status\/ledger/)
  })
})
