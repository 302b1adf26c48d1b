package conf

import (
	"fmt"
	"net/url"
	"strings"
)

// veil says how much of a value may be shown to others than who wrote it. A field's is
// its tag `show:"..."`; it holds for all that the field has in it.
type veil int

const (
	plainly veil = iota // all of it, but for what has a veil of its own in it
	asURL               // show:"url": no password and no values of a query
	asKey               // show:"secret": whether it is there
	openly              // for the owner: all of it, whatever the tags say
)

// hidden stands in place of what is not shown.
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
	return plainly, fmt.Errorf(`there is show:"url" and show:"secret" alone`)
}

// of is the veil of something that lies in what has v, and has one by itself.
func (v veil) of(own veil) veil {
	if v == plainly {
		return own
	}
	return v
}

// show is what may be seen of a text.
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

// ShowURL is a URL without what in it may be secret: the name and the password of a user,
// the values of its query, its fragment. What is no URL and might have these is not shown.
func ShowURL(text string) string {
	u, err := url.Parse(text)
	if err != nil && strings.ContainsAny(text, "@?#") {
		return hidden
	} else if err != nil {
		return text
	}
	if u.Opaque != "" { // such as HOST:PORT; behind a scheme without slashes there may be anything
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
		shown := hidden // a pair without a name may be the secret itself
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

// written reports whether a text was taken over from where a secret is not shown.
func (v veil) written(text string) bool {
	return (v == asURL || v == asKey) && strings.Contains(text, hidden)
}

const hiddenProblem = "is what is shown in place of a secret, and not the secret; write that itself"
