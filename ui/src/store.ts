// Values that several parts of the page share, and values that the browser remembers.
import { useEffect, useState } from 'preact/hooks'

export interface Store<T> {
  get(): T
  set(value: T): void
  subscribe(changed: () => void): () => void
}

export function store<T>(value: T): Store<T> {
  const listeners = new Set<() => void>()
  return {
    get: () => value,
    set(next) {
      value = next
      for (const changed of [...listeners]) changed()
    },
    subscribe(changed) {
      listeners.add(changed)
      return () => listeners.delete(changed)
    },
  }
}

export function useStore<T>(s: Store<T>): T {
  const [, draw] = useState({})
  useEffect(() => s.subscribe(() => draw({})), [s])
  return s.get()
}

// remember keeps a value in this browser, if the browser's storage is available.
export function remember(key: string, value: string) {
  try {
    localStorage.setItem(key, value)
  } catch {
    // storage is full or turned off: the page works without it
  }
}

export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(key)
  } catch {
    return null
  }
}
