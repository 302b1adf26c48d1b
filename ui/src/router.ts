// The address holds the state: which page, by default the first, and what the page shows. All
// addresses are relative, so that the page works below any path of a proxy.
import { store, useStore } from './store'

export const pages = ['explore', 'flow', 'alerts', 'rules', 'series', 'senders', 'queries', 'tail', 'records', 'cluster', 'status'] as const
export type PageName = (typeof pages)[number]

export interface Place {
  page: PageName
  params: URLSearchParams
}

function here(): Place {
  const last = location.pathname.split('/').pop() ?? ''
  return { page: pages.find((p) => p === last) ?? pages[0], params: new URLSearchParams(location.search) }
}

const place = store(here())
addEventListener('popstate', () => place.set(here()))

export const usePlace = () => useStore(place)

// parameters returns those of the present address, which may be newer than what is drawn.
export const parameters = () => place.get().params

export function address(page: PageName, params?: URLSearchParams): string {
  const query = params?.toString()
  return query ? `${page}?${query}` : page
}

// go changes the address. With `replace`, the browser's Back button does not return to
// the present address.
export function go(page: PageName, params?: URLSearchParams, replace = false) {
  const to = address(page, params)
  if (replace) history.replaceState(null, '', to)
  else history.pushState(null, '', to)
  place.set(here())
}
