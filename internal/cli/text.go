package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// Terminal codes of the colours, and the code that ends a colour.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	plain  = "\x1b[0m"
)

// tint returns text in a colour, if the view has colours.
func tint(v terminal.View, colour, text string) string {
	if !v.Colour {
		return text
	}
	return colour + text + plain
}

// counted writes a number and its noun, which takes an s in the plural.
func counted[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size formats bytes for people.
func size(n int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// unixSeconds formats t for the API.
func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// onNode names the node that an answer is about. For a server outside a cluster it returns an empty
// text.
func onNode(name string) string {
	if name == "" {
		return ""
	}
	return "node " + name + " at "
}

// minute formats a time in Unix milliseconds.
func minute(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02 15:04") }

// joined names the first of many.
func joined(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
