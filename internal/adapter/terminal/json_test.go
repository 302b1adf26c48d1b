package terminal

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

func TestWriteJSON(t *testing.T) {
	for _, tt := range []struct{ why, text, want string }{
		{"text in any script is left as it is", `{"a":"日本 ö �"}`, `{"a":"日本 ö �"}`},
		{"lines stay lines", "[1,\n 2]\n", "[1,\n 2]"},
		{"C1 characters control a terminal as ESC does", "[\"\u009b2J\u0085\"]", `["\u009b2J\u0085"]`},
		{"JSON encoders do not escape DEL", "[\"a\x7fb\"]", `["a\u007fb"]`},
		{"characters that change the direction of text", "[\"\u202eabc\u2066\u200f\u061c\"]",
			`["\u202eabc\u2066\u200f\u061c"]`},
		{"beyond 16 bits JSON takes two", "[\"\U000e0001\"]", `["\udb40\udc01"]`},
		{"a byte that is invalid UTF-8 may be an 8-bit control character", "[\"\x9b2J\"]", `["\ufffd2J"]`},
	} {
		var out bytes.Buffer
		if err := WriteJSON(&out, []byte(tt.text)); err != nil {
			t.Fatal(err)
		}
		if out.String() != tt.want+"\n" {
			t.Errorf("%s: got %q, want %q", tt.why, out.String(), tt.want)
		}
		var before, after any
		if err := json.Unmarshal([]byte(tt.text), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %q became %q; error %v", tt.why, before, after, err)
		}
	}
}
