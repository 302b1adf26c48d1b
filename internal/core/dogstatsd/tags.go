package dogstatsd

import (
	"bytes"
	"iter"
	"strconv"
)

// Tags walks the tags in raw, the span behind '#', in the order sent. It cuts at
// ',' alone, in place and without allocating, and passes over empty ones. Whether
// a tag has a key and a value is for the caller to see.
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

// External is what the external data of an origin says (protocol v1.5). A cluster
// gives it to its containers, and clients pass it on. Slices point into the
// datagram, nil where nothing is said.
type External struct {
	Init      bool   // it-, an init container
	Container []byte // cn-, the container's name
	Pod       []byte // pu-, the pod's UID
}

// ParseExternal splits Origin.External. Items it does not know are passed over.
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
