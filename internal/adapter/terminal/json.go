package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// WriteJSON prints a value in JSON on a line of its own. Characters that would steer
// the terminal, or turn the direction of its text, are written as \u009b: they can
// only be in strings, which stay the same. They are there because labels are written
// by whoever can send a metric.
func WriteJSON(w io.Writer, text []byte) error {
	_, err := w.Write(append(escape(bytes.TrimSpace(text)), '\n'))
	return err
}

// PrintJSON is WriteJSON for a value that is yet to be encoded.
func PrintJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteJSON(w, text)
}

// escape returns text with no character in it that cannot be printed. The encoder
// has escaped those of ASCII, but for the last.
func escape(text []byte) []byte {
	escaped := make([]byte, 0, len(text)+1)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f, unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			escaped = append(escaped, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		text = text[size:]
	}
	return escaped
}
