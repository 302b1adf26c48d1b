package conf

import (
	"fmt"
	"net/url"
	"strings"
)

// veil says how much of a value people other than the owner may see. The tag `show:"..."` sets the veil
// of a field and of everything in it.
type veil int

const (
	plainly veil = iota // everything, except fields with their own veil
	asURL               // show:"url": no password and no values of a query
	asKey               // show:"secret": only whether the value is set
	openly              // everything, regardless of tags, for the owner
)

// hidden replaces a value that is not shown.
const hidden = "<secret>"

func veilOf(tag string) (veil, error) {
	switch tag {
	case "":
		return plainly, nil
	case "url":
		return asURL, nil
	case "secret":
		return asKey, nil
	}
	return plainly, fmt.Errorf(`only show:"url" and show:"secret" are known`)
}

// of is a lookup: it returns the veil of a field inside a value with the veil v. `own` is the veil that
// the field's tag sets.
func (v veil) of(own veil) veil {
	if v == plainly {
		return own
	}
	return v
}

// show returns as much of a text as the veil lets others see.
func (v veil) show(text string) string {
	switch {
	case text == "":
	case v == asKey:
		return hidden
	case v == asURL:
		return ShowURL(text)
	}
	return text
}

// ShowURL returns a URL without its parts that may be secret: user name, password, the values of
// the query, the fragment. A text that is not a URL and might contain these is hidden.
func ShowURL(text string) string {
	u, err := url.Parse(text)
	if err != nil && strings.ContainsAny(text, "@?#") {
		return hidden
	} else if err != nil {
		return text
	}
	if u.Opaque != "" { // such as HOST:PORT; anything may follow a scheme without slashes
		return hideUser(text)
	}
	whole := u.Scheme
	if whole != "" {
		whole += ":"
	}
	if u.Host != "" || u.User != nil {
		whole += "//"
	}
	if u.User != nil {
		whole += hidden + "@"
	}
	whole += u.Host + u.EscapedPath()
	for i, pair := range strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' }) {
		shown := hidden // a query without "=" may be the secret itself
		if name, _, named := strings.Cut(pair, "="); named {
			shown = name + "=" + hidden
		}
		whole += map[bool]string{true: "?", false: "&"}[i == 0] + shown
	}
	return whole
}

func hideUser(text string) string {
	text, _, _ = strings.Cut(text, "?")
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return hidden + text[i:]
	}
	return text
}

// written reports whether a text was copied from output in which the secret was hidden.
func (v veil) written(text string) bool {
	return (v == asURL || v == asKey) && strings.Contains(text, hidden)
}

const hiddenProblem = "is the placeholder shown for a secret, not the secret; write the secret itself"
