package remotewrite

import (
	"bytes"
	"slices"
)

// SortLabels sorts labels by name, and keeps the order of equal names.
func SortLabels(all []Label) {
	slices.SortStableFunc(all, func(a, b Label) int { return bytes.Compare(a.Name, b.Name) })
}
