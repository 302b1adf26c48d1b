// Holds how an axis and a legend write values: node formats.mjs BUNDLE, where BUNDLE is src/units.ts as a module.
import assert from 'node:assert/strict'

const { units, unitOf } = await import(process.argv[2])

const written = {
  '': [[0, '0', '0'], [0.005, '0.005', '0.005'], [0.00042, '420µ', '0.00042'], [12.345, '12.3', '12.345'], [-1500, '-1.5k', '-1,500'],
    [999.7, '1k', '999.7'], [2e6, '2M', '2,000,000'], [Infinity, '+Inf', '+Inf'], [NaN, 'NaN', 'NaN']],
  bytes: [[0, '0 B', '0 B'], [1023, '1023 B', '1023 B'], [1024, '1 KiB', '1 KiB'], [-1536, '-1.5 KiB', '-1.5 KiB'],
    [3 * 2 ** 40, '3 TiB', '3 TiB'], [-Infinity, '-Inf', '-Inf']],
  seconds: [[0, '0 s', '0 s'], [2e-9, '2 ns', '2 ns'], [0.00025, '250 µs', '250 µs'], [0.012, '12 ms', '12 ms'], [3.4, '3.4 s', '3.4 s'],
    [12000, '3 h 20 min', '3 h 20 min'], [-90061, '-1 d 1 h', '-1 d 1 h']],
  percent: [[0, '0 %', '0 %'], [0.5, '50 %', '50 %'], [0.12345, '12.35 %', '12.35 %'], [-1, '-100 %', '-100 %'], [Infinity, '+Inf', '+Inf']],
}

assert.deepEqual(Object.keys(written), [...units], 'each unit has examples')
for (const [unit, examples] of Object.entries(written)) {
  for (const [v, axis, value] of examples) {
    assert.equal(unitOf[unit].axis(v), axis, `${v} at an axis, in ${unit || 'no unit'}`)
    assert.equal(unitOf[unit].value(v), value, `${v} in a legend, in ${unit || 'no unit'}`)
  }
}
