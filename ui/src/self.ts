// Freshet's own metrics: those of the tenant freshet, behind an API of their own.
import { ask, usePoll } from './api'

export const self = 'self/'

// useSelf reports whether that API answers this user. It does not if own metrics are off.
// With many tenants it answers only operators.
export const useSelf = () => usePoll(async (signal) => ask(`${self}api/v1/status/buildinfo`, {}, signal), 0, []).data !== undefined
