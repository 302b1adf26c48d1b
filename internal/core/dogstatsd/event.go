package dogstatsd

import (
	"bytes"
	"strings"
)

// parseEvent reads <title bytes>,<text bytes>}:title|text[|field], what follows
// "_e{". The lengths must lead to the separators: a client that counted
// characters instead of bytes is told so instead of having its text cut askew.
func (p *Parser) parseEvent(b []byte) Reason {
	header, body, ok := bytes.Cut(b, []byte("}:"))
	if !ok {
		return EventHeader
	}
	rawTitle, rawText, _ := cut(header, ',')
	titleLen, ok1 := parseUint(rawTitle)
	textLen, ok2 := parseUint(rawText)
	if !ok1 || !ok2 {
		return EventHeader
	}
	if titleLen == 0 {
		return EventTitle
	}
	if titleLen >= int64(len(body)) || body[titleLen] != '|' {
		return EventLength
	}
	title, body := body[:titleLen], body[titleLen+1:]
	if textLen > int64(len(body)) || (textLen < int64(len(body)) && body[textLen] != '|') {
		return EventLength
	}
	text, rest := body[:textLen], body[textLen:]

	p.Event = Event{Title: title, Text: text}
	for len(rest) > 0 { // here rest begins with the '|' before the next field
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

// parseEventField reads one optional field. What is wrong with it is counted and
// costs only the field, since an event without its priority is still worth
// keeping. The last valid one of a kind wins.
func (p *Parser) parseEventField(field []byte) {
	e := &p.Event
	key, value := cutField(field)
	switch key {
	case '#':
		e.Tags = value
	case 'd':
		p.setTime(&e.Time, value)
	case 'h':
		e.Host = value
	case 'k':
		e.Key = value
	case 'p':
		p.setWord(&e.Priority, value, "normal", "low")
	case 's':
		e.Source = value
	case 't':
		p.setWord(&e.Alert, value, "error", "warning", "info", "success")
	default:
		if !e.Origin.parseField(field) {
			p.UnknownFields++
		}
	}
}

// parseCheck reads name|status[|field], what follows "_sc|".
func (p *Parser) parseCheck(b []byte) Reason {
	name, rest, _ := cut(b, '|')
	if len(name) == 0 {
		return EmptyName
	}
	status, rest, more := cut(rest, '|')
	if len(status) != 1 || status[0] < '0' || status[0] > '3' {
		return CheckStatus
	}
	p.Check = Check{Name: name, Status: status[0] - '0'}
	for more {
		var field []byte
		field, rest, more = cut(rest, '|')
		p.parseCheckField(field)
	}
	return wellFormed
}

// parseCheckField is parseEventField for checks. The protocol wants m: last, but
// clients put the origin behind it, so that it ends at the next '|' like any other.
func (p *Parser) parseCheckField(field []byte) {
	c := &p.Check
	key, value := cutField(field)
	switch key {
	case '#':
		c.Tags = value
	case 'd':
		p.setTime(&c.Time, value)
	case 'h':
		c.Host = value
	case 'm':
		c.Message = value
	default:
		if !c.Origin.parseField(field) {
			p.UnknownFields++
		}
	}
}

// cutField splits "#tags" and "k:value" behind their one letter. The key is 0 if
// field has neither form.
func cutField(field []byte) (key byte, value []byte) {
	if len(field) > 0 && field[0] == '#' {
		return '#', field[1:]
	}
	if len(field) > 1 && field[1] == ':' {
		return field[0], field[2:]
	}
	return 0, nil
}

func (p *Parser) setTime(dst *int64, value []byte) {
	if t, ok := parseUnix(value); ok {
		*dst = t
	} else {
		p.BadFields++
	}
}

func (p *Parser) setWord(dst *[]byte, value []byte, words ...string) {
	for _, w := range words {
		if string(value) == w {
			*dst = value
			return
		}
	}
	p.BadFields++
}

// Unescape gives the title or text of an event with its line breaks: clients
// write them as the two bytes `\n`, since a line break would end the line.
func Unescape(raw []byte) string {
	return strings.ReplaceAll(string(raw), `\n`, "\n")
}
