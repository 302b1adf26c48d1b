// Freshet's own metrics: those of the tenant freshet, behind an API of their own.
import { ask, usePoll } from './api'

export const self = 'self/'

// useSelf reports whether it answers here. It does not where own metrics are off, and
// where there are many tenants only to operators.
export const useSelf = () => usePoll(async (signal) => ask(`${self}api/v1/status/buildinfo`, {}, signal), 0, []).data !== undefined
