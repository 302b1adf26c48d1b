// Rules, their alerts, and what they wait for, as the server's API has them.
import { ask } from './api'
import type { Labels } from './promql'

export interface Alert {
  labels: Labels
  annotations: Labels
  state: 'pending' | 'firing'
  activeAt: string
  keepFiringSince?: string
  value: string
}

export interface Rule {
  type: 'alerting' | 'recording'
  name: string
  query: string
  labels: Labels
  health: 'ok' | 'err' | 'unknown'
  lastError?: string
  evaluationTime: number // seconds
  lastEvaluation: string
  // Only of alerts:
  state?: 'inactive' | 'pending' | 'firing'
  duration?: number // seconds
  keepFiringFor?: number // seconds
  alerts?: Alert[]
}

export interface Group {
  name: string
  file: string // or its namespace, if it came through the API
  rules: Rule[]
  interval: number // seconds
  evaluationTime: number // seconds
  lastEvaluation: string
}

export interface LateSender {
  sender: string // empty if it is a delay of the server
  text: string
  since_ms: number
}

export interface WaitingGroup {
  file: string
  name: string
  slot_ms: number // the evaluation that waits
  since_ms: number
  stale: boolean
}

// Waits says what the rules of a tenant wait for.
export interface Waits {
  tenant: string
  watermark_ms: number // up to then all expected data have been delivered; 0 without rules
  late: LateSender[]
  gone: LateSender[]
  waiting: WaitingGroup[]
}

export interface Rules {
  groups: Group[]
  waits: Waits
}

// rulesOf asks for groups and for what they wait for. `params` are filters of /api/v1/rules.
export async function rulesOf(params: Record<string, string>, signal: AbortSignal): Promise<Rules> {
  const [rules, waits] = await Promise.all([ask<{ groups: Group[] }>('api/v1/rules', params, signal), ask<Waits>('api/v1/status/rules', {}, signal)])
  return { groups: rules.data.groups, waits: waits.data }
}

// waitOf returns how a group waits, or undefined if it does not.
export const waitOf = (group: Group, waits: Waits) => waits.waiting.find((w) => w.file === group.file && w.name === group.name)

// alertmanager returns the address of the first Alertmanager, or undefined if there is none.
export async function alertmanager(signal: AbortSignal): Promise<string | undefined> {
  const { data } = await ask<{ activeAlertmanagers: { url: string }[] }>('api/v1/alertmanagers', {}, signal)
  return data.activeAlertmanagers.map((a) => a.url.replace(/\/api\/v\d\/alerts$/, '')).find((url) => /^https?:\/\//.test(url))
}

// silenceForm returns the address of an Alertmanager's form for a silence of exactly these labels.
export const silenceForm = (alertmanager: string, labels: Labels) => `${alertmanager}/#/silences/new?filter=${encodeURIComponent(matchers(labels))}`

// matchers writes labels as PromQL and Alertmanager read them.
export function matchers(labels: Labels): string {
  const quoted = (text: string) => JSON.stringify(text)
  return `{${Object.entries(labels)
    .map(([name, value]) => `${/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name) ? name : quoted(name)}=${quoted(value)}`)
    .join(',')}}`
}
