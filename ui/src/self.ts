// Freshet's own metrics, which belong to the tenant freshet and have their own API.
import { ask, usePoll } from './api'

export const self = 'self/'
export const ownTenant = 'freshet'

// useSelf reports whether this API answers the user's requests. If Freshet's own metrics are off,
// it answers no requests. On a server with many tenants, it answers only operators.
export const useSelf = () => usePoll(async (signal) => ask(`${self}api/v1/status/buildinfo`, {}, signal), 0, []).data !== undefined
