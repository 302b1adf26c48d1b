// Builds the page into a directory: node build.mjs [DIRECTORY], by default dist.
// The same sources give the same bytes, so that a test can tell whether dist is fresh.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'

const out = resolve(process.argv[2] ?? join(import.meta.dirname, 'dist'))
process.chdir(import.meta.dirname)
rmSync(out, { recursive: true, force: true })

const temporary = mkdtempSync(join(tmpdir(), 'freshet-ui-'))
const metafile = join(temporary, 'meta.json')
execFileSync('go', ['tool', 'esbuild', 'src/main.tsx', 'src/boot.ts', 'src/style.css',
  '--bundle', '--minify', '--splitting', '--format=esm', '--legal-comments=none', '--log-level=warning',
  '--entry-names=[name]-[hash]', '--chunk-names=[name]-[hash]',
  `--outdir=${join(out, 'assets')}`, `--metafile=${metafile}`], { stdio: 'inherit' })
const { inputs, outputs } = JSON.parse(readFileSync(metafile, 'utf8'))
rmSync(temporary, { recursive: true })

// index.html names the files with their hashes.
let index = readFileSync('src/index.html', 'utf8')
for (const [file, output] of Object.entries(outputs)) {
  if (output.entryPoint) index = index.replace(`{{${output.entryPoint}}}`, `assets/${basename(file)}`)
}
if (index.includes('{{src/')) throw new Error('index.html names a file that was not built')
writeFileSync(join(out, 'index.html'), index)

// The licences of all packages in the bundle.
const packages = new Set(Object.keys(inputs).map((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean))
const texts = [...packages].sort().map((name) => {
  const directory = join('node_modules', name)
  const { version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'))
  const file = readdirSync(directory).find((f) => /^licen[cs]e/i.test(f))
  // A package without a licence file only names its licence, whose text another package has.
  const text = file && existsSync(join(directory, file)) ? readFileSync(join(directory, file), 'utf8').trim() : `Licensed under ${license}.`
  return `${name} ${version} (${license})\n\n${text}\n`
})
writeFileSync(join(out, 'licenses.txt'), 'The web page of Freshet contains the following packages.\n\n' + texts.join('\n' + '-'.repeat(80) + '\n\n'))
