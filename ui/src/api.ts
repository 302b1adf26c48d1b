// Requests to the server's API, with the user's token.
import { useEffect, useRef, useState } from 'preact/hooks'
import { store } from './store'

// Failure is an error from the server, or the lack of an answer.
export class Failure extends Error {
  constructor(
    message: string,
    readonly status = 0, // HTTP's status; 0 without an answer
    readonly kind = '',
  ) {
    super(message)
  }
}

// Servers with many tenants require a token. It is kept until the tab is closed.
const tokenKey = 'freshet.token'
let token = ''
try {
  token = sessionStorage.getItem(tokenKey) ?? ''
} catch {
  // the browser's storage is turned off: the page keeps the token only until it is
  // closed
}

// tokenWanted is the reason why the server requires a token, or empty if it requires none.
// entered counts how often the user entered a token.
export const tokenWanted = store('')
export const entered = store(0)

export const hasToken = () => token !== ''

export function setToken(next: string) {
  token = next
  try {
    if (next) sessionStorage.setItem(tokenKey, next)
    else sessionStorage.removeItem(tokenKey)
  } catch {
    // storage is turned off, as above
  }
  tokenWanted.set('')
  entered.set(entered.get() + 1)
}

// fetchAPI is fetch with the token.
export async function fetchAPI(path: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  if (token) headers.set('Authorization', 'Bearer ' + token)
  let response: Response
  try {
    response = await fetch(path, { ...init, headers, cache: 'no-store' })
  } catch (err) {
    if (err instanceof DOMException && err.name === 'AbortError') throw err
    throw new Failure('The server does not answer. Is it running? The page keeps trying.')
  }
  if (response.status === 401) {
    const answer = (await response.clone().json().catch(() => ({}))) as { error?: string }
    tokenWanted.set(answer.error ?? 'the server requires a token')
  }
  return response
}

export interface Answer<T> {
  data: T
  warnings: string[]
  infos: string[]
}

type Params = Record<string, string | string[] | undefined>

// Longer queries go into the body, because servers and proxies refuse long addresses.
const longest = 2000

// ask sends a request and takes the data out of the envelope. All answers of our API have the
// envelope of Prometheus' API.
export async function ask<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<Answer<T>> {
  const form = new URLSearchParams()
  for (const [name, value] of Object.entries(params)) {
    for (const v of Array.isArray(value) ? value : value === undefined ? [] : [value]) form.append(name, v)
  }
  const query = form.toString()
  const response =
    query.length > longest
      ? await fetchAPI(path, { method: 'POST', body: form, signal })
      : await fetchAPI(query ? `${path}?${query}` : path, { signal })
  const text = await response.text()
  let answer: { status?: string; data?: T; error?: string; errorType?: string; warnings?: string[]; infos?: string[] }
  try {
    answer = JSON.parse(text)
  } catch {
    throw new Failure(text.trim() || `${response.status} ${response.statusText}`, response.status)
  }
  if (!response.ok || answer.status !== 'success') {
    throw new Failure(answer.error ?? text, response.status, answer.errorType)
  }
  return { data: answer.data as T, warnings: answer.warnings ?? [], infos: answer.infos ?? [] }
}

export interface Polled<T> {
  data?: T
  error?: Failure // error of the last request, if it failed; data is then from an earlier request
}

// usePoll calls `load` every `everyMs` milliseconds while the tab is visible, or only once if
// `everyMs` is 0. It starts again when `deps` change. After an error it keeps the last data.
export function usePoll<T>(load: (signal: AbortSignal) => Promise<T>, everyMs: number, deps: unknown[]): Polled<T> {
  const [state, setState] = useState<Polled<T>>({})
  const latest = useRef(load)
  latest.current = load
  useEffect(() => {
    const stop = new AbortController()
    let timer = 0
    let missed = false
    setState({})
    const run = async () => {
      if (document.hidden) {
        missed = true
        return
      }
      try {
        const data = await latest.current(stop.signal)
        if (!stop.signal.aborted) setState({ data })
      } catch (err) {
        if (stop.signal.aborted) return
        const error = err instanceof Failure ? err : new Failure(String(err))
        setState((was) => ({ data: was.data, error }))
      }
      if (everyMs > 0 && !stop.signal.aborted) timer = window.setTimeout(run, everyMs)
    }
    const shown = () => {
      if (document.hidden || !missed) return
      missed = false
      void run()
    }
    document.addEventListener('visibilitychange', shown)
    void run()
    return () => {
      stop.abort()
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', shown)
    }
  }, deps)
  return state
}
