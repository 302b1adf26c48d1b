// The search of the manual: sections that have all words, those with a word in a heading first.
const input = document.getElementById('search')
const found = document.getElementById('found')
const root = document.querySelector('script[data-root]').dataset.root
const most = 20 // results
const index = window.freshetIndex.map((s) => ({
  ...s, heading: `${s.page} ${s.title}`.toLowerCase(), all: `${s.page} ${s.title} ${s.text}`.toLowerCase(),
}))

// score is 0 if a word is missing.
function score(section, words) {
  if (!words.every((w) => section.all.includes(w))) return 0
  return 1 + words.filter((w) => section.heading.includes(w)).length * 10 + (section.heading.endsWith(words.join(' ')) ? 5 : 0)
}

// around returns the text beside the first word.
function around(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40)
  return (at > 0 ? '…' : '') + text.slice(at, at + 140) + (text.length > at + 140 ? '…' : '')
}

// result returns a link. Text is set as text, never as markup.
function result(section, words) {
  const a = document.createElement('a')
  a.href = root + section.address
  a.textContent = section.title === section.page ? section.page : `${section.page}: ${section.title}`
  const small = document.createElement('small')
  small.textContent = around(section.text, words[0])
  a.append(small)
  return a
}

function search() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
  found.hidden = words.length === 0
  if (found.hidden) return
  const hits = index.map((s) => ({ s, score: score(s, words) })).filter((h) => h.score > 0)
  hits.sort((a, b) => b.score - a.score) // equal ones stay in the order of the manual
  const nothing = document.createElement('p')
  nothing.textContent = 'No section has all of these words.'
  found.replaceChildren(...(hits.length ? hits.slice(0, most).map((h) => result(h.s, words)) : [nothing]))
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
