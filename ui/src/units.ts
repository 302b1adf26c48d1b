// Units of values: how an axis and a legend write them.
import { bytes, compact, exact, seconds } from './format'

export const units = ['', 'bytes', 'seconds', 'percent'] as const
export type UnitName = (typeof units)[number]

export interface Unit {
  title: string
  axis: (v: number) => string
  value: (v: number) => string
  binary?: boolean // an axis has powers of two
}

// finite leaves infinity and NaN to compact, and writes the sign before the rest.
const finite = (write: (size: number) => string) => (v: number) => (Number.isFinite(v) ? (v < 0 ? '-' : '') + write(Math.abs(v)) : compact(v))

const hundredths = finite((v) => `${Number((100 * v).toPrecision(4))} %`)

export const unitOf: Record<UnitName, Unit> = {
  '': { title: 'Number', axis: compact, value: exact },
  bytes: { title: 'Bytes', axis: finite(bytes), value: finite(bytes), binary: true },
  seconds: { title: 'Seconds', axis: finite(seconds), value: finite(seconds) },
  percent: { title: 'Percent (1 is 100 %)', axis: hundredths, value: hundredths },
}
