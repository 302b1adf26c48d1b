// Runs before the first paint, so that a dark page does not flash white.
{
  let theme: string | null = null
  try {
    theme = localStorage.getItem('freshet.theme')
  } catch {
    // storage is turned off
  }
  const dark = theme === 'dark' || (theme !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches)
  document.documentElement.dataset.theme = dark ? 'dark' : 'light'
}
