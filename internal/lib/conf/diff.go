package conf

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// Change is one difference between two configurations. Old and New are written as in a file, but
// with secrets hidden, so Old and New may look the same. Old or New is empty if an element, or a
// key of an element, is in one configuration only.
type Change struct {
	Path    string `json:"key"` // "dogstatsd.udp", "rules[2].name"
	Old     string `json:"old"`
	New     string `json:"new"`
	Restart bool   `json:"restart"` // the change needs a restart
}

func (c Change) String() string {
	switch {
	case c.Old == "":
		return c.Path + ": added " + c.New
	case c.New == "":
		return c.Path + ": removed " + c.Old
	}
	return c.Path + ": " + c.Old + " -> " + c.New
}

// Diff returns what differs between two configurations, in the order of the keys.
//
// Elements of lists are compared by position. Equal elements at the ends of both lists are skipped
// first, so an element that is added in front is one change. For a removed element, Path has its
// position in `old`; for any other element, its position in `new`.
func Diff[T any](old, new T) []Change {
	var d differ
	d.section("", false, reflect.ValueOf(&old).Elem(), reflect.ValueOf(&new).Elem(), false, plainly)
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(path string, restart bool, old, new string) {
	d.changes = append(d.changes, Change{path, old, new, restart})
}

// section compares two structs. In an element of a list or map, a zero field means a missing key.
func (d *differ) section(path string, restart bool, old, new reflect.Value, element bool, veil veil) {
	for _, f := range fieldsOf(old.Type()) {
		d.value(join(path, f.name), restart || f.restart, old.Field(f.index), new.Field(f.index), element, veil.of(f.veil))
	}
}

func (d *differ) value(path string, restart bool, old, new reflect.Value, element bool, veil veil) {
	switch shapeOf(old.Type()) {
	case section:
		d.section(path, restart, old, new, element, veil)
	case tree:
		if old.Kind() == reflect.Slice {
			d.slices(path, restart, old, new, veil)
		} else {
			d.maps(path, restart, old, new, veil)
		}
	default:
		if inline(old) == inline(new) {
			return
		}
		a, b := inlineAs(old, veil), inlineAs(new, veil)
		if element && old.IsZero() {
			a = ""
		}
		if element && new.IsZero() {
			b = ""
		}
		d.add(path, restart, a, b)
	}
}

func (d *differ) slices(path string, restart bool, old, new reflect.Value, veil veil) {
	same := func(i, j int) bool { return inline(old.Index(i)) == inline(new.Index(j)) }
	oldEnd, newEnd := old.Len(), new.Len()
	for min(oldEnd, newEnd) > 0 && same(oldEnd-1, newEnd-1) {
		oldEnd, newEnd = oldEnd-1, newEnd-1
	}
	for i := range max(oldEnd, newEnd) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= oldEnd:
			d.add(at, restart, "", inlineAs(new.Index(i), veil))
		case i >= newEnd:
			d.add(at, restart, inlineAs(old.Index(i), veil), "")
		default:
			d.value(at, restart, old.Index(i), new.Index(i), true, veil)
		}
	}
}

func (d *differ) maps(path string, restart bool, old, new reflect.Value, veil veil) {
	names := append(old.MapKeys(), new.MapKeys()...)
	slices.SortFunc(names, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	names = slices.CompactFunc(names, func(a, b reflect.Value) bool { return a.String() == b.String() })
	for _, name := range names {
		at := join(path, name.String())
		a, b := old.MapIndex(name), new.MapIndex(name)
		switch {
		case !a.IsValid():
			d.add(at, restart, "", inlineAs(b, veil))
		case !b.IsValid():
			d.add(at, restart, inlineAs(a, veil), "")
		default:
			d.value(at, restart, a, b, shapeOf(a.Type()) == section, veil)
		}
	}
}

// Reloaded returns the configuration in force after a process that runs with `old` has read `new`.
// Keys that need a restart keep their old values; all others have their new values.
func Reloaded[T any](old, new T) T {
	keep(reflect.ValueOf(&old).Elem(), reflect.ValueOf(&new).Elem())
	return new
}

func keep(old, new reflect.Value) {
	for _, f := range fieldsOf(old.Type()) {
		switch from, to := old.Field(f.index), new.Field(f.index); {
		case f.restart:
			to.Set(from)
		case shapeOf(to.Type()) == section:
			keep(from, to)
		}
	}
}
