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

// WriteJSON prints a JSON value on its own line. It escapes characters that would control the
// terminal or change the direction of its text, like \u009b, because any client that can send a
// metric can put such characters into labels. In JSON they occur only in strings, and an escape
// does not change a string's value.
func WriteJSON(w io.Writer, text []byte) error {
	_, err := w.Write(append(escape(bytes.TrimSpace(text)), '\n'))
	return err
}

// PrintJSON encodes v and prints it like WriteJSON.
func PrintJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteJSON(w, text)
}

// escape escapes all unprintable characters. The JSON encoder has already escaped the ASCII
// characters among them, except DEL.
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
