// The theme: light, dark, or the system's. The browser remembers it; boot.ts applies it first.
import { remember, remembered, store } from './store'

export type Theme = 'system' | 'light' | 'dark'

const key = 'freshet.theme'
const chosen = remembered(key)
export const theme = store<Theme>(chosen === 'light' || chosen === 'dark' ? chosen : 'system')

// shades counts changes of colours. After a change, canvases must be drawn again.
export const shades = store(0)

const system = matchMedia('(prefers-color-scheme: dark)')

function apply() {
  const dark = theme.get() === 'dark' || (theme.get() === 'system' && system.matches)
  document.documentElement.dataset.theme = dark ? 'dark' : 'light'
  shades.set(shades.get() + 1)
}

system.addEventListener('change', apply)

export function setTheme(next: Theme) {
  remember(key, next)
  theme.set(next)
  apply()
}

// colour returns the current value of a CSS variable.
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
}

// seriesColours is the number of colours. People with any colour vision can distinguish the first eight
// (Okabe and Ito). Beyond all of them, series have the same colours with dashes.
export const seriesColours = 50

// seriesColour returns the name of the CSS variable with the colour of a series.
export const seriesColour = (i: number) => `series-${i % seriesColours}`
