package client

import (
	"math"
	"strconv"
	"strings"
)

// The separators of the protocol, by where they occur. A carriage return before a line break is part
// of the line break.
const (
	notInNames   = ":|\n\r"
	notInTags    = ",|\n\r"
	notInMembers = "|\n\r"
	notInFields  = "|\n\r"

	eventMark = "_e{" // begins an event; "_sc|" begins a check, but no name can contain '|'
)

// isClean reports whether the protocol carries name and tags unchanged.
func isClean(prefix, name string, tags []string) bool {
	if strings.ContainsAny(name, notInNames) || looksLikeEvent(prefix, name) {
		return false
	}
	for _, tag := range tags {
		if tag == "" || strings.ContainsAny(tag, notInTags) {
			return false
		}
	}
	return true
}

func looksLikeEvent(prefix, name string) bool {
	rest, ok := strings.CutPrefix(eventMark, prefix)
	return ok && strings.HasPrefix(name, rest)
}

// cleaned returns name and tags without bytes that the protocol cannot carry there.
func cleaned(prefix, name string, tags []string) (string, []string) {
	name = replace(name, notInNames)
	if looksLikeEvent(prefix, name) {
		at := len(eventMark) - 1 - len(prefix) // index of the brace
		name = name[:at] + "_" + name[at+1:]
	}
	clean := make([]string, 0, len(tags))
	for _, tag := range tags {
		if tag != "" {
			clean = append(clean, replace(tag, notInTags))
		}
	}
	return name, clean
}

// replace returns a copy of s with '_' for each byte that is in bad. It always copies: then the compiler
// sees that the client keeps no string of its caller, and callers can build tags on the stack.
func replace(s, bad string) string {
	b := []byte(s)
	for i, c := range b {
		if strings.IndexByte(bad, c) >= 0 {
			b[i] = '_'
		}
	}
	return string(b)
}

// cleanMember returns a copy of a set member without bytes that the protocol cannot carry. It returns
// false if the member cannot be sent.
func (c *Client) cleanMember(s *series, member string) (string, bool) {
	if member == "" || c.constantBytes()+len(s.text)+len(member) > c.options.PacketBytes {
		return "", false
	}
	clean := replace(member, notInMembers)
	if clean != member {
		c.counts.cleaned.Add(1)
	}
	return clean, true
}

// longestNumber is the largest number of bytes that appendNumber writes, as for
// -1.2345678901234567e-308.
const longestNumber = 24

// constantBytes returns the largest size of a line, in bytes, without its series' text and its value.
func (c *Client) constantBytes() int {
	return len(c.options.Prefix) + len(":") + len("|ms|@") + longestNumber + max(len(c.tags), len(c.tagless))
}

// lineBytes is the length of a series' longest line with one value.
func (c *Client) lineBytes(name string, tags []string) int {
	n := c.constantBytes() + longestNumber + len(name) + len("|#")
	for _, tag := range tags {
		n += len(",") + len(tag)
	}
	return n
}

// appendNumber writes v so that it parses to the same float64. It uses an exponent only for long numbers,
// since servers read plain digits faster.
func appendNumber(b []byte, v float64) []byte {
	size := math.Abs(v)
	switch {
	case size < 1e15 && v == math.Trunc(v):
		return strconv.AppendInt(b, int64(v), 10)
	case 1e-4 <= size && size < 1e15:
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'e', -1, 64)
}
