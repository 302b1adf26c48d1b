package tsdb

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// aDay writes an hourly sample for a day. All but the newest hours are in blocks.
func aDay(t *testing.T, w *world) *database {
	t.Helper()
	for hour := range 24 {
		w.write(fmt.Sprintf("a@%d=%d", hour*3600, hour))
	}
	db := w.stores.tenants[tenant.Default]["10s"].db
	if err := db.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	return db
}

// reload deletes blocks that are too old, as tsdb does by itself each minute.
func reload(t *testing.T, db *database) {
	t.Helper()
	if err := db.CompactOOOHead(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestSetRetention(t *testing.T) {
	w := newWorld(t)
	db := aDay(t, w)
	reload(t, db)
	oldest := func() string { // oldest of the day's samples
		var first string
		fmt.Sscan(w.stored(tenant.Default, "10s"), &first)
		return first
	}
	set := func(hours int) {
		t.Helper()
		r := w.cfg.Retention
		r.Tile10s = time.Duration(hours) * time.Hour
		if err := w.stores.SetRetention(r); err != nil {
			t.Fatal(err)
		}
		if got := w.stores.Retention("10s"); got != r.Tile10s {
			t.Errorf("retention is %v, want %v", got, r.Tile10s)
		}
	}
	if got := oldest(); got != "a@0=0" {
		t.Fatalf("before any change, the oldest sample is %s, want a@0=0", got)
	}
	set(12)
	reload(t, db)
	shorter := oldest()
	if shorter != "a@28800=8" { // tsdb counts back from the end of the newest block, at hour 20
		t.Errorf("with a retention of 12h, the oldest sample is %s, want the one of hour 8", shorter)
	}
	set(48)
	reload(t, db)
	if got := oldest(); got != shorter {
		t.Errorf("with a longer retention, the oldest sample is %s, want %s as before", got, shorter)
	}
	if got := w.write("a@82000=7"); got != "stored 1" { // out of order, as before
		t.Errorf("a write of a late sample: got %s, want stored 1", got)
	}
	if w.stores.tenants[tenant.Default]["10s"].db != db {
		t.Error("the database was closed for the new retention")
	}
	set(4)
	w.close()
	w.open() // a new process begins with the old configuration
	set(4)   // the database is not open yet
	w.write("a@86400=24")
	if got := oldest(); got != "a@57600=16" {
		t.Errorf("in a database opened after the change, the oldest sample is %s, want a@57600=16", got)
	}
}

// A change of the retention of one store does not affect the others.
func TestSetRetentionOfOneStore(t *testing.T) {
	w := newWorld(t)
	db := aDay(t, w)
	r := w.cfg.Retention
	r.Raw, r.Tile1m = 4*time.Hour, 4*time.Hour
	if err := w.stores.SetRetention(r); err != nil {
		t.Fatal(err)
	}
	reload(t, db)
	var first string
	fmt.Sscan(w.stored(tenant.Default, "10s"), &first)
	if first != "a@0=0" {
		t.Errorf("the oldest sample is %s", first)
	}
}
