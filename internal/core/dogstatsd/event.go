package dogstatsd

import (
	"bytes"
	"strings"
)

// parseEvent reads <title bytes>,<text bytes>}:title|text[|field], the part after "_e{". The
// lengths must match the separators. So if a client counted characters instead of bytes, its event
// is malformed, and its text is not cut at a wrong place.
func (p *Parser) parseEvent(b []byte) Reason {
	rawTitle, b := cutDigits(b)
	if len(rawTitle) == 0 {
		return p.fail(EventHeader, b, "the length of the title in bytes")
	}
	if len(b) == 0 || b[0] != ',' {
		return p.fail(EventHeader, b, "',' and the length of the text in bytes")
	}
	rawText, b := cutDigits(b[1:])
	if len(rawText) == 0 {
		return p.fail(EventHeader, b, "the length of the text in bytes")
	}
	if len(b) == 0 || b[0] != '}' {
		return p.fail(EventHeader, b, expectedBrace)
	}
	if len(b) == 1 || b[1] != ':' {
		return p.fail(EventHeader, b[1:], expectedBrace)
	}
	body := b[2:]
	titleLen, _ := parseUint(rawTitle)
	textLen, _ := parseUint(rawText)
	p.Event = Event{}
	if titleLen == 0 {
		return p.fail(EventTitle, rawTitle, "a title of at least one byte")
	}
	if titleLen >= int64(len(body)) || body[titleLen] != '|' {
		return p.fail(EventLength, body[min(titleLen, int64(len(body))):], "")
	}
	title, body := body[:titleLen], body[titleLen+1:]
	p.Event.Title = title
	if textLen > int64(len(body)) || (textLen < int64(len(body)) && body[textLen] != '|') {
		return p.fail(EventLength, body[min(textLen, int64(len(body))):], "")
	}
	text, rest := body[:textLen], body[textLen:]
	p.Event.Text = text
	for len(rest) > 0 { // rest begins with the '|' before the next field
		var field []byte
		n := bytes.IndexByte(rest[1:], '|') + 1
		if n == 0 {
			n = len(rest)
		}
		field, rest = rest[1:n], rest[n:]
		p.parseEventField(field)
	}
	return wellFormed
}

const expectedBrace = "'}:' before the title"

// parseEventField reads one optional field and returns its kind. An invalid field is counted and
// skipped, but the event is kept: an event without its priority is still useful. The last valid
// field of a kind wins.
func (p *Parser) parseEventField(field []byte) part {
	e := &p.Event
	key, value := cutField(field)
	switch key {
	case '#':
		e.Tags = value
		return tagsPart
	case 'd':
		return p.setTime(&e.Time, value, eventTimePart)
	case 'h':
		e.Host = value
		return hostPart
	case 'k':
		e.Key = value
		return keyPart
	case 'p':
		if !p.setWord(&e.Priority, value, priorities) {
			return badPriorityPart
		}
		return priorityPart
	case 's':
		e.Source = value
		return sourcePart
	case 't':
		if !p.setWord(&e.Alert, value, alerts) {
			return badAlertPart
		}
		return alertPart
	}
	return p.parseOrigin(&e.Origin, field)
}

var (
	priorities = []string{"normal", "low"}
	alerts     = []string{"error", "warning", "info", "success"}
)

// parseCheck reads name|status[|field], the part after "_sc|".
func (p *Parser) parseCheck(b []byte) Reason {
	name, rest, more := cut(b, '|')
	if len(name) == 0 {
		return p.fail(EmptyName, b, "the name of the check")
	}
	if !more {
		return p.fail(CheckStatus, b[len(b):], "'|' and "+expectedStatus)
	}
	status, rest, more := cut(rest, '|')
	if len(status) == 0 || status[0] < '0' || status[0] > '3' {
		return p.fail(CheckStatus, status, expectedStatus)
	}
	if len(status) > 1 {
		return p.fail(CheckStatus, status[1:], expectedStatus+", and nothing after it")
	}
	p.Check = Check{Name: name, Status: status[0] - '0'}
	for more {
		var field []byte
		field, rest, more = cut(rest, '|')
		p.parseCheckField(field)
	}
	return wellFormed
}

const expectedStatus = "a status: 0 (OK), 1 (warning), 2 (critical) or 3 (unknown)"

// parseCheckField is parseEventField for checks. The protocol wants m: last, but clients put the
// origin after it. So m: ends at the next '|', like any other field.
func (p *Parser) parseCheckField(field []byte) part {
	c := &p.Check
	key, value := cutField(field)
	switch key {
	case '#':
		c.Tags = value
		return tagsPart
	case 'd':
		return p.setTime(&c.Time, value, checkTimePart)
	case 'h':
		c.Host = value
		return hostPart
	case 'm':
		c.Message = value
		return messagePart
	}
	return p.parseOrigin(&c.Origin, field)
}

// cutField splits a field into its key and its value: '#' or one letter before a colon is the key.
// The key is 0 if the field has neither form.
func cutField(field []byte) (key byte, value []byte) {
	if len(field) > 0 && field[0] == '#' {
		return '#', field[1:]
	}
	if len(field) > 1 && field[1] == ':' {
		return field[0], field[2:]
	}
	return 0, nil
}

// cutDigits splits b after its leading digits.
func cutDigits(b []byte) (digits, rest []byte) {
	n := countDigits(b)
	return b[:n], b[n:]
}

func (p *Parser) setTime(dst *int64, value []byte, of part) part {
	t, ok := parseUnix(value)
	if !ok {
		p.BadFields++
		return badTimePart
	}
	*dst = t
	return of
}

func (p *Parser) setWord(dst *[]byte, value []byte, words []string) bool {
	for _, w := range words {
		if string(value) == w {
			*dst = value
			return true
		}
	}
	p.BadFields++
	return false
}

// Unescape restores the line breaks of an event's title or text. Clients write them as the two
// bytes `\n`, since a line break would end the line.
func Unescape(raw []byte) string {
	return strings.ReplaceAll(string(raw), `\n`, "\n")
}
