// The frame of the page: navigation, keys, help, and the dialog that asks for a token.
import { Component, render, type ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { Alerts } from './alerts'
import { entered, hasToken, setToken, tokenWanted } from './api'
import { Cluster } from './cluster'
import { Explore } from './explore'
import { Flow } from './flow'
import { Dialog, Link, Problem } from './parts'
import { Failure } from './api'
import { Queries } from './queries'
import { Records } from './records'
import { go, usePlace, type PageName } from './router'
import { Rules } from './rules'
import { Senders } from './senders'
import { Series } from './series'
import { Status } from './status'
import { useStore } from './store'
import { Tail } from './tail'
import { setTheme, theme, type Theme } from './theme'
import { localName, setZone, zone, zoneName, zones } from './zone'

const sections: Record<PageName, { title: string; key: string; view: () => preact.JSX.Element }> = {
  explore: { title: 'Explore', key: 'e', view: Explore },
  flow: { title: 'Flow', key: 'f', view: Flow },
  alerts: { title: 'Alerts', key: 'a', view: Alerts },
  rules: { title: 'Rules', key: 'l', view: Rules },
  series: { title: 'Series', key: 's', view: Series },
  senders: { title: 'Senders', key: 'n', view: Senders },
  queries: { title: 'Queries', key: 'q', view: Queries },
  tail: { title: 'Tail', key: 't', view: Tail },
  records: { title: 'Records', key: 'r', view: Records },
  cluster: { title: 'Cluster', key: 'c', view: Cluster },
  status: { title: 'Status', key: 'u', view: Status },
}

const names = Object.keys(sections) as PageName[]

function App() {
  const { page } = usePlace()
  const wanted = useStore(tokenWanted)
  const tokens = useStore(entered)
  useStore(zone) // all times are written again
  const [help, setHelp] = useState(false)
  const [menu, setMenu] = useState(false)
  useKeys(() => setHelp(true))
  useEffect(() => {
    document.title = `${sections[page].title} · Freshet`
    setMenu(false)
  }, [page])
  const View = sections[page].view
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById('main')!.focus())}>
        Skip to content
      </a>
      <header class="top">
        <Link page={names[0]} class="brand">
          <svg viewBox="0 0 24 24" aria-hidden="true">
            <path d="M3 9c3-4 6-4 9 0s6 4 9 0M3 16c3-4 6-4 9 0s6 4 9 0" />
          </svg>
          Freshet
        </Link>
        <button type="button" class="menu" aria-expanded={menu} aria-controls="nav" onClick={() => setMenu(!menu)}>
          {sections[page].title} <span aria-hidden="true">▾</span>
        </button>
        <nav id="nav" aria-label="Pages" class={menu ? 'open' : ''}>
          {names.map((n) => (
            <Link key={n} page={n} current={n === page} title={`g ${sections[n].key}`}>
              {sections[n].title}
            </Link>
          ))}
        </nav>
        <div class="tools">
          {hasToken() && (
            <button type="button" class="plain" onClick={() => setToken('')} title="Forget the token">
              Sign out
            </button>
          )}
          <ZoneChoice />
          <ThemeButton />
          <button type="button" class="plain" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => setHelp(true)}>
            ?
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <Boundary key={`${page} ${tokens}`}>
          <View />
        </Boundary>
      </main>
      {wanted && <TokenDialog why={wanted} />}
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  )
}

// Boundary shows the error when a page crashes, instead of an empty page.
class Boundary extends Component<{ children: ComponentChildren }, { error?: unknown }> {
  static getDerivedStateFromError(error: unknown) {
    return { error }
  }
  render() {
    if (this.state.error === undefined) return this.props.children
    return <Problem error={new Failure(String(this.state.error), 0, 'a bug in this page')} todo="Reload the page, and please report the bug." />
  }
}

const nextTheme: Record<Theme, Theme> = { system: 'dark', dark: 'light', light: 'system' }
const themeSign: Record<Theme, string> = { system: '◐', dark: '☾', light: '☀' }

function ThemeButton() {
  const now = useStore(theme)
  return (
    <button type="button" class="plain" aria-label={`Colours: ${now}. Change to ${nextTheme[now]}`} title={`Colours: ${now}`} onClick={() => setTheme(nextTheme[now])}>
      {themeSign[now]}
    </button>
  )
}

function ZoneChoice() {
  const now = useStore(zone)
  const others = now === 'local' || now === 'utc' || zones.includes(now) ? zones : [now, ...zones] // a zone may have an old name
  return (
    <select class="plain zone" aria-label="Time zone" title={`Times are in ${zoneName()}`} value={now} onChange={(e) => setZone(e.currentTarget.value)}>
      <option value="local">Local ({localName})</option>
      <option value="utc">UTC</option>
      <hr />
      {others.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  )
}

// typing reports whether a key press goes into an input field.
const typing = (e: KeyboardEvent) => {
  const at = e.target as HTMLElement
  return at.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(at.tagName)
}

function useKeys(help: () => void) {
  useEffect(() => {
    let began = 0 // time of the last g
    const press = (e: KeyboardEvent) => {
      if (typing(e) || e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return
      const to = names.find((n) => sections[n].key === e.key)
      const field = document.querySelector<HTMLElement>('main [data-slash]')
      if (e.timeStamp - began < 1500 && to) go(to)
      else if (e.key === '?') help()
      else if (e.key === '/' && field) field.focus()
      else {
        began = e.key === 'g' ? e.timeStamp : 0
        return
      }
      began = 0
      e.preventDefault()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
}

function TokenDialog(props: { why: string }) {
  const [text, setText] = useState('')
  return (
    <Dialog title="Sign in">
      <form
        onSubmit={(e) => {
          e.preventDefault()
          if (text.trim()) setToken(text.trim())
        }}
      >
        <p>Each tenant of this server sees only its own data. Enter a token of your tenant. The server says: {props.why}.</p>
        <label class="field">
          Token
          <input type="password" autocomplete="off" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <p class="note">The page keeps the token until this tab is closed.</p>
        <button type="submit" class="primary" disabled={!text.trim()}>
          Sign in
        </button>
      </form>
    </Dialog>
  )
}

function Help(props: { onClose: () => void }) {
  const keys: [string[], string][] = [
    ...names.map((n): [string[], string] => [['g', sections[n].key], sections[n].title]),
    [['/'], 'go to the query or the filter'],
    [['?'], 'show this list'],
    [['Enter'], 'run all queries (also Ctrl+Enter)'],
    [['Shift', 'Enter'], 'new line in a query'],
    [['Alt', '↑'], 'previous query (Alt ↓: next query)'],
    [['Ctrl', 'Space'], 'show completions'],
    [['←', '→'], 'in a chart: previous and next value'],
    [['↑', '↓'], 'in a chart of Explore: the line above and below'],
  ]
  return (
    <Dialog title="Keyboard shortcuts" onClose={props.onClose}>
      <table class="keys">
        <tbody>
          {keys.map(([press, what]) => (
            <tr key={what}>
              <th scope="row">
                {press.map((k) => (
                  <kbd key={k}>{k}</kbd>
                ))}
              </th>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="note">Drag in a chart to zoom. In its legend, click to hide a series, and Shift+click to hide all others.</p>
    </Dialog>
  )
}

render(<App />, document.getElementById('app')!)
