// The search of the manual. It finds sections that have all words, in any form. First come words in a title, in the
// title of the page or in its line of the contents, then words that are much of a text. The manual begins with what most
// readers look for, so a section counts less the further back it is.
const input = document.getElementById('search')
const found = document.getElementById('found')
const root = document.querySelector('script[data-root]').dataset.root
const most = 20 // results

const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []

// stem cuts an ending off, so that "migrate" finds "migration".
const stem = (word) => word.replace(/(?<=.{4})(ing|ions?|ied|ed|ies|es|e|s|y)$/, '')

// These words of a question need not be in its answer.
const ignored = new Set(words('a an and are can do does for from how i in is it many much of on or the to what where why with'))

// terms returns the stems that a section must have.
function terms(question) {
  const all = words(question)
  const some = all.filter((w) => !ignored.has(w))
  return (some.length ? some : all).map(stem)
}

// index has the words of each section.
const index = window.freshetIndex.map((section) => {
  const title = words(section.title), page = words(section.page), about = words(section.about ?? '')
  return { section, title, page, about, all: [...title, ...page, ...about, ...words(section.text)] }
})

const has = (text, term) => text.some((w) => w.startsWith(term))

// part is the share of a title that a term is, or 0 if it is missing.
const part = (title, term) => (has(title, term) ? 0.5 + 0.5 / title.length : 0)

// score is 0 if a term is missing.
function score({ title, page, about, all }, position, terms) {
  let sum = 0
  for (const term of terms) {
    const often = all.filter((w) => w.startsWith(term)).length
    if (often === 0 && !all.some((w) => w.includes(term))) return 0
    sum += 1 + Math.min(5, often, (100 * often) / all.length)
    sum += 20 * part(title, term) + 10 * part(page, term) + 10 * has(about, term)
  }
  return (sum / terms.length) * (1 - (0.5 * position) / index.length)
}

// around returns the text beside the first word.
function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40)
  return (at > 0 ? '…' : '') + text.slice(at, at + 140) + (text.length > at + 140 ? '…' : '')
}

// result returns a link. Text is set as text, never as markup.
function result(section, word) {
  const a = document.createElement('a')
  a.href = root + section.address
  a.textContent = section.title === section.page ? section.page : `${section.page}: ${section.title}`
  const small = document.createElement('small')
  small.textContent = around(section.text, word)
  a.append(small)
  return a
}

function search() {
  const all = terms(input.value)
  found.hidden = all.length === 0
  if (found.hidden) return
  const hits = index.map((of, i) => ({ section: of.section, score: score(of, i, all) })).filter((h) => h.score > 0)
  hits.sort((a, b) => b.score - a.score)
  const nothing = document.createElement('p')
  nothing.textContent = 'No section has all of these words.'
  found.replaceChildren(...(hits.length ? hits.slice(0, most).map((h) => result(h.section, all[0])) : [nothing]))
}

input.addEventListener('input', search)
input.addEventListener('keydown', (e) => {
  if (e.key === 'Enter') found.querySelector('a')?.click()
})
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape') found.hidden = true
  if (e.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    e.preventDefault()
    input.focus()
  }
})
document.addEventListener('click', (e) => {
  if (!e.target.closest('.search')) found.hidden = true
})
// On a narrow screen the list of pages would hide the text.
if (matchMedia('(max-width: 52rem)').matches) document.getElementById('pages').open = false
input.disabled = false // without this script there is no search
