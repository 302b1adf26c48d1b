// Package rulestate is what a group of rules needs to go on in another process as if nothing had
// happened: its last slot, and the alerts of its rules. docs/format/databases.md draws the encoding.
package rulestate

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/lib/fields"
)

// Group is the state of a group after one evaluation.
type Group struct {
	File, Name string
	Interval   time.Duration
	Slot       time.Time // the time of the evaluation
	Rules      []Rule    // the alerting rules with alerts
}

// Key identifies a group of a tenant.
type Key struct{ File, Name string }

// Key returns the group's key.
func (g *Group) Key() Key { return Key{g.File, g.Name} }

// LastSent returns when any alert that fires was last sent, or zero if none fires.
func (g *Group) LastSent() (last time.Time) {
	for _, r := range g.Rules {
		for _, a := range r.Alerts {
			if a.State == Firing && a.LastSentAt.After(last) {
				last = a.LastSentAt
			}
		}
	}
	return last
}

// Changes are what changed for one tenant.
type Changes struct {
	Groups  []Group // after their newest evaluation
	Gone    []Key   // groups that the configuration no longer has
	Senders []byte  // of watermark.AppendTo; nil if they are not saved this time
}

// Rule has the alerts of a rule.
type Rule struct {
	Name   string
	Labels string // as text; with the name, they identify a rule of a group
	Nth    int    // how many rules with this name and these labels stand before it in the group
	Alerts []Alert
}

// Alert is an alert that is pending, fires, or is resolved. Its fields are those of rules.Alert in
// Prometheus.
type Alert struct {
	State               State
	Labels, Annotations labels.Labels
	Value               float64

	ActiveAt, FiredAt, ResolvedAt, LastSentAt, ValidUntil, KeepFiringSince time.Time
}

// State is the state of an alert.
type State byte

// The states. Their numbers are in files.
const (
	Resolved State = 1
	Pending  State = 2
	Firing   State = 3
)

const version = 1

// AppendTo appends the encoded group.
func (g *Group) AppendTo(b []byte) []byte {
	b = append(b, version)
	b = fields.AppendBytes(b, g.File)
	b = fields.AppendBytes(b, g.Name)
	b = binary.AppendVarint(b, int64(g.Interval))
	b = appendTime(b, g.Slot)
	b = binary.AppendUvarint(b, uint64(len(g.Rules)))
	for i := range g.Rules {
		r := &g.Rules[i]
		b = fields.AppendBytes(b, r.Name)
		b = fields.AppendBytes(b, r.Labels)
		b = binary.AppendUvarint(b, uint64(r.Nth))
		b = binary.AppendUvarint(b, uint64(len(r.Alerts)))
		for j := range r.Alerts {
			b = r.Alerts[j].appendTo(b)
		}
	}
	return b
}

func (a *Alert) appendTo(b []byte) []byte {
	b = append(b, byte(a.State))
	b = appendLabels(b, a.Labels)
	b = appendLabels(b, a.Annotations)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(a.Value))
	for _, t := range []time.Time{a.ActiveAt, a.FiredAt, a.ResolvedAt, a.LastSentAt, a.ValidUntil, a.KeepFiringSince} {
		b = appendTime(b, t)
	}
	return b
}

func appendLabels(b []byte, all labels.Labels) []byte {
	b = binary.AppendUvarint(b, uint64(all.Len()))
	all.Range(func(l labels.Label) { b = fields.AppendBytes(fields.AppendBytes(b, l.Name), l.Value) })
	return b
}

// appendTime appends Unix nanoseconds, or 0 for no time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendVarint(b, t.UnixNano())
}

var errMalformed = errors.New("the state of a group of rules is malformed")

// Decode returns the group that AppendTo encoded.
func Decode(b []byte) (g Group, err error) {
	r := &fields.Reader{B: b}
	if r.Byte() != version {
		return g, errMalformed
	}
	g = Group{File: r.Text(), Name: r.Text(), Interval: time.Duration(r.Varint()), Slot: timeOf(r)}
	for range r.Count() {
		rule := Rule{Name: r.Text(), Labels: r.Text(), Nth: int(r.Uvarint())}
		for range r.Count() {
			rule.Alerts = append(rule.Alerts, alertOf(r))
		}
		g.Rules = append(g.Rules, rule)
	}
	if !r.Done() {
		return Group{}, errMalformed
	}
	return g, nil
}

func alertOf(r *fields.Reader) (a Alert) {
	a.State = State(r.Byte())
	if a.State < Resolved || a.State > Firing {
		r.Fail()
	}
	a.Labels, a.Annotations = labelsOf(r), labelsOf(r)
	a.Value = math.Float64frombits(r.Uint64())
	for _, t := range []*time.Time{
		&a.ActiveAt, &a.FiredAt, &a.ResolvedAt, &a.LastSentAt, &a.ValidUntil, &a.KeepFiringSince,
	} {
		*t = timeOf(r)
	}
	return a
}

// labelsOf takes labels, which must be sorted.
func labelsOf(r *fields.Reader) labels.Labels {
	var all labels.ScratchBuilder
	before := ""
	for i := range r.Count() {
		name, value := r.Text(), r.Text()
		if i > 0 && name <= before {
			r.Fail()
		}
		all.Add(name, value)
		before = name
	}
	return all.Labels()
}

func timeOf(r *fields.Reader) time.Time {
	ns := r.Varint()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
