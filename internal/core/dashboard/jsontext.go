package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// value is a value in a JSON text, with its place there. So a string can be replaced without a change to
// any other byte of the text.
type value struct {
	start, end int // in the text
	kind       kind
	text       string   // of a string
	truth      bool     // of true
	members    []member // of an object or a list
}

type kind byte

const (
	other kind = iota // a number, true, false or null
	str
	object
	list
)

type member struct {
	key   string // empty in a list
	value *value
}

// get returns the value of a key of an object, or nil.
func (v *value) get(key string) *value {
	if v == nil || v.kind != object {
		return nil
	}
	for _, m := range slices.Backward(v.members) { // the last one counts, as in a browser
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// textOf returns the string under a key of an object, or "".
func (v *value) textOf(key string) string {
	if of := v.get(key); of != nil {
		return of.text
	}
	return ""
}

// parse reads a JSON text.
func parse(text []byte) (*value, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil { // which also bounds the nesting
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
			return nil, fmt.Errorf("line %d: not JSON: %w", line, err)
		}
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	r := reader{text, json.NewDecoder(bytes.NewReader(text))}
	r.tokens.UseNumber() // a number of any size
	return r.value()
}

// reader reads values of a text that is valid JSON.
type reader struct {
	text   []byte
	tokens *json.Decoder
}

func (r *reader) value() (*value, error) {
	v := &value{start: int(r.tokens.InputOffset())}
	for bytes.IndexByte([]byte(" \t\r\n,:"), r.text[v.start]) >= 0 {
		v.start++
	}
	token, err := r.tokens.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case string:
		v.kind, v.text = str, token
	case bool:
		v.truth = token
	case json.Delim:
		v.kind = list
		if token == '{' {
			v.kind = object
		}
		for err == nil && r.tokens.More() {
			err = r.member(v)
		}
		if err == nil {
			_, err = r.tokens.Token() // the end
		}
	}
	v.end = int(r.tokens.InputOffset())
	return v, err
}

func (r *reader) member(of *value) error {
	var m member
	if of.kind == object {
		key, err := r.tokens.Token()
		if err != nil {
			return err
		}
		m.key, _ = key.(string)
	}
	var err error
	m.value, err = r.value()
	of.members = append(of.members, m)
	return err
}

// quoted returns a string as Grafana writes it: < and > stay as they are.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(fmt.Sprintf("BUG: %v", err)) // a string can always be written
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
