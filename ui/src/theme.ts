// Light, dark, or as the system has it; remembered, and put in force by boot.ts.
import { remember, remembered, store } from './store'

export type Theme = 'system' | 'light' | 'dark'

const key = 'freshet.theme'
const chosen = remembered(key)
export const theme = store<Theme>(chosen === 'light' || chosen === 'dark' ? chosen : 'system')

// shades counts changes of colours, for what is drawn on a canvas.
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

// colour is the value of a CSS variable now.
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
}

// seriesColours are eight that people with any colour vision tell apart (after Okabe
// and Ito). Later series have them again, with dashes.
export const seriesColours = 8

export const seriesColour = (i: number) => colour(`series-${i % seriesColours}`)
