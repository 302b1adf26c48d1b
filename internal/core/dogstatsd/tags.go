package dogstatsd

import (
	"bytes"
	"iter"
	"strconv"
)

// Tags walks the tags in `raw`, the part after '#', in the order sent. It cuts only at ',', in
// place and without allocating, and skips empty tags. The caller splits a tag into key and value.
func Tags(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := raw
		for more := true; more; {
			var tag []byte
			if tag, rest, more = cut(rest, ','); len(tag) > 0 && !yield(tag) {
				return
			}
		}
	}
}

// External is the content of an origin's external data (protocol v1.5). A cluster gives the data to
// its containers, and clients pass it on. Slices point into the datagram, and are nil if absent.
type External struct {
	Init      bool   // it-, an init container
	Container []byte // cn-, the container's name
	Pod       []byte // pu-, the pod's UID
}

// ParseExternal splits Origin.External. It skips unknown items.
func ParseExternal(raw []byte) External {
	var e External
	for item := range Tags(raw) {
		if v, ok := bytes.CutPrefix(item, []byte("it-")); ok {
			e.Init, _ = strconv.ParseBool(string(v))
		} else if v, ok := bytes.CutPrefix(item, []byte("cn-")); ok {
			e.Container = v
		} else if v, ok := bytes.CutPrefix(item, []byte("pu-")); ok {
			e.Pod = v
		}
	}
	return e
}
