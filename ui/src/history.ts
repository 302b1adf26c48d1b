// The queries that were run in this browser, newest first.
import { remember, remembered } from './store'

const key = 'freshet.history'
const most = 100

export function queries(): string[] {
  try {
    const all: unknown = JSON.parse(remembered(key) ?? '[]')
    return Array.isArray(all) ? all.filter((q) => typeof q === 'string') : []
  } catch {
    return []
  }
}

export function addQuery(query: string) {
  remember(key, JSON.stringify([query, ...queries().filter((q) => q !== query)].slice(0, most)))
}

export const forgetQueries = () => remember(key, '[]')
